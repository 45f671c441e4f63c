"""Trains several times, in separate processes, and compares: a row for each training, and where the differences began."""

from __future__ import annotations

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from detaug.doctor.machine import environment
from detaug.errors import UnusableError
from detaug.ledger.receipt import sha256_of
from detaug.nnunet.compatibility import EXTERNAL_VARIABLE, trainer_folders
from detaug.nnunet.verification import traces
from detaug.nnunet.verification.recording import FAILURE, READING, TRACE, Part
from detaug.nnunet.verification.settings import (
    EPOCHS,
    VALIDATION_ITERATIONS,
    Settings,
    link_predictions,
)
from detaug.processes.interpreters import interpreter_command
from detaug.reports import rows as reports
from detaug.reports.progress import Progress
from detaug.seeding.tree import text_of_seed
from detaug.training.comparing import Event

_CODE = "import sys; from detaug.nnunet.verification.recording import main; main(*sys.argv[1:])"
#: Enough hexadecimal digits to tell any two checkpoints apart by eye.
_DIGITS = 16
#: The row that is of no training: what detaug's loader reads, against nnU-Net's.
READS_ALIKE = "a batch as nnU-Net's loader reads it"

_ADVICE = {
    traces.INITIAL_WEIGHTS: "the trainings start from different weights: detaug.nnunet.DeterministicTraining seeds initialize()",
    traces.DATA: "the batches do not depend on the seed alone: look at loader and transforms (`detaug verify` finds the line)",
    traces.OUTCOME: "the same batch and weights give another outcome: detaug.training.audit names the layer",
    traces.WEIGHTS: "look at the backward pass (detaug.training.audit names the first gradient), clipping and the optimizer",
    traces.RESUME: "the checkpoint lacks something that the trainer keeps: look at save_checkpoint and load_checkpoint",
    traces.BETWEEN_EPOCHS: "validation or a hook at an epoch's end changes something",
    traces.BOOKKEEPING: "the weights are equal: the difference is in what else save_checkpoint writes",
}


@dataclass(frozen=True)
class Row(reports.Row):
    """One training, or `READS_ALIKE`.

    Attributes:
        sha256: of its checkpoint_final.pth; "" where it failed.
        origin: where the difference from the reference began.
        failure: the error, where it failed; what is read differently.
    """

    sha256: str = ""
    origin: traces.Origin | None = None
    failure: str = ""

    def reasons(self) -> Iterator[RenderableType]:
        """Where its difference began, and what to do."""
        if self.origin is not None or self.failure:
            yield Text(f"\n{self.what}:", "bold")
        if self.failure:
            yield Padding.indent(Text.assemble((f"{self.verdict}: ", "bold red"), self.failure), 2)
        if self.origin is not None:
            begin = "began with " if not self.ok else "no difference in the checkpoint, but in "
            yield Padding.indent(
                Text.assemble(begin, (self.origin.kind, "bold red"), f": {self.origin.where}"), 2
            )
            yield Padding.indent(Text(_ADVICE[self.origin.kind], "dim"), 4)


@dataclass(frozen=True)
class Trainings(reports.Report[Row]):
    """What `verify_training` found.

    Attributes:
        device: the processor's name, and versions that the bytes depend on.
    """

    settings: Settings
    rows: tuple[Row, ...]
    device: str = ""

    @property
    def status(self) -> int:
        return 0 if self.ok else 1  # a training that fails is not equal, either

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "ok": self.ok, "rows": [row.as_json() for row in self.rows]}

    def shown(self) -> list[RenderableType]:
        column = ("checkpoint_final.pth\n(sha256)", lambda row: row.sha256[:_DIGITS], False)
        table = reports.table("training", self.rows, column)
        settings = self.settings
        conditions = (
            f"{settings.trainer}, {settings.dataset}, {settings.configuration}, fold {settings.fold}, {settings.plans}: "
            f"{EPOCHS} epochs of {settings.iterations} training and {VALIDATION_ITERATIONS} validation "
            f"batches, seed {settings.seed}, on {self.device}"
        )
        reasons = [part for row in self.rows for part in row.reasons()]
        rare = Text(
            "A branch of the pipeline that few samples take may not have been seen (verify --iterations).",
            "dim",
        )
        return [table, Text(), Text(conditions, "dim"), *reasons, Text(), self._verdict(), rare]

    def _verdict(self) -> Text:
        wrong = [row.what for row in self.rows if not row.ok]
        if wrong:
            return Text(f"different: {', '.join(wrong)}", "bold red")
        trainings = sum(row.what != READS_ALIKE for row in self.rows)
        return Text(
            f"equal: all {trainings} trainings wrote the same checkpoint, byte for byte",
            "bold green",
        )


@dataclass(frozen=True)
class Training:
    """One of the trainings that are compared: its parts come one after the other, in a folder of its own."""

    what: str
    folder: str
    parts: tuple[Part, ...]


def trainings(settings: Settings) -> tuple[Training, ...]:
    """The trainings to compare; the others are compared with the first. The last is killed in its second epoch, and resumed."""
    parts = (Part(settings, 3, killed=True), Part(settings, 1, resume=True))
    return (
        Training("straight through, 2 processes", "straight-2", (Part(settings, 2),)),
        Training("straight through, 0 processes", "straight-0", (Part(settings, 0),)),
        Training("3 processes, killed in epoch 2 of 2, resumed with 1", "resumed", parts),
    )


def verify_training(settings: Settings, keep: Path | None, shown: Progress) -> Trainings:
    """Train three times, for a few steps, and compare the checkpoints byte for byte.

    nnU-Net's preprocessed folder is used as a training uses it: nnU-Net writes splits_final.json there where there is none yet.

    Args:
        settings: what to train; `checked`.
        keep: traces, logs and checkpoints are left in this folder; None: nothing is.
        shown: shows the trainings.

    Raises:
        UnusableError: the first training failed, as of an unknown trainer. One of the others that fails is a row with the
            verdict "failed".
    """
    temporary = tempfile.TemporaryDirectory(
        prefix="detaug-nnunet-verify-", ignore_cleanup_errors=True
    )
    with temporary if keep is None else nullcontext(keep) as folder:
        return compare_trainings(settings, trainings(settings), Path(folder).resolve(), shown)


def compare_trainings(
    settings: Settings, planned: Sequence[Training], folder: Path, shown: Progress
) -> Trainings:
    """Train these within `folder`, and compare the checkpoints with the first one's; otherwise as `verify_training`."""
    reference: tuple[Path, list[Event]] | None = None

    def compared(training: Training) -> Row:
        nonlocal reference
        row = Row(training.what)
        try:
            checkpoint, events = train(training, folder)
        except UnusableError as error:
            if reference is None:
                raise
            return replace(row, verdict=reports.FAILED, failure=str(error))
        row = replace(row, sha256=sha256_of(checkpoint))
        if reference is None:
            reference = checkpoint, events
            return row
        equal = sha256_of(reference[0]) == row.sha256
        origin = traces.first_origin(reference[1], events, resumed=len(training.parts) > 1)
        if not equal and origin is None:
            origin = traces.bookkeeping_origin(reference[0], checkpoint)
        return replace(row, verdict=reports.EQUAL if equal else reports.DIFFERENT, origin=origin)

    rows = [reports.Planned(each.what, partial(compared, each)) for each in planned]
    done = tuple(reports.run_rows(rows, shown))
    assert reference is not None
    reading = folder / planned[0].folder / READING
    if reading.exists():
        difference = reading.read_text()
        done += (
            Row(
                READS_ALIKE, reports.DIFFERENT if difference else reports.EQUAL, failure=difference
            ),
        )
    processor = (
        torch.cuda.get_device_name()
        if settings.device == "cuda"
        else environment()["cpu"]["model"] or "CPU"
    )
    versions = f"torch {torch.__version__}, nnU-Net {importlib.metadata.version('nnunetv2')}"
    return Trainings(settings, done, f"{settings.device} ({processor}), {versions}")


def train(training: Training, folder: Path) -> tuple[Path, list[Event]]:
    """Run all parts of a training, each in a separate process; its checkpoint_final.pth and its trace. Or `UnusableError`."""
    own = folder / training.folder
    results = own / "results"
    results.mkdir(parents=True, exist_ok=True)
    link_predictions(results)
    for part in training.parts:
        variables = {
            **os.environ,
            "nnUNet_results": str(results),
            "nnUNet_n_proc_DA": str(part.processes),
            EXTERNAL_VARIABLE: trainer_folders(),
            # a trial does not belong on a dashboard
            "nnUNet_wandb_enabled": "0",
            "DETAUG_SEED": text_of_seed(part.settings.seed),
            "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path),
        }
        _run(part, own, variables)
    found = sorted(results.glob("*/*/fold_*/checkpoint_final.pth"))
    if not found:
        raise UnusableError(
            "the training ended without a checkpoint_final.pth: does the trainer save one?"
        )
    return found[0], [Event(*json.loads(line)) for line in (own / TRACE).read_text().splitlines()]


def _run(part: Part, folder: Path, variables: dict[str, str]) -> None:
    """Run a part of a training in a separate process, with trace and log in `folder`; otherwise as `train`."""
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [*interpreter_command(_CODE), json.dumps(asdict(part)), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=variables,
            start_new_session=True,
        )
        try:
            code = process.wait()
        finally:
            # all that it started as well; on macOS those that ended give a PermissionError
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code == (-signal.SIGKILL if part.killed else 0):
        return
    if (folder / FAILURE).exists():
        raise UnusableError(f"the training failed: {(folder / FAILURE).read_text()}")
    last = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-1:]
    how = f"signal {-code}" if code < 0 else f"exit status {code}"
    raise UnusableError(
        f"the training ended with {how}; its last line was: {last[0] if last else '(none)'}"
    )
