"""What is to be verified, and how thoroughly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from detaug.engine import arguments
from detaug.seeding.tree import checked_seed, positive_int

#: Batches that every row compares, unless told otherwise.
DEFAULT_BATCHES = 12
DEFAULT_SEED = 1234
#: Seconds in which the lines that differ are looked for.
DEFAULT_SEARCH_SECONDS = 30.0


@dataclass(frozen=True)
class Settings:
    """As `detaug.verify` takes them.

    Attributes:
        batches: how many every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else DEFAULT_SEED.
        thorough: every process count with every start method, more faults, more hash seeds.
        processes: process counts.
        start_methods: "fork", "spawn", "forkserver".
        hash_seeds: PYTHONHASHSEED of other interpreters; with fewer than two there are none.
        stateless, num_streams, batches_per_epoch: as for DeterministicAugmenter.
        search_seconds: how long lines are looked for; None: as long as it takes.
    """

    batches: int = DEFAULT_BATCHES
    seed: Any = None
    thorough: bool = False
    processes: tuple[int, ...] = ()
    start_methods: tuple[str, ...] = ()
    hash_seeds: tuple[int, ...] = ()
    stateless: bool | None = None
    num_streams: int | None = None
    batches_per_epoch: int | None = None
    search_seconds: float | None = DEFAULT_SEARCH_SECONDS

    @property
    def disturbances(self) -> int:
        """At most so many workers are stopped, or killed, in a row of the table."""
        return 4 * self.batches if self.thorough else max(3, self.batches // 3)

    @property
    def resumes(self) -> int:
        """At how many steps the stream is taken up again."""
        return 8 if self.thorough else 2


def checked_settings(
    batches: int,
    seed: Any,
    thorough: bool,
    processes: Any,
    start_methods: Any,
    hash_seeds: Any,
    stateless: bool | None,
    num_streams: int | None,
    batches_per_epoch: int | None,
    search_seconds: float | None,
) -> Settings:
    """Settings, with what was left out filled in.

    Raises:
        TypeError, ValueError: an argument cannot be right; the message says what is allowed.
    """
    wanted = processes or ((1, 2, 3, 5, 8) if thorough else (1, 2, 3))
    counts = tuple(arguments.count("processes", each) for each in wanted)
    available = [arguments.start_method(None), "spawn"] if not thorough else list(arguments.START_METHODS)
    methods = tuple(arguments.start_method(each) for each in start_methods or dict.fromkeys(available))
    if hash_seeds is None:
        hash_seeds = (1, 2, 3, 4) if thorough else (1, 2)
    seeds = tuple(dict.fromkeys(arguments.count("hash_seeds", each) for each in hash_seeds))
    return Settings(
        batches=positive_int("batches", batches),
        seed=None if seed is None else checked_seed(seed),
        thorough=bool(thorough),
        processes=tuple(dict.fromkeys(count for count in counts if count > 0)) or (1,),
        start_methods=methods,
        hash_seeds=seeds,
        stateless=arguments.optional_bool("stateless", stateless),
        num_streams=arguments.optional_positive("num_streams", num_streams),
        batches_per_epoch=arguments.optional_positive("batches_per_epoch", batches_per_epoch),
        search_seconds=arguments.seconds("search_seconds", search_seconds),
    )
