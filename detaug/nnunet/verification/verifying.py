"""Trains several times, in separate processes, and compares."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import torch

from detaug.doctor.machine import environment
from detaug.errors import UnusableError
from detaug.ledger.receipt import sha256_of
from detaug.nnunet.compatibility import EXTERNAL_VARIABLE, trainer_folders
from detaug.nnunet.verification.recording import FAILURE, READING, TRACE
from detaug.nnunet.verification.result import READS_ALIKE, Result, Row, listed
from detaug.nnunet.verification.settings import Part, Settings, Training, trainings
from detaug.nnunet.verification.traces import TRAINING, Moment, bookkeeping_origin, first_origin, read
from detaug.nnunet.verification.wrong_use import checked, link_predictions
from detaug.processes.interpreters import interpreter_command
from detaug.reports.progress import Progress
from detaug.reports.rows import DIFFERENT, EQUAL, FAILED, Planned, run_rows
from detaug.seeding.tree import text_of_seed

_CODE = "import sys; from detaug.nnunet.verification.recording import main; main(*sys.argv[1:])"


class TrainingFailed(UnusableError):
    """A training ended with an error."""


def verify_training(settings: Settings, keep: Path | None = None, shown: Progress | None = None) -> Result:
    """Train three times, for a few steps, and compare the checkpoints byte for byte.

    nnU-Net's preprocessed folder is used as a training uses it: nnU-Net writes splits_final.json there where there is none yet.

    Args:
        settings: what to train.
        keep: traces, logs and checkpoints are left in this folder; None: nothing is.
        shown: shows the trainings.

    Raises:
        CannotVerify: there is no such data set, configuration, fold, trainer, plans or device.
        TrainingFailed: the first training. One of the others that fails is a row with the verdict "failed".
    """
    settings = checked(settings)
    temporary = tempfile.TemporaryDirectory(prefix="detaug-nnunet-verify-", ignore_cleanup_errors=True)
    with temporary if keep is None else nullcontext(keep) as folder:
        return compare_trainings(settings, trainings(settings), Path(folder).resolve(), shown or Progress())


def compare_trainings(settings: Settings, planned: Sequence[Training], folder: Path, shown: Progress) -> Result:
    """Train these within `folder`, and compare the checkpoints with the first one's; otherwise as `verify_training`."""
    reference: tuple[Path, list[Moment]] | None = None

    def compared(training: Training) -> Row:
        nonlocal reference
        row = Row(training.what, processes=training.processes)
        try:
            checkpoint, moments = train(training, folder)
        except TrainingFailed as error:
            if reference is None:
                raise
            return replace(row, verdict=FAILED, failure=str(error))
        row = replace(row, sha256=sha256_of(checkpoint))
        if reference is None:
            reference = checkpoint, moments
            return row
        origin = first_origin(reference[1], moments, training.resumed_at)
        if sha256_of(reference[0]) == row.sha256:
            # what differs then had no effect on the checkpoint
            return replace(row, verdict=EQUAL, origin=origin)
        return replace(row, verdict=DIFFERENT, origin=origin or bookkeeping_origin(reference[0], checkpoint))

    rows = [Planned(f"{each.what}, processes: {listed(each.processes)}", partial(compared, each)) for each in planned]
    done = tuple(run_rows(rows, shown))
    assert reference is not None
    reading = folder / planned[0].folder / READING
    if reading.exists():
        difference = reading.read_text()
        done += (Row(READS_ALIKE, DIFFERENT if difference else EQUAL, failure=difference),)
    samples = sum(moment.samples for moment in reference[1] if moment.phase == TRAINING)
    return Result(settings, done, _described(settings.device), samples)


def train(training: Training, folder: Path) -> tuple[Path, list[Moment]]:
    """Run all parts of a training, each in a separate process; its checkpoint_final.pth and its trace.

    Args:
        training: what to do.
        folder: there its own folder is made.

    Raises:
        TrainingFailed: one of them failed, or ended before its SIGKILL.
    """
    own = folder / training.folder
    results = own / "results"
    results.mkdir(parents=True, exist_ok=True)
    link_predictions(results)
    for part in training.parts:
        _run(replace(part, results=str(results)), own)
    found = sorted(results.glob("*/*/fold_*/checkpoint_final.pth"))
    if not found:
        raise TrainingFailed("the training ended without a checkpoint_final.pth: does the trainer save one?")
    return found[0], read(own / TRACE)


def environment_of(part: Part) -> dict[str, str]:
    """The environment of a part's process: the caller's, with nnU-Net's folders and the seed."""
    return {
        **os.environ,
        "nnUNet_results": part.results,
        "nnUNet_n_proc_DA": str(part.processes),
        EXTERNAL_VARIABLE: trainer_folders(),
        # a trial does not belong on a dashboard
        "nnUNet_wandb_enabled": "0",
        "DETAUG_SEED": text_of_seed(part.settings.seed),
        "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path),
    }


def _run(part: Part, folder: Path) -> None:
    """Run a part of a training in a separate process, with trace and log in `folder`; otherwise as `train`."""
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [*interpreter_command(_CODE), json.dumps(asdict(part)), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment_of(part),
            start_new_session=True,
        )
        try:
            code = process.wait()
        finally:
            # all that it started as well; on macOS those that ended give a PermissionError
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == (0 if part.kill_at is None else -signal.SIGKILL):
        return
    if (folder / FAILURE).exists():
        raise TrainingFailed(f"the training failed: {(folder / FAILURE).read_text()}")
    last = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-1:]
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    raise TrainingFailed(f"the training ended with {how}; its last line was: {last[0] if last else '(none)'}")


def _described(device: str) -> str:
    """The processor that trained, and the versions."""
    name = torch.cuda.get_device_name() if device == "cuda" else environment()["cpu"]["model"] or "CPU"
    return f"{device} ({name}), torch {torch.__version__}, nnU-Net {importlib.metadata.version('nnunetv2')}"
