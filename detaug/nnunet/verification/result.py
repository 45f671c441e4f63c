"""What comparing trainings gives: a row for each, and where the differences began."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from detaug.nnunet.verification import traces
from detaug.nnunet.verification.settings import Settings
from detaug.reports import rows as reports
from detaug.reports.rows import table

#: Enough hexadecimal digits to tell any two checkpoints apart by eye.
DIGITS = 16
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
        what: in which way it was trained.
        verdict: "reference", "equal", "different", or "failed".
        processes: worker processes that made its batches, for each part of it.
        sha256: of its checkpoint_final.pth; "" where it failed.
        origin: where the difference from the reference began.
        failure: the error, where it failed; what is read differently.
    """

    processes: tuple[int, ...] = ()
    sha256: str = ""
    origin: traces.Origin | None = None
    failure: str = ""

    def reasons(self) -> list[RenderableType]:
        """Where its difference began, and what to do."""
        if self.origin is None and not self.failure:
            return []
        processes = f", nnUNet_n_proc_DA {listed(self.processes)}" if self.processes else ""
        parts: list[RenderableType] = [Text(f"\n{self.what}{processes}:", "bold")]
        if self.failure:
            parts.append(_indented(Text.assemble((f"{self.verdict}: ", "bold red"), self.failure), 2))
        if self.origin is not None:
            begin = "began with " if not self.ok else "no difference in the checkpoint, but in "
            parts.append(_indented(Text.assemble(begin, (self.origin.kind, "bold red"), f": {self.origin.where}"), 2))
            parts.append(_indented(Text(_ADVICE[self.origin.kind], "dim"), 4))
        return parts


@dataclass(frozen=True)
class Result(reports.Result[Row]):
    """What `verify_training` found.

    Attributes:
        settings: what was trained.
        rows: the reference first.
        device: the processor's name, and versions that the bytes depend on.
        samples: training samples that each training saw.
    """

    settings: Settings
    rows: tuple[Row, ...]
    device: str = ""
    samples: int = 0

    def as_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "ok": self.ok,
            "settings": asdict(self.settings),
            "rows": [row.as_json() for row in self.rows],
        }

    def shown(self) -> list[RenderableType]:
        trainings = table(
            "training",
            self.rows,
            ("nnUNet_\nn_proc_DA", lambda row: listed(row.processes), False),
            ("checkpoint_final.pth\n(sha256)", lambda row: row.sha256[:DIGITS], False),
        )
        reasons = [part for row in self.rows for part in row.reasons()]
        return [trainings, Text(), self._conditions(), *reasons, Text(), self._verdict(), *self._seen()]

    def _conditions(self) -> Text:
        settings = self.settings
        return Text(
            f"{settings.trainer}, {settings.dataset}, {settings.configuration}, fold {settings.fold}, {settings.plans}: "
            f"{settings.epochs} epochs of {settings.iterations} training and {settings.validation_iterations} validation "
            f"batches, seed {settings.seed}, on {self.device}",
            "dim",
        )

    def _seen(self) -> list[RenderableType]:
        if not self.samples:
            return []
        least = 1 - 0.01 ** (1 / self.samples)
        said = (
            f"Each training saw {self.samples} training samples: a branch of the pipeline that is taken with a probability of "
            f"{least:.2g} or more was seen at least once, with 99 % confidence (--iterations for more)."
        )
        return [Text(said, "dim")]

    def _verdict(self) -> Text:
        trainings = [row for row in self.rows if row.what != READS_ALIKE]
        others = sum(not row.ok for row in trainings)
        if others:
            return Text(f"different: {others} of {len(trainings) - 1} trainings differ from the first", "bold red")
        same = f"all {len(trainings)} trainings wrote the same checkpoint, byte for byte"
        if self.ok:
            return Text(f"equal: {same}", "bold green")
        return Text(f"different: {same}, but detaug does not read what nnU-Net's loader reads", "bold red")


def listed(processes: tuple[int, ...]) -> str:
    """For the reader: of one part after the other."""
    return ", then ".join(map(str, processes))


def _indented(text: Text, columns: int) -> Padding:
    return Padding(text, (0, 0, 0, columns), expand=False)
