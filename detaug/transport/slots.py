"""Slots: reusable blocks of shared memory that each carry one batch from a worker to the parent.

A slot is made and filled by one worker; the parent maps it once and hands out arrays that view it. When the last of
them is garbage-collected the slot's number comes back to the parent, which tells the worker with its next task.

In a slot lie a table of (offset, bytes) of what follows, the pickle, and the buffers.

Forks: a process that the user forks sees the arrays that the user holds. So a slot that is out with the user at that
moment is never used again, and all others are not inherited: neither can they change under the child, nor does the child
keep their memory.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import weakref
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.memory.blocks import Bytes, Lease, Mapping, create, reserve
from detaug.memory.layout import ALIGNMENT, capacity_for, lay_out
from detaug.memory.limits import LimitReached, explained
from detaug.transport.transfer import Packed, unpack

#: Arrays up to this size (bytes) that are also a small part of their batch are copied out of its slot, so that whoever
#: keeps one (a label, a case's name) does not keep the whole slot.
_COPIED_OUT = 65_536
_SMALL_PART = 16
#: More slots than that go back to a worker with later messages.
_MOST_AT_ONCE = 1_000
_SPAN = np.dtype((np.int64, 2))


class Parcel(NamedTuple):
    """What a worker says of a batch that it wrote.

    Attributes:
        slot: the slot's number, unique in its worker.
        capacity: bytes of the slot.
        entries: of the table at its beginning.
        replaced: slots that the worker gave up for it, being too small.
    """

    slot: int
    capacity: int
    entries: int
    replaced: tuple[int, ...] = ()


class WorkerSlots:
    """A worker's side: makes slots, fills the free ones.

    A free slot is given up when a larger one has to be made, so that batches that grow end up with slots that fit.
    """

    def __init__(self) -> None:
        self._slots: dict[int, Mapping] = {}
        self._free: list[tuple[int, int, int]] = []  # sorted (bytes, when it came back, number)
        self._made = 0
        self._returns = itertools.count()

    def give_back(self, numbers: Sequence[int]) -> None:
        """The parent holds no array of these any more."""
        for number in numbers:
            if number in self._slots:
                insort(self._free, (self._slots[number].size, next(self._returns), number))

    def drop(self, numbers: Sequence[int]) -> None:
        """The parent has unmapped these; they are not needed."""
        for number in numbers:
            self._slots.pop(number, None)

    def write(self, packed: Packed) -> tuple[Parcel, int | None]:
        """Write a batch into a slot. Returns its parcel, and the descriptor to be sent (and closed) if it is a new one.

        Raises:
            OSError: no slot could be made.
        """
        contents = [np.frombuffer(packed.pickled, dtype=np.uint8), *packed.buffers]
        sizes = [content.nbytes for content in contents]
        layout = lay_out([len(contents) * _SPAN.itemsize, *sizes])
        offsets = layout.offsets[1:]
        number, descriptor, replaced = self._slot_for(layout.size)
        mapping = self._slots[number]
        block = mapping.bytes()
        _table(block, len(contents))[:] = np.array([offsets, sizes], dtype=np.int64).T
        for offset, size, content in zip(offsets, sizes, contents, strict=True):
            np.copyto(block[offset : offset + size], content)
        return Parcel(number, mapping.size, len(contents), replaced), descriptor

    def _slot_for(self, size: int) -> tuple[int, int | None, tuple[int, ...]]:
        place = bisect_left(self._free, (size,))
        if place < len(self._free):
            # The smallest that fits; of equals the one used last, whose pages are still in the cache.
            place = bisect_right(self._free, (self._free[place][0] + 1,)) - 1
            return self._free.pop(place)[2], None, ()
        replaced: tuple[int, ...] = ()
        if self._free:
            replaced = (self._free.pop(0)[2],)
            del self._slots[replaced[0]]
        capacity = capacity_for(size)
        descriptor = create(capacity)
        try:
            reserve(descriptor, size)
            mapping = Mapping(descriptor, capacity, inherited=False)
        except BaseException:
            os.close(descriptor)
            raise
        self._made += 1
        self._slots[self._made] = mapping
        return self._made, descriptor, replaced


def _table(block: Bytes, count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return block[: count * _SPAN.itemsize].view(np.int64).reshape(count, 2)


class ParentSlots:
    """The parent's side of one worker's slots.

    Args:
        keep: free slots kept for reuse; what comes back beyond that is dropped.
    """

    def __init__(self, keep: int) -> None:
        self._mappings: dict[int, Mapping] = {}
        self._keep = keep
        # Leases end in whatever thread collects garbage. The end of one is appended here by C code alone: no lock is
        # taken, and an interrupt (Ctrl-C) finds no line of Python in which it would be lost with the slot.
        self._returned: deque[_Delivery] = deque()
        self._out: dict[int, _Delivery] = {}
        self._unused: list[int] = []
        self._at_worker: set[int] = set()
        self._lost: list[int] = []
        self._refused: dict[int, LimitReached] = {}
        number = id(self)
        _every[number] = weakref.ref(self, lambda _: _every.pop(number, None))

    def open(self, parcel: Parcel) -> Any:
        """The batch in that slot, which is mapped; its arrays view the slot's memory and hold it.

        Raises:
            LimitReached: the slot could not be mapped.
        """
        if parcel.slot not in self._mappings:
            raise self._refused[parcel.slot]
        self._at_worker.discard(parcel.slot)
        mapping = self._mappings[parcel.slot]
        lease = Lease(mapping)
        self._out[parcel.slot] = _Delivery(lease, self._returned.append, parcel.slot, mapping)
        block = lease.bytes()
        del lease
        spans = _table(block, parcel.entries).tolist()
        small = min(_COPIED_OUT, sum(size for _, size in spans) // _SMALL_PART)
        (start, length), *rest = spans
        buffers = (
            block[offset : offset + size] if size > small else _copy(block[offset : offset + size])
            for offset, size in rest
        )
        return unpack(block[start : start + length], buffers)

    def hand_over(self, parcel: Parcel) -> Callable[[], None] | None:
        """What is to be called when the user gets that batch; None if nothing of it lies in its slot."""
        delivery = self._out[parcel.slot]
        return None if delivery() is None else functools.partial(delivery.mapping.inherit, True)

    def refuse(self, descriptor: int | None, parcel: Parcel) -> None:
        """The batch is not wanted: its slot goes straight back."""
        with contextlib.suppress(LimitReached):
            self.map(parcel, descriptor)
            self._unused.append(parcel.slot)

    def map(self, parcel: Parcel, descriptor: int | None) -> None:
        """Take a slot over, if it is a new one.

        Raises:
            LimitReached: (an OSError) there was no descriptor free for it, or no memory to map it. The worker is told
                to drop it.
        """
        for number in parcel.replaced:
            self._mappings.pop(number, None)
            self._at_worker.discard(number)
        if parcel.slot in self._mappings:
            return
        try:
            if descriptor is None:  # the kernel drops what it finds no number for
                lost = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                raise explained(lost, "a batch's memory cannot be taken over from its worker")
            self._mappings[parcel.slot] = Mapping(descriptor, parcel.capacity, inherited=False)
        except LimitReached as error:
            self._lost.append(parcel.slot)
            self._refused = {parcel.slot: error}
            raise
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def take_returned(self) -> tuple[list[int], list[int]]:
        """(slots the worker may fill again, slots it is to drop) since the last call; no more than fit a message."""
        again: list[int] = []
        drop, self._lost = self._lost[:_MOST_AT_ONCE], self._lost[_MOST_AT_ONCE:]
        free, self._unused = self._unused, []
        while self._returned and len(free) < _MOST_AT_ONCE:
            delivery = self._returned.popleft()
            del self._out[delivery.slot]
            if delivery.forked:
                self._mappings.pop(delivery.slot, None)
                drop.append(delivery.slot)
            else:
                free.append(delivery.slot)
        for number in free:
            mapping = self._mappings[number]
            if len(self._at_worker) < self._keep:
                mapping.inherit(False)
                self._at_worker.add(number)
                again.append(number)
            else:
                del self._mappings[number]
                drop.append(number)
        return again, drop

    def not_told(self, again: Sequence[int], drop: Sequence[int]) -> None:
        """The worker could not be told what `take_returned` gave: it will be given again."""
        self._at_worker.difference_update(again)
        self._unused.extend(again)
        self._lost.extend(drop)

    def close(self) -> None:
        """The worker is gone: nothing of it will be used again. Batches that are out stay valid."""
        self._mappings.clear()
        self._at_worker.clear()
        self._out.clear()  # first: the ends of these leases are not noted any more
        self._returned.clear()

    def mark_forked(self) -> None:
        """The process forks now: the child sees what is out with the user, which therefore must not change any more."""
        for delivery in list(self._out.values()):  # a copy, made by C code alone: the coordinator may be at work
            if delivery() is None:  # let go, though the coordinator has not come to it yet
                delivery.mapping.inherit(False)
            elif delivery.mapping.inherited:
                delivery.forked = True


class _Delivery(weakref.ref[Lease]):
    """A lease that was given out, seen from here without keeping it."""

    __slots__ = ("forked", "mapping", "slot")

    slot: int
    mapping: Mapping
    forked: bool

    def __new__(cls, lease: Lease, at_its_end: Callable[[Any], None], slot: int, mapping: Mapping) -> _Delivery:
        self = super().__new__(cls, lease, at_its_end)
        self.slot = slot
        self.mapping = mapping
        self.forked = False
        return self

    def __init__(self, lease: Lease, at_its_end: Callable[[Any], None], slot: int, mapping: Mapping) -> None:
        super().__init__(lease, at_its_end)  # type: ignore[call-arg]


def _copy(source: Bytes) -> Bytes:
    """As aligned as in a slot."""
    room = np.empty(source.nbytes + ALIGNMENT, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + source.nbytes]
    copy[:] = source
    return copy


_every: dict[int, weakref.ref[ParentSlots]] = {}


def _mark_all_forked() -> None:
    for reference in list(_every.values()):
        slots = reference()
        if slots is not None:
            slots.mark_forked()


if hasattr(os, "register_at_fork"):
    # Before, for a lease may end, and its slot be used again, in another thread as soon as the child is there. And
    # after, for another thread may have been given a batch between that and the fork.
    os.register_at_fork(before=_mark_all_forked, after_in_parent=_mark_all_forked)
