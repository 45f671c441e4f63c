"""Any copyable iterator or iterable is a loader, and so is a callable that makes one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.augmenters import Maker


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
    "a class with only __next__": (lambda: IteratorOnly(4), [0, 1, 2, 3]),
    "a function that makes a generator": (lambda: functools.partial(count_to, 4), [0, 1, 2, 3]),
    "a lambda that makes a generator": (lambda: lambda: (i * i for i in range(4)), [0, 1, 4, 9]),
    "a class that makes an iterator": (lambda: functools.partial(IteratorOnly, 3), [0, 1, 2]),
    "an empty list": (list, []),
}


@pytest.mark.parametrize("what", FINITE)
@pytest.mark.parametrize("n", [0, 2])
def test_first_epoch_of_a_finite_iterable_is_what_it_holds(make: Maker, what: str, n: int) -> None:
    loader, expected = FINITE[what]
    assert list(make(loader(), None, n, seed=1, num_streams=1)) == expected


class UnevenStreams:
    """Has streams, without a base class of batchgenerators: 0 ends at once, 1 after two turns, 2 after five."""

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
@pytest.mark.parametrize("nothing", [[], iter([]), lambda: iter([])], ids=["list", "iterator", "callable"])
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
