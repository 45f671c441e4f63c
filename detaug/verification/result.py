"""The result of `detaug.verify`: rows with verdicts and causes, as text and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from detaug.pipeline.plan import BatchKey
from detaug.system.interception import Site
from detaug.verification import rows as reports
from detaug.verification.rows import DIFFERENT, EQUAL, FAILED, NOT_RUN, table


@dataclass(frozen=True)
class Row(reports.Row):
    """The batches under one circumstance.

    Attributes:
        what: the circumstance.
        verdict: "equal", "different", "not run" (of a start method, or another interpreter, to
            which the pipeline cannot be sent), or "failed" (it could not be measured).
        batches: number of batches that were compared.
        detail: the number of them that differed, and the first one; or why there is no verdict.
    """

    batches: int = 0
    detail: str = ""

    @classmethod
    def of(cls, what: str, batches: int, different: Sequence[BatchKey]) -> Row:
        """Return a compared row.

        Args:
            what: the circumstance.
            batches: number of batches that were compared.
            different: those that differ, in order.
        """
        if not different:
            return cls(what, EQUAL, batches=batches)
        first = different[0]
        detail = f"{len(different)} of {batches}, first epoch {first.epoch}, step {first.step}"
        return cls(what, DIFFERENT, batches=batches, detail=detail)

    def verdict_text(self) -> Text:
        """Return the verdict in its colour, followed by the detail."""
        text = super().verdict_text()
        if self.detail:
            text.append(f" ({self.detail})", "dim")
        return text


@dataclass(frozen=True)
class Cause:
    """A reason why batches differ.

    Attributes:
        what: a sentence, without the line.
        site: the line; None if it could not be found.
        difference: the first transform whose output differs, and by how much; "" if none does.
    """

    what: str
    site: Site | None = None
    difference: str = ""

    def __str__(self) -> str:
        return f"{self.site}: {self.what}" if self.site else self.what

    def as_json(self) -> dict[str, Any]:
        """Return the cause as a JSON-able dict."""
        site = self.site._asdict() if self.site else {"file": None, "line": None}
        return {"what": self.what, **site, "difference": self.difference}


@dataclass(frozen=True)
class Result(reports.Report[Row]):
    """The result of `detaug.verify`.

    Attributes:
        rows: a verdict for each circumstance.
        causes: of the differences.
        notes: further findings.
        batches: number of the reference's batches.
        seed: of all rows.
        seconds: that it took.
    """

    rows: tuple[Row, ...]
    causes: tuple[Cause, ...]
    notes: tuple[str, ...] = ()
    batches: int = 0
    seed: Any = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def cause(self) -> Cause | None:
        """The first cause of a difference; None if there is none."""
        if not self.causes:
            return None
        return self.causes[0]

    def as_json(self) -> dict[str, Any]:
        """Return all of it as a JSON-able dict."""
        rows = [row.as_json() for row in self.rows]
        causes = [cause.as_json() for cause in self.causes]
        return {**vars(self), "ok": self.ok, "rows": rows, "causes": causes}

    def render(self) -> list[RenderableType]:
        """Return the table, the causes, the notes and the verdict."""
        lines: list[RenderableType] = []
        for cause in self.causes:
            lines.append(Text())
            lines.append(Text.assemble(("cause: ", "bold red"), str(cause)))
            if cause.difference:
                lines.append(Text(f"  first differs in {cause.difference}"))
        notes = [Text(f"note: {note}", "dim") for note in self.notes]
        batches = ("batches", _batches_cell, True)
        rows = table("the same batches again", self.rows, batches)
        return [rows, *lines, Text(), *notes, self._verdict()]

    def _verdict(self) -> Text:
        """Return the last line: the verdict of all rows together."""
        # The worst verdict first: one row that differs decides, whatever the others show.
        verdicts = Counter(row.verdict for row in self.rows)
        num_rows = len(self.rows)
        if verdicts[DIFFERENT]:
            text = f"different: {verdicts[DIFFERENT]} of {num_rows} rows differ"
            style = "bold red"
        elif verdicts[FAILED]:
            text = f"not known: {verdicts[FAILED]} of {num_rows} rows could not be measured"
            style = "bold red"
        elif verdicts[NOT_RUN]:
            text = f"equal in all rows but {verdicts[NOT_RUN]} that could not be run"
            style = "bold yellow"
        else:
            text = "equal: the same bytes in the same order in every row"
            style = "bold green"
        settings = f" ({self.batches} batches a row, seed {self.seed}, {self.seconds:.0f} s)"
        return Text(text, style).append(settings, "dim")


def _batches_cell(row: Row) -> str:
    """Return the cell of the column "batches"."""
    return str(row.batches)
