"""What other rooms may look at in an augmenter: `detaug.verify` reads it here, and no private attribute anywhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from detaug.engine.in_process import Replayer
from detaug.seeding.current import SeedBranch
from detaug.sources import Source

if TYPE_CHECKING:
    from detaug.engine.augmenter import DeterministicAugmenter
    from detaug.engine.executor import Engine


@dataclass(frozen=True)
class Inspection:
    """An augmenter's inside.

    Attributes:
        engine: what makes its batches; None before the first of them, and after `close`.
        drew_its_seed: no seed was given.
        declared: the pipeline's description, as `detaug.pipeline.identity` has it.
        replayer: makes any of its batches in this process; several of a stream in their order for the cost of one.
    """

    source: Source
    engine: Engine | None
    drew_its_seed: bool
    declared: list[str]
    branch: SeedBranch
    replayer: Replayer


def inspected(augmenter: DeterministicAugmenter) -> Inspection:
    """The augmenter's inside as it is now."""
    return Inspection(
        augmenter._source,
        augmenter._engine,
        augmenter._drawn,
        augmenter._declared,
        augmenter._branch,
        Replayer(augmenter._pipeline, augmenter._job(), augmenter._loader_states),
    )
