"""The parts of an augmenter that other rooms need to replay or describe its batches."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.engine.replayer import Replayer
from detaug.pipeline.sources import Source
from detaug.seeding.current import SeedBranch


@dataclass(frozen=True)
class Setup:
    """The parts from which an augmenter makes its batches.

    Attributes:
        source: of raw batches.
        is_seed_drawn: no seed was passed.
        declared: the lines that describe the pipeline (`detaug.objects.description`).
        branch: the branch of the seed tree that has the seeds of its batches.
        replayer: makes batches in this process. Several batches of one stream, in order, cost as
            much as the last one alone.
    """

    source: Source
    is_seed_drawn: bool
    declared: list[str]
    branch: SeedBranch
    replayer: Replayer
