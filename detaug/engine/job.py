"""What whoever makes batches has to know."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.processes.surroundings import ProcessSettings


@dataclass(frozen=True)
class Job:
    """What a worker has to know.

    Attributes:
        entropy: the four words of the seed branch.
        num_streams: logical workers.
        settings: of the parent's process, where the engine started.
        guard: report generators created without a seed.
        max_memory: a worker that has more bytes to itself after a batch retires; None: never.
    """

    entropy: tuple[int, ...]
    num_streams: int
    settings: ProcessSettings
    guard: bool = False
    max_memory: int | None = None
    check_every: int = 0
