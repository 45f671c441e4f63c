"""Watches a batch being made: every transform's params, and a fingerprint of the arrays after it."""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from detaug.ledger.notes import prints_of
from detaug.transforms import Transform
from detaug.transforms.building.memory import LazyVolume
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


class Watch:
    """Watches what pipelines of detaug's transforms do to one batch.

    Attributes:
        stages: what was seen, in its order.
    """

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._calls: Counter[int] = Counter()

    def watching(self) -> AbstractContextManager[None]:
        """Inside, this thread is watched."""
        return observed(self._observe)

    def _observe(self, root: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        sample = self._calls[id(root)]
        self._calls[id(root)] += 1
        for stage in root.stages(params):
            stage.transform.apply_in(workspace, stage.params)
            left = {name: each for name, each in workspace.present().items() if not isinstance(each, LazyVolume)}
            text = stage.transform.described(stage.params)[0]
            self.stages.append(Stage(sample, text, prints_of(left)[0] or ""))
