"""Trains several times, in separate processes, and compares."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from detaug.ledger.receipt import sha256_of
from detaug.nnunet.verification import run
from detaug.nnunet.verification.comparing import bookkeeping_origin, first_origin
from detaug.nnunet.verification.recording import READING
from detaug.nnunet.verification.result import Result, Row, listed, reading_row
from detaug.nnunet.verification.settings import Part, Settings, Training, trainings
from detaug.nnunet.verification.trace import TRAINING, Moment, read
from detaug.nnunet.verification.wrong_use import CannotVerify, checked, link_predictions
from detaug.processes.interpreters import interpreter_command
from detaug.reports.progress import Progress
from detaug.reports.rows import DIFFERENT, EQUAL, FAILED, Planned, run_rows

#: Seconds between two checks of a training's progress; of one that is to be killed.
LOOK_EVERY, LOOK_CLOSELY_EVERY = 0.25, 0.01
#: Seconds that a training has to end.
PATIENCE = 5.0

_CODE = "import sys; from detaug.nnunet.verification.run import main; main(*sys.argv[1:])"


class TrainingFailed(RuntimeError):
    """A training ended with an error; the message is the error's.

    Attributes:
        kind: the error's class.
        traceback: as text.
    """

    kind: str = ""
    traceback: str = ""

    @property
    def unexpected(self) -> bool:
        """Whether the user needs the traceback: messages of detaug's own errors and of missing files say what to do."""
        return bool(self.traceback) and self.kind not in ("FileNotFoundError", "StateMismatch", "UnsupportedNNUNet")


@dataclass(frozen=True)
class Trained:
    """A training that ended without an error.

    Attributes:
        folder: of its trace and log.
        checkpoint: its checkpoint_final.pth.
        moments: its trace.
        killed_after: see `detaug.nnunet.verification.result.Row`.
    """

    folder: Path
    checkpoint: Path
    moments: list[Moment]
    killed_after: int | None = None


def verify_training(settings: Settings, keep: Path | None = None, shown: Progress | None = None) -> Result:
    """Train three times, for a few steps, and compare the checkpoints byte for byte.

    nnU-Net's preprocessed folder is used as a training uses it: nnU-Net writes splits_final.json there where there is
    none yet, and unpacks .npz files.

    Args:
        settings: what to train.
        keep: traces, logs and checkpoints are left in this folder; None: nothing is.
        shown: shows the trainings, and the moments (steps, and starts of epochs) in their traces, as they come.

    Raises:
        CannotVerify: there is no such data set, configuration, fold, trainer, plans or device.
        TrainingFailed: the first training. One of the others that fails is a row with the verdict "failed".
    """
    settings = checked(settings)
    with _folder(keep) as folder:
        return compare_trainings(settings, trainings(settings), folder, shown or Progress())


def compare_trainings(settings: Settings, planned: Sequence[Training], folder: Path, shown: Progress) -> Result:
    """Train these within `folder`, and compare the checkpoints with the first one's; otherwise as `verify_training`."""
    reference: Trained | None = None

    def compared(training: Training) -> Row:
        nonlocal reference
        row = Row(training.what, processes=training.processes)
        try:
            trained = train(training, folder, shown.advance)
        except TrainingFailed as error:
            if reference is None:
                raise
            return replace(row, verdict=FAILED, failure=str(error))
        row = replace(row, sha256=sha256_of(trained.checkpoint), killed_after=trained.killed_after)
        if reference is None:
            reference = trained
            return row
        origin = first_origin(reference.moments, trained.moments, training.resumed_at)
        if sha256_of(reference.checkpoint) == row.sha256:
            # what differs then had no effect on the checkpoint
            return replace(row, verdict=EQUAL, origin=origin)
        origin = origin or bookkeeping_origin(reference.checkpoint, trained.checkpoint)
        return replace(row, verdict=DIFFERENT, origin=origin)

    moments = settings.epochs * settings.moments_of_an_epoch
    rows = [
        Planned(f"{each.what}, processes: {listed(each.processes)}", partial(compared, each), moments)
        for each in planned
    ]
    done = tuple(run_rows(rows, shown))
    assert reference is not None
    reading = reference.folder / READING
    if reading.exists():
        done += (reading_row(json.loads(reading.read_text())),)
    samples = sum(len(moment.cases) for moment in reference.moments if moment.phase == TRAINING)
    return Result(settings, done, described_device(settings.device), samples)


def train(training: Training, folder: Path, advanced: Callable[[int], None]) -> Trained:
    """Run all parts of a training, each in a separate process.

    Args:
        training: what to do.
        folder: there its own folder is made.
        advanced: is called with the number of moments that were added to its trace.

    Raises:
        TrainingFailed: one of them failed, or ended before its SIGKILL.
    """
    own = folder / training.folder
    results = own / "results"
    results.mkdir(parents=True, exist_ok=True)
    link_predictions(training.parts[0].settings, results)
    killed_after = None
    for part in training.parts:
        run_part(replace(part, results=str(results)), own, advanced)
        if part.kill_at is not None:
            killed_after = _lines(own / run.TRACE)
    found = sorted(results.glob("*/*/fold_*/checkpoint_final.pth"))
    if not found:
        raise TrainingFailed("the training ended without a checkpoint_final.pth: does the trainer save one?")
    return Trained(own, found[0], read(own / run.TRACE), killed_after)


def run_part(part: Part, folder: Path, advanced: Callable[[int], None]) -> None:
    """Run a part of a training in a separate process, with trace and log in `folder`; otherwise as `train`."""
    trace = folder / run.TRACE
    before = _lines(trace)
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [*interpreter_command(_CODE), part.as_json(), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**run.environment(part), "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path)},
            start_new_session=True,
        )
        try:
            ended = False
            while not ended:
                time.sleep(LOOK_EVERY if part.kill_at is None else LOOK_CLOSELY_EVERY)
                ended = process.poll() is not None
                now = _lines(trace)
                advanced(now - before)
                before = now
                if part.kill_at is not None and now >= part.kill_at and not ended:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                    return
        finally:
            _end(process)
    if process.returncode:
        raise _failure(folder, process.returncode)
    if part.kill_at is not None:
        raise TrainingFailed("it came to its end before it was to be killed")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The process, and all that it started, are gone afterwards."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except (ProcessLookupError, PermissionError):  # the latter on macOS, of those that ended
            break
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n") if file.exists() else 0


def _failure(folder: Path, code: int) -> Exception:
    file = folder / run.FAILURE
    if file.exists():
        said = json.loads(file.read_text())
        if said["kind"] == CannotVerify.__name__:
            return CannotVerify(said["message"])
        failure = TrainingFailed(f"{said['kind']}: {said['message']}")
        failure.kind, failure.traceback = said["kind"], said["traceback"]
        return failure
    last = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-1:]
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    return TrainingFailed(f"its process ended with {how}; its last line was: {last[0] if last else '(none)'}")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="detaug-nnunet-verify-", ignore_cleanup_errors=True) as name:
            yield Path(name)
    else:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()


def described_device(device: str) -> str:
    """The processor that trained, and the versions."""
    import importlib.metadata

    import torch

    from detaug.doctor.machine import environment

    name = torch.cuda.get_device_name() if device == "cuda" else environment()["cpu"]["model"] or "CPU"
    return f"{device} ({name}), torch {torch.__version__}, nnU-Net {importlib.metadata.version('nnunetv2')}"
