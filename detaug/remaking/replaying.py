"""`detaug replay`: one batch of a ledger, made again and looked into."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from detaug.ledger.header import Record
from detaug.ledger.notes import differing, is_mute, prints_of
from detaug.ledger.reading import records
from detaug.remaking.pipelines import CannotRemake, Remaker
from detaug.transforms import Transform
from detaug.transforms.building.lazy_volumes import LazyVolume
from detaug.transforms.building.stages import observed
from detaug.transforms.building.workspace import Workspace


@dataclass(frozen=True)
class Stage:
    """A transform that was applied.

    Attributes:
        sample: of the batch, from 0; where a pipeline takes whole batches, the index of its call.
        text: the transform's name and params.
        fingerprint: of all arrays after it; empty: it left nothing to compare.
    """

    sample: int
    text: str
    fingerprint: str


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
    batch, stages = watched(remaker, epoch, step)
    whole, keys = remaker.prints(batch)
    found = Replayed(epoch, step, whole, keys, record, None, stages)
    if record is not None and not (is_mute(whole, keys) and is_mute(record["whole"], record["keys"])):
        differs = differing(keys, record["keys"])
        found.differs = differs or (("the whole",) if whole != record["whole"] else ())
    return found


def watched(remaker: Remaker, epoch: int, step: int) -> tuple[Any, list[Stage]]:
    """The batch, and what pipelines of detaug's transforms did to it, in their order. Errors as `replay`."""
    stages: list[Stage] = []
    calls: Counter[int] = Counter()

    def observe(root: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        sample = calls[id(root)]
        calls[id(root)] += 1
        for stage in root.stages(params):
            stage.transform.apply_in(workspace, stage.params)
            left = {name: each for name, each in workspace.present().items() if not isinstance(each, LazyVolume)}
            stages.append(Stage(sample, stage.transform.described(stage.params)[0], prints_of(left)[0] or ""))

    with observed(observe):
        return remaker.make(epoch, step), stages
