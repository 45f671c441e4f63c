"""`detaug replay`: one batch of a ledger, made again and looked into."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from rich.text import Text

from detaug.ledger.header import Record
from detaug.ledger.lines import differing, prints_of
from detaug.ledger.reading import records
from detaug.remaking.pipelines import CannotRemake, Remaker
from detaug.transforms import Transform
from detaug.transforms.building.stages import observed
from detaug.transforms.building.workspace import LazyVolume, Workspace


@dataclass(frozen=True)
class Stage:
    """A transform that was applied to a sample (or in the call of that number), with params and a fingerprint of what it left."""

    sample: int
    text: str
    fingerprint: str


def line_of(ledger: Path, epoch: int, step: int) -> Record:
    """The line of a batch; `CannotRemake` says which there are."""
    seen = (-1, -1)
    for line in records(ledger):
        if line.record["kind"] == "batch":
            here = line.record["epoch"], line.record["step"]
            if here == (epoch, step):
                return line.record
            seen = max(seen, here)
    last = "it has none" if seen == (-1, -1) else f"its last is epoch {seen[0]}, step {seen[1]}"
    raise CannotRemake(f"{ledger} has no batch of epoch {epoch}, step {step}; {last}")


def replay(
    remaker: Remaker, epoch: int, step: int, record: Record | None = None
) -> tuple[list[Text], bool]:
    """Make a batch again, watch it, and compare it with its line: transforms, fingerprints and the verdict, for the reader, and
    whether it differs. Or `CannotRemake`."""
    batch, stages = watched(remaker, epoch, step)
    whole, keys = prints_of(batch, remaker.left_out)
    shown = []
    for sample, of_sample in groupby(stages, key=lambda stage: stage.sample):
        shown.append(Text(f"sample {sample}", "bold"))
        shown += [
            Text(f"  {stage.fingerprint[:12] or '-':12}  {stage.text}") for stage in of_sample
        ]
    shown.append(Text(f"epoch {epoch}, step {step}: {whole}"))
    shown += [Text(f"  {key!r}: {value}") for key, value in keys.items()]
    if record is None:
        return [*shown, Text("there is no ledger to compare it with")], False
    differs = differing(keys, record["keys"])
    if not differs and whole == record["whole"]:
        return [*shown, Text("as the ledger has it", "green")], False
    where = ", ".join(map(repr, differs)) or "the whole"
    return [*shown, Text(f"not as the ledger has it: it differs in {where}", "bold red")], True


def watched(remaker: Remaker, epoch: int, step: int) -> tuple[Any, list[Stage]]:
    """The batch, and what pipelines of detaug's transforms did to it, in their order. Errors as `replay`."""
    stages: list[Stage] = []
    calls: Counter[int] = Counter()

    def observe(root: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        sample = calls[id(root)]
        calls[id(root)] += 1
        for stage in root.stages(params):
            stage.transform.apply_in(workspace, stage.params)
            left = {
                name: each
                for name, each in workspace.present().items()
                if not isinstance(each, LazyVolume)
            }
            stages.append(
                Stage(sample, stage.transform.describe(stage.params), prints_of(left)[0] or "")
            )

    with observed(observe):
        return remaker.make(epoch, step), stages
