"""Which states of loaders are plain JSON, and which of them belong to a reader's position."""

from __future__ import annotations

import collections
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug.pipeline.loader_states import (
    LARGEST,
    LoaderState,
    LoaderStates,
    NotPlain,
    read_states,
    text_of,
)
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.sources import resolve_source

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
)


def containers_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=5), values, max_size=4)


#: Nested values that JSON keeps as they are.
PLAIN = st.recursive(SCALARS, containers_of, max_leaves=20)

#: A list that contains itself.
RING: list[Any] = []
RING.append(RING)


class Loader:
    """A loader with a state."""

    def __next__(self) -> Any: ...

    def state_dict(self) -> Any: ...

    def load_state_dict(self, state: Any) -> None: ...


@settings(max_examples=40)
@given(PLAIN)
def test_plain_state_comes_back_as_it_was(state: Any) -> None:
    back = json.loads(text_of(state))
    assert repr(back) == repr(state)


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {1: 2},
        {True: 1},
        {1, 2},
        b"bytes",
        float("nan"),
        float("-inf"),
        np.int64(3),
        collections.OrderedDict(a=1),
        collections.Counter("aab"),
        "x" * LARGEST,
        RING,
    ],
)
def test_anything_else_is_refused(value: Any) -> None:
    for state in (value, {"deep": [{"in": value}]}):
        with pytest.raises(NotPlain):
            text_of(state)


#: (stream, epoch, turn) of a state.
PLACES = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 9))


@given(
    num_streams=st.integers(1, 4),
    limit=st.integers(1, 9) | st.none(),
    due=st.tuples(st.integers(0, 2), st.integers(0, 30)),
    places=st.lists(PLACES, max_size=30),
)
def test_states_of_a_place_are_the_latest_that_lie_before_it(
    num_streams: int, limit: int | None, due: tuple[int, int], places: list[tuple[int, int, int]]
) -> None:
    source = resolve_source(Loader(), None, limit)
    states = LoaderStates(source, num_streams)
    next_batch = BatchKey(*due)
    known = []
    for stream, epoch, turn in places:
        known.append(LoaderState(stream % num_streams, epoch, turn, False, "{}"))
        states.add(known[-1], next_batch)
    saved = read_states(states.as_text(next_batch), num_streams)
    for stream in range(num_streams):
        earlier = []
        for state in known:
            if state.stream == stream and state.last_step(num_streams) < next_batch:
                earlier.append(state)
        # A state of a past epoch counts only if the stream has that many turns in an epoch.
        max_turn = source.turns_per_epoch(stream, num_streams)
        possible = []
        for state in earlier:
            if state.epoch == next_batch.epoch or max_turn is None or state.turn <= max_turn:
                possible.append(state)
        saved_of_stream = [state for state in saved if state.stream == stream]
        assert len(saved_of_stream) <= 1
        assert set(saved_of_stream) <= set(possible)
        if earlier and max(earlier) in possible:
            assert saved_of_stream == [max(earlier)]
