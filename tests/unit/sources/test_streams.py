"""A stream's batch is a function of (epoch, turn), whatever its copy gave before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

from detaug.pipeline import streams
from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.loader_states import LoaderState
from detaug.pipeline.sources import resolve_source
from detaug.pipeline.streams import StreamCursor, StreamEnded
from detaug.seeding.current import Current, SeedBranch
from detaug.seeding.tree import SeedTree


class Passes:
    """An iterator whose items are (number of the pass, index of the item).

    Args:
        lengths: of the passes; all further ones have the last length.
        bad: indices at which an error is raised. The next call continues after them.
    """

    def __init__(self, *lengths: int, bad: tuple[int, ...] = ()) -> None:
        self.lengths = lengths
        self.bad = bad
        self.num_passes = 0
        self.index = 0

    def __next__(self) -> tuple[int, int]:
        length = self.lengths[min(self.num_passes, len(self.lengths) - 1)]
        index = self.index
        if index == length:
            self.num_passes += 1
            self.index = 0
            raise StopIteration
        self.index += 1
        if index in self.bad:
            raise ValueError(f"item {index}")
        return self.num_passes, index


class Walker:
    """An endless iterator of 0, 1, 2, ..."""

    def __init__(self) -> None:
        self.index = 0

    def __next__(self) -> int:
        self.index += 1
        return self.index - 1


class DeadAfterAnError:
    """An iterable whose generator raises at item 3, and so ends there."""

    def __iter__(self) -> Iterator[int]:
        for index in range(8):
            if index == 3:
                raise ValueError("item 3")
            yield index


def copy_of(
    loader: Any,
    limit: int | None,
    epoch: int = 0,
    stream: int = 0,
    num_streams: int = 1,
    log: Any = print,
    state: LoaderState | None = None,
) -> StreamCursor:
    """Return a stream's copy at the start of an epoch, or after a loaded state."""
    source = resolve_source(loader, None, limit)
    branch = SeedBranch(SeedTree(0), num_streams)
    batch = Current(branch, epoch, stream)
    return StreamCursor(PipelineSnapshot(source, None), batch, branch, log, state)


def give(copy: StreamCursor, epoch: int, turn: int, stream: int = 0, num_streams: int = 1) -> Any:
    """Return the batch of a turn."""
    copy.step_forward_to(epoch, turn)
    branch = SeedBranch(SeedTree(0), num_streams)
    return copy.take(Current(branch, epoch, turn * num_streams + stream))


def outcome(copy: StreamCursor, *position: int) -> Any:
    """Return a turn's batch, the message of its error, or StreamEnded."""
    try:
        return give(copy, *position)
    except StreamEnded:
        return StreamEnded
    except ValueError as error:
        return str(error)


def epochs_of(
    make_loader: Any, limit: int | None, count: int, stream: int = 0, num_streams: int = 1
) -> list[Any]:
    """Return the batches of the first epochs, all from one copy."""
    copy = copy_of(make_loader(), limit, stream=stream, num_streams=num_streams)
    turns = copy.source.turns_per_epoch(stream, num_streams)
    if turns is None:
        turns = limit or 100
    epochs: list[list[Any]] = []
    for epoch in range(count):
        epochs.append([])
        for turn in range(turns):
            assert copy.leads_to(epoch, turn)
            batch = outcome(copy, epoch, turn, stream, num_streams)
            if batch is StreamEnded:
                break
            epochs[-1].append(batch)
    return epochs


def eight() -> list[int]:
    return list(range(8))


def function_of_an_iterator() -> Any:
    return partial(itertools.chain, range(8))


def count_to_eight() -> Iterator[int]:
    yield from range(8)


def generator_function() -> Any:
    return count_to_eight


#: Pairs of a function that makes a loader, and `batches_per_epoch`.
LOADERS: list[tuple[Any, int | None]] = [
    (Walker, 5),
    (partial(Passes, 7), None),
    (partial(Passes, 7), 7),
    (partial(Passes, 7), 3),
    (partial(Passes, 6), 3),
    (partial(Passes, 4, 0, 5), 10),
    (partial(Passes, 5, bad=(1, 4)), None),
    (partial(Passes, 5, bad=(1, 4)), 5),
    (partial(Passes, 5, bad=(1, 4)), 2),
    (partial(Passes, 0), 4),
    (DeadAfterAnError, None),
    (DeadAfterAnError, 3),
    (DeadAfterAnError, 4),
    (eight, 3),
    (function_of_an_iterator, 3),
    (generator_function, 3),
]


@pytest.mark.parametrize(("make_loader", "limit"), LOADERS)
def test_any_batch_is_the_same_from_a_fresh_copy(make_loader: Any, limit: int | None) -> None:
    for epoch, batches in enumerate(epochs_of(make_loader, limit, 5)):
        for turn, expected in enumerate(batches):
            fresh = copy_of(make_loader(), limit, epoch)
            assert outcome(fresh, epoch, turn) == expected


def passes(number: int, *indices: int) -> list[Any]:
    """Return some items of a `Passes`."""
    return [(number, index) for index in indices]


#: A function that makes a loader, `batches_per_epoch`, and the batches of the first epochs.
EPOCHS: list[tuple[Any, int | None, list[list[Any]]]] = [
    # A loader of unknown length continues in the next epoch.
    (
        Walker,
        5,
        [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14]],
    ),
    # The end of a pass ends the epoch.
    (
        partial(Passes, 3),
        None,
        [passes(0, 0, 1, 2), passes(1, 0, 1, 2)],
    ),
    (
        partial(Passes, 3),
        4,
        [passes(0, 0, 1, 2), passes(1, 0, 1, 2)],
    ),
    (
        partial(Passes, 3),
        2,
        [passes(0, 0, 1), passes(0, 2), passes(1, 0, 1), passes(1, 2)],
    ),
    # If a pass is as long as the epoch, no empty epoch follows.
    (
        partial(Passes, 4),
        4,
        [passes(0, 0, 1, 2, 3), passes(1, 0, 1, 2, 3)],
    ),
    (
        partial(Passes, 4),
        2,
        [passes(0, 0, 1), passes(0, 2, 3), passes(1, 0, 1)],
    ),
    # A loader of known length starts again in every epoch.
    (
        eight,
        3,
        [[0, 1, 2], [0, 1, 2]],
    ),
    # An error takes a turn.
    (
        partial(Passes, 3, bad=(1,)),
        None,
        [[(0, 0), "item 1", (0, 2)], [(1, 0), "item 1", (1, 2)]],
    ),
    (
        DeadAfterAnError,
        None,
        [[0, 1, 2, "item 3"], [0, 1, 2, "item 3"]],
    ),
]


@pytest.mark.parametrize(("make_loader", "limit", "epochs"), EPOCHS)
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


class Clock:
    """A clock that advances by a second at every reading."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def monotonic(self) -> float:
        self.seconds += 1
        return self.seconds


def test_stepping_forward_is_told_after_twice_as_long_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages: list[str] = []
    monkeypatch.setattr(streams, "time", Clock())
    copy_of(Walker(), None, log=messages.append).step_forward_to(0, 50)
    assert len(messages) == 4
    for message, turn in zip(messages, (6, 11, 21, 41), strict=True):
        assert f"now at epoch 0, turn {turn})" in message


class Drawing:
    """A loader with a generator of its own, which `load_state_dict` replaces by another object."""

    def __init__(self) -> None:
        self.count = 0
        self.rng = np.random.default_rng(1)

    def __next__(self) -> tuple[int, float]:
        self.count += 1
        return self.count, self.rng.random()

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]
        self.rng = np.random.default_rng(2)


def test_a_generator_that_a_loaded_state_has_replaced_is_seeded() -> None:
    whole = copy_of(Drawing(), None)
    expected = [give(whole, 0, turn) for turn in range(5)]
    saved = copy_of(Drawing(), None)
    give(saved, 0, 2)
    resumed = copy_of(Drawing(), None, state=saved.take_state())
    assert give(resumed, 0, 3) == expected[3]
    assert give(resumed, 0, 4) == expected[4]
