"""Slots: arrays made in them are not copied, nobody else's bytes change, and none is lost to a
limit or a fork.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import pytest
import torch

from detaug.engine.local import slots
from detaug.engine.local.slots import (
    ParentSlots,
    SlotContents,
    WorkerSlots,
    _after_fork,
    _before_fork,
)
from detaug.objects.batch_pickling import pack
from detaug.seeding.batch_memory import SMALLEST, allocate_with, empty
from detaug.system.limits import LimitReached

SIDES = (3, 50, 70)
#: Free slots.
KEPT = 4


class Pair:
    """A worker's and the parent's side of the same slots; `empty` asks the worker's."""

    def __init__(self, keep: int = KEPT) -> None:
        self.worker = WorkerSlots()
        self.parent = ParentSlots(keep)
        self.made = 0
        self.dropped = 0
        allocate_with(self.worker.allocate)

    def send(self, make: Callable[[], Any]) -> Any:
        """What the parent gets of a batch."""
        whole = [make()]
        contents, descriptor = self.worker.write(pack(whole[0]), whole)
        self.worker.discard()
        self.made += descriptor is not None
        batch = self.parent.open(contents, descriptor)
        self.give_back()
        return batch

    def carry(self, batch: Any) -> tuple[SlotContents, Any]:
        """In a new slot."""
        contents, descriptor = self.worker.write(pack(batch), [batch])
        return contents, self.parent.open(contents, descriptor)

    def give_back(self) -> None:
        again, dropped = self.parent.collect_returned()
        self.dropped += len(dropped)
        self.worker.release(again)
        self.worker.drop(dropped)


@pytest.fixture
def pair() -> Iterator[Pair]:
    yield Pair()
    allocate_with(lambda size: None)


class Image:
    """Its memory lies outside of Python's objects, and holds something else once it is gone."""

    def __init__(self, value: int, size: int) -> None:
        self.memory = np.full(size, value, np.uint8)

    def __reduce_ex__(self, protocol: Any) -> Any:
        room = (ctypes.c_ubyte * self.memory.nbytes).from_address(self.memory.ctypes.data)
        return np.asarray, (np.frombuffer(room, np.uint8),)

    def __del__(self) -> None:
        MEMORY.append(self.memory)
        self.memory[:] = 0


MEMORY: list[Any] = []


@pytest.mark.parametrize("beside", [{}, {"taken": SMALLEST}])
def test_memory_that_an_object_of_the_batch_frees_is_read_before(
    pair: Pair, beside: dict[str, int]
) -> None:
    def make() -> dict[str, Any]:
        return {
            "image": Image(7, 50_000),
            **{name: empty(size, np.uint8) for name, size in beside.items()},
        }

    made = len(MEMORY)
    assert (pair.send(make)["image"] == 7).all()
    assert len(MEMORY) == made + 1, "it is gone"


def filled(value: float, shape: Any = SIDES, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    array = empty(shape, dtype)
    array[...] = value
    return array


def address(array: np.ndarray[Any, Any]) -> int:
    return int(array.ctypes.data)


def do_any_share_memory(batches: list[Any]) -> bool:
    pairs = itertools.combinations(batches, 2)
    return any(np.shares_memory(one, other) for one, other in pairs)


def test_an_array_of_the_slot_is_where_the_worker_wrote_it(pair: Pair) -> None:
    addresses = []

    def make() -> dict[str, Any]:
        array = filled(7.0)
        addresses.append(address(array))
        return {"data": array, "text": "a" * 600, "small": np.arange(3)}

    for _ in range(3):
        batch = pair.send(make)
        assert (batch["data"] == 7.0).all()
        assert batch["data"].shape == SIDES
        assert batch["data"].flags.writeable
        assert (batch["text"], batch["small"].tolist()) == ("a" * 600, [0, 1, 2])
        del batch
        pair.give_back()
    assert len(set(addresses)) == 1
    assert pair.made == 1, "one slot was enough"


def test_what_the_slot_has_no_room_for_is_copied_once_and_fits_from_then_on(pair: Pair) -> None:
    inside = []

    def make() -> list[Any]:
        arrays = [filled(float(i)) for i in range(4)]
        mapping = pair.worker._filling.mapping  # type: ignore[union-attr]
        offsets = [address(array) - mapping.address for array in arrays]
        inside.append([0 <= offset < mapping.size for offset in offsets])
        return arrays

    for _ in range(3):
        batch = pair.send(make)
        assert [float(array.mean()) for array in batch] == [0.0, 1.0, 2.0, 3.0]
        assert not do_any_share_memory(batch)
    assert inside == [[True, False, False, False], [True] * 4, [True] * 4]


def test_parts_views_tensors_and_other_orders_arrive(pair: Pair) -> None:
    def make() -> dict[str, Any]:
        whole = filled(1.0, (4, *SIDES))
        whole[1] = 2.0
        whole[:, 0, 0, 0] = 9.0
        tensor = torch.from_numpy(filled(3, SIDES, np.int16))
        return {
            "part": whole[1:3],
            "strided": whole[:, ::2],
            "transposed": whole.T,
            "tensor": tensor,
            "bool": filled(1, 20_000, bool),
            "ordinary": np.full(SIDES, 5.0),
        }

    expected = make()
    for _ in range(3):
        batch = pair.send(make)
        for name, value in expected.items():
            assert type(batch[name]) is type(value)
            assert np.array_equal(np.asarray(batch[name]), np.asarray(value)), name
            assert batch[name].dtype == value.dtype


def test_arrays_of_a_batch_do_not_write_into_each_other(pair: Pair) -> None:
    def make() -> dict[str, Any]:
        whole = filled(1.0, (2, *SIDES))
        return {"whole": whole, "half": whole[0]}

    for _ in range(2):
        batch = pair.send(make)
        batch["half"][...] = 4.0
        assert (batch["whole"] == 1.0).all()


def two() -> dict[str, Any]:
    return {"data": filled(2.0)}


def small_batch() -> dict[str, Any]:
    return {"data": np.arange(10_000)}


def test_an_array_that_is_kept_is_copied(pair: Pair) -> None:
    kept: list[np.ndarray[Any, Any]] = []

    def make() -> dict[str, Any]:
        for array in kept:
            # It would change a batch that has been given out.
            array[...] += 10.0
        kept[:] = [filled(2.0)]
        return {"data": kept[0]}

    batches = [pair.send(make)["data"] for _ in range(7)]
    assert not do_any_share_memory(batches)
    for batch in batches:
        assert (batch == 2.0).all()


def test_an_array_of_a_batch_that_failed_is_nobody_elses(pair: Pair) -> None:
    kept = filled(1.0)
    pair.worker.discard()
    batch = pair.send(two)
    kept[...] = 3.0
    assert (batch["data"] == 2.0).all()
    assert pair.made == 1


def test_a_batch_that_fails_leaves_its_slot_to_the_next(pair: Pair) -> None:
    filled(1.0)
    pair.worker.discard()
    batch = pair.send(two)
    assert (batch["data"] == 2.0).all()
    assert pair.made == 1


def test_elsewhere_it_is_numpys(pair: Pair) -> None:
    small = empty(SMALLEST // 4 - 1)
    assert small.flags.owndata
    assert (small.dtype, small.shape) == (np.float32, (SMALLEST // 4 - 1,))
    assert empty((2, 0, 5)).shape == (2, 0, 5)
    assert empty((), np.int8).shape == ()
    assert empty([np.int64(3), 40_000], "f8").shape == (3, 40_000)
    assert empty((200, 200), object)[0, 0] is None
    with pytest.raises(ValueError, match="negative"):
        empty((-1, 100_000))
    with pytest.raises(TypeError):
        empty((2.5, 100_000))  # type: ignore[list-item]


def large_batch() -> dict[str, Any]:
    return {"data": np.ones(300_000)}


def test_slots_are_filled_again_and_those_beyond_what_is_kept_are_dropped(pair: Pair) -> None:
    def hold_at_once(batches: int) -> None:
        held = [pair.send(small_batch) for _ in range(batches)]
        held.clear()
        pair.give_back()

    for _ in range(3):
        hold_at_once(KEPT)
    assert (pair.made, pair.dropped) == (KEPT, 0)
    hold_at_once(KEPT + 3)
    assert (pair.made, pair.dropped) == (KEPT + 3, 3)
    hold_at_once(KEPT)
    assert pair.made == KEPT + 3


def test_slots_of_batches_that_have_grown_are_used_again(pair: Pair) -> None:
    for _ in range(KEPT):
        pair.send(small_batch)
    made = pair.made
    for _ in range(20):
        assert pair.send(large_batch)["data"].sum() == 300_000
    assert pair.made == made + 2, "large slots take the place of small ones"


def test_a_batch_that_is_taken_between_the_hook_and_the_fork_is_never_overwritten(
    pair: Pair,
) -> None:
    contents, batch = pair.carry(filled(1))
    hand_over = pair.parent.mark_delivered(contents)
    slots._before_fork()
    assert hand_over is not None
    hand_over()
    slots._after_fork()
    assert pair.parent._mappings[contents.slot].inherited
    del batch
    assert pair.parent.collect_returned() == ([], [contents.slot])


def test_slot_whose_descriptor_was_dropped_goes_back_to_be_dropped() -> None:
    worker, parent = WorkerSlots(), ParentSlots(keep=2)
    contents, descriptor = worker.write(pack({"data": np.arange(10_000)}), [])
    assert descriptor is not None
    with pytest.raises(LimitReached, match="open files"):
        parent.open(contents, None)
    again, dropped = parent.collect_returned()
    assert (again, dropped) == ([], [contents.slot])
    worker.release(again)
    worker.drop(dropped)
    contents, descriptor = worker.write(pack({"data": np.arange(10_000)}), [])
    assert descriptor is not None, "it is a new slot"
    assert (parent.open(contents, descriptor)["data"] == np.arange(10_000)).all()


def test_end_of_a_batch_runs_no_line_in_which_an_interrupt_could_be_lost(pair: Pair) -> None:
    # Python prints an exception that is raised in a finalizer, and drops it: Ctrl-C would be lost,
    # and the slot with it.
    contents, batch = pair.carry(np.arange(10_000))
    lines: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            lines.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        del batch
    finally:
        sys.setprofile(before)
    assert lines == []
    assert pair.parent.collect_returned() == ([contents.slot], [])


def test_a_fork_while_slots_go_back_inherits_what_the_user_holds_and_nothing_else() -> None:
    pair = Pair(keep=9)
    parent = pair.parent
    held = []
    mappings = []
    for number in range(5):
        contents, batch = pair.carry(np.arange(10_000) + number)
        held.append(batch)
        del batch
        to_user = parent.mark_delivered(contents)
        assert to_user is not None
        to_user()
        mappings.append(parent._mappings[contents.slot])
    del held[1:]
    seen = []

    # Another thread may, at any line.
    def fork(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is ParentSlots.collect_returned.__code__ and event == "line":
            _before_fork()
            _after_fork()
            seen.append([mapping.inherited for mapping in mappings])
        return fork

    before = sys.gettrace()
    sys.settrace(fork)
    try:
        returned = parent.collect_returned()
    finally:
        sys.settrace(before)
    assert len(seen) > 10
    for inherited in seen:
        assert inherited == [True, False, False, False, False]
    assert len(returned[0]) == 4
    held.clear()
    assert parent.collect_returned() == ([], [contents.slot - 4]), (
        "the child may see it: it is not filled again"
    )


def test_a_batch_that_ends_while_the_slots_are_closed_does_not_come_back(pair: Pair) -> None:
    """Garbage may be collected by another thread, at any line."""
    parent = pair.parent
    held = [pair.carry(np.arange(10_000))[1] for _ in range(9)]
    lines: set[int] = set()

    def drop_one(frame: FrameType, event: str, _: Any) -> Any:
        is_in_close = frame.f_code is ParentSlots.close.__code__ and event == "line"
        if is_in_close and frame.f_lineno not in lines:
            lines.add(frame.f_lineno)
            held.pop()
        return drop_one

    before = sys.gettrace()
    sys.settrace(drop_one)
    try:
        parent.close()
    finally:
        sys.settrace(before)
    assert len(lines) >= 5, "a batch ended at each line"
    held.clear()
    assert parent.collect_returned() == ([], [])
