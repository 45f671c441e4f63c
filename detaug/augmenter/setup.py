"""What an augmenter makes its batches of, for other rooms that make them again or describe them."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.engine.replayer import Replayer
from detaug.pipeline.sources import Source
from detaug.seeding.current import SeedBranch


@dataclass(frozen=True)
class Setup:
    """What an augmenter makes its batches of.

    Attributes:
        source: Where raw batches come from.
        drew_its_seed: No seed was passed.
        declared: The pipeline's description, as `detaug.objects.description` has it.
        branch: Where in the seed tree its batches are.
        replayer: Makes batches in this process. Several of one stream, in their order, cost it as
            much as the last one.
    """

    source: Source
    drew_its_seed: bool
    declared: list[str]
    branch: SeedBranch
    replayer: Replayer
