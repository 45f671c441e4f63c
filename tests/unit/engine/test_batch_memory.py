"""Slots: arrays made in them are not copied, and no batch changes another one's bytes.

No slot is lost to a limit, a fork or an interrupt.
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

#: Shape of most arrays.
SIDES = (3, 50, 70)
#: The most free slots that are kept.
KEPT = 4


class Pair:
    """The worker's and the parent's side of the same slots, in one process.

    Its creation makes `empty` allocate on the worker's side.

    Attributes:
        num_created: number of slots that were created.
        num_dropped: number of slots that were dropped.
    """

    def __init__(self, keep: int = KEPT) -> None:
        self.worker = WorkerSlots()
        self.parent = ParentSlots(keep)
        self.num_created = 0
        self.num_dropped = 0
        allocate_with(self.worker.allocate)

    def send(self, make: Callable[[], Any]) -> Any:
        """Make a batch on the worker's side; return the batch that the parent gets."""
        owner = [make()]
        contents, descriptor = self.worker.write(pack(owner[0]), owner)
        self.worker.discard()
        if descriptor is not None:
            self.num_created += 1
        batch = self.parent.open(contents, descriptor)
        self.return_slots()
        return batch

    def send_in_new_slot(self, batch: Any) -> tuple[SlotContents, Any]:
        """Send a batch that was made outside of a slot; return its contents and the new batch."""
        contents, descriptor = self.worker.write(pack(batch), [batch])
        return contents, self.parent.open(contents, descriptor)

    def return_slots(self) -> None:
        """Return the slots of batches that have ended to the worker's side."""
        reusable, dropped = self.parent.collect_returned()
        self.num_dropped += len(dropped)
        self.worker.release(reusable)
        self.worker.drop(dropped)


def allocate_nothing(size: int) -> None:
    """Return None, so that `empty` allocates as NumPy does."""


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Yield a new pair; afterwards `empty` allocates as NumPy does again."""
    yield Pair()
    allocate_with(allocate_nothing)


class Image:
    """An object whose pickle refers to memory that is overwritten when the object ends."""

    def __init__(self, value: int, size: int) -> None:
        self.memory = np.full(size, value, np.uint8)

    def __reduce_ex__(self, protocol: Any) -> Any:
        room = (ctypes.c_ubyte * self.memory.nbytes).from_address(self.memory.ctypes.data)
        return np.asarray, (np.frombuffer(room, np.uint8),)

    def __del__(self) -> None:
        MEMORY.append(self.memory)
        self.memory[:] = 0


#: Memory of images that have ended. It is kept, so that a late read shows its new contents.
MEMORY: list[Any] = []


@pytest.mark.parametrize("has_array_in_slot", [False, True])
def test_memory_that_an_object_of_the_batch_frees_is_read_before(
    pair: Pair, has_array_in_slot: bool
) -> None:
    def make() -> dict[str, Any]:
        batch: dict[str, Any] = {"image": Image(7, 50_000)}
        if has_array_in_slot:
            batch["in slot"] = empty(SMALLEST, np.uint8)
        return batch

    num_ended = len(MEMORY)
    assert (pair.send(make)["image"] == 7).all()
    assert len(MEMORY) == num_ended + 1, "it is gone"


def filled(value: float, shape: Any = SIDES, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Return an array of `empty` with this value everywhere."""
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
        assert batch["text"] == "a" * 600
        assert batch["small"].tolist() == [0, 1, 2]
        del batch
        pair.return_slots()
    assert len(set(addresses)) == 1
    assert pair.num_created == 1, "one slot was enough"


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
            # If the array lay in a slot, this would change a batch that has been delivered.
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
    assert pair.num_created == 1


def test_a_batch_that_fails_leaves_its_slot_to_the_next(pair: Pair) -> None:
    filled(1.0)
    pair.worker.discard()
    batch = pair.send(two)
    assert (batch["data"] == 2.0).all()
    assert pair.num_created == 1


def test_elsewhere_it_is_numpys(pair: Pair) -> None:
    small = empty(SMALLEST // 4 - 1)
    assert small.flags.owndata
    assert small.dtype == np.float32
    assert small.shape == (SMALLEST // 4 - 1,)
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
    def hold_at_once(num_batches: int) -> None:
        held = [pair.send(small_batch) for _ in range(num_batches)]
        held.clear()
        pair.return_slots()

    for _ in range(3):
        hold_at_once(KEPT)
    assert pair.num_created == KEPT
    assert pair.num_dropped == 0
    hold_at_once(KEPT + 3)
    assert pair.num_created == KEPT + 3
    assert pair.num_dropped == 3
    hold_at_once(KEPT)
    assert pair.num_created == KEPT + 3


def test_slots_of_batches_that_have_grown_are_used_again(pair: Pair) -> None:
    for _ in range(KEPT):
        pair.send(small_batch)
    num_before = pair.num_created
    for _ in range(20):
        assert pair.send(large_batch)["data"].sum() == 300_000
    assert pair.num_created == num_before + 2, "large slots take the place of small ones"


def test_a_batch_that_is_taken_between_the_hook_and_the_fork_is_never_overwritten(
    pair: Pair,
) -> None:
    contents, batch = pair.send_in_new_slot(filled(1))
    mark = pair.parent.mark_delivered(contents)
    slots._before_fork()
    assert mark is not None
    mark()
    slots._after_fork()
    assert pair.parent._mappings[contents.slot].inherited
    del batch
    assert pair.parent.collect_returned() == ([], [contents.slot])


def test_slot_whose_descriptor_was_dropped_goes_back_to_be_dropped() -> None:
    worker = WorkerSlots()
    parent = ParentSlots(keep=2)
    contents, descriptor = worker.write(pack({"data": np.arange(10_000)}), [])
    assert descriptor is not None
    with pytest.raises(LimitReached, match="open files"):
        parent.open(contents, None)
    reusable, dropped = parent.collect_returned()
    assert reusable == []
    assert dropped == [contents.slot]
    worker.release(reusable)
    worker.drop(dropped)
    contents, descriptor = worker.write(pack({"data": np.arange(10_000)}), [])
    assert descriptor is not None, "it is a new slot"
    assert (parent.open(contents, descriptor)["data"] == np.arange(10_000)).all()


def test_end_of_a_batch_runs_no_line_in_which_an_interrupt_could_be_lost(pair: Pair) -> None:
    # Python prints an exception that is raised in a finalizer and then drops it. A Ctrl-C at such a
    # line would be lost, and the slot with it.
    contents, batch = pair.send_in_new_slot(np.arange(10_000))
    called: list[str] = []

    def record_call(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            called.append(frame.f_code.co_name)

    profile_before = sys.getprofile()
    sys.setprofile(record_call)
    try:
        del batch
    finally:
        sys.setprofile(profile_before)
    assert called == []
    assert pair.parent.collect_returned() == ([contents.slot], [])


def test_a_fork_while_slots_go_back_inherits_what_the_user_holds_and_nothing_else() -> None:
    pair = Pair(keep=9)
    parent = pair.parent
    held = []
    mappings = []
    for number in range(5):
        contents, batch = pair.send_in_new_slot(np.arange(10_000) + number)
        held.append(batch)
        del batch
        mark = parent.mark_delivered(contents)
        assert mark is not None
        mark()
        mappings.append(parent._mappings[contents.slot])
    del held[1:]
    inherited_at_forks = []

    # Another thread may fork at any line.
    def fork_at_each_line(frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code is ParentSlots.collect_returned.__code__ and event == "line":
            _before_fork()
            _after_fork()
            inherited_at_forks.append([mapping.inherited for mapping in mappings])
        return fork_at_each_line

    trace_before = sys.gettrace()
    sys.settrace(fork_at_each_line)
    try:
        reusable, _ = parent.collect_returned()
    finally:
        sys.settrace(trace_before)
    assert len(inherited_at_forks) > 10
    for inherited in inherited_at_forks:
        assert inherited == [True, False, False, False, False]
    assert len(reusable) == 4
    held.clear()
    assert parent.collect_returned() == ([], [contents.slot - 4]), (
        "the child may see it: it is not filled again"
    )


def test_a_batch_that_ends_while_the_slots_are_closed_does_not_come_back(pair: Pair) -> None:
    # Another thread may collect garbage at any line.
    parent = pair.parent
    held = [pair.send_in_new_slot(np.arange(10_000))[1] for _ in range(9)]
    lines: set[int] = set()

    def drop_one(frame: FrameType, event: str, _: Any) -> Any:
        is_in_close = frame.f_code is ParentSlots.close.__code__ and event == "line"
        if is_in_close and frame.f_lineno not in lines:
            lines.add(frame.f_lineno)
            held.pop()
        return drop_one

    trace_before = sys.gettrace()
    sys.settrace(drop_one)
    try:
        parent.close()
    finally:
        sys.settrace(trace_before)
    assert len(lines) >= 5, "a batch ended at each line"
    held.clear()
    assert parent.collect_returned() == ([], [])
