"""A slot that could not be taken over is lost to nobody: the worker drops it, and the next batch has another."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest

from detaug.memory.limits import LimitReached
from detaug.transport.slots import ParentSlots, WorkerSlots, _after_fork, _before_fork
from detaug.transport.transfer import pack


def test_slot_whose_descriptor_was_dropped_goes_back_to_be_dropped() -> None:
    worker, parent = WorkerSlots(), ParentSlots(keep=2)
    contents, descriptor = worker.write(pack({"data": np.arange(10_000)}))
    assert descriptor is not None
    with pytest.raises(LimitReached, match="open files"):
        parent.map(contents, None)
    again, dropped = parent.take_returned()
    assert (again, dropped) == ([], [contents.slot])
    worker.give_back(again)
    worker.drop(dropped)
    contents, descriptor = worker.write(pack({"data": np.arange(10_000)}))
    assert descriptor is not None, "it is a new slot"
    parent.map(contents, descriptor)
    assert (parent.open(contents)["data"] == np.arange(10_000)).all()


def test_end_of_a_batch_runs_no_line_in_which_an_interrupt_could_be_lost() -> None:
    # Python prints an exception that is raised in a finalizer, and drops it: Ctrl-C would be lost, and the slot with it.
    worker, parent = WorkerSlots(), ParentSlots(keep=2)
    contents, descriptor = worker.write(pack({"data": np.arange(10_000)}))
    parent.map(contents, descriptor)
    batch = parent.open(contents)
    lines: list[str] = []
    before = sys.getprofile()
    sys.setprofile(lambda frame, event, _: lines.append(frame.f_code.co_name) if event == "call" else None)
    try:
        del batch
    finally:
        sys.setprofile(before)
    assert lines == []
    assert parent.take_returned() == ([contents.slot], [])


def test_a_fork_while_slots_go_back_inherits_what_the_user_holds_and_nothing_else() -> None:
    worker, parent = WorkerSlots(), ParentSlots(keep=9)
    held, mappings = [], []
    for number in range(5):
        contents, descriptor = worker.write(pack({"data": np.arange(10_000) + number}))
        parent.map(contents, descriptor)
        held.append(parent.open(contents))
        to_user = parent.hand_over(contents)
        assert to_user is not None
        to_user()
        mappings.append(parent._mappings[contents.slot])
    del held[1:]
    seen = []

    def fork(frame: FrameType, event: str, arg: Any) -> Any:  # another thread may, at any line
        if frame.f_code is ParentSlots.take_returned.__code__ and event == "line":
            _before_fork()
            _after_fork()
            seen.append([each.inherited for each in mappings])
        return fork

    before = sys.gettrace()
    sys.settrace(fork)
    try:
        returned = parent.take_returned()
    finally:
        sys.settrace(before)
    assert len(seen) > 10
    assert all(each == [True] + [False] * 4 for each in seen)
    assert len(returned[0]) == 4
    held.clear()
    assert parent.take_returned() == ([], [contents.slot - 4]), "the child may see it: it is not filled again"
