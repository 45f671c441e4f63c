"""Copies past the caches: the same bytes as any copy, and nothing beside them."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.memory.streaming import _LARGE, StreamingCopy

ROOM = 4096


@pytest.fixture(scope="module")
def copy() -> StreamingCopy:
    copy = StreamingCopy(worth_compiling=0)
    copy(np.empty(_LARGE, np.uint8), np.zeros(_LARGE, np.uint8))
    if not copy.streams:
        pytest.skip("no compiler for this machine")
    return copy


@pytest.mark.parametrize("size", [_LARGE, _LARGE + 1, _LARGE + 127, 3_333_333])
@pytest.mark.parametrize(("to", "start"), [(0, 0), (64, 0), (1, 7), (63, 64), (33, 1)])
def test_every_byte_is_copied_and_none_beside(copy: StreamingCopy, size: int, to: int, start: int) -> None:
    source = np.random.default_rng(size).integers(0, 256, size + ROOM, dtype=np.uint8)
    target = np.full(size + ROOM, 7, np.uint8)
    copy(target[to : to + size], source[start : start + size])
    assert np.array_equal(target[to : to + size], source[start : start + size])
    assert (target[:to] == 7).all()
    assert (target[to + size :] == 7).all()


def test_nothing_is_compiled_for_a_short_run_or_small_arrays() -> None:
    copy = StreamingCopy(worth_compiling=2 * _LARGE)
    source, target = np.ones(_LARGE, np.uint8), np.zeros(_LARGE, np.uint8)
    for _ in range(4):
        copy(target[: _LARGE - 1], source[: _LARGE - 1])
    for _ in range(2):
        copy(target, source)
    assert not copy.streams
    assert target.all()
    copy(target, source)
    assert copy.streams
