"""A pipeline run in all the ways that must not matter: with other numbers of workers, of which some
die, resumed, replayed.

`run_all_ways` gives what came of it; `Findings.assert_right` is for pipelines of which nothing is
to be said.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from detaug import DeterministicAugmenter, fingerprint
from tests.support.processes import worker_pids

EPOCHS = (0, 2)
#: Warnings that say nothing about whether batches are reproducible.
OTHER_WARNINGS = (
    *("will be idle", "stepped forward", "seed was given"),
    *(
        "(SIGKILL)",
        "has been starting for",
        "The other workers continue",
        "the loop waited",
    ),  # of workers, on a busy machine
)
#: Without workers every batch is checked. With workers each check costs a process, and the first,
#: second, fourth and eighth batch of each worker are: the batches of all ways are compared with
#: each other besides.
EVERY_BATCH, AS_A_USER_HAS_IT = 1, 100
#: A pipeline without an end is looked at for so many batches of an epoch.
_MOST = 40

#: In the warning of state that is put back after every batch.
CARRIED = "every batch starts from"

Make = Callable[..., DeterministicAugmenter]
#: Batches of an epoch, where the loader does not end by itself.
BATCHES = 8
Batches = dict[tuple[int, int], Any]


@dataclass
class Findings:
    """What came of the runs.

    Attributes:
        batches: by way, by (epoch, step).
        words: what detaug raised or warned of, with the way.
    """

    batches: dict[str, Batches] = field(default_factory=dict)
    words: list[str] = field(default_factory=list)

    def different(self) -> list[tuple[str, int, int]]:
        """(way, epoch, step) of batches that differ from those of the first way that made them."""
        first: dict[tuple[int, int], str] = {}
        found = []
        for way, batches in self.batches.items():
            for key, batch in batches.items():
                print_ = fingerprint(batch)
                if first.setdefault(key, print_) != print_:
                    found.append((way, *key))
        return found

    def assert_right(self, carries_state: bool = False) -> None:
        """The pipeline is correct: the same batches in all ways, and nothing to say about it.

        `carries_state`: but that it carries some from batch to batch, which is put back.
        """
        words = [word for word in self.words if not (carries_state and CARRIED in word)]
        assert not words, words[0]
        assert self.different() == []
        whole = {
            way: set(batches)
            for way, batches in self.batches.items()
            if way not in ("replayed", "resumed")
        }
        assert len({frozenset(keys) for keys in whole.values()}) == 1, whole

    def assert_same_or_said(self) -> None:
        """The pipeline may be incorrect: the same batches, or a word about it."""
        assert self.words or self.different() == [], self.different()

    def epoch(self, way: str, epoch: int) -> list[Any]:
        """An epoch's batches in order."""
        return [
            batch for (number, _), batch in sorted(self.batches[way].items()) if number == epoch
        ]


@contextmanager
def listening() -> Iterator[list[str]]:
    """Warnings of detaug about reproducibility."""
    heard: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            text = record.getMessage()
            if not any(other in text for other in OTHER_WARNINGS):
                heard.append(text)

    ear, logger = Ear(level=logging.WARNING), logging.getLogger("detaug")
    logger.addHandler(ear)
    try:
        yield heard
    finally:
        logger.removeHandler(ear)


def check_every(num_processes: int) -> int:
    """How often a pipeline is checked here, unless the test is about the check."""
    return AS_A_USER_HAS_IT if num_processes else EVERY_BATCH


def making(loader: Any, transform: Any = None, **options: Any) -> Make:
    """Makes augmenters over a loader."""
    settings: dict[str, Any] = {"seed": 19, "batches_per_epoch": BATCHES, **options}
    return lambda num_processes: DeterministicAugmenter(
        loader, transform, num_processes, **{"check": check_every(num_processes), **settings}
    )


def making_from(dataset: Any, batch_size: int, **options: Any) -> Make:
    """Makes augmenters over a data set."""
    return lambda num_processes: DeterministicAugmenter.from_dataset(
        dataset,
        batch_size,
        num_processes=num_processes,
        **{"seed": 19, "check": check_every(num_processes), **options},
    )


def items_of(batches: list[Any]) -> list[int]:
    """The numbers in them, in order."""
    return sorted(int(item) for batch in batches for item in np.asarray(batch).ravel())


class OneOf:
    """A composition that calls one of its transforms."""

    def __init__(self, *choices: Any) -> None:
        self.choices = choices

    def __call__(self, **batch: Any) -> Any:
        return self.choices[np.random.randint(len(self.choices))](**batch)


class Then:
    """A composition that calls all of them."""

    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, **batch: Any) -> Any:
        for transform in self.transforms:
            batch = transform(**batch)
        return batch


def with_workers(case: Any, cases: Collection[Any]) -> tuple[int, ...]:
    """Numbers of workers for `run_all_ways`.

    Copies of pipelines are made in the same way in every process, so workers are for those `cases`
    alone that they might change.
    """
    return (0, 2) if case in cases else (0,)


def run_all_ways(make: Make, processes: tuple[int, ...] = (0, 2), kill: bool = True) -> Findings:
    """Run a pipeline in all ways.

    Args:
        make: gives a new augmenter, called as ``make(num_processes=...)``.
        processes: numbers of workers. The resumed run has one where any run has some.
        kill: SIGKILL the workers in the middle of the first epoch. The second one is made by those
            that came after them.
    """
    found = Findings()
    ways: dict[str, Callable[[], Iterator[tuple[int, int, Any]]]] = {}
    for number in processes:
        ways[f"{number} workers"] = lambda number=number: _run(make, number, kill)
    ways["resumed"] = lambda: _resumed(make, int(any(processes)))
    ways["replayed"] = lambda: _replayed(
        make, dict.fromkeys(key for b in found.batches.values() for key in b)
    )
    for way, run in ways.items():
        batches = found.batches[way] = {}
        with listening() as heard:
            try:
                for epoch, step, batch in run():
                    batches[epoch, step] = batch
            except Exception as error:
                heard.append(f"{type(error).__name__}: {error}")
        found.words += [f"{way}: {text}" for text in heard]
    return found


def _batches(augmenter: DeterministicAugmenter) -> Iterator[tuple[int, int, Any]]:
    for _ in range(_MOST):
        try:
            batch = next(augmenter)
        except StopIteration:
            return
        yield augmenter.epoch, _step_before(augmenter), batch


def _step_before(augmenter: DeterministicAugmenter) -> int:
    return augmenter._schedule.last_position.step


def _run(make: Make, number: int, kill: bool) -> Iterator[tuple[int, int, Any]]:
    with make(num_processes=number) as augmenter:
        for epoch in EPOCHS:
            augmenter.set_epoch(epoch)
            for count, each in enumerate(_batches(augmenter)):
                yield each
                if kill and (epoch, count) == (EPOCHS[0], 2) and number:
                    for pid in worker_pids():
                        os.kill(pid, signal.SIGKILL)


def _resumed(make: Make, workers: int) -> Iterator[tuple[int, int, Any]]:
    """Each of the epochs is left after three batches and gone on with by another augmenter, the
    last one with workers.
    """
    for epoch in EPOCHS:
        with make(num_processes=0) as one:
            one.set_epoch(epoch)
            yield from islice(_batches(one), 3)
            state = json.loads(json.dumps(one.state_dict()))
        with make(num_processes=workers * (epoch == EPOCHS[-1])) as other:
            other.load_state_dict(state)
            yield from islice(_batches(other), 4)


def _replayed(make: Make, keys: Any) -> Iterator[tuple[int, int, Any]]:
    """Single batches, from the last to the first."""
    with make(num_processes=0) as augmenter:
        for epoch, step in sorted(keys, reverse=True)[::3]:
            yield epoch, step, augmenter.replay(epoch, step)
