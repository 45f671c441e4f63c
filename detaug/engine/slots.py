"""Slots: reusable blocks of shared memory that each carry one batch from a worker to the parent.

A slot is made and filled by one worker; the parent maps it once and hands out arrays that view it. When the last of
them is garbage-collected the slot's number comes back to the parent, which tells the worker with its next task.
"""

from __future__ import annotations

import contextlib
import errno
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from detaug.engine.layout import capacity_for, lay_out
from detaug.engine.limits import LimitReached, explained
from detaug.engine.memory import Lease, Mapping, create, reserve
from detaug.engine.transfer import Packed, unpack


class Parcel(NamedTuple):
    """What a worker says of a batch that it wrote.

    Attributes:
        slot: the slot's number, unique in its worker.
        capacity: bytes of the slot.
        spans: (offset, bytes) of the pickle and then of each buffer.
    """

    slot: int
    capacity: int
    spans: tuple[tuple[int, int], ...]


class WorkerSlots:
    """A worker's side: makes slots, fills the free ones."""

    def __init__(self) -> None:
        self._slots: dict[int, Mapping] = {}
        self._free: list[int] = []
        self._made = 0

    def give_back(self, numbers: Sequence[int]) -> None:
        """The parent holds no array of these any more."""
        self._free.extend(number for number in numbers if number in self._slots)

    def drop(self, numbers: Sequence[int]) -> None:
        """The parent has unmapped these; they are not needed."""
        for number in numbers:
            self._slots.pop(number, None)
        self._free = [number for number in self._free if number in self._slots]

    def write(self, packed: Packed) -> tuple[Parcel, int | None]:
        """Write a batch into a slot. Returns its parcel, and the descriptor to be sent (and closed) if it is a new one.

        Raises:
            OSError: no slot could be made.
        """
        sizes = [len(packed.pickled), *(buffer.nbytes for buffer in packed.buffers)]
        layout = lay_out(sizes)
        number, descriptor = self._slot_for(layout.size)
        mapping = self._slots[number]
        block = mapping.bytes()
        sources = [np.frombuffer(packed.pickled, dtype=np.uint8), *packed.buffers]
        for offset, size, source in zip(layout.offsets, sizes, sources, strict=True):
            np.copyto(block[offset : offset + size], source)
        spans = tuple(zip(layout.offsets, sizes, strict=True))
        return Parcel(number, mapping.size, spans), descriptor

    def _slot_for(self, size: int) -> tuple[int, int | None]:
        fitting = [number for number in self._free if self._slots[number].size >= size]
        if fitting:
            # The smallest that fits; of equals the one used last, whose pages are still in the cache.
            number = min(reversed(fitting), key=lambda n: self._slots[n].size)
            self._free.remove(number)
            return number, None
        capacity = capacity_for(size)
        descriptor = create(capacity)
        try:
            reserve(descriptor, size)
            mapping = Mapping(descriptor, capacity)
        except BaseException:
            os.close(descriptor)
            raise
        self._made += 1
        self._slots[self._made] = mapping
        return self._made, descriptor


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

    def open(self, parcel: Parcel) -> Any:
        """The batch in that slot, which is mapped; its arrays view the slot's memory and hold it.

        Raises:
            LimitReached: the slot could not be mapped.
        """
        if parcel.slot not in self._mappings:
            raise self._refused[parcel.slot]
        self._at_worker.discard(parcel.slot)
        lease = Lease(self._mappings[parcel.slot])
        self._out[parcel.slot] = _Delivery(lease, self._returned.append, parcel.slot)
        block = lease.bytes()
        del lease
        pickled, *buffers = (block[offset : offset + size] for offset, size in parcel.spans)
        return unpack(pickled, buffers)

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
        if parcel.slot in self._mappings:
            return
        try:
            if descriptor is None:  # the kernel drops what it finds no number for
                lost = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
                raise explained(lost, "a batch's memory cannot be taken over from its worker")
            self._mappings[parcel.slot] = Mapping(descriptor, parcel.capacity)
        except LimitReached as error:
            self._lost.append(parcel.slot)
            self._refused = {parcel.slot: error}
            raise
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def take_returned(self) -> tuple[list[int], list[int]]:
        """(slots the worker may fill again, slots it is to drop) since the last call."""
        again: list[int] = []
        drop, self._lost = self._lost, []
        free, self._unused = self._unused, []
        while self._returned:
            number = self._returned.popleft().slot
            del self._out[number]
            free.append(number)
        for number in free:
            if len(self._at_worker) < self._keep:
                self._at_worker.add(number)
                again.append(number)
            else:
                self._mappings.pop(number, None)
                drop.append(number)
        return again, drop


class _Delivery(weakref.ref[Lease]):
    """A lease that was given out, seen from here without keeping it."""

    __slots__ = ("slot",)

    slot: int

    def __new__(cls, lease: Lease, at_its_end: Callable[[Any], None], slot: int) -> _Delivery:
        self = super().__new__(cls, lease, at_its_end)
        self.slot = slot
        return self

    def __init__(self, lease: Lease, at_its_end: Callable[[Any], None], slot: int) -> None:
        super().__init__(lease, at_its_end)  # type: ignore[call-arg]
