"""What other rooms may do with an augmenter's inside: verification does it here, and reads no private attribute elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from detaug.engine.in_process import Replayer
from detaug.seeding.current import SeedBranch
from detaug.sources import Source

if TYPE_CHECKING:
    from detaug.engine.augmenter import DeterministicAugmenter


@dataclass(frozen=True)
class Inspection:
    """An augmenter's inside."""

    source: Source
    drew_its_seed: bool  # none was given
    declared: list[str]  # the pipeline's description, as `detaug.pipeline.identity` has it
    branch: SeedBranch
    replayer: Replayer  # several batches of a stream, in their order, cost it as much as one


def inspected(augmenter: DeterministicAugmenter) -> Inspection:
    """The augmenter's inside as it is now."""
    return Inspection(
        augmenter._source,
        augmenter._drawn,
        augmenter._declared,
        augmenter._branch,
        Replayer(augmenter._pipeline, augmenter._job()),
    )
