"""Slots: reusable blocks of shared memory that each carry one batch from a worker to the parent.

A slot is made and filled by one worker; the parent maps it once and hands out arrays that view it. When the last of
them is garbage-collected the slot's number comes back to the parent, which tells the worker with its next task.

In a slot lie the arrays that the loader made there itself (`WorkerSlots.take`), the pickle, and copies of the batch's other
buffers.

Forks: a process that the user forks sees the arrays that the user holds. So a slot that is out with the user at that
moment is never used again, and all others are not inherited: neither can they change under the child, nor does the child
keep their memory. A batch that another thread takes between the hook and the fork counts as out. Where a loader or a transform
forks, the child sees the batch that is being made, which then travels in another slot.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.memory.blocks import (
    ALIGNMENT,
    BlockView,
    Bytes,
    Mapping,
    capacity_for,
    create,
    lay_out,
    round_up,
)
from detaug.memory.limits import LimitReached, explained
from detaug.transport.transfer import Packed, unpack

#: Arrays up to this size (bytes) that are also a small part of their batch are copied out of its slot, so that whoever
#: keeps one (a label, a case's name) does not keep the whole slot.
_COPIED_OUT = 65_536
_SMALL_PART = 16
#: So are all of a batch up to this size (bytes).
_SMALL_BATCH = 16_384


class SlotContents(NamedTuple):
    """What a worker says of a batch that it wrote.

    Attributes:
        slot: unique in its worker.
        capacity: bytes of the slot.
        parts: (offset, bytes) of the pickle and of each buffer.
        replaced: slots that the worker gave up meanwhile.
    """

    slot: int
    capacity: int
    parts: tuple[tuple[int, int], ...]
    replaced: tuple[int, ...] = ()


class WorkerSlots:
    """A worker's side: makes slots, fills the free ones, and gives one up for each larger one that has to be made."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._slots: dict[int, Mapping] = {}
        self._free: list[tuple[int, int]] = []  # sorted (bytes, number)
        self._made = 0
        self._unsent: dict[int, int] = {}  # descriptors of slots that the parent has not heard of
        self._given_up: list[int] = []  # which the parent has yet to hear
        self._filling: _Filling | None = None
        self._size = 0  # of the batch that was written last

    def give_back(self, numbers: Sequence[int]) -> None:
        """The parent holds no array of these any more."""
        for number in numbers:
            if number in self._slots:
                self._set_free(number)

    def drop(self, numbers: Sequence[int]) -> None:
        """The parent has unmapped these; they are not needed."""
        for number in numbers:
            self._slots.pop(number, None)

    def take(self, size: int) -> Bytes | None:
        """So many bytes of the slot in which the batch that is being made will travel, if that has room."""
        if os.getpid() != self._owner:
            return None  # a fork, which does not inherit slots
        if self._filling is None:
            try:
                self._filling = self._new_filling(max(size, self._size))
            except OSError:  # `write` tries again, and tells
                return None
        return self._filling.take(size)

    def abandon(self) -> None:
        """The batch that was being made is not written: nobody wants it, or it failed."""
        filling, self._filling = self._filling, None
        if filling is not None:
            self._end(filling)

    def write(self, packed: Packed, whole: list[Any] | None = None) -> tuple[SlotContents, int | None]:
        """Write a batch into a slot: what of it lies there already stays where it is. Returns what the parent is told, and the
        descriptor to be sent (and closed) if the slot is a new one. `whole`: a list with the batch itself, emptied here; nothing
        else may hold the batch, or it looks as if the loader had kept its arrays."""
        filling, self._filling = self._filling, None
        contents: list[Bytes] = [np.frombuffer(packed.pickled, dtype=np.uint8), *packed.buffers]
        packed.buffers.clear()
        there: list[int | None] = [None] * len(contents)
        taken = 0
        if filling is not None:
            there = [filling.offset_of(content) for content in contents]
            taken = filling.used if any(offset is not None for offset in there) else 0
            # The loader's own arrays are known by what still holds them once the batch is gone, and its memory with it.
            block = filling.mapping.bytes()
            contents = [
                content.copy() if offset is None else block[offset : offset + content.nbytes]
                for content, offset in zip(contents, there, strict=True)
            ]
            if whole is not None:
                whole.clear()
        sizes = [content.nbytes for content in contents]
        layout = lay_out([taken, *(size for size, offset in zip(sizes, there, strict=True) if offset is None)])
        self._size = layout.size
        left = None
        if filling is not None and (filling.is_held or layout.size > filling.mapping.size):
            left, filling = filling, None
            there = [None] * len(contents)
            layout = lay_out([0, *sizes])
        if filling is None:
            filling = self._new_filling(layout.size)
        block, free = filling.mapping.bytes(), iter(layout.offsets[1:])
        parts = []
        for content, offset, size in zip(contents, there, sizes, strict=True):
            start = next(free) if offset is None else offset
            parts.append((start, size))
            if offset is None:
                np.copyto(block[start : start + size], content)
        if left is not None:  # not before its contents are copied: it might have been the slot they go to
            self._end(left)
        replaced, self._given_up = tuple(self._given_up), []
        written = SlotContents(filling.slot, filling.mapping.size, tuple(parts), replaced)
        return written, self._unsent.pop(filling.slot, None)

    def _end(self, filling: _Filling) -> None:
        """Its slot is free, or its holder's."""
        (self._give_up if filling.is_held else self._set_free)(filling.slot)

    def _set_free(self, slot: int) -> None:
        insort(self._free, (self._slots[slot].size, slot))

    def _give_up(self, slot: int) -> None:
        del self._slots[slot]
        if (descriptor := self._unsent.pop(slot, None)) is not None:
            os.close(descriptor)
        else:
            self._given_up.append(slot)

    def _new_filling(self, size: int) -> _Filling:
        number = self._slot_for(size)
        return _Filling(number, self._slots[number])

    def _slot_for(self, size: int) -> int:
        if self._free:  # the smallest that fits; else the smallest of all makes room for a larger one
            place = bisect_left(self._free, (size,))
            if place < len(self._free):
                return self._free.pop(place)[1]
            self._give_up(self._free.pop(0)[1])
        capacity = capacity_for(size)
        descriptor = create(capacity, reserved=size)
        try:
            mapping = Mapping(descriptor, capacity, inherited=False)
        except BaseException:
            os.close(descriptor)
            raise
        self._made += 1
        self._slots[self._made] = mapping
        self._unsent[self._made] = descriptor
        return self._made


class _Filling:
    """A slot that a batch is being made in; `used` bytes from its beginning were given out."""

    def __init__(self, slot: int, mapping: Mapping) -> None:
        self.slot = slot
        self.mapping = mapping
        self.used = 0
        self.forked = False  # meanwhile: a process that the loader or a transform forked may see it
        self._spans: list[weakref.ref[BlockView]] = []  # one for each array
        self._placed: list[tuple[int, int]] = []
        _fillings.add(self)

    def take(self, size: int) -> Bytes | None:
        """The next bytes, where there are so many."""
        offset = round_up(self.used, ALIGNMENT)
        if offset + size > self.mapping.size:
            return None
        self.used = offset + size
        span = BlockView(self.mapping, offset, size)
        self._spans.append(weakref.ref(span))
        return span.bytes()

    def offset_of(self, buffer: Bytes) -> int | None:
        """Where a buffer lies, if it lies here and shares no byte with those that were asked for before: in the batch that is
        handed out, arrays do not write into each other."""
        offset: int = buffer.__array_interface__["data"][0] - self.mapping.address
        end = offset + buffer.nbytes
        if offset < 0 or end > self.used or any(offset < other[1] and other[0] < end for other in self._placed):
            return None
        self._placed.append((offset, end))
        return offset

    @property
    def is_held(self) -> bool:
        """Whether anything still views what was given out."""
        return self.forked or any(span() is not None for span in self._spans)


class ParentSlots:
    """The parent's side of one worker's slots, of which the worker may `keep` some, free or being filled; what comes back beyond
    that is dropped. To make one costs as much as to fill it several times: workers that get ahead keep what they need."""

    def __init__(self, keep: int) -> None:
        self._mappings: dict[int, Mapping] = {}
        self._keep = keep
        # Views end in whatever thread collects garbage. The end of one is appended here by C code alone: no lock is
        # taken, and an interrupt (Ctrl-C) finds no line of Python in which it would be lost with the slot.
        self._returned: deque[_HandedOut] = deque()
        self._out: dict[int, _HandedOut] = {}
        self._at_worker: set[int] = set()
        self._lost: list[int] = []
        number = id(self)
        _every[number] = weakref.ref(self, lambda _: _every.pop(number, None))

    def open(self, contents: SlotContents) -> Any:
        """The batch in that slot, which is mapped; its arrays view the slot's memory and hold it."""
        self._at_worker.discard(contents.slot)
        mapping = self._mappings[contents.slot]
        view = BlockView(mapping)
        handed = self._out[contents.slot] = _HandedOut(view, self._returned.append)
        handed.slot, handed.mapping = contents.slot, mapping
        block = view.bytes()
        del view
        (start, length), *rest = contents.parts
        total = sum(size for _, size in contents.parts)
        small = total if total <= _SMALL_BATCH else min(_COPIED_OUT, total // _SMALL_PART)
        buffers = (
            block[offset : offset + size] if size > small else _copy(block[offset : offset + size])
            for offset, size in rest
        )
        return unpack(block[start : start + length], buffers)

    def hand_over(self, contents: SlotContents) -> Callable[[], None] | None:
        """What is to be called when the user gets that batch; None if nothing of it lies in its slot."""
        handed = self._out[contents.slot]
        return None if handed() is None else handed.hand_over

    def map(self, contents: SlotContents, descriptor: int | None) -> None:
        """Take a slot over, if it is a new one. LimitReached: it cannot be; the worker is told to drop it."""
        for number in contents.replaced:
            self._mappings.pop(number, None)
            self._at_worker.discard(number)
        if contents.slot in self._mappings:
            return
        try:
            if descriptor is None:  # the kernel drops what it finds no number for
                lost = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                raise explained(lost, "a batch's memory cannot be taken over from its worker")
            self._mappings[contents.slot] = Mapping(descriptor, contents.capacity, inherited=False)
        except LimitReached:
            self._lost.append(contents.slot)
            raise
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def take_returned(self) -> tuple[list[int], list[int]]:
        """(slots the worker may fill again, slots it is to drop) since the last call."""
        again: list[int] = []
        drop, self._lost = self._lost, []
        while self._returned:
            handed = self._returned.popleft()
            slot = handed.slot
            del self._out[slot]
            if not handed.forked and len(self._at_worker) < self._keep:
                self._at_worker.add(slot)
                again.append(slot)
            else:
                self._mappings.pop(slot, None)
                drop.append(slot)
        return again, drop

    def close(self) -> None:
        """The worker is gone: nothing of it will be used again. Batches that are out stay valid."""
        self._mappings.clear()
        self._at_worker.clear()
        for handed in list(self._out.values()):
            if handed() is not None:
                handed.mapping.inherit()  # no hook sees it any more
        self._out.clear()  # first: the ends of these views are not noted any more
        self._returned.clear()

    def mark_forked(self) -> None:
        """The process forks now: the child sees what the user holds, which therefore must not change any more."""
        for handed in list(self._out.values()):  # a copy, made by C code alone: the coordinator may be at work
            if handed.is_users and handed() is not None:
                handed.mark_forked()


class _HandedOut(weakref.ref[BlockView]):
    """The view of a slot that a batch keeps, seen from here without keeping it."""

    slot: int
    mapping: Mapping
    is_users = False  # the user was given the batch
    forked = False  # and a process that was forked since then may see it

    def hand_over(self) -> None:
        """The user is given the batch."""
        self.is_users = True  # first: either the hook of a thread that forks sees it, or that thread is seen here
        if _forking:
            self.mark_forked()

    def mark_forked(self) -> None:
        """It is seen by a child, and never used again."""
        self.forked = True
        self.mapping.inherit()


def _copy(source: Bytes) -> Bytes:
    """As aligned as in a slot."""
    room = np.empty(source.nbytes + ALIGNMENT, dtype=np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    copy = room[start : start + source.nbytes]
    copy[:] = source
    return copy


_every: dict[int, weakref.ref[ParentSlots]] = {}
_fillings: weakref.WeakSet[_Filling] = weakref.WeakSet()
_forking: set[int] = set()  # threads between the hook and the end of their fork


def _all_slots() -> list[ParentSlots]:
    return [slots for reference in list(_every.values()) if (slots := reference()) is not None]


def _before_fork() -> None:
    _forking.add(threading.get_ident())
    for slots in _all_slots():
        slots.mark_forked()
    for filling in list(_fillings):
        filling.forked = True
        filling.mapping.inherit()


def _after_fork() -> None:
    _forking.discard(threading.get_ident())


# Before it: a view may end, and its slot be used again, in another thread as soon as the child is there.
os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forking.clear)
