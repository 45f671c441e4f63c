"""What a process that makes batches has to know."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.processes.surroundings import ProcessSettings
from detaug.seeding.branch import SeedBranch


@dataclass(frozen=True)
class Job:
    """What a worker has to know.

    Attributes:
        branch: of the seed tree.
        settings: of the parent's process, where the engine started.
        guard: report generators created without a seed.
        max_memory: a worker that has more bytes to itself after a batch retires; None: never.
        check_every: see `detaug.engine.checking.is_checked`.
    """

    branch: SeedBranch
    settings: ProcessSettings
    guard: bool = False
    max_memory: int | None = None
    check_every: int = 0
