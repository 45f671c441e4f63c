"""A slot that could not be taken over is lost to nobody: the worker drops it, and the next batch has another."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from detaug.memory.blocks import Mapping
from detaug.memory.limits import LimitReached
from detaug.transport.slots import ParentSlots, WorkerSlots, _mark_all_forked
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


def test_a_fork_while_slots_go_back_inherits_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
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
    held.clear()
    inherit, seen, forking = Mapping.inherit, [], False

    def inherit_and_fork(mapping: Mapping, yes: bool) -> None:
        # The system call lets other threads run: one of them forks.
        nonlocal forking
        inherit(mapping, yes)
        if not forking:
            forking = True
            _mark_all_forked()
            seen.append([each.inherited for each in mappings])
            forking = False

    monkeypatch.setattr(Mapping, "inherit", inherit_and_fork)
    parent.take_returned()
    assert seen[0] == [False] * 5
