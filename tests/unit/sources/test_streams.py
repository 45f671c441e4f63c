"""What a stream's copy gives is a function of (epoch, turn), however one gets there. Without
processes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from detaug.pipeline import streams
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.sources import resolve_source
from detaug.pipeline.streams import StreamCursor, StreamEnded
from detaug.seeding.current import Current, SeedBranch
from detaug.seeding.tree import SeedTree


class Passes:
    """Passes of some lengths, then of the last one for ever; raises at some places and goes on."""

    def __init__(self, *lengths: int, bad: tuple[int, ...] = ()) -> None:
        self.lengths, self.bad, self.passes, self.place = list(lengths), bad, 0, 0

    def __next__(self) -> tuple[int, int]:
        length = self.lengths[min(self.passes, len(self.lengths) - 1)]
        if self.place == length:
            self.passes, self.place = self.passes + 1, 0
            raise StopIteration
        self.place += 1
        if self.place - 1 in self.bad:
            raise ValueError(f"item {self.place - 1}")
        return self.passes, self.place - 1


class Walker:
    def __init__(self) -> None:
        self.place = 0

    def __next__(self) -> int:
        self.place += 1
        return self.place - 1


class DeadAfterAnError:
    """A generator that raised has ended."""

    def __iter__(self) -> Iterator[int]:
        for place in range(8):
            if place == 3:
                raise ValueError("item 3")
            yield place


def copy_of(
    loader: Any,
    limit: int | None,
    epoch: int = 0,
    stream: int = 0,
    num_streams: int = 1,
    log: Any = print,
) -> StreamCursor:
    source = resolve_source(loader, None, limit)
    branch = SeedBranch(SeedTree(0), num_streams)
    return StreamCursor(PipelineSnapshot(source, None), Current(branch, epoch, stream), branch, log)


def give(copy: StreamCursor, epoch: int, turn: int, stream: int = 0, num_streams: int = 1) -> Any:
    copy.step_forward_to(epoch, turn)
    return copy.take(
        Current(SeedBranch(SeedTree(0), num_streams), epoch, turn * num_streams + stream)
    )


def outcome(copy: StreamCursor, *where: int) -> Any:
    """The batch, the message of the error, or StreamEnded."""
    try:
        return give(copy, *where)
    except StreamEnded:
        return StreamEnded
    except ValueError as error:
        return str(error)


def epochs_of(
    make_loader: Any, limit: int | None, count: int, stream: int = 0, num_streams: int = 1
) -> list[Any]:
    """Each epoch until its end or its limit, as a running copy gives it."""
    copy = copy_of(make_loader(), limit, stream=stream, num_streams=num_streams)
    turns = copy.source.turns_per_epoch(stream, num_streams)
    if turns is None:
        turns = limit or 100
    epochs: list[list[Any]] = []
    for epoch in range(count):
        epochs.append([])
        for turn in range(turns):
            assert copy.leads_to(epoch, turn)
            made = outcome(copy, epoch, turn, stream, num_streams)
            if made is StreamEnded:
                break
            epochs[-1].append(made)
    return epochs


@pytest.mark.parametrize(
    ("make_loader", "limit"),
    [
        (Walker, 5),
        (lambda: Passes(7), None),
        (lambda: Passes(7), 7),
        (lambda: Passes(7), 3),
        (lambda: Passes(6), 3),
        (lambda: Passes(4, 0, 5), 10),
        (lambda: Passes(5, bad=(1, 4)), None),
        (lambda: Passes(5, bad=(1, 4)), 5),
        (lambda: Passes(5, bad=(1, 4)), 2),
        (lambda: Passes(0), 4),
        (DeadAfterAnError, None),
        (DeadAfterAnError, 3),
        (DeadAfterAnError, 4),
        (lambda: list(range(8)), 3),
        (lambda: lambda: itertools.chain(range(8)), 3),
        (lambda: lambda: (place for place in range(8)), 3),
    ],
)
def test_any_batch_is_the_same_from_a_fresh_copy(make_loader: Any, limit: int | None) -> None:
    for epoch, batches in enumerate(epochs_of(make_loader, limit, 5)):
        for turn, expected in enumerate(batches):
            fresh = copy_of(make_loader(), limit, epoch)
            assert outcome(fresh, epoch, turn) == expected


def passes(number: int, *places: int) -> list[tuple[int, int]]:
    return [(number, place) for place in places]


@pytest.mark.parametrize(
    ("make_loader", "limit", "epochs"),
    [
        (
            Walker,
            5,
            [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]],
        ),  # what says nothing goes on
        (
            lambda: Passes(3),
            None,
            [passes(0, 0, 1, 2), passes(1, 0, 1, 2)],
        ),  # the end of a pass is the epoch's
        (lambda: Passes(3), 4, [passes(0, 0, 1, 2), passes(1, 0, 1, 2)]),
        (lambda: Passes(3), 2, [passes(0, 0, 1), passes(0, 2), passes(1, 0, 1), passes(1, 2)]),
        (
            lambda: Passes(4),
            4,
            [passes(0, 0, 1, 2, 3), passes(1, 0, 1, 2, 3)],
        ),  # and leaves no empty one behind
        (lambda: Passes(4), 2, [passes(0, 0, 1), passes(0, 2, 3), passes(1, 0, 1)]),
        (lambda: list(range(8)), 3, [[0, 1, 2], [0, 1, 2]]),  # what is known to end begins anew
        (
            lambda: Passes(3, bad=(1,)),
            None,
            [[(0, 0), "item 1", (0, 2)], [(1, 0), "item 1", (1, 2)]],
        ),  # an error is a turn
        (DeadAfterAnError, None, [[0, 1, 2, "item 3"], [0, 1, 2, "item 3"]]),
    ],
)
def test_epochs_of_a_stream_are(
    make_loader: Any, limit: int | None, epochs: list[list[Any]]
) -> None:
    assert epochs_of(make_loader, limit, len(epochs)) == epochs


@pytest.mark.parametrize("num_streams", [2, 3, 7])
def test_every_stream_has_its_turns_of_each_epoch(num_streams: int) -> None:
    for stream in range(num_streams):
        turns = len(range(stream, 5, num_streams))
        flat = list(range(3 * turns))
        expected = [flat[i * turns : (i + 1) * turns] for i in range(3)]
        assert epochs_of(Walker, 5, 3, stream, num_streams) == expected


def test_turns_beyond_the_epochs_are_given_and_the_next_epoch_is_not_moved_by_them() -> None:
    copy = copy_of(Walker(), 5)
    assert [give(copy, 0, turn) for turn in range(8)] == list(range(8))
    assert not copy.leads_to(1, 0)


def test_a_pass_without_an_end_is_not_walked_through_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "_LONGEST_PASS", 1_000)
    with pytest.raises(RuntimeError, match="batches_per_epoch"):
        give(copy_of(Walker(), None, epoch=1), 1, 0)


def test_stepping_forward_is_told_after_twice_as_long_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds, said = itertools.count(), list[str]()
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    copy_of(Walker(), None, log=said.append).step_forward_to(0, 50)
    assert [text.partition("now at epoch 0, turn ")[2].partition(")")[0] for text in said] == [
        "6",
        "11",
        "21",
        "41",
    ]
