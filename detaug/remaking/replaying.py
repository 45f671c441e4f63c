"""`detaug replay`: one batch of a ledger, made again and looked into."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from detaug.ledger.lines import Record
from detaug.ledger.notes import differing, is_mute
from detaug.ledger.reading import records
from detaug.remaking.pipelines import CannotRemake, Remaker
from detaug.remaking.stages import Stage, Watch


@dataclass
class Replayed:
    """What was found.

    Attributes:
        epoch, step: the batch.
        whole, keys: its fingerprints here.
        record: its line in the ledger; None: there is none.
        differs: the keys in which it is not as in the ledger; None: there was nothing to compare with.
        stages: the transforms that it went through.
    """

    epoch: int
    step: int
    whole: str | None
    keys: dict[str, str | None]
    record: Record | None
    differs: tuple[str, ...] | None = None
    stages: list[Stage] = field(default_factory=list)


def line_of(ledger: Path, epoch: int, step: int) -> Record:
    """The line of a batch.

    Raises:
        CannotRemake: it has none; the message says which there are.
        NotALedger, OSError: it cannot be read.
    """
    seen = (-1, -1)
    for _, record in records(ledger):
        if record["kind"] == "batch":
            seen = max(seen, (record["epoch"], record["step"]))
            if (record["epoch"], record["step"]) == (epoch, step):
                return record
    last = "it has none" if seen == (-1, -1) else f"its last is epoch {seen[0]}, step {seen[1]}"
    raise CannotRemake(f"{ledger} has no batch of epoch {epoch}, step {step}; {last}")


def replay(remaker: Remaker, epoch: int, step: int, record: Record | None = None) -> Replayed:
    """Make a batch again, watch it, and compare it with its line.

    Raises:
        CannotRemake: there is no such batch, or it cannot be made.
    """
    watch = Watch()
    with watch.watching():
        batch = remaker.make(epoch, step)
    whole, keys = remaker.prints(batch)
    found = Replayed(epoch, step, whole, keys, record, None, watch.stages)
    if record is not None and not (is_mute(whole, keys) and is_mute(record["whole"], record["keys"])):
        differs = differing(keys, record["keys"])
        found.differs = differs or (("the whole",) if whole != record["whole"] else ())
    return found
