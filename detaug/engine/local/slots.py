"""Slots: reusable blocks of shared memory that each carry one batch from a worker to the parent.

A slot is made and filled by one worker; the parent maps it once and hands out arrays that view it.
When the last of them is garbage-collected the slot's number comes back to the parent, which tells
the worker with its next task.

In a slot lie the arrays that the loader made there itself (`WorkerSlots.take`), the pickle, and
copies of the batch's other buffers.

Forks: a process that the user forks sees the arrays that the user holds. So a slot that is out with
the user at that moment is never used again, and all others are not inherited: neither can they
change under the child, nor does the child keep their memory. A batch that another thread takes
between the hook and the fork counts as out. Where a loader or a transform forks, the child sees the
batch that is being made, which then travels in another slot.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.objects.batch_pickling import Packed, unpack
from detaug.system.limits import explained
from detaug.system.platform import at_fork
from detaug.system.shared_memory import (
    Bytes,
    MappedBlock,
    aligned,
    capacity_for,
    create,
    pack_offsets,
)

#: Arrays up to this size (bytes) that are also a small part of their batch are copied out of its
#: slot, so that whoever keeps one (a label, a case's name) does not keep the whole slot.
_COPIED_OUT = 65_536
_SMALL_PART = 16


class SlotContents(NamedTuple):
    """What a worker says of a batch that it wrote.

    Attributes:
        slot: unique in its worker.
        parts: (offset, bytes) of the pickle and of each buffer.
        replaced: slots that the worker gave up meanwhile.
    """

    slot: int
    parts: tuple[tuple[int, int], ...]
    replaced: tuple[int, ...] = ()


class WorkerSlots:
    """A worker's side: makes slots, fills the free ones, and gives one up for each larger one that
    has to be made.
    """

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._slots: dict[int, _Slot] = {}
        self._free: list[_Slot] = []
        self._made = 0
        self._given_up: list[int] = []  # which the parent has yet to hear
        self._filling: _Slot | None = None
        self._size = 0  # of the batch that was written last
        _workers.add(self)

    def give_back(self, numbers: Sequence[int]) -> None:
        """The parent holds no array of these any more."""
        self._free += [self._slots[number] for number in numbers]

    def drop(self, numbers: Sequence[int]) -> None:
        """The parent has unmapped these; they are not needed."""
        for number in numbers:
            del self._slots[number]

    def take(self, size: int) -> Bytes | None:
        """So many bytes of the slot in which the batch that is being made will travel, if that has
        room.
        """
        if os.getpid() != self._owner:
            return None  # a fork, which does not inherit slots
        if self._filling is None:
            try:
                self._filling = self._slot_for(max(size, self._size))
            except OSError:  # `write` tries again, and tells
                return None
            self._filling.begin()
        return self._filling.take(size)

    def abandon(self) -> None:
        """The batch that was being made is not written: nobody wants it, or it failed."""
        filling, self._filling = self._filling, None
        if filling is None:
            return
        filling.memory = None
        if filling.is_held:  # it is its holder's
            self._give_up(filling)
        else:
            self._free.append(filling)

    def write(self, packed: Packed, whole: list[Any]) -> tuple[SlotContents, int | None]:
        """Write a batch into a slot: what of it lies there already stays where it is. Returns what
        the parent is told, and the descriptor to be sent (and closed) if the slot is a new one.
        `whole`: a list with the batch itself, emptied here; nothing else may hold the batch, or it
        looks as if the loader had kept its arrays.
        """
        slot = self._filling
        contents: list[Bytes] = [np.frombuffer(packed.pickled, dtype=np.uint8), *packed.buffers]
        packed.buffers.clear()
        there: list[int | None] = [None] * len(contents)
        used = 0
        if slot is not None:
            slot.memory = None
            there = [slot.offset_of(content) for content in contents]
            used = slot.used if any(offset is not None for offset in there) else 0
            # The loader's own arrays are known by what still holds them once the batch is gone, and
            # its memory with it.
            contents = [
                content.copy() if offset is None else slot.bytes(offset, content.nbytes)
                for content, offset in zip(contents, there, strict=True)
            ]
            whole.clear()
        sizes = [content.nbytes for content in contents]
        offsets, self._size = pack_offsets(sizes, there, used)
        if slot is not None and (slot.is_held or self._size > slot.mapping.size):
            slot, there = None, [None] * len(contents)
        if slot is None:
            offsets, size = pack_offsets(sizes)
            slot = self._slot_for(size)
        for content, offset, place in zip(contents, offsets, there, strict=True):
            if place is None:
                np.copyto(slot.bytes(offset, content.nbytes), content)
        if slot is self._filling:
            self._filling = None
        else:  # not before its contents are copied: it might have been the slot they go to
            self.abandon()
        parts, replaced = tuple(zip(offsets, sizes, strict=True)), tuple(self._given_up)
        self._given_up.clear()
        descriptor, slot.descriptor = slot.descriptor, None
        return SlotContents(slot.number, parts, replaced), descriptor

    def _give_up(self, slot: _Slot) -> None:
        del self._slots[slot.number]
        if slot.descriptor is None:
            self._given_up.append(slot.number)
        else:
            os.close(slot.descriptor)

    def _slot_for(self, size: int) -> _Slot:
        if (
            self._free
        ):  # the smallest that fits; else the smallest of all makes room for a larger one
            found = min(
                self._free,
                key=lambda slot: (slot.mapping.size < size, slot.mapping.size, slot.number),
            )
            self._free.remove(found)
            if found.mapping.size >= size:
                return found
            self._give_up(found)
        self._made += 1
        slot = self._slots[self._made] = _Slot(self._made, size)
        return slot


class _Slot:
    """A worker's slot. While a batch is made in it, `used` bytes from its beginning are given out."""

    memory: Bytes | None  # which `take` gives out: whatever was given out keeps it
    _given_out: weakref.ref[Bytes]
    _placed: list[tuple[int, int]]
    used: int
    forked: bool  # meanwhile: a process that the loader or the transform forked may see it

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        #: Until the parent has heard of the slot.
        self.descriptor: int | None
        self.descriptor, self.mapping = create(capacity_for(size), reserved=size, inherited=False)

    def begin(self) -> None:
        """A batch is made in it."""
        self.memory = self.mapping.bytes()
        self._given_out = weakref.ref(self.memory)
        self.used, self.forked, self._placed = 0, False, []

    def take(self, size: int) -> Bytes | None:
        """The next bytes, where there are so many."""
        offset = aligned(self.used)
        if self.memory is None or offset + size > self.mapping.size:
            return None
        self.used = offset + size
        return self.memory[offset : offset + size]

    def bytes(self, offset: int, size: int) -> Bytes:
        """A part of it, which holds nothing that was given out."""
        return self.mapping.bytes()[offset : offset + size]

    def offset_of(self, buffer: Bytes) -> int | None:
        """Where a buffer lies, if it lies here and shares no byte with those that were asked for
        before: in the batch that is handed out, arrays do not write into each other.
        """
        offset: int = buffer.__array_interface__["data"][0] - self.mapping.address
        end = offset + buffer.nbytes
        if (
            offset < 0
            or end > self.used
            or any(offset < other[1] and other[0] < end for other in self._placed)
        ):
            return None
        self._placed.append((offset, end))
        return offset

    @property
    def is_held(self) -> bool:
        """Whether anything still views what was given out."""
        return self.forked or self._given_out() is not None


class ParentSlots:
    """The parent's side of one worker's slots, of which the worker may `keep` some, free or being
    filled; what comes back beyond that is dropped. To make one costs as much as to fill it several
    times: workers that get ahead keep what they need.
    """

    def __init__(self, keep: int) -> None:
        self._mappings: dict[int, MappedBlock] = {}
        self._keep = keep
        # Views end in whatever thread collects garbage. The end of one is appended here by C code
        # alone: no lock is taken, and an interrupt (Ctrl-C) finds no line of Python in which it
        # would be lost with the slot.
        self._returned: deque[_HandedOut] = deque()
        self._out: dict[int, _HandedOut] = {}
        self._lost: list[int] = []
        _parents[id(self)] = self

    def open(self, contents: SlotContents, descriptor: int | None) -> Any:
        """The batch in that slot, which comes with its descriptor if it is a new one; its arrays
        view the slot's memory and hold it. LimitReached: it cannot be taken over; the worker is
        told to drop it.
        """
        mapping = self._mapped(contents, descriptor)
        block = mapping.bytes()
        handed = self._out[contents.slot] = _HandedOut(block, self._returned.append)
        handed.slot, handed.mapping = contents.slot, mapping
        (start, length), *rest = contents.parts
        small = min(_COPIED_OUT, sum(size for _, size in contents.parts) // _SMALL_PART)
        parts = (block[offset : offset + size] for offset, size in rest)
        buffers = (part if part.nbytes > small else part.copy() for part in parts)
        return unpack(block[start : start + length], buffers)

    def mark_delivered(self, contents: SlotContents) -> Callable[[], None] | None:
        """What is to be called when the user gets that batch; None if nothing of it lies in its
        slot.
        """
        handed = self._out[contents.slot]
        return None if handed() is None else handed.mark_delivered

    def _mapped(self, contents: SlotContents, descriptor: int | None) -> MappedBlock:
        for number in contents.replaced:
            self._mappings.pop(number, None)
        if contents.slot in self._mappings:
            return self._mappings[contents.slot]
        try:
            if descriptor is None:  # the kernel drops what it finds no number for
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            mapping = self._mappings[contents.slot] = MappedBlock(descriptor, inherited=False)
            return mapping
        except OSError as error:
            self._lost.append(contents.slot)
            raise explained(
                error, "a batch's memory cannot be taken over from its worker"
            ) from error
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
            at_worker = len(self._mappings) - len(self._out)  # with this one
            if not handed.forked and at_worker <= self._keep:
                again.append(slot)
            else:
                self._mappings.pop(slot, None)
                drop.append(slot)
        return again, drop

    def close(self) -> None:
        """The worker is gone: nothing of it will be used again. Batches that are out stay valid."""
        self._mappings.clear()
        for handed in list(self._out.values()):
            if handed() is not None:
                handed.mapping.inherit()  # no hook sees it any more
        self._out.clear()  # first: the ends of these views are not noted any more
        self._returned.clear()

    def mark_forked(self) -> None:
        """The process forks now: the child sees what the user holds, which therefore must not
        change any more.
        """
        for handed in list(
            self._out.values()
        ):  # a copy, made by C code alone: the coordinator may be at work
            if handed.is_delivered and handed() is not None:
                handed.mark_forked()


class _HandedOut(weakref.ref[Bytes]):
    """The slot's memory that a batch keeps, seen from here without keeping it."""

    slot: int
    mapping: MappedBlock
    is_delivered = False  # the user was given the batch
    forked = False  # and a process that was forked since then may see it

    def mark_delivered(self) -> None:
        """The user is given the batch."""
        # first: either the hook of a thread that forks sees it, or that thread is seen here
        self.is_delivered = True
        if _forking:
            self.mark_forked()

    def mark_forked(self) -> None:
        """It is seen by a child, and never used again."""
        self.forked = True
        self.mapping.inherit()


_parents: weakref.WeakValueDictionary[int, ParentSlots] = weakref.WeakValueDictionary()
_workers: weakref.WeakSet[WorkerSlots] = weakref.WeakSet()
_forking: set[int] = set()  # threads between the hook and the end of their fork


def _before_fork() -> None:
    _forking.add(threading.get_ident())
    for reference in _parents.valuerefs():  # a copy, as engines may start meanwhile
        if (slots := reference()) is not None:
            slots.mark_forked()
    for worker in _workers:
        if (filling := worker._filling) is not None:
            filling.forked = True
            filling.mapping.inherit()


def _after_fork() -> None:
    _forking.discard(threading.get_ident())


# Before it: a view may end, and its slot be used again, in another thread as soon as the child is
# there.
at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forking.clear)
