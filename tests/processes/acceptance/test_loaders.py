"""batchgenerators' loaders behave as under its augmenters; iterators and iterables are loaders, and
so is what makes one.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase
from batchgenerators.examples.multithreaded_dataloading import DummyDL

from tests.support.augmenters import Maker, cases_with_workers
from tests.support.comparing import fingerprints_of, take, through_json
from tests.support.loaders import IndexLoader, Noise, RandomLoader
from tests.support.processes import own_processes


def flat(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch]


@pytest.mark.parametrize("other", [{"seed": 2}, {"name": "val"}, {"seed_for_shuffle": 2}])
def test_permutation_depends_on_seed_name_and_seed_for_shuffle(
    make: Maker, other: dict[str, Any]
) -> None:
    def order(seed_for_shuffle: int = 1, **options: Any) -> list[int]:
        return flat(
            make(IndexLoader(50, 5, 2, seed_for_shuffle), None, 0, **{"seed": 1, **options})
        )

    assert order() == order()
    assert order() != order(**other)


@pytest.mark.parametrize("length", [0, 1, 7, 33])  # more than the largest batch
@pytest.mark.parametrize("threads", [1, 4, 7])
@pytest.mark.parametrize("return_incomplete", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
def test_every_size_gives_as_many_batches_as_it_should(
    make: Maker, length: int, threads: int, return_incomplete: bool, shuffle: bool
) -> None:
    for batch_size in (1, 3, 32):
        full = length // batch_size
        expected = full + bool(length % batch_size) if return_incomplete else full
        items = length if return_incomplete else full * batch_size
        loader = IndexLoader(
            length, batch_size, threads, return_incomplete=return_incomplete, shuffle=shuffle
        )
        for n in (0, 2) if (length, batch_size, threads) == (33, 3, 4) else (0,):
            augmenter = make(loader, None, n, 5, None, False, wait_time=0, seed=1)
            augmenter._start()
            for _ in range(3):
                batches = list(augmenter)
                assert len(batches) == expected
                assert len(set(flat(batches))) == len(flat(batches)) == items
                assert shuffle or flat(batches) == list(range(items))


@pytest.mark.parametrize("n", [0, 2])
def test_restart_begins_anew_and_may_come_at_any_time(make: Maker, n: int) -> None:
    augmenter = make(DummyDL(2), None, n, seed=1)
    augmenter.restart()
    assert list(augmenter) == list(range(100))
    augmenter.restart()
    assert list(augmenter) == list(range(100))


@pytest.mark.parametrize("n", [0, 2])
def test_start_and_finish_may_be_called_as_on_batchgenerators_augmenters(
    make: Maker, n: int
) -> None:
    augmenter = make(DummyDL(2), None, n, seed=1)
    augmenter._finish()
    augmenter._start()
    augmenter._start()
    assert bool(own_processes()) == bool(n)
    assert take(augmenter, 3) == [0, 1, 2]
    augmenter._finish()
    augmenter._finish()
    assert not own_processes()
    augmenter._start()
    assert isinstance(next(augmenter), int)


class ThreadIdReporter(DummyDL):
    def generate_train_batch(self) -> tuple[int, int]:
        return super().generate_train_batch(), self.thread_id


@pytest.mark.parametrize("n", [0, 3])
def test_thread_id_is_the_stream(make: Maker, n: int) -> None:
    augmenter = make(ThreadIdReporter(3), None, n, seed=1)
    assert list(augmenter) == [(i, i % 3) for i in range(100)]


def test_one_warning_when_a_stateful_loader_has_fewer_streams_than_processes(
    make: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(record=True) as caught, caplog.at_level(logging.WARNING):
        warnings.simplefilter("always")
        list(make(DummyDL(1), None, 3, seed=1))
    said = [str(w.message) for w in caught] + [r.getMessage() for r in caplog.records]
    assert sum("stream" in text for text in said) == 1


class Slim(SlimDataLoaderBase):
    """One case after the other; ends with `end`, without declaring that its copies share the cases
    out.
    """

    def __init__(self, end: int | None = None) -> None:
        super().__init__(None, 1)
        self.place, self.end = 0, end

    def generate_train_batch(self) -> int:
        if self.place == self.end:
            self.place = 0
            raise StopIteration
        self.place += 1
        return self.place - 1


@pytest.mark.parametrize("n", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_slim_loader_that_ends_after_all_is_told_of(
    make: Maker, n: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert len(list(make(Slim(5), None, n, seed=1))) == 60
    assert any(
        "every item" in r.getMessage() and "num_streams=1" in r.getMessage() for r in caplog.records
    )
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        alone = make(Slim(5), None, n, seed=1, num_streams=1)
        assert [list(alone) for _ in range(2)] == [list(range(5))] * 2
    assert not any("every item" in r.getMessage() for r in caplog.records)


def test_old_style_seeds_are_a_seed_with_as_many_streams(make: Maker) -> None:
    seeds = [100, 101, 102]
    old = make(RandomLoader(), Noise(), 3, 2, seeds)
    new = make(RandomLoader(), Noise(), 0, seed=seeds, num_streams=3)
    assert fingerprints_of(take(old, 9)) == fingerprints_of(take(new, 9))


class IteratorOnly:
    """Has __next__ and nothing else."""

    def __init__(self, end: int | None = None) -> None:
        self.count, self.end = 0, end

    def __next__(self) -> int:
        if self.count == self.end:
            raise StopIteration
        self.count += 1
        return self.count - 1


def count_to(n: int) -> Iterator[int]:
    yield from range(n)


FINITE: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "a list": (lambda: [3, 1, 2], [3, 1, 2]),
    "a tuple of arrays": (lambda: ({"a": 1}, {"a": 2}), [{"a": 1}, {"a": 2}]),
    "a range": (lambda: range(5), [0, 1, 2, 3, 4]),
    "a list iterator": (lambda: iter([3, 1, 2]), [3, 1, 2]),
    "a class with only __next__": (partial(IteratorOnly, 4), [0, 1, 2, 3]),
    "a function that makes a generator": (partial(partial, count_to, 4), [0, 1, 2, 3]),
    "a lambda that makes a generator": (lambda: lambda: (i * i for i in range(4)), [0, 1, 4, 9]),
    "a class that makes an iterator": (partial(partial, IteratorOnly, 3), [0, 1, 2]),
    "an empty list": (list, []),
}


@pytest.mark.parametrize(
    ("what", "n"), cases_with_workers(FINITE, 2, {"a list", "a class that makes an iterator"})
)
def test_first_epoch_of_a_finite_iterable_is_what_it_holds(make: Maker, what: str, n: int) -> None:
    loader, expected = FINITE[what]
    assert list(make(loader(), None, n, seed=1, num_streams=1)) == expected


class UnevenStreams:
    """Has streams, without a base class of batchgenerators: 0 ends at once, 1 after two turns, 2
    after five.
    """

    number_of_threads_in_multithreaded = 3

    def set_thread_id(self, thread_id: int) -> None:
        self.thread_id = thread_id

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter([(self.thread_id, turn) for turn in range((0, 2, 5)[self.thread_id])])


@pytest.mark.parametrize("n", [0, 2])
def test_stream_that_ends_early_is_passed_over(make: Maker, n: int) -> None:
    augmenter = make(UnevenStreams(), None, n, seed=1)
    for _ in range(2):
        assert list(augmenter) == [(1, 0), (2, 0), (1, 1), (2, 1), (2, 2), (2, 3), (2, 4)]


@pytest.mark.parametrize("n", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_steps_are_virtual_where_streams_end_early(make: Maker, n: int) -> None:
    augmenter = make(UnevenStreams(), None, n, seed=1)
    list(augmenter)
    assert augmenter.replay(0, 1) == (1, 0)
    assert augmenter.replay(0, 14) == (2, 4)
    with pytest.raises((ValueError, IndexError)):
        augmenter.replay(0, 0)


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize(
    "nothing", [[], iter([]), lambda: iter([])], ids=["list", "iterator", "callable"]
)
def test_epoch_without_a_batch_is_told_once(
    make: Maker, n: int, nothing: Any, caplog: pytest.LogCaptureFixture
) -> None:
    augmenter = make(nothing, None, n, seed=1)
    assert [list(augmenter) for _ in range(3)] == [[], [], []]
    assert len([text for text in caplog.messages if "gave no batch in a whole epoch" in text]) == 1
    full = make([1, 2], None, n, seed=1)
    for epoch in (0, 2):
        full.set_epoch(epoch)  # an epoch that is left before its first batch is no empty one
        assert len(list(full)) == 2
    assert len([text for text in caplog.messages if "gave no batch" in text]) == 1


class OwnOrder(DataLoader):
    """Shuffles its cases by itself at the end of every pass, and never asks for indices."""

    def __init__(self, num_cases: int = 15, batch_size: int = 4) -> None:
        super().__init__([*range(100, 100 + num_cases)], batch_size, 1, 3, infinite=False)
        self.indices = [*range(num_cases)]
        self.rounds = 0
        self.begin_round()

    def begin_round(self) -> None:
        self.cases = np.random.default_rng(self.rounds).permutation(self._data).tolist()
        self.rounds += 1

    def generate_train_batch(self) -> dict[str, Any]:
        batch, self.cases = self.cases[: self.batch_size], self.cases[self.batch_size :]
        if not batch:
            self.begin_round()
            raise StopIteration
        return {"cases": batch, "drawn": np.random.random()}


def cases_of(batches: Iterable[dict[str, Any]]) -> list[list[int]]:
    return [batch["cases"] for batch in batches]


@pytest.mark.parametrize("n", [0, 1, 3])
def test_a_finite_loader_with_a_shuffle_of_its_own_goes_on_from_pass_to_pass(
    make: Maker, n: int
) -> None:
    stock = OwnOrder()
    expected = [cases_of(stock) for _ in range(4)]
    assert len({str(epoch) for epoch in expected}) == 4
    augmenter = make(OwnOrder(), None, n, seed=1)
    assert [cases_of(augmenter) for _ in range(4)] == expected
    assert cases_of([augmenter.replay(2, 3), augmenter.replay(0, 1)]) == [
        expected[2][3],
        expected[0][1],
    ]


@pytest.mark.parametrize("n", [0, 2])
def test_its_epochs_are_entered_in_any_order(make: Maker, n: int) -> None:
    whole = make(OwnOrder(), None, 0, seed=1, batches_per_epoch=4)
    epochs = [fingerprints_of(whole) for _ in range(4)]
    jumping = make(OwnOrder(), None, n, seed=1, batches_per_epoch=4)
    for epoch in (3, 1, 2):
        jumping.set_epoch(epoch)
        assert fingerprints_of(take(jumping, 3)) == epochs[epoch][:3]
    resumed = make(OwnOrder(), None, n, seed=1, batches_per_epoch=4)
    resumed.load_state_dict(through_json(jumping.state_dict()))
    assert fingerprints_of(resumed) == epochs[2][3:]
    assert fingerprints_of(resumed) == epochs[3]


def test_a_loader_that_asks_for_indices_makes_no_batch_to_find_out(make: Maker) -> None:
    class Counting(IndexLoader):
        made = 0

        def generate_train_batch(self) -> list[int]:
            Counting.made += 1
            return super().generate_train_batch()

    augmenter = make(Counting(20, 4), None, 0, seed=1, check=False)
    for _ in range(3):
        list(augmenter)
    assert Counting.made == 15


class FiveBatches(SlimDataLoaderBase):
    """Ends, and does not declare how many threads share it."""

    def __init__(self) -> None:
        super().__init__(None, 2)
        self.next_number = 0

    def generate_train_batch(self) -> dict[str, Any]:
        if self.next_number == 5:
            raise StopIteration
        self.next_number += 1
        return {"number": self.next_number}


class CatchesTheEnd(SlimDataLoaderBase):
    """Has no end: that of what it reads is its own business."""

    def __init__(self) -> None:
        super().__init__(None, 2)
        self.numbers = iter(range(5))

    def generate_train_batch(self) -> dict[str, Any]:
        try:
            return {"number": next(self.numbers)}
        except StopIteration:
            self.numbers = iter(range(5))
            return {"number": next(self.numbers)}


@pytest.mark.parametrize("wrap", [lambda loader: loader, lambda loader: type(loader)])
def test_a_loader_that_may_end_and_has_many_streams_is_told_before_the_first_batch(
    make: Maker, wrap: Callable[[Any], Any], caplog: pytest.LogCaptureFixture
) -> None:
    make(wrap(FiveBatches()), None, 0, seed=1)
    (record,) = caplog.records
    assert "FiveBatches may end" in record.message
    assert "each of its 12 streams" in record.message
    assert "num_streams=1" in record.message


def test_other_loaders_are_not_told_so(make: Maker, caplog: pytest.LogCaptureFixture) -> None:
    make(FiveBatches(), None, 0, seed=1, num_streams=1)
    make(FiveBatches(), None, 0, seed=1, stateless=True)
    make(RandomLoader(), None, 0, seed=1)
    make(CatchesTheEnd(), None, 0, seed=1)
    assert not caplog.records
