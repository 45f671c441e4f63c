"""A slot that could not be taken over is lost to nobody: the worker drops it, and the next batch has another."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from detaug.memory.limits import LimitReached
from detaug.transport.slots import ParentSlots, WorkerSlots
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
