"""Methods of a trainer that run outside its hooks, seeded: its constructor, and the case split.

A trainer of somebody's own may draw numbers there, from the global generators: `self.lam =
random.random()`, a random subset of the cases. Both methods get wrappers in every class of
trainers, whichever of its bases defines them. Inside, the global generators are seeded from the
run's seed, afterwards they are as before, and a line that draws from a generator without a seed is
logged.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from detaug.nnunet.compatibility import SPLITS_CASES, folder_of_training
from detaug.nnunet.trainers.output_folder import recorded_seed
from detaug.seeding.generators import preserved_global_rngs, seed_global_generators
from detaug.seeding.ranks import RankUnknown, common_seed, process_group
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree
from detaug.system.unseeded_draws import Guard

_ADVICE = (
    "Draw from random, numpy.random or torch, which are seeded there, or give the generator a seed."
)
#: Packages that nnU-Net itself has draw identifiers of a run.
_NOT_REPORTED = {"nnunetv2", "wandb"}

_wrappers: WeakSet[Callable[..., Any]] = WeakSet()


class SeededMethods:
    """A trainer's base with the methods that the wrappers call.

    Attributes:
        seed_at_start: the seed that was known when the trainer was made: from the environment, from
            the checkpoint that it continues, or drawn. None: ranks could not agree on one yet.
    """

    seed_at_start: Seed | None = None

    _seeded_method: str = ""
    _reported_draws: frozenset[str] = frozenset()

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        # In every class: the constructor of a subclass draws before it calls the one above.
        for name, wrap in (("__init__", _constructor), (SPLITS_CASES, _split)):
            method = getattr(cls, name, None)
            # One that a base class has wrapped is inherited with its wrapper.
            if inspect.isfunction(method) and method not in _wrappers:
                wrapper = wrap(method)
                _wrappers.add(wrapper)
                setattr(cls, name, wrapper)

    @contextmanager
    def _seeded(self: Any, name: str, seed: Seed | None, action: str) -> Iterator[None]:
        """Seed the global generators for one method; a call of it within itself changes nothing."""
        # The wrapper of a base, called through ``super()``: seeding again would repeat the numbers.
        if self._seeded_method == name:
            yield
            return
        draws: list[str] = []
        guard = Guard(draws.append, action, _ADVICE, _NOT_REPORTED)
        self._seeded_method = name
        # The old state is put back: what the user's code draws afterwards must not depend on how
        # often a constructor draws.
        try:
            with preserved_global_rngs(), guard.watching():
                if seed is not None:
                    seed_global_generators(SeedTree(seed).child(name).sequence())
                yield
        finally:
            self._seeded_method = ""
        # Logged only now, because the constructor makes nnU-Net's log file.
        for text in draws:
            if text not in self._reported_draws:
                self.print_to_log_file(f"detaug: WARNING: {text}")
        self._reported_draws = self._reported_draws.union(draws)


def _constructor(method: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that draws from the run's seed.

    Its signature stays, as nnU-Net wants.
    """

    @functools.wraps(method)
    def construct(self: Any, *arguments: Any, **options: Any) -> None:
        if not self._seeded_method:
            self.seed_at_start = _seed_of_run(method, self, arguments, options)
        with self._seeded("construction", self.seed_at_start, "the trainer is made"):
            method(self, *arguments, **options)

    return construct


def _split(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that splits the cases in the same way at every call."""

    @functools.wraps(method)
    def split(self: Any, *arguments: Any, **options: Any) -> Any:
        with self._seeded("split", self.run_seed, "the cases are split"):
            return method(self, *arguments, **options)

    return split


def _seed_of_run(
    method: Callable[..., None], trainer: Any, arguments: Any, options: Any
) -> Seed | None:
    """Return the seed of a new trainer, or that of the training that it continues."""
    # The variable wins over the checkpoint: `check_continues` then refuses another seed by name.
    if not os.environ.get(SEED_VARIABLE):
        stored = _seed_of_checkpoint(method, trainer, arguments, options)
        if stored is not None:
            return stored
    group = process_group()
    rank = None
    if group is not None:
        rank = group[0]
    try:
        return common_seed(rank, verbose=False)
    except RankUnknown:
        # The error is raised again where the seed is needed.
        return None


def _seed_of_checkpoint(
    method: Callable[..., None], trainer: Any, arguments: Any, options: Any
) -> Seed | None:
    """Return the seed in the checkpoint that a trainer continues; None: it continues none."""
    try:
        values = inspect.signature(method).bind(trainer, *arguments, **options).arguments
        plans = values["plans"]
        configuration = values["configuration"]
        fold = values["fold"]
    except (TypeError, KeyError):
        # The constructor itself says what is wrong.
        return None
    if not plans.get("continue_training"):
        return None
    folder = folder_of_training(type(trainer), plans, configuration, fold)
    if folder is None:
        return None
    return recorded_seed(folder)
