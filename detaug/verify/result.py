"""The result of `detaug.verify`: a verdict for each row, the causes of differences, and all of it as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from detaug.reports.verdicts import DIFFERENT
from detaug.verify.trials.outputs import Difference
from detaug.watching.interception import Site


@dataclass(frozen=True)
class Row:
    """One circumstance under which the batches were made again.

    Attributes:
        what: the circumstance.
        verdict: "equal", "different", or "differs; detaug repairs it" (of the pipeline without detaug's repairs, where
            its batches are equal with them), or "not run" (of a start method, or another interpreter, to which the
            pipeline cannot be sent).
        batches: how many were compared.
        differing: how many of them differed.
        first: epoch and step of the first that did.
        seconds: how long it took.
        detail: more, such as "3 workers killed".
    """

    what: str
    verdict: str
    batches: int
    differing: int = 0
    first: tuple[int, int] | None = None
    seconds: float = 0.0
    detail: str = ""

    @property
    def ok(self) -> bool:
        """Whether DeterministicAugmenter is reproducible here."""
        return self.verdict != DIFFERENT


@dataclass(frozen=True)
class Cause:
    """Why batches differ.

    Attributes:
        what: a sentence, without the line.
        site: the line; None where it could not be found.
        difference: the first transform whose output differs, and by how much.
        repaired: detaug repairs it, so that its batches are equal.
    """

    what: str
    site: Site | None
    difference: Difference | None = None
    repaired: bool = False

    @property
    def location(self) -> str:
        """``file:line``, or "" where it could not be found."""
        return "" if self.site is None else str(self.site)

    def __str__(self) -> str:
        return f"{self.location}: {self.what}" if self.site else self.what


@dataclass(frozen=True)
class Stateless:
    """Whether the loader may be declared ``stateless=True``.

    Attributes:
        allowed: it may.
        reason: why, in a sentence.
        site: the line that prevents it, if there is one.
    """

    allowed: bool
    reason: str
    site: Site | None = None


@dataclass(frozen=True)
class Result:
    """What `detaug.verify` found.

    Attributes:
        rows: a verdict for each circumstance.
        causes: of the differences, the ones that detaug cannot repair first.
        stateless: whether the loader may be declared so.
        notes: further findings.
        batches, seed: the arguments.
        seconds: how long it took.
    """

    rows: tuple[Row, ...]
    causes: tuple[Cause, ...]
    stateless: Stateless
    notes: tuple[str, ...] = ()
    batches: int = 0
    seed: Any = 0
    seconds: float = field(default=0.0, compare=False)

    @property
    def ok(self) -> bool:
        """Whether every row of DeterministicAugmenter's own gave the same bytes in the same order."""
        return all(row.ok for row in self.rows)

    @property
    def cause(self) -> Cause | None:
        """The first cause of a difference, if there is one."""
        return self.causes[0] if self.causes else None

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return {
            "ok": self.ok,
            "batches": self.batches,
            "seed": self.seed,
            "seconds": round(self.seconds, 2),
            "rows": [
                {
                    **vars(row),
                    "first": None if row.first is None else {"epoch": row.first[0], "step": row.first[1]},
                    "seconds": round(row.seconds, 2),
                }
                for row in self.rows
            ],
            "causes": [
                {
                    "what": cause.what,
                    **_place(cause.site),
                    "repaired": cause.repaired,
                    "difference": None if cause.difference is None else vars(cause.difference),
                }
                for cause in self.causes
            ],
            "stateless": {
                "allowed": self.stateless.allowed,
                "reason": self.stateless.reason,
                **_place(self.stateless.site),
            },
            "notes": list(self.notes),
        }

    def __rich__(self) -> Any:
        from detaug.verify.report import report

        return report(self)

    def __str__(self) -> str:
        from detaug.verify.report import as_text

        return as_text(self)


def _place(site: Site | None) -> dict[str, Any]:
    return {"file": None if site is None else site.file, "line": None if site is None else site.line}
