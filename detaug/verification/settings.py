"""What is to be verified, and how thoroughly."""

from __future__ import annotations

from collections.abc import Sequence
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
    """As `detaug.verify` takes them; `checked` fills in what is left out.

    Attributes:
        batches: how many every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else DEFAULT_SEED.
        thorough: every process count with every start method, more faults, more hash seeds.
        processes: process counts.
        start_methods: "fork", "spawn", "forkserver".
        hash_seeds: PYTHONHASHSEED of other interpreters; None: by default; with fewer than two there are none.
        stateless, num_streams, batches_per_epoch: as for DeterministicAugmenter.
        search_seconds: how long lines are looked for; None: as long as it takes.
    """

    batches: int = DEFAULT_BATCHES
    seed: Any = None
    thorough: bool = False
    processes: Sequence[int] = ()
    start_methods: Sequence[str] = ()
    hash_seeds: Sequence[int] | None = None
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

    def checked(self) -> Settings:
        """The same with what was left out filled in.

        Raises:
            TypeError, ValueError: an argument cannot be right; the message says what is allowed.
        """
        wanted = self.processes or ((1, 2, 3, 5, 8) if self.thorough else (1, 2, 3))
        counts = [arguments.count("processes", each) for each in wanted]
        methods = arguments.START_METHODS if self.thorough else dict.fromkeys((arguments.start_method(None), "spawn"))
        hash_seeds = self.hash_seeds
        if hash_seeds is None:
            hash_seeds = (1, 2, 3, 4) if self.thorough else (1, 2)
        return Settings(
            batches=positive_int("batches", self.batches),
            seed=None if self.seed is None else checked_seed(self.seed),
            thorough=bool(self.thorough),
            processes=tuple(dict.fromkeys(count for count in counts if count > 0)) or (1,),
            start_methods=tuple(arguments.start_method(each) for each in self.start_methods or methods),
            hash_seeds=tuple(dict.fromkeys(arguments.count("hash_seeds", each) for each in hash_seeds)),
            stateless=arguments.optional_bool("stateless", self.stateless),
            num_streams=arguments.optional_positive("num_streams", self.num_streams),
            batches_per_epoch=arguments.optional_positive("batches_per_epoch", self.batches_per_epoch),
            search_seconds=arguments.seconds("search_seconds", self.search_seconds),
        )
