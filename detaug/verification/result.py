"""The result of `detaug.verify`: a verdict for each row, the causes of differences, and all of it for people and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from detaug.reports import rows as reports
from detaug.reports.rows import DIFFERENT, EQUAL, FAILED, NOT_RUN, table
from detaug.verification.outputs import Difference
from detaug.watching.interception import Site


@dataclass(frozen=True)
class Row(reports.Row):
    """One circumstance under which the batches were made again.

    Attributes:
        what: the circumstance.
        verdict: "equal", "different", "not run" (of a start method, or another interpreter, to which the pipeline cannot
            be sent), or "failed" (it could not be measured; `detail` says why).
        batches: how many were compared.
        differing: how many of them differed.
        first: epoch and step of the first that did.
        detail: more, such as at which batches a run was resumed.
    """

    batches: int = 0
    differing: int = 0
    first: tuple[int, int] | None = None
    detail: str = ""

    @classmethod
    def of(cls, what: str, batches: int, different: Sequence[tuple[int, int]], detail: str = "") -> Row:
        """A row of which these batches differ, in order."""
        if not different:
            return cls(what, EQUAL, batches=batches, detail=detail)
        return cls(what, DIFFERENT, batches=batches, differing=len(different), first=different[0], detail=detail)

    def told(self) -> Text:
        text = super().told()
        if self.differing:
            text.append(f", {self.differing} of {self.batches}", "default")
        if self.first is not None:
            text.append(f", first epoch {self.first[0]}, step {self.first[1]}", "default")
        return text.append(f" ({self.detail})", "dim") if self.detail else text

    def as_json(self) -> dict[str, Any]:
        first = None if self.first is None else {"epoch": self.first[0], "step": self.first[1]}
        return {**super().as_json(), "first": first}


@dataclass(frozen=True)
class Cause:
    """Why batches differ.

    Attributes:
        what: a sentence, without the line.
        site: the line; None where it could not be found.
        difference: the first transform whose output differs, and by how much.
    """

    what: str
    site: Site | None = None
    difference: Difference | None = None

    def __str__(self) -> str:
        return f"{self.site}: {self.what}" if self.site else self.what

    def told(self) -> list[Text]:
        """A line or two."""
        lines = [Text.assemble(("cause: ", "bold red"), str(self))]
        return lines if self.difference is None else [*lines, Text(f"  first differs in {self.difference}")]

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        site = self.site._asdict() if self.site else {"file": None, "line": None}
        return {"what": self.what, **site, "difference": self.difference and vars(self.difference)}


@dataclass(frozen=True)
class Result(reports.Result[Row]):
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
        return {
            "ok": self.ok,
            "batches": self.batches,
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
            "rows": [row.as_json() for row in self.rows],
            "causes": [cause.as_json() for cause in self.causes],
            "notes": list(self.notes),
        }

    def shown(self) -> list[RenderableType]:
        lines = [line for cause in self.causes for line in (Text(), *cause.told())]
        notes = [Text(f"note: {note}", "dim") for note in self.notes]
        batches = ("batches", lambda row: str(row.batches), True)
        rows = table("the same batches again", self.rows, batches)
        return [rows, *lines, Text(), *notes, self._verdict()]

    def _verdict(self) -> Text:
        left_out, differing, failed = (
            sum(row.verdict == verdict for row in self.rows) for verdict in (NOT_RUN, DIFFERENT, FAILED)
        )
        if differing:
            what = Text(f"different: {differing} of {len(self.rows)} rows differ", "bold red")
        elif failed:
            what = Text(f"not known: {failed} of {len(self.rows)} rows could not be measured", "bold red")
        elif left_out:
            what = Text(f"equal in all rows but {left_out} that could not be run", "bold yellow")
        else:
            what = Text("equal: the same bytes in the same order in every row", "bold green")
        return what.append(f" ({self.batches} batches a row, seed {self.seed}, {self.seconds:.0f} s)", "dim")
