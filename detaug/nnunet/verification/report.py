"""The result as a table with a verdict a row, and where the differences began below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from detaug.nnunet.verification.comparing import (
    BETWEEN_EPOCHS,
    BOOKKEEPING,
    INITIAL_WEIGHTS,
    RESUME,
)
from detaug.nnunet.verification.trace import BACKWARD, DATA, FORWARD, OPTIMIZER
from detaug.reports.verdicts import STYLES

if TYPE_CHECKING:
    from detaug.nnunet.verification.result import Result, Row

#: Enough hexadecimal digits to tell any two checkpoints apart by eye.
DIGITS = 16

_ADVICE = {
    INITIAL_WEIGHTS: "the trainings start from different weights: detaug.nnunet.DeterministicTraining seeds initialize()",
    DATA: "the batches do not depend on the seed alone: look at the loader and the transforms (`detaug verify` finds the line)",
    FORWARD: "the same batch and weights give another output: detaug.training.audit names the operation",
    BACKWARD: "the same output and loss give another gradient: detaug.training.audit names the operation",
    OPTIMIZER: "the same gradients give other weights: look at clipping, the optimizer and its state",
    RESUME: "the checkpoint is not complete: look at save_checkpoint and load_checkpoint",
    BETWEEN_EPOCHS: "validation or a hook at an epoch's end changes something",
    BOOKKEEPING: "the weights are equal: the difference is in what else save_checkpoint writes",
}


def report(result: Result) -> Group:
    """All of the result, for a rich console."""
    parts: list[Table | Text | Padding] = [table(result), conditions(result)]
    for row in result.rows:
        parts += _reasons(row)
    parts += [Text(), verdict(result)]
    return Group(*parts)


def table(result: Result) -> Table:
    """A verdict a row."""
    found = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    found.add_column("training")
    found.add_column("nnUNet_\nn_proc_DA", no_wrap=True)
    found.add_column("checkpoint_final.pth\n(sha256)", style="cyan", no_wrap=True)
    found.add_column("verdict", no_wrap=True)
    found.add_column("seconds", justify="right", no_wrap=True)
    for row in result.rows:
        processes = ", then ".join(map(str, row.processes))
        style = STYLES.get(row.verdict, "")
        found.add_row(
            row.what, processes, row.sha256[:DIGITS] or "none", Text(row.verdict, style), f"{row.seconds:.0f}"
        )
    return found


def conditions(result: Result) -> Text:
    """What was trained, in a line or two."""
    settings = result.settings
    return Text(
        f"{settings.trainer}, {settings.dataset}, {settings.configuration}, fold {settings.fold}, {settings.plans}: "
        f"{settings.epochs} epochs of {settings.iterations} training and {settings.validation_iterations} validation "
        f"batches, seed {settings.seed}, on {result.device}",
        "dim",
    )


def _reasons(row: Row) -> list[Text | Padding]:
    """Where a row's difference began, and what to do."""
    if not row.origins and not row.failure:
        return []
    processes = ", then ".join(map(str, row.processes))
    parts: list[Text | Padding] = [Text(f"\n{row.what}, nnUNet_n_proc_DA {processes}:", "bold")]
    if row.failure:
        parts.append(_indented(Text("failed: ", "bold red").append(row.failure, "default"), 2))
    begin = "began with " if not row.ok else "no difference in the checkpoint, but in "
    for number, origin in enumerate(row.origins):
        text = Text(begin if not number else "and, independently, ").append(origin.kind, "bold red")
        parts += [
            _indented(text.append(f": {origin.where}", "default"), 2),
            _indented(Text(_ADVICE[origin.kind], "dim"), 4),
        ]
    return parts


def _indented(text: Text, columns: int) -> Padding:
    return Padding(text, (0, 0, 0, columns), expand=False)


def verdict(result: Result) -> Text:
    """One sentence."""
    if result.ok:
        return Text(f"equal: all {len(result.rows)} trainings wrote the same checkpoint, byte for byte", "bold green")
    others = [row for row in result.rows[1:] if not row.ok]
    return Text(f"different: {len(others)} of {len(result.rows) - 1} trainings differ from the first", "bold red")
