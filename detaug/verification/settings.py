"""How a pipeline is to be verified."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detaug.engine import arguments
from detaug.seeding.tree import checked_seed, positive_int

#: Batches that every row compares, unless told otherwise.
DEFAULT_BATCHES = 12
DEFAULT_SEED = 1234


@dataclass(frozen=True)
class Settings:
    """As `detaug.verify` takes them; `checked` fills in what is left out.

    Attributes:
        batches: how many every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else DEFAULT_SEED.
        processes: process counts.
        start_methods: "fork", "spawn", "forkserver".
        hash_seeds: PYTHONHASHSEED of other interpreters; None: by default; with fewer than two they are not compared.
        stateless, num_streams, batches_per_epoch: as for DeterministicAugmenter.
    """

    batches: int = DEFAULT_BATCHES
    seed: Any = None
    processes: Sequence[int] = ()
    start_methods: Sequence[str] = ()
    hash_seeds: Sequence[int] | None = None
    stateless: bool | None = None
    num_streams: int | None = None
    batches_per_epoch: int | None = None

    def checked(self) -> Settings:
        """The same with what was left out filled in.

        Raises:
            TypeError, ValueError: an argument cannot be right; the message says what is allowed.
        """
        counts = [arguments.count("processes", each) for each in self.processes or (1, 2, 3)]
        methods = self.start_methods or dict.fromkeys((arguments.start_method(None), "spawn"))
        hash_seeds = (1, 2) if self.hash_seeds is None else self.hash_seeds
        return Settings(
            batches=positive_int("batches", self.batches),
            seed=None if self.seed is None else checked_seed(self.seed),
            processes=tuple(dict.fromkeys(count for count in counts if count > 0)) or (1,),
            start_methods=tuple(arguments.start_method(each) for each in methods),
            hash_seeds=tuple(dict.fromkeys(arguments.count("hash_seeds", each) for each in hash_seeds)),
            stateless=arguments.optional_bool("stateless", self.stateless),
            num_streams=arguments.optional_positive("num_streams", self.num_streams),
            batches_per_epoch=arguments.optional_positive("batches_per_epoch", self.batches_per_epoch),
        )
