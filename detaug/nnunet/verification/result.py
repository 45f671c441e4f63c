"""What verifying a training gives: a row for each training, and where the differences began."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from detaug.nnunet.verification.comparing import Origin
from detaug.nnunet.verification.settings import Settings
from detaug.reports.verdicts import EQUAL, REFERENCE


@dataclass(frozen=True)
class Row:
    """One training.

    Attributes:
        what: in which way it was trained.
        processes: worker processes that made its batches, for each part of it.
        verdict: "reference", "equal", "different", or "failed".
        sha256: of its checkpoint_final.pth; "" where it failed.
        origins: where the difference from the reference began; there may be several that do not follow from one another.
        failure: the error, where it failed.
        seconds: how long it took.
    """

    what: str
    processes: tuple[int, ...]
    verdict: str
    sha256: str = ""
    origins: tuple[Origin, ...] = ()
    failure: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the training wrote the reference's bytes."""
        return self.verdict in (REFERENCE, EQUAL)


@dataclass(frozen=True)
class Result:
    """What `verify_training` found.

    Attributes:
        settings: what was trained.
        rows: the reference first.
        device: the processor's name, and versions that the bytes depend on.
    """

    settings: Settings
    rows: tuple[Row, ...]
    device: str = ""

    @property
    def ok(self) -> bool:
        """Whether all trainings wrote the same checkpoint."""
        return all(row.ok for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return {
            "ok": self.ok,
            "device": self.device,
            "settings": asdict(self.settings),
            "rows": [{**asdict(row), "ok": row.ok, "seconds": round(row.seconds, 2)} for row in self.rows],
        }

    def __rich__(self) -> Any:
        from detaug.nnunet.verification.report import report

        return report(self)
