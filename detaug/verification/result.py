"""The result of `detaug.verify`: a verdict for each row, the causes of differences, and all of it
for people and as JSON.
"""

from __future__ import annotations

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
    """One circumstance under which the batches were made again.

    Attributes:
        what: the circumstance.
        verdict: "equal", "different", "not run" (of a start method, or another interpreter, to
            which the pipeline cannot be sent), or "failed" (it could not be measured).
        batches: how many were compared.
        detail: how many of them differed, and the first that did; or why there is no verdict.
    """

    batches: int = 0
    detail: str = ""

    @classmethod
    def of(cls, what: str, batches: int, different: Sequence[BatchKey]) -> Row:
        """A row of which these batches differ, in order."""
        if not different:
            return cls(what, EQUAL, batches=batches)
        detail = (
            f"{len(different)} of {batches}, first epoch {different[0].epoch}, step "
            f"{different[0].step}"
        )
        return cls(what, DIFFERENT, batches=batches, detail=detail)

    def told(self) -> Text:
        text = super().told()
        return text.append(f" ({self.detail})", "dim") if self.detail else text


@dataclass(frozen=True)
class Cause:
    """Why batches differ.

    Attributes:
        what: a sentence, without the line.
        site: the line; None where it could not be found.
        difference: the first transform whose output differs, and by how much; "" where none does.
    """

    what: str
    site: Site | None = None
    difference: str = ""

    def __str__(self) -> str:
        return f"{self.site}: {self.what}" if self.site else self.what

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        site = self.site._asdict() if self.site else {"file": None, "line": None}
        return {"what": self.what, **site, "difference": self.difference}


@dataclass(frozen=True)
class Result(reports.Report[Row]):
    """What `detaug.verify` found.

    Attributes:
        rows: a verdict for each circumstance.
        causes: of the differences.
        notes: further findings.
        batches, seed: as asked for.
        seconds: how long it took.
    """

    rows: tuple[Row, ...]
    causes: tuple[Cause, ...]
    notes: tuple[str, ...] = ()
    batches: int = 0
    seed: Any = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def cause(self) -> Cause | None:
        """The first cause of a difference, if there is one."""
        return self.causes[0] if self.causes else None

    def as_json(self) -> dict[str, Any]:
        rows, causes = ([each.as_json() for each in part] for part in (self.rows, self.causes))
        return {**vars(self), "ok": self.ok, "rows": rows, "causes": causes}

    def shown(self) -> list[RenderableType]:
        lines: list[RenderableType] = []
        for cause in self.causes:
            lines += [Text(), Text.assemble(("cause: ", "bold red"), str(cause))]
            lines += [Text(f"  first differs in {cause.difference}")] if cause.difference else []
        notes = [Text(f"note: {note}", "dim") for note in self.notes]
        batches = ("batches", lambda row: str(row.batches), True)
        rows = table("the same batches again", self.rows, batches)
        return [rows, *lines, Text(), *notes, self._verdict()]

    def _verdict(self) -> Text:
        left_out, differing, failed = (
            sum(row.verdict == verdict for row in self.rows)
            for verdict in (NOT_RUN, DIFFERENT, FAILED)
        )
        if differing:
            what = Text(f"different: {differing} of {len(self.rows)} rows differ", "bold red")
        elif failed:
            what = Text(
                f"not known: {failed} of {len(self.rows)} rows could not be measured", "bold red"
            )
        elif left_out:
            what = Text(f"equal in all rows but {left_out} that could not be run", "bold yellow")
        else:
            what = Text("equal: the same bytes in the same order in every row", "bold green")
        return what.append(
            f" ({self.batches} batches a row, seed {self.seed}, {self.seconds:.0f} s)", "dim"
        )
