"""Train twice and once interrupted, in separate processes, and compare the checkpoints."""

from __future__ import annotations

import filecmp
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from detaug.errors import UnusableError
from detaug.nnunet.compatibility import EXTERNAL_VARIABLE, trainer_folders
from detaug.nnunet.run_record import differences
from detaug.nnunet.trainers.output_folder import read_checkpoint
from detaug.nnunet.verification.recording import FAILURE, TRACE, Part, read_trace
from detaug.nnunet.verification.settings import (
    EPOCHS,
    VALIDATION_ITERATIONS,
    Settings,
    link_predictions,
)
from detaug.objects.differences import first_different_event
from detaug.seeding.tree import text_of_seed
from detaug.system.escaping import short
from detaug.system.interpreters import interpreter_command
from detaug.system.progress import Progress
from detaug.verification import rows as reports

_CODE = "import sys; from detaug.nnunet.verification.recording import main; main(*sys.argv[1:])"
CHECKPOINT = "checkpoint_final.pth"

#: Seconds between two looks at how far a training is.
_POLL_INTERVAL = 1.0


@dataclass(frozen=True)
class Row(reports.Row):
    """One training, compared with the first one.

    Attributes:
        reason: the first step and what differs in it, or the error that ended the training.
    """

    reason: str = ""


@dataclass(frozen=True)
class Trainings(reports.Report[Row]):
    """The rows of all trainings that were compared."""

    settings: Settings
    rows: tuple[Row, ...]

    @property
    def status(self) -> int:
        """The command's exit status: 1 also where a training failed, for it is not equal either."""
        return int(not self.ok)

    def render(self) -> list[RenderableType]:
        settings = self.settings
        conditions = (
            f"{settings.trainer}, {settings.dataset}, {settings.configuration}, "
            f"fold {settings.fold}, {settings.plans}: {EPOCHS} epochs of {settings.iterations} "
            f"training and {VALIDATION_ITERATIONS} validation batches, seed {settings.seed}, "
            f"on {settings.device}"
        )
        lines: list[RenderableType] = [reports.table("training", self.rows), Text()]
        lines.append(Text(conditions, "dim"))
        for row in self.rows:
            if not row.ok:
                lines.append(Text(f"{row.verdict}: {row.what}: {row.reason}", "bold red"))
        if self.ok:
            equal = f"equal: all {len(self.rows)} trainings wrote the same {CHECKPOINT}"
            lines.append(Text(equal, "bold green"))
        return lines


@dataclass(frozen=True)
class Training:
    """One of the trainings that are compared.

    Attributes:
        what: its circumstances.
        folder: the name of the folder in which its parts run, one after the other.
    """

    what: str
    folder: str
    parts: tuple[Part, ...]


def trainings(settings: Settings) -> tuple[Training, ...]:
    """Return the trainings to compare: the reference, once again, and one that is interrupted."""
    # Each has another number of processes, because that must not change the results.
    interrupted = (Part(settings, 3, killed=True), Part(settings, 1, resume=True))
    return (
        Training("straight through, 2 processes", "straight-2", (Part(settings, 2),)),
        Training("straight through, 0 processes", "straight-0", (Part(settings, 0),)),
        Training("3 processes, killed in epoch 2 of 2, resumed with 1", "resumed", interrupted),
    )


def verify_training(settings: Settings, keep: Path | None, bar: Progress) -> Trainings:
    """Train three times, for a few steps, and compare the checkpoints byte for byte.

    nnU-Net's preprocessed folder is used as a training uses it: nnU-Net writes splits_final.json
    there where there is none yet.

    Args:
        settings: what to train; `checked`.
        keep: traces, logs and checkpoints are left in this folder; None: nothing is.
        bar: shows the trainings.

    Raises:
        UnusableError: the first training failed, as of an unknown trainer. One of the others that
            fails is a row with the verdict "failed".
    """
    temporary = tempfile.TemporaryDirectory(
        prefix="detaug-nnunet-verify-", ignore_cleanup_errors=True
    )
    with temporary if keep is None else nullcontext(keep) as folder:
        return run_and_compare(settings, trainings(settings), Path(folder).resolve(), bar)


def run_and_compare(
    settings: Settings, planned: Sequence[Training], folder: Path, bar: Progress
) -> Trainings:
    """Run these trainings within `folder`, and compare each with the first."""
    reference, *others = planned
    run_reference = partial(_reference, reference, folder, bar)
    rows = [reports.PendingRow(reference.what, run_reference, EPOCHS)]
    for other in others:
        run_other = partial(_compared, reference, other, folder, bar)
        rows.append(reports.PendingRow(other.what, run_other, EPOCHS))
    return Trainings(settings, tuple(reports.run_rows(rows, bar)))


def _reference(training: Training, folder: Path, bar: Progress) -> Row:
    """Run the training that the others are compared with."""
    run(training, folder, bar)
    return Row(training.what)


def _compared(reference: Training, training: Training, folder: Path, bar: Progress) -> Row:
    """Run a training after the reference, and compare the two."""
    row = Row(training.what, reports.EQUAL)
    try:
        run(training, folder, bar)
    except UnusableError as error:
        return replace(row, verdict=reports.FAILED, reason=str(error))
    difference = first_difference(folder / reference.folder, folder / training.folder)
    if difference is None:
        return row
    return replace(row, verdict=reports.DIFFERENT, reason=difference)


def first_difference(reference: Path, other: Path) -> str | None:
    """Return the first step in which two trainings differ, and the value that differs in it.

    Args:
        reference: the folder of the training that is compared with.
        other: the folder of the other training.

    Returns:
        None where both wrote the same checkpoint.
    """
    expected = _checkpoint_in(reference)
    actual = _checkpoint_in(other)
    # Byte for byte, as a user's sha256sum compares them. A trace is read only to find the place.
    if filecmp.cmp(expected, actual, shallow=False):
        return None
    event = first_different_event(read_trace(reference / TRACE), read_trace(other / TRACE))
    if event is not None:
        step, name, _ = event
        return f"{step}: {name}"
    changes = differences(read_checkpoint(expected), read_checkpoint(actual))
    for entry, value, other in changes:
        return f"after the last step: {entry} of {CHECKPOINT}: {short(value)} and {short(other)}"
    return f"after the last step: the pickled form of {CHECKPOINT} (its entries are equal)"


def _checkpoint_in(folder: Path) -> Path:
    return next((folder / "results").glob(f"*/*/fold_*/{CHECKPOINT}"))


def run(training: Training, folder: Path, bar: Progress) -> None:
    """Run all parts of a training, each in a separate process, in its folder within `folder`.

    `bar` shows the epoch that is being trained.

    Raises:
        UnusableError: a part failed, or there is no final checkpoint afterwards.
    """
    own = folder / training.folder
    done_before = bar.done

    def show_epoch() -> None:
        epoch = _last_epoch_begun(own / TRACE)
        if epoch is not None:
            action = f"{training.what}: epoch {epoch + 1} of {EPOCHS}"
            bar.update(action, done_before + epoch)

    results = own / "results"
    results.mkdir(parents=True, exist_ok=True)
    link_predictions(results)
    for part in training.parts:
        variables = {
            **os.environ,
            "nnUNet_results": str(results),
            "nnUNet_n_proc_DA": str(part.processes),
            EXTERNAL_VARIABLE: trainer_folders(),
            # A trial does not belong on a dashboard.
            "nnUNet_wandb_enabled": "0",
            "DETAUG_SEED": text_of_seed(part.settings.seed),
            # The command's own import path; an empty entry of it is the current folder.
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
        }
        _run_part(part, own, variables, show_epoch)
    if not any(results.glob(f"*/*/fold_*/{CHECKPOINT}")):
        raise UnusableError(
            f"the training ended without a {CHECKPOINT}: does the trainer save one?"
        )


def _last_epoch_begun(trace: Path) -> int | None:
    """Return the epoch that began last in a trace; None: there is none yet."""
    if not trace.exists():
        return None
    # The file is being written: its last line may be half a line.
    epochs = re.findall(r'^\["start of epoch (\d+)"', trace.read_text(), re.MULTILINE)
    if not epochs:
        return None
    return int(epochs[-1])


def _run_part(
    part: Part, folder: Path, variables: dict[str, str], on_poll: Callable[[], None]
) -> None:
    """Run a part of a training in a separate process, with trace and log in `folder`.

    `on_poll` is called about once a second until it ends.
    """
    # Appended: the part that resumes continues the log of the one that was killed.
    with (folder / "log.txt").open("ab") as log:
        process = subprocess.Popen(
            [*interpreter_command(_CODE), json.dumps(asdict(part)), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=variables,
            # A process group of its own, so that all it starts can be killed with it.
            start_new_session=True,
        )
        try:
            code = _wait(process, on_poll)
        finally:
            # All that it started as well. On macOS those that ended give a PermissionError.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    expected_code = -signal.SIGKILL if part.killed else 0
    if code == expected_code:
        return
    # The part itself knows best; a process that was killed has left only its last line.
    if (folder / FAILURE).exists():
        raise UnusableError(f"the training failed: {(folder / FAILURE).read_text()}")
    last_line = "(none)"
    lines = (folder / "log.txt").read_text(errors="replace").strip().splitlines()
    if lines:
        last_line = lines[-1]
    ending = f"signal {-code}" if code < 0 else f"exit status {code}"
    raise UnusableError(f"the training ended with {ending}; its last line was: {last_line}")


def _wait(process: subprocess.Popen[bytes], on_poll: Callable[[], None]) -> int:
    """Return the exit status of a process once it has ended."""
    while True:
        try:
            return process.wait(_POLL_INTERVAL)
        except subprocess.TimeoutExpired:
            on_poll()
