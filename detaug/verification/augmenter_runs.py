"""Rows of the table that run DeterministicAugmenter itself: real processes, resumes and replays."""

from __future__ import annotations

import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.engine import arguments
from detaug.engine.local.coordinator import LocalProcesses
from detaug.errors import BatchError, UnusableError
from detaug.objects.fingerprints import fingerprint
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer
from detaug.seeding.current import SeedBranch
from detaug.seeding.tree import checked_seed, positive_int
from detaug.verification.factories import Factory, NotPicklable, call_factory
from detaug.verification.result import Row
from detaug.verification.rows import PendingRow

#: Batches that every row compares, unless told otherwise.
DEFAULT_BATCHES = 12

#: Rows of a pipeline that is interrupted. Where its loader has a state of its own, it resumes
#: through that in the first of them; the second is run for such a loader alone.
RESUMED = "resumed at random steps"
RESUMED_BY_STEPPING = "resumed at random steps, its loader stepped forward"

#: What a row is made of: numbers of the reference's batches with their fingerprints, None where one
#: is missing.
_Made = list[tuple[int, str | None]]


class Reference(NamedTuple):
    """The pipeline: its factory, its branch of the seed tree, and where its epochs are cut; and its
    batches as this process makes them, one after the other: positions and fingerprints.
    """

    factory: Factory
    branch: SeedBranch
    batches_per_epoch: int | None
    keys: list[BatchKey]
    prints: list[str]


class RealRuns:
    """Makes augmenters of one pipeline. Arguments are those of `detaug.verify`."""

    def __init__(
        self,
        factory: Factory,
        batches: int = DEFAULT_BATCHES,
        seed: Any = None,
        processes: Sequence[int] | None = None,
        start_methods: Sequence[str] | None = None,
    ) -> None:
        counts = [arguments.count("processes", each) for each in processes or (1, 2, 3)]
        self._factory = factory
        self._batches = positive_int("batches", batches)
        self._seed = None if seed is None else checked_seed(seed)
        self._processes = list(dict.fromkeys(count for count in counts if count > 0)) or [1]
        self._methods = list(
            dict.fromkeys(arguments.start_method(each) for each in start_methods or (None, "spawn"))
        )
        self._batches_per_epoch: int | None = None
        self._loader_keeps_states = False

    def reference(self) -> Reference:
        """Make the batches in this process.

        Raises:
            UnusableError: there is no pipeline here that makes batches that can be compared.
        """
        made = call_factory(self._factory)
        self._batches_per_epoch = made.batches_per_epoch
        if self._batches_per_epoch is None and not made.source.pass_per_epoch:
            # So that the rows reach the second epoch.
            self._batches_per_epoch = max(1, (2 * self._batches + 2) // 3)
        self._loader_keeps_states = made.source.keeps_states
        del made
        with closing(self._augmenter(0)) as augmenter:
            try:
                taken = list(_taken(augmenter, self._batches))
            except BatchError as error:
                raise UnusableError(f"the pipeline fails: {error}") from error
            if not taken:
                raise UnusableError("the loader gives no batches")
            keys, prints = map(list, zip(*taken, strict=True))
            return Reference(
                self._factory, augmenter.setup.branch, self._batches_per_epoch, keys, prints
            )

    def notes(self, reference: Reference) -> list[str]:
        """Return what an augmenter would log of state that its transforms carry from batch to
        batch.
        """
        notes: list[str] = []

        def log(text: str, level: int = logging.WARNING) -> None:
            if level >= logging.WARNING:
                notes.append(text)

        with closing(self._augmenter(0)) as augmenter:
            pipeline = Pipeline(
                augmenter.setup.source, augmenter.transform, must_pickle=False, keep=augmenter.keep
            )
            producer = Producer(pipeline.pristine, reference.branch, log, looks_at_state=True)
            # What a batch raises is a row's affair.
            with pipeline.pristine.shared.preserved(), suppress(Exception):
                for key in reference.keys:
                    producer.make(*key)
        return notes

    def rows(self, reference: Reference) -> Iterator[PendingRow[Row]]:
        """Those that compare with it, in order."""
        count = len(reference.prints)
        first, *others = self._methods
        two = 2 if 2 in self._processes else max(self._processes)
        kinds = [(number, first) for number in self._processes] + [
            (two, method) for method in others
        ]
        runs = {
            f"{number} process{'es' if number > 1 else ''}, {method}": partial(
                self._plain, count, number, method
            )
            for number, method in kinds
        }
        runs[RESUMED] = partial(self._resumed, count, two)
        if self._loader_keeps_states:
            runs[RESUMED_BY_STEPPING] = partial(self._resumed, count, two, by_stepping=True)
        runs["replayed in another order"] = partial(self._replayed, reference.keys)
        runs["global random state scrambled between batches"] = partial(
            self._plain, count, 0, first, _scramble
        )
        for what, run in runs.items():
            yield PendingRow(what, partial(_row, what, reference, run))

    # --- one row each

    def _plain(
        self, count: int, processes: int, method: str, before: Callable[[], None] = lambda: None
    ) -> _Made:
        with closing(self._augmenter(processes, method)) as augmenter:
            return list(zip_longest(range(count), _prints(augmenter, count, before)))

    def _resumed(self, count: int, processes: int, by_stepping: bool = False) -> _Made:
        places = random.Random(f"{self._seed}/resume").sample(range(1, count), min(2, count - 1))
        found: _Made = []
        state = None
        for turn, (begin, end) in enumerate(pairwise([0, *sorted(places), count])):
            # From none to processes and back: where a stream was left does not matter either.
            with closing(
                self._augmenter(processes if turn % 2 else 0, self._methods[0])
            ) as augmenter:
                if state is not None:
                    augmenter.load_state_dict(state)
                found += zip_longest(range(begin, end), _prints(augmenter, end - begin))
                state = json.loads(json.dumps(augmenter.state_dict()))
                if by_stepping:
                    state.pop("loader_states", None)
        return found

    def _replayed(self, keys: list[BatchKey]) -> _Made:
        order = list(range(len(keys)))
        random.Random(f"{self._seed}/replay").shuffle(order)
        found: _Made = []
        with closing(self._augmenter(0)) as augmenter:
            for number in order:
                try:
                    found.append((number, fingerprint(augmenter.replay(*keys[number]))))
                except ValueError as error:
                    if "there is no step" not in str(error):
                        raise
        return found

    # --- how

    def _augmenter(self, processes: int, method: str | None = None) -> DeterministicAugmenter:
        """A fresh one.

        Raises:
            CannotTravel: this pipeline cannot be run like that.
        """
        made = call_factory(self._factory, batches_per_epoch=self._batches_per_epoch)
        try:
            return made.augmenter(
                processes,
                seed=self._seed,
                batches_per_epoch=self._batches_per_epoch,
                executor=LocalProcesses(method) if processes else None,
            )
        except (TypeError, ValueError) as error:
            raise NotPicklable(str(error)) from error


def _row(what: str, reference: Reference, run: Callable[[], _Made]) -> Row:
    made = run()
    different = sorted({number for number, print_ in made if print_ != reference.prints[number]})
    return Row.of(what, len(dict(made)), [reference.keys[number] for number in different])


def _taken(
    augmenter: DeterministicAugmenter, count: int, before: Callable[[], None] = lambda: None
) -> Iterator[tuple[BatchKey, str]]:
    """The augmenter's position before each of so many batches (a loader may give fewer), and their
    fingerprints, over the ends of epochs; `before` is called before each.

    Raises:
        UnusableError: a batch has none.
    """
    ends = 0
    while count and ends < 2:  # an epoch's end; two in a row are a loader that gives no more
        before()
        key = BatchKey(augmenter.epoch, augmenter.step)
        try:
            batch = next(augmenter)
        except StopIteration:
            ends += 1
            continue
        try:
            print_ = fingerprint(batch)
        except TypeError as error:
            raise UnusableError(f"a batch holds what cannot be compared: {error}") from error
        del batch  # its memory goes back before the next one is asked for
        yield key, print_
        count, ends = count - 1, 0


def _prints(
    augmenter: DeterministicAugmenter, count: int, before: Callable[[], None] = lambda: None
) -> list[str]:
    return [print_ for _, print_ in _taken(augmenter, count, before)]


def _scramble() -> None:
    """As a training script might that draws its own numbers."""
    random.seed(random.SystemRandom().getrandbits(64))
    np.random.seed(random.SystemRandom().getrandbits(32))
    torch.default_generator.manual_seed(random.SystemRandom().getrandbits(62))
