"""`detaug replay`: one batch of a ledger, made again and looked into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detaug.ledger.lines import Record
from detaug.ledger.notes import is_mute
from detaug.ledger.reading import counting
from detaug.remaking.pipelines import CannotRemake, Remaker
from detaug.remaking.stages import Stage, Watch


@dataclass
class Replayed:
    """What was found.

    Attributes:
        epoch, step: the batch.
        batch: itself.
        whole, keys: its fingerprints here.
        record: its line in the ledger; None: there is none.
        differs: the keys in which it is not as in the ledger; None: there was nothing to compare with.
        stages: the transforms that it went through.
        before, after: arrays of samples, where they were to be kept.
        stopped: the debugger did.
    """

    epoch: int
    step: int
    batch: Any
    whole: str | None
    keys: dict[str, str | None]
    record: Record | None
    differs: tuple[str, ...] | None = None
    stages: list[Stage] = field(default_factory=list)
    before: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    after: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    stopped: bool = False


def line_of(ledger: Path, epoch: int, step: int) -> Record:
    """The line of a batch.

    Raises:
        CannotRemake: it has none; the message says which there are.
        NotALedger, OSError: it cannot be read.
    """
    seen = (-1, -1)
    for _, record in counting(ledger):
        if record["kind"] == "batch":
            seen = max(seen, (record["epoch"], record["step"]))
            if (record["epoch"], record["step"]) == (epoch, step):
                return record
    last = "it has none" if seen == (-1, -1) else f"its last is epoch {seen[0]}, step {seen[1]}"
    raise CannotRemake(f"{ledger} has no batch of epoch {epoch}, step {step}; {last}")


def replay(
    remaker: Remaker,
    epoch: int,
    step: int,
    record: Record | None = None,
    sample: int | None = None,
    break_at: str = "",
    keeps: bool = False,
) -> Replayed:
    """Make a batch again, watch it, and compare it with its line.

    Raises:
        CannotRemake: there is no such batch or sample, or it cannot be made; or no such transform was met.
    """
    watch = Watch(sample, break_at, keeps)
    with watch.watching() as seen:
        batch = remaker.make(epoch, step)
    if sample is not None and not seen.stages and not seen.before:
        raise CannotRemake(f"no transform was met in sample {sample} of epoch {epoch}, step {step}")
    if break_at and not watch.stopped:
        names = dict.fromkeys(stage.text.partition(":")[0] for stage in seen.stages)
        raise CannotRemake(f"no transform {break_at!r} was met; there were {', '.join(names) or 'none'}")
    whole, keys = remaker.prints(batch)
    found = Replayed(epoch, step, batch, whole, keys, record, None, seen.stages, seen.before, seen.after, watch.stopped)
    if record is not None and not (is_mute(whole, keys) and is_mute(record["whole"], record["keys"])):
        noted = record["keys"]
        differs = tuple(name for name in {**noted, **keys} if noted.get(name, "") != keys.get(name, ""))
        found.differs = differs or (("the whole",) if whole != record["whole"] else ())
    return found
