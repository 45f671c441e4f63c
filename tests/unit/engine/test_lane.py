"""The ring of a lane, from both of its sides in one process."""

from __future__ import annotations

import os
import pickle

import pytest

from detaug.engine.local import messages
from detaug.engine.local.lane import ENTRIES, Bell, Lane, OwnLane
from detaug.engine.order.outcomes import Position

pytestmark = pytest.mark.skipif(not hasattr(os, "eventfd"), reason="there are no eventfds here")


class Worker:
    """What a lane needs of one: a way to wake it."""

    def nudge(self) -> None:
        pass


def make_all_that_may_be_made(own: OwnLane) -> None:
    while own.has_room:
        step = own.begin()
        own.finish(messages.Inline(0, pickle.dumps(step), [], None), None)


def test_entries_that_are_free_are_not_read_when_a_lane_is_left() -> None:
    """A worker may be between an entry's batch and its number: a jump back would have given the new batch for the old step."""
    bell = Bell()
    lane = Lane([Worker()], bell)
    lane.begin_at(Position(0, 100, 100), 1, None, 1, [(0,)])
    ((_, order),) = lane.orders()
    own = OwnLane(order, os.dup(lane.descriptor), bell.descriptor)
    lane.close_descriptor()
    lane.advance(Position(0, 100, 100))
    make_all_that_may_be_made(own)
    assert sorted(key.step for key in lane.made()) == list(range(100, 100 + ENTRIES))
    lane.advance(Position(0, 110, 110))
    assert sorted(key.step for key in lane.made()) == list(range(110, 100 + ENTRIES))
    make_all_that_may_be_made(own)
    assert sorted(key.step for key in lane.made()) == list(range(110, 110 + ENTRIES))
