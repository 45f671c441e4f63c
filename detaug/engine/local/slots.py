"""Slots: reusable blocks of shared memory that each carry one batch from a worker to the parent.

worker: `allocate` gives memory to the loader; `write` adds the pickle and the other buffers
    → `SlotContents`, and the descriptor of a new slot
parent: `open` returns arrays that view the slot → the user
    → the last view ends → `collect_returned` → the worker's next task says that the slot is free

A slot is created and filled by one worker. The parent maps it once and returns arrays that view it.
When the last of these arrays is garbage-collected, the slot's id returns to the parent, which sends
it to the worker with its next task.

A slot contains the arrays that the loader created there itself (`WorkerSlots.allocate`), the pickle
of the batch, and copies of the batch's other buffers.

Forks: a process that the user forks sees the arrays that the user holds. A slot that is out with
the user at that moment is therefore never used again, and all other slots are not inherited: they
cannot change under the child, and the child does not keep their memory. A batch that another thread
takes between the hook and the fork counts as out. If a loader or a transform forks, the child sees
the batch that is being made, which is then sent in another slot.
"""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
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

#: Bytes. Smaller arrays that are also a small part of their batch are copied out of its slot, so
#: that a user who keeps one (a label, a case's name) does not keep the whole slot.
_COPIED_OUT = 65_536
#: An array is a small part of its batch if it is no larger than the batch divided by this.
_SMALL_PART = 16


class SlotContents(NamedTuple):
    """A worker's message about a batch that it has written.

    Attributes:
        slot: id of the slot, unique in its worker.
        parts: (offset, size) in bytes, of the pickle and of each buffer.
        replaced: ids of slots that the worker has dropped meanwhile.
    """

    slot: int
    parts: tuple[tuple[int, int], ...]
    replaced: tuple[int, ...] = ()


class WorkerSlots:
    """The worker's side of its slots.

    It creates slots, fills those that are free, and drops one for each larger one that it needs.
    """

    def __init__(self) -> None:
        self._owner_pid = os.getpid()
        self._slots: dict[int, _Slot] = {}
        self._free: list[_Slot] = []
        self._num_created = 0
        #: Ids of dropped slots that the parent has not been told of.
        self._dropped: list[int] = []
        #: The slot of the batch that is being made; None: no memory was asked for.
        self._filling: _Slot | None = None
        #: Bytes of the batch that was written last.
        self._last_size = 0
        _workers.add(self)

    def release(self, slot_ids: Sequence[int]) -> None:
        """Free slots: the parent holds no array of them any more."""
        for slot_id in slot_ids:
            self._free.append(self._slots[slot_id])

    def drop(self, slot_ids: Sequence[int]) -> None:
        """Drop slots that the parent has unmapped and does not need any more."""
        for slot_id in slot_ids:
            del self._slots[slot_id]

    def allocate(self, size: int) -> Bytes | None:
        """Return `size` bytes of the slot of the batch that is being made; None: it has no room."""
        # A fork does not inherit slots.
        if os.getpid() != self._owner_pid:
            return None
        if self._filling is None:
            try:
                self._filling = self._slot_for(max(size, self._last_size))
            except OSError:
                # `write` tries again, and raises.
                return None
            self._filling.begin()
        return self._filling.allocate(size)

    def discard(self) -> None:
        """Free the slot of a batch that is not written, because it failed or nobody wants it."""
        filling = self._filling
        self._filling = None
        if filling is None:
            return
        filling.memory = None
        if filling.is_held:
            # Whoever holds an array of it may go on writing to it.
            self._drop(filling)
        else:
            self._free.append(filling)

    def mark_forked(self) -> None:
        """Mark the batch that is being made as seen by a fork, so that its slot never changes."""
        filling = self._filling
        if filling is not None:
            filling.forked = True
            filling.mapping.inherit()

    def write(self, packed: Packed, owner: list[Any]) -> tuple[SlotContents, int | None]:
        """Write a batch into a slot; arrays that were created in the slot stay where they are.

        Args:
            packed: the batch's pickle and buffers; the buffers are released here.
            owner: a one-element list with the batch itself, emptied here. Nothing else may hold the
                batch: memory that is still viewed afterwards is treated as the loader's.

        Returns:
            The message to the parent, and the descriptor to send (and close) if the slot is new.
        """
        contents: list[Bytes] = [np.frombuffer(packed.pickled, dtype=np.uint8), *packed.buffers]
        packed.buffers.clear()
        placed: list[int | None] = [None] * len(contents)
        used = 0
        slot = self._filling
        if slot is not None:
            slot.memory = None
            placed = [slot.offset_of(content) for content in contents]
            if any(offset is not None for offset in placed):
                used = slot.used
            # In this order: once `owner` has dropped the batch, nothing in this frame refers to it,
            # so `is_held` sees the loader's references only. A loop in this frame would keep the
            # last array alive in its variable.
            contents = _without_the_batch(slot, contents, placed)
            owner.clear()

        sizes = [content.nbytes for content in contents]
        offsets, self._last_size = pack_offsets(sizes, placed, used)
        # Not in this slot if somebody still views it and may write to it, or if the pickle and the
        # other arrays do not fit after those that were made here.
        if slot is not None and (slot.is_held or self._last_size > slot.mapping.size):
            slot = None
        if slot is None:
            placed = [None] * len(contents)
            offsets, size = pack_offsets(sizes)
            slot = self._slot_for(size)
        _copy_unplaced(slot, contents, offsets, placed)

        if slot is self._filling:
            self._filling = None
        else:
            # Only now: the contents may have been copied from the slot that is freed here, and
            # `_slot_for` must not have returned that slot.
            self.discard()
        parts = tuple(zip(offsets, sizes, strict=True))
        replaced = tuple(self._dropped)
        self._dropped.clear()
        descriptor = slot.descriptor
        slot.descriptor = None
        return SlotContents(slot.slot_id, parts, replaced), descriptor

    def _drop(self, slot: _Slot) -> None:
        """Drop a slot, and tell the parent with the next batch if it knows the slot."""
        del self._slots[slot.slot_id]
        if slot.descriptor is None:
            self._dropped.append(slot.slot_id)
        else:
            os.close(slot.descriptor)

    def _slot_for(self, size: int) -> _Slot:
        """Return a slot of at least `size` bytes: a free one or a new one."""
        # The smallest free one that is large enough; else the smallest free one makes room for the
        # new one.
        if self._free:
            slot = min(
                self._free,
                key=lambda free: (free.mapping.size < size, free.mapping.size, free.slot_id),
            )
            self._free.remove(slot)
            if slot.mapping.size >= size:
                return slot
            self._drop(slot)
        self._num_created += 1
        slot = _Slot(self._num_created, size)
        self._slots[slot.slot_id] = slot
        return slot


class _Slot:
    """A worker's slot. While a batch is made in it, its first `used` bytes are allocated."""

    def __init__(self, slot_id: int, size: int) -> None:
        self.slot_id = slot_id
        #: None once it was sent to the parent.
        self.descriptor: int | None
        self.descriptor, self.mapping = create(capacity_for(size), reserved=size, inherited=False)
        #: The memory that `allocate` returns parts of. Each part keeps this array alive.
        self.memory: Bytes | None = None
        #: Bytes.
        self.used = 0
        #: True: a process that the loader or the transform has forked may see the batch.
        self.forked = False
        self._allocated: weakref.ref[Bytes] | None = None
        #: (start, end) of the buffers that `offset_of` has located.
        self._located: list[tuple[int, int]] = []

    def begin(self) -> None:
        """Prepare the slot for a batch that is made in it."""
        self.memory = self.mapping.bytes()
        self._allocated = weakref.ref(self.memory)
        self.used = 0
        self.forked = False
        self._located = []

    def allocate(self, size: int) -> Bytes | None:
        """Return the next `size` bytes, or None if there are fewer."""
        offset = aligned(self.used)
        if self.memory is None or offset + size > self.mapping.size:
            return None
        self.used = offset + size
        return self.memory[offset : offset + size]

    def bytes(self, offset: int, size: int) -> Bytes:
        """Return a part of the slot, by an array that does not keep `memory` alive."""
        return self.mapping.bytes()[offset : offset + size]

    def offset_of(self, buffer: Bytes) -> int | None:
        """Return the offset of a buffer that was allocated here; None: it was not.

        None as well if it overlaps with a buffer that was located before: in the batch that the
        user gets, no array writes into another.
        """
        offset: int = buffer.__array_interface__["data"][0] - self.mapping.address
        end = offset + buffer.nbytes
        if offset < 0 or end > self.used:
            return None
        for other_offset, other_end in self._located:
            if offset < other_end and other_offset < end:
                return None
        self._located.append((offset, end))
        return offset

    @property
    def is_held(self) -> bool:
        """True: something still views memory that was allocated here. False: nothing does."""
        if self.forked:
            return True
        return self._allocated is not None and self._allocated() is not None


def _without_the_batch(slot: _Slot, contents: list[Bytes], placed: list[int | None]) -> list[Bytes]:
    """Return the same bytes, as views of the slot, or as copies if they are elsewhere."""
    detached = []
    for content, offset in zip(contents, placed, strict=True):
        if offset is None:
            detached.append(content.copy())
        else:
            detached.append(slot.bytes(offset, content.nbytes))
    return detached


def _copy_unplaced(
    slot: _Slot, contents: list[Bytes], offsets: Sequence[int], placed: list[int | None]
) -> None:
    """Copy the contents that are not in the slot already to their offsets."""
    for content, offset, placed_at in zip(contents, offsets, placed, strict=True):
        if placed_at is None:
            np.copyto(slot.bytes(offset, content.nbytes), content)


class ParentSlots:
    """The parent's side of one worker's slots.

    Creating a slot takes several times as long as filling it, so slots are used again, and workers
    that get ahead of others keep the slots that they need.

    Args:
        keep: number of slots that the worker may keep, free or being filled. A slot that returns
            when it has more is dropped.
    """

    def __init__(self, keep: int) -> None:
        self._mappings: dict[int, MappedBlock] = {}
        self._keep = keep
        # Views end in whatever thread collects garbage. Only C code appends the end of a view here:
        # no lock is acquired, and there is no line of Python in which an interrupt (Ctrl-C) would
        # be lost, and the slot with it.
        self._returned: deque[_HandedOut] = deque()
        self._out: dict[int, _HandedOut] = {}
        #: Ids of slots that could not be mapped.
        self._unmapped: list[int] = []
        _parents[id(self)] = self

    def open(self, contents: SlotContents, descriptor: int | None) -> Any:
        """Return the batch in a slot; its arrays view the slot's memory and keep it.

        Args:
            contents: the worker's message.
            descriptor: of the slot, if it is new; closed here.

        Raises:
            LimitReached: the slot cannot be mapped; the worker will drop it.
        """
        mapping = self._mapped(contents, descriptor)
        block = mapping.bytes()
        handed_out = _HandedOut(block, self._returned.append)
        self._out[contents.slot] = handed_out
        handed_out.slot = contents.slot
        handed_out.mapping = mapping
        (start, length), *buffers = contents.parts
        batch_size = sum(size for _, size in contents.parts)
        largest_copied = min(_COPIED_OUT, batch_size // _SMALL_PART)
        pickled = block[start : start + length]
        return unpack(pickled, _buffers(block, buffers, largest_copied))

    def mark_delivered(self, contents: SlotContents) -> Callable[[], None] | None:
        """Return the function to call when the user gets a batch.

        None if no array of the batch views its slot.
        """
        handed_out = self._out[contents.slot]
        if handed_out() is None:
            return None
        return handed_out.mark_delivered

    def _mapped(self, contents: SlotContents, descriptor: int | None) -> MappedBlock:
        """Return the slot's mapping, which is created for a new slot."""
        for slot_id in contents.replaced:
            self._mappings.pop(slot_id, None)
        if contents.slot in self._mappings:
            return self._mappings[contents.slot]
        try:
            # The kernel drops a descriptor for which this process has no number left.
            if descriptor is None:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            mapping = MappedBlock(descriptor, inherited=False)
            self._mappings[contents.slot] = mapping
            return mapping
        except OSError as error:
            self._unmapped.append(contents.slot)
            raise explained(
                error, "a batch's memory cannot be taken over from its worker"
            ) from error
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def collect_returned(self) -> tuple[list[int], list[int]]:
        """Return the slots that came back since the last call.

        Returns:
            Ids of slots that the worker may fill again, and ids of slots that it has to drop.
        """
        reused: list[int] = []
        dropped = self._unmapped
        self._unmapped = []
        while self._returned:
            handed_out = self._returned.popleft()
            slot = handed_out.slot
            del self._out[slot]
            # Mapped slots that are not out are the worker's: free, or being filled.
            num_at_worker = len(self._mappings) - len(self._out)
            if not handed_out.forked and num_at_worker <= self._keep:
                reused.append(slot)
            else:
                self._mappings.pop(slot, None)
                dropped.append(slot)
        return reused, dropped

    def close(self) -> None:
        """Release all slots of a worker that is gone. Batches that are out stay valid."""
        self._mappings.clear()
        for handed_out in list(self._out.values()):
            if handed_out() is not None:
                # Now, because no fork hook sees it any more.
                handed_out.mapping.inherit()
        # Before `_returned`: it drops the references whose callbacks append to `_returned`.
        self._out.clear()
        self._returned.clear()

    def mark_forked(self) -> None:
        """Mark all batches that the user holds as seen by a fork, so that they never change."""
        # A copy that C code makes, because the coordinator's thread may change the dict.
        for handed_out in list(self._out.values()):
            if handed_out.is_delivered and handed_out() is not None:
                handed_out.mark_forked()


def _buffers(
    block: Bytes, parts: Sequence[tuple[int, int]], largest_copied: int
) -> Iterator[Bytes]:
    """Yield the buffers of a batch: views of its block, and copies up to a size in bytes."""
    for offset, size in parts:
        if size > largest_copied:
            yield block[offset : offset + size]
        else:
            yield block[offset : offset + size].copy()


class _HandedOut(weakref.ref[Bytes]):
    """A weak reference to the block that the arrays of one batch view."""

    slot: int
    mapping: MappedBlock
    #: True: the user has the batch. False: the engine has.
    is_delivered = False
    #: True: a process that was forked since then may see the batch. False: none can.
    forked = False

    def mark_delivered(self) -> None:
        """Record that the user gets the batch."""
        # In this order: either the hook of a thread that forks sees `is_delivered`, or that thread
        # is seen here. The other way round a fork between the two lines would see neither.
        self.is_delivered = True
        if _forking:
            self.mark_forked()

    def mark_forked(self) -> None:
        """Record that a child sees the batch, so that its slot is never used again."""
        self.forked = True
        self.mapping.inherit()


_parents: weakref.WeakValueDictionary[int, ParentSlots] = weakref.WeakValueDictionary()
_workers: weakref.WeakSet[WorkerSlots] = weakref.WeakSet()
#: Ids of threads between the hook and the end of their fork.
_forking: set[int] = set()


def _before_fork() -> None:
    # Before the walk over the slots: see `_HandedOut.mark_delivered`.
    _forking.add(threading.get_ident())
    # `valuerefs` returns a copy: another thread may start an engine meanwhile.
    for reference in _parents.valuerefs():
        slots = reference()
        if slots is not None:
            slots.mark_forked()
    for worker in _workers:
        worker.mark_forked()


def _after_fork() -> None:
    _forking.discard(threading.get_ident())


# Before the fork, not after it: as soon as the child exists, a view may end in another thread, and
# its slot be filled again.
at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_forking.clear)
