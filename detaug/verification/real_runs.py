"""Rows of the table that run DeterministicAugmenter itself: real processes, resumes and replays."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.engine import arguments
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import inspected
from detaug.engine.local.coordinator import LocalProcesses
from detaug.errors import BatchError, UnusableError
from detaug.fingerprints import fingerprint
from detaug.pipeline.plan import BatchKey
from detaug.reports.rows import Planned
from detaug.seeding.current import SeedBranch
from detaug.seeding.tree import checked_seed, positive_int
from detaug.verification.handed_in import CannotTravel, Factory, call_factory
from detaug.verification.result import Row

#: Batches that every row compares, unless told otherwise.
DEFAULT_BATCHES = 12
DEFAULT_SEED = 1234
#: Called with the augmenter before every batch.
Before = Callable[[Any], None]


@dataclass(frozen=True)
class Settings:
    """As `detaug.verify` takes them; `checked` fills in what is left out.

    Attributes:
        batches: how many every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else DEFAULT_SEED.
        processes: process counts.
        start_methods: "fork", "spawn", "forkserver".
        hash_seeds: PYTHONHASHSEED of other interpreters; None: by default; with fewer than two they are not compared.
    """

    batches: int = DEFAULT_BATCHES
    seed: Any = None
    processes: Sequence[int] = ()
    start_methods: Sequence[str] = ()
    hash_seeds: Sequence[int] | None = None

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
        )


@dataclass(frozen=True)
class Reference:
    """The batches as this process makes them, one after the other.

    Attributes:
        keys: the augmenter's position before each.
        prints: their fingerprints.
        branch: of the augmenter.
        batches_per_epoch: where epochs were cut.
    """

    keys: list[BatchKey]
    prints: list[str]
    branch: SeedBranch
    batches_per_epoch: int | None


class RealRuns:
    """Makes augmenters of one pipeline.

    Args:
        factory: gives a fresh pipeline at every call.
        settings: see there.
    """

    def __init__(self, factory: Factory, settings: Settings) -> None:
        self._factory = factory
        self._settings = settings
        self._batches_per_epoch: int | None = None

    def reference(self) -> Reference:
        """Make the batches in this process.

        Raises:
            UnusableError: there is no pipeline here that makes batches that can be compared.
        """
        made = call_factory(self._factory)
        self._batches_per_epoch = made.batches_per_epoch
        if self._batches_per_epoch is None and not made.source.pass_per_epoch:
            # So that the rows reach the second epoch.
            self._batches_per_epoch = max(1, (2 * self._settings.batches + 2) // 3)
        del made
        with closing(self._augmenter(0)) as augmenter:
            keys: list[BatchKey] = []
            try:
                prints = take(augmenter, self._settings.batches, keys=keys)
            except BatchError as error:
                raise UnusableError(f"the pipeline fails: {error}") from error
            if not prints:
                raise UnusableError("the loader gives no batches")
            return Reference(keys, prints, inspected(augmenter).branch, self._batches_per_epoch)

    def runs(self, reference: Reference) -> Iterator[Planned[Row]]:
        """The rows, in order."""
        settings = self._settings
        methods = settings.start_methods
        two = 2 if 2 in settings.processes else max(settings.processes)

        def planned(what: str, found: Callable[..., _Found], *arguments: Any) -> Planned[Row]:
            return Planned(what, partial(_row, what, reference, partial(found, reference, *arguments)))

        for count in settings.processes:
            yield planned(f"{_processes(count)}, {methods[0]}", self._plain, count, methods[0])
        for method in methods[1:]:
            yield planned(f"{_processes(two)}, {method}", self._plain, two, method)
        yield planned("resumed at random steps", self._resumed, two)
        yield planned("replayed in another order", self._replayed)
        for count in (0, two):
            what = f"{_processes(count)}, global random state scrambled between batches"
            yield planned(what, self._plain, count, methods[0], _scramble)

    # --- one row each

    def _plain(self, reference: Reference, processes: int, method: str, before: Before | None = None) -> _Found:
        with closing(self._augmenter(processes, method)) as augmenter:
            return _Found(enumerate(take(augmenter, len(reference.prints), before)))

    def _resumed(self, reference: Reference, processes: int) -> _Found:
        rng = random.Random(f"{self._settings.seed}/resume")
        count = len(reference.prints)
        room = range(1, max(2, count - count // 3)) if count > 1 else range(0)
        places = sorted(rng.sample(room, min(2, len(room))))
        found: list[tuple[int, str]] = []
        method = self._settings.start_methods[0]
        for turn, place in enumerate(places):
            # From processes to none and back: where a stream was left does not matter either.
            first, second = (processes, 0) if turn % 2 else (0, processes)
            with closing(self._augmenter(first, method)) as augmenter:
                take(augmenter, place)
                state = json.loads(json.dumps(augmenter.state_dict()))
            end = min(count, place + max(4, count // 2))
            with closing(self._augmenter(second, method)) as augmenter:
                augmenter.load_state_dict(state)
                found += enumerate(take(augmenter, end - place), place)
        return _Found(found, "at batch " + ", ".join(map(str, places)) if places else "", whole=False)

    def _replayed(self, reference: Reference) -> _Found:
        order = list(range(len(reference.keys)))
        random.Random(f"{self._settings.seed}/replay").shuffle(order)
        found = []
        with closing(self._augmenter(0)) as augmenter:
            for number in order:
                try:
                    found.append((number, fingerprint(augmenter.replay(*reference.keys[number]))))
                except ValueError as error:
                    if "there is no step" not in str(error):
                        raise
        return _Found(found, whole=False)

    # --- how

    def _augmenter(self, processes: int, method: str | None = None) -> DeterministicAugmenter:
        """A fresh one.

        Raises:
            CannotTravel: this pipeline cannot be run like that.
        """
        settings = self._settings
        made = call_factory(self._factory, batches_per_epoch=self._batches_per_epoch)
        try:
            return made.augmenter(
                processes,
                seed=next(seed for seed in (settings.seed, made.seed, DEFAULT_SEED) if seed is not None),
                batches_per_epoch=self._batches_per_epoch,
                executor=LocalProcesses(method) if processes else None,
            )
        except (TypeError, ValueError) as error:
            raise CannotTravel(str(error)) from error


class _Found(NamedTuple):
    """(number, fingerprint) of the reference's batches that were made again, a detail for the row, and whether all were
    to be made, so that a missing one is a difference."""

    batches: Iterable[tuple[int, str]]
    detail: str = ""
    whole: bool = True


def _row(what: str, reference: Reference, run: Callable[[], _Found]) -> Row:
    found = run()
    batches = list(found.batches)
    made = {number for number, _ in batches}
    missing = set(range(len(reference.prints))) - made if found.whole else set()
    different = {*missing, *(number for number, code in batches if code != reference.prints[number])}
    return Row.of(what, len(made), [reference.keys[number] for number in sorted(different)], detail=found.detail)


def take(
    augmenter: DeterministicAugmenter, count: int, before: Before | None = None, keys: list[BatchKey] | None = None
) -> list[str]:
    """The fingerprints of so many batches (a loader may give fewer), over the ends of epochs.

    Args:
        before: see there.
        keys: the augmenter's position before each batch is added to this list.

    Raises:
        UnusableError: a batch has none.
    """
    prints: list[str] = []
    empty = 0
    while len(prints) < count and empty < 2:
        if before is not None:
            before(augmenter)
        key = BatchKey(augmenter.epoch, augmenter.step)
        try:
            batch = next(augmenter)
        except StopIteration:
            # The end of an epoch, after which the next one begins; two in a row are a loader that gives no more.
            empty += 1
            continue
        empty = 0
        if keys is not None:
            keys.append(key)
        try:
            prints.append(fingerprint(batch))
        except TypeError as error:
            raise UnusableError(f"a batch holds what cannot be compared: {error}") from error
        del batch  # its memory goes back before the next one is asked for
    return prints


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _scramble(_: Any) -> None:
    """As a training script might that draws its own numbers."""
    random.seed(random.SystemRandom().getrandbits(64))
    np.random.seed(random.SystemRandom().getrandbits(32))
    torch.default_generator.manual_seed(random.SystemRandom().getrandbits(62))
