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
from detaug.pipeline.undeclared import Undeclared
from detaug.seeding.current import SeedBranch
from detaug.seeding.tree import checked_seed, positive_int
from detaug.verification.factories import Factory, FactoryResult, NotPicklable, call_factory
from detaug.verification.result import Row
from detaug.verification.rows import PendingRow

#: Batches that every row compares by default.
DEFAULT_BATCHES = 12

#: Rows of a pipeline that is interrupted. Where its loader has a state of its own, it resumes
#: through that in the first of them; the second is run for such a loader alone.
RESUMED = "resumed at random steps"
RESUMED_BY_STEPPING = "resumed at random steps, its loader stepped forward"

#: The batches of a row: their indices in the reference and their fingerprints, None where a batch
#: is missing.
_RunFingerprints = list[tuple[int, str | None]]


def _do_nothing() -> None:
    """Do nothing before a batch: the default of rows that change nothing between batches."""


class Values(NamedTuple):
    """The values that batches may depend on and that no argument declares, by path, as texts.

    Attributes:
        variables: of the user's modules and classes.
        attributes: of the pipeline, as its constructors have left them.
    """

    variables: dict[str, str]
    attributes: dict[str, str]

    @classmethod
    def of(cls, undeclared: Undeclared) -> Values:
        """Return a pipeline's values."""
        return cls(undeclared.variables(), undeclared.attributes)


class Reference(NamedTuple):
    """A pipeline, and its batches as this process makes them one after the other.

    Attributes:
        factory: makes the pipeline.
        branch: of the seed tree.
        batches_per_epoch: where its epochs are cut; None: nowhere.
        keys: (epoch, step) of each batch.
        fingerprints: of each batch.
        values: that no argument declares, before the first batch.
    """

    factory: Factory
    branch: SeedBranch
    batches_per_epoch: int | None
    keys: list[BatchKey]
    fingerprints: list[str]
    values: Values


class RealRuns:
    """Augmenters of one pipeline, a row of the table for each.

    Args:
        factory, batches, seed, processes, start_methods: as for `detaug.verify`.
    """

    def __init__(
        self,
        factory: Factory,
        batches: int = DEFAULT_BATCHES,
        seed: Any = None,
        processes: Sequence[int] | None = None,
        start_methods: Sequence[str] | None = None,
    ) -> None:
        counts = [arguments.count("processes", count) for count in processes or (1, 2, 3)]
        self._factory = factory
        self._batches = positive_int("batches", batches)
        self._seed = None if seed is None else checked_seed(seed)
        # Each once, in the user's order.
        self._processes = list(dict.fromkeys(count for count in counts if count > 0)) or [1]
        # Spawned workers import everything anew, and lack what only a fork inherits.
        methods = [arguments.start_method(method) for method in start_methods or (None, "spawn")]
        self._methods = list(dict.fromkeys(methods))
        self._batches_per_epoch: int | None = None
        self._loader_keeps_states = False

    def reference(self) -> Reference:
        """Make the batches in this process.

        Raises:
            UnusableError: the factory gives no pipeline whose batches can be made and compared.
        """
        pipeline = call_factory(self._factory)
        self._batches_per_epoch = pipeline.batches_per_epoch
        if self._batches_per_epoch is None and not pipeline.source.pass_per_epoch:
            # So that the rows reach the second epoch.
            self._batches_per_epoch = max(1, (2 * self._batches + 2) // 3)
        self._loader_keeps_states = pipeline.source.keeps_states
        # Of the first pipeline: a variable that counts the pipelines is the same in a process that
        # makes one.
        values = self._values_of(pipeline)
        # The augmenter below has a pipeline of its own; two at once could be too large.
        del pipeline
        with closing(self._augmenter(0)) as augmenter:
            try:
                batches = list(_keys_and_fingerprints(augmenter, self._batches))
            except BatchError as error:
                raise UnusableError(f"the pipeline fails: {error}") from error
            if not batches:
                raise UnusableError("the loader gives no batches")
            return Reference(
                factory=self._factory,
                branch=augmenter.setup.branch,
                batches_per_epoch=self._batches_per_epoch,
                keys=[key for key, _ in batches],
                fingerprints=[batch_fingerprint for _, batch_fingerprint in batches],
                values=values,
            )

    def values(self) -> Values:
        """Return the values of a new pipeline that no argument declares."""
        return self._values_of(call_factory(self._factory))

    def _values_of(self, pipeline: FactoryResult) -> Values:
        with closing(pipeline.augmenter(0, seed=self._seed)) as augmenter:
            return Values.of(augmenter.setup.undeclared)

    def notes(self, reference: Reference) -> list[str]:
        """Return what the rows cannot show.

        That is state that transforms carry from batch to batch, and a dependence on the number of
        workers where no row has two.
        """
        notes: list[str] = []
        if max(self._processes) == 1:
            notes.append(
                "no row had two workers at once, so that batches which depend on the number of"
                " workers may be equal in all: pass processes=(1, 2), or --processes 1,2"
            )

        def log(text: str, level: int = logging.WARNING) -> None:
            if level >= logging.WARNING:
                notes.append(text)

        with closing(self._augmenter(0)) as augmenter:
            pipeline = Pipeline(
                augmenter.setup.source, augmenter.transform, must_pickle=False, keep=augmenter.keep
            )
            producer = Producer(pipeline.pristine, reference.branch, log, checks_carried_state=True)
            # A batch that raises is reported by the rows.
            with pipeline.pristine.shared.preserved(), suppress(Exception):
                for key in reference.keys:
                    producer.make(*key)
        return notes

    def rows(self, reference: Reference) -> Iterator[PendingRow[Row]]:
        """Yield the rows that are compared with the reference, in order."""
        for name, run in self._runs(reference).items():
            yield PendingRow(name, partial(_row, name, reference, run))

    def _runs(self, reference: Reference) -> dict[str, Callable[[], _RunFingerprints]]:
        """Return the function that runs each row, by the row's name."""
        count = len(reference.fingerprints)
        first_method, *other_methods = self._methods
        # One process alone makes all batches in order, which would hide a dependence on that.
        few_processes = 2 if 2 in self._processes else max(self._processes)
        settings = [(processes, first_method) for processes in self._processes]
        settings += [(few_processes, method) for method in other_methods]

        # Functions rather than results, so that a row is run when the table reaches it.
        runs: dict[str, Callable[[], _RunFingerprints]] = {}
        for processes, method in settings:
            noun = "processes" if processes > 1 else "process"
            runs[f"{processes} {noun}, {method}"] = partial(
                self._run_plainly, count, processes, method
            )
        runs[RESUMED] = partial(self._run_with_resumes, count, few_processes)
        if self._loader_keeps_states:
            runs[RESUMED_BY_STEPPING] = partial(
                self._run_with_resumes, count, few_processes, by_stepping=True
            )
        runs["replayed in another order"] = partial(self._replay_shuffled, reference.keys)
        runs["global random state scrambled between batches"] = partial(
            self._run_plainly, count, 0, first_method, _scramble
        )
        return runs

    # --- the rows' runs

    def _run_plainly(
        self,
        count: int,
        processes: int,
        method: str,
        before_batch: Callable[[], None] = _do_nothing,
    ) -> _RunFingerprints:
        """Take `count` batches of one augmenter."""
        with closing(self._augmenter(processes, method)) as augmenter:
            fingerprints = _fingerprints(augmenter, count, before_batch)
            return list(zip_longest(range(count), fingerprints))

    def _run_with_resumes(
        self, count: int, processes: int, by_stepping: bool = False
    ) -> _RunFingerprints:
        """Take `count` batches of up to three augmenters, each resumed from the one before.

        Args:
            count: of batches.
            processes: of the second augmenter; the others have none.
            by_stepping: the loader's own states are left out, so that it is stepped forward.
        """
        cuts = random.Random(f"{self._seed}/resume").sample(range(1, count), min(2, count - 1))
        batches: _RunFingerprints = []
        state = None
        for turn, (start, end) in enumerate(pairwise([0, *sorted(cuts), count])):
            # From none to processes and back: where a stream was left does not matter either.
            num_workers = processes if turn % 2 else 0
            with closing(self._augmenter(num_workers, self._methods[0])) as augmenter:
                if state is not None:
                    augmenter.load_state_dict(state)
                batches += zip_longest(range(start, end), _fingerprints(augmenter, end - start))
                # Through JSON, as a checkpoint's file may hold it.
                state = json.loads(json.dumps(augmenter.state_dict()))
                if by_stepping:
                    state.pop("loader_states", None)
        return batches

    def _replay_shuffled(self, keys: list[BatchKey]) -> _RunFingerprints:
        """Replay the batches in another order; leave out those that the loader does not have."""
        # The same order in every run of the command, so that a finding can be repeated.
        order = list(range(len(keys)))
        random.Random(f"{self._seed}/replay").shuffle(order)
        batches: _RunFingerprints = []
        with closing(self._augmenter(0)) as augmenter:
            for index in order:
                try:
                    batches.append((index, fingerprint(augmenter.replay(*keys[index]))))
                except ValueError as error:
                    if "there is no step" not in str(error):
                        raise
        return batches

    # --- an augmenter

    def _augmenter(self, processes: int, method: str | None = None) -> DeterministicAugmenter:
        """Return a new augmenter of a new pipeline.

        Args:
            processes: worker processes; 0: this process makes the batches.
            method: by which they start; None: the system's default.

        Raises:
            NotPicklable: this pipeline cannot be run like that.
        """
        pipeline = call_factory(self._factory, batches_per_epoch=self._batches_per_epoch)
        try:
            return pipeline.augmenter(
                processes,
                seed=self._seed,
                batches_per_epoch=self._batches_per_epoch,
                executor=LocalProcesses(method) if processes else None,
            )
        except (TypeError, ValueError) as error:
            raise NotPicklable(str(error)) from error


def _row(name: str, reference: Reference, run: Callable[[], _RunFingerprints]) -> Row:
    """Run a row and compare its batches with the reference's."""
    batches = run()
    different: set[int] = set()
    for index, batch_fingerprint in batches:
        if batch_fingerprint != reference.fingerprints[index]:
            different.add(index)
    # Batches missing at a row's end are among them, as different; those that a replay left out
    # are not.
    num_batches = len(dict(batches))
    return Row.of(name, num_batches, [reference.keys[index] for index in sorted(different)])


def _keys_and_fingerprints(
    augmenter: DeterministicAugmenter,
    count: int,
    before_batch: Callable[[], None] = _do_nothing,
) -> Iterator[tuple[BatchKey, str]]:
    """Yield the position and the fingerprint of batches, over the ends of epochs.

    Args:
        augmenter: gives the batches.
        count: of batches; there are fewer if the loader has fewer.
        before_batch: is called before each batch.

    Raises:
        UnusableError: a batch has no fingerprint.
    """
    num_ends = 0
    # Two ends in a row: the loader has no more batches.
    while count > 0 and num_ends < 2:
        before_batch()
        key = BatchKey(augmenter.epoch, augmenter.step)
        try:
            batch = next(augmenter)
        except StopIteration:
            num_ends += 1
            continue
        try:
            batch_fingerprint = fingerprint(batch)
        except TypeError as error:
            raise UnusableError(f"a batch cannot be compared: {error}") from error
        # A batch that is still held would keep its memory while the next one is made.
        del batch
        yield key, batch_fingerprint
        count -= 1
        num_ends = 0


def _fingerprints(
    augmenter: DeterministicAugmenter, count: int, before_batch: Callable[[], None] = _do_nothing
) -> list[str]:
    """Return the fingerprints of `_keys_and_fingerprints`."""
    batches = _keys_and_fingerprints(augmenter, count, before_batch)
    return [batch_fingerprint for _, batch_fingerprint in batches]


def _scramble() -> None:
    """Change all global random states, as a training script does that draws its own numbers."""
    # From the operating system, because seeded numbers could be equal in all runs, and hide a
    # dependence.
    random.seed(random.SystemRandom().getrandbits(64))
    np.random.seed(random.SystemRandom().getrandbits(32))
    torch.default_generator.manual_seed(random.SystemRandom().getrandbits(62))
