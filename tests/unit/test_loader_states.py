"""Which states of loaders are plain JSON, and which of them belong to the reader's place."""

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

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=20,
)


RING: list[Any] = []
RING.append(RING)


class Loader:
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


@given(
    streams=st.integers(1, 4),
    limit=st.integers(1, 9) | st.none(),
    due=st.tuples(st.integers(0, 2), st.integers(0, 30)),
    taken=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 9)), max_size=30),
)
def test_states_of_a_place_are_the_latest_that_lie_before_it(
    streams: int, limit: int | None, due: tuple[int, int], taken: list[tuple[int, int, int]]
) -> None:
    source = resolve_source(Loader(), None, limit)
    states = LoaderStates(source, streams)
    place = BatchKey(*due)
    known = [
        LoaderState(stream % streams, epoch, turn, False, "{}") for stream, epoch, turn in taken
    ]
    for state in known:
        states.add(state, place)
    found = read_states(states.as_text(place), streams)
    for stream in range(streams):
        here = [state for state in found if state.stream == stream]
        turns = source.turns_per_epoch(stream, streams)
        possible = [
            state
            for state in known
            if state.stream == stream
            and state.last_step(streams) < place
            and (state.epoch == place.epoch or turns is None or state.turn <= turns)
        ]
        latest = sorted(
            state for state in known if state.stream == stream and state.last_step(streams) < place
        )
        if latest and latest[-1] in possible:
            assert here == [latest[-1]]
        assert len(here) <= 1
        assert set(here) <= set(possible)
