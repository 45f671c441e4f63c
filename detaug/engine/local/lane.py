"""The way of batches that take microseconds: through memory that the workers and the user's thread share.

A message to a worker and back, with the threads and processes that it wakes, costs several times as much as such a batch. So
once batches come by the thousand in a second, the coordinator opens a *lane*: a run of this rank's steps that a few workers
make in turns without being asked, each into its entry of a ring, from which the user's thread takes them. The lane's
numbers are words in that memory: how far the workers may go, which batch the user's thread sleeps for, and where each worker is.

A lane may end between any two instructions, and does at anything unusual: a worker that dies or hangs, a batch that fails, is
large or takes long, a jump, an epoch's end. What is in the ring then counts as made, what a worker is at as begun, and all else
is open, as if each had been asked for.

Why nothing is lost: an entry has one writer, which writes its number behind its batch; how far workers may go and where one is
have one writer each. The end, the sleepers and what is awaited are written from both sides: the end never opens again, and a
wake that is missed, because two processors see two writes in different orders, costs one `PATIENCE`.
"""

from __future__ import annotations

import mmap
import os
import pickle
import select
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

from detaug.engine.local import messages
from detaug.engine.order.outcomes import Position
from detaug.memory.blocks import create, reserve
from detaug.pipeline.plan import BatchKey
from detaug.transport.transfer import unpack

#: The ring's entries, and the bytes that each has for its batch. The window bounds the memory of batches that may be large;
#: here so many may lie ready however small it is, for that costs nothing and saves as many sleeps.
ENTRIES, ENTRY_BYTES = 64, 16_880
#: Sleepers are woken for so many at once.
_BUNDLE = ENTRIES // 2
_HEAD_BYTES = 16
#: Words of the memory: behind the last number that may be made, how far the workers may go, and what the user sleeps for.
_END, _LIMIT, _AWAITED, _FIRST_PLACE = range(4)
#: Words of each worker: the number of the batch that it is at, whether it sleeps, and the nanoseconds that it has worked.
_AT, _SLEEPS, _NANOSECONDS, _PLACE_WORDS = range(4)
_NOTHING = 1 << 62
#: Set in the tickets of batches that are made in a lane, whose other bits are the step.
TICKET = 1 << 62
#: How long (seconds) a sleeper waits before it looks for itself.
PATIENCE = 0.05
_fence_lock = threading.Lock()


def _fence() -> None:
    """Keep what was written before from being seen after what is written next. Taking a lock does, on every processor."""
    for _ in range(2):
        _fence_lock.acquire()
        _fence_lock.release()


class _Memory:
    """The words and the ring.

    Args:
        descriptor: of the memory; stays the caller's.
        places: workers.
    """

    def __init__(self, descriptor: int, places: int) -> None:
        view = memoryview(mmap.mmap(descriptor, self.size(places)))
        entry = _HEAD_BYTES + ENTRY_BYTES
        # The words lie behind the ring, so that a worker need not know how many workers there are.
        self.words = view[ENTRIES * entry :].cast("q")
        starts = range(0, ENTRIES * entry, entry)
        #: Of each entry: the number behind that of the batch that lies there (0: none), and the bytes it takes; negative
        #: where large buffers lie beside its pickle.
        self.heads = [view[at : at + _HEAD_BYTES].cast("q") for at in starts]
        self.bodies = [view[at + _HEAD_BYTES : at + entry] for at in starts]

    @staticmethod
    def size(places: int) -> int:
        """In bytes."""
        return ENTRIES * (_HEAD_BYTES + ENTRY_BYTES) + 8 * (_FIRST_PLACE + places * _PLACE_WORDS)


class Bell:
    """Wakes the user's threads from other processes: an eventfd."""

    def __init__(self) -> None:
        self.descriptor = -1
        self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def ring(self) -> None:
        """Wake a thread that waits, or the next one that would."""
        ring(self.descriptor)

    def wait(self) -> None:
        """Until it is rung, but no longer than a missed wake may cost."""
        waiting = select.poll()  # its own: several threads may wait
        waiting.register(self.descriptor, select.POLLIN)
        if waiting.poll(PATIENCE * 1000):
            with suppress(BlockingIOError):  # another thread was first
                os.eventfd_read(self.descriptor)

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        # Not before: a thread of the user's may sleep at it while the engine closes.
        if self.descriptor >= 0:
            close(self.descriptor)


def ring(descriptor: int) -> None:
    """Ring a bell of which this process has the descriptor."""
    with suppress(BlockingIOError):  # it rings already
        os.eventfd_write(descriptor, 1)


class Lane:
    """The parent's side. The user's threads use it under the engine's lock, but for `wait`.

    Args:
        workers: which make its batches, in turns.
        bell: rung when what is awaited is there.

    Attributes:
        first: the position of its first batch.

    Raises:
        OSError: there is no memory or descriptor for it.
    """

    def __init__(self, workers: list[Any], bell: Bell) -> None:
        self.first = Position(0, 0, 0)
        self.workers = workers
        self.bell = bell
        self.stopped = False
        self._stride, self._count = 1, 0
        self._period = 1
        self._shares: list[tuple[int, ...]] = []
        size = _Memory.size(len(workers))
        self.descriptor = create(size)
        try:
            reserve(self.descriptor, size)
            self._memory = _Memory(self.descriptor, len(workers))
        except BaseException:
            os.close(self.descriptor)
            raise
        self._words = self._memory.words
        self._words[_AWAITED] = _NOTHING
        for place in range(len(workers)):
            self._words[self._word(place, _AT)] = -1

    def begin_at(
        self, first: Position, stride: int, count: int | None, period: int, shares: list[tuple[int, ...]]
    ) -> None:
        """From there on, every `stride`-th step, so many of them; None: without end. Of every `period` of them each worker
        makes its share."""
        self.first = first
        self._period, self._shares = period, shares
        self._stride = stride
        self._count = _NOTHING if count is None else count
        self._words[_END] = self._count

    @staticmethod
    def _word(place: int, which: int) -> int:
        return _FIRST_PLACE + place * _PLACE_WORDS + which

    def orders(self) -> Iterator[tuple[Any, messages.Lane]]:
        """What each worker is to be sent, with `descriptor`."""
        first = self.first
        for place, (worker, numbers) in enumerate(zip(self.workers, self._shares, strict=True)):
            yield worker, messages.Lane(first.epoch, first.step, self._stride, place, self._period, numbers)

    def close_descriptor(self) -> None:
        """It was sent to all workers; the memory stays mapped."""
        os.close(self.descriptor)

    # --- the user's thread

    def covers(self, position: Position) -> bool:
        """Whether the batch that is due there is made in it."""
        return position.epoch == self.first.epoch and position.step >= self.first.step

    def batch(self, step: int) -> tuple[Any] | None:
        """(the batch,) if it lies in the ring. One that cannot be unpacked ends the lane."""
        number = (step - self.first.step) // self._stride
        head = self._memory.heads[number % ENTRIES]
        if head[0] != number + 1:
            return None
        _fence()
        size = head[1]
        body = bytes(self._memory.bodies[number % ENTRIES][: abs(size)])
        try:
            if size > 0:
                return (unpack(body, []),)
            pickled, *buffers = pickle.loads(body)
            return (unpack(pickled, [bytearray(buffer) for buffer in buffers]),)
        except Exception:  # where each batch is asked for, the error is told
            self.stop()
            return None

    def made(self) -> Iterator[BatchKey]:
        """What lies in the ring and was not taken. Not what was: its entries are free, and a worker may just be writing over one,
        whose number still is the old one while its batch is not."""
        taken = max(0, self._words[_LIMIT] - ENTRIES)
        for head in self._memory.heads:
            if head[0] > taken:
                yield BatchKey(self.first.epoch, self.first.step + (head[0] - 1) * self._stride)

    def advance(self, position: Position) -> None:
        """The position has moved there: so much further may the workers go."""
        number = position.taken - self.first.taken
        self._words[_LIMIT] = number + ENTRIES
        if number % _BUNDLE == 0:
            self._wake_workers()

    def _wake_workers(self) -> None:
        words = self._words
        for place, worker in enumerate(self.workers):
            if words[self._word(place, _SLEEPS)]:
                words[self._word(place, _SLEEPS)] = 0
                worker.nudge()

    def will_wait(self, step: int) -> None:
        """The user's thread will sleep for that step, and for some of those behind it so as not to sleep again at once."""
        number = (step - self.first.step) // self._stride
        self._words[_AWAITED] = max(number, min(number + _BUNDLE, self._count) - 1)
        self._wake_workers()
        _fence()

    def wait(self, step: int) -> None:
        """Sleep until something may have come."""
        number = (step - self.first.step) // self._stride
        if self._memory.heads[number % ENTRIES][0] != number + 1 and not self.stopped:
            self.bell.wait()

    def stop(self) -> None:
        """No batch more is begun. May be called several times."""
        self.stopped = True
        self._words[_END] = 0
        _fence()
        self.bell.ring()

    # --- the coordinator's thread

    def begun(self) -> Iterator[tuple[Any, int]]:
        """Once stopped: (worker, step) for those that are at a batch."""
        for place, worker in enumerate(self.workers):
            number = self._words[self._word(place, _AT)]
            if number >= 0 and self._memory.heads[number % ENTRIES][0] <= number:
                yield worker, self.first.step + number * self._stride

    def progress(self) -> tuple[int, float]:
        """(how many were begun, the workers' seconds of work so far)."""
        words, places = self._words, range(len(self.workers))
        at = max(words[self._word(place, _AT)] for place in places)
        return at + 1, sum(words[self._word(place, _NANOSECONDS)] for place in places) / 1e9


class OwnLane:
    """A worker's side.

    Args:
        order: what the parent says of it.
        descriptor: of its memory; closed here.
        bell: this process's descriptor of the bell.

    Raises:
        OSError: this process has no memory for it, or had no descriptor left when it arrived.
    """

    def __init__(self, order: messages.Lane, descriptor: int | None, bell: int | None) -> None:
        self.epoch, self._first, self._stride = order.epoch, order.first, order.stride
        if descriptor is None or bell is None:
            raise OSError("a descriptor did not arrive")
        self._bell = bell
        try:
            self._memory = _Memory(descriptor, order.place + 1)
        finally:
            os.close(descriptor)
        self._words = self._memory.words
        word = _FIRST_PLACE + order.place * _PLACE_WORDS
        self._at, self._sleeps, self._nanoseconds = word + _AT, word + _SLEEPS, word + _NANOSECONDS
        # The numbers of its batches, and of the next one.
        self._numbers = (start + number for start in count(0, order.period) for number in order.numbers)
        self._number = next(self._numbers)
        self._last: tuple[messages.Answer, int | None] | None = None

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to be made in it."""
        return bool(self._number >= self._words[_END])

    @property
    def has_room(self) -> bool:
        """Whether the next batch may be begun; if not, this worker counts as asleep."""
        words = self._words
        if self._number < words[_LIMIT]:
            return True
        words[self._sleeps] = 1
        _fence()
        if self._number < words[_LIMIT]:
            words[self._sleeps] = 0
            return True
        if words[_AWAITED] != _NOTHING:  # all that can be made for the sleeper is made, or others are at it
            words[_AWAITED] = _NOTHING
            ring(self._bell)
        return False

    def awake(self) -> None:
        """It sleeps no more."""
        self._words[self._sleeps] = 0

    def begin(self) -> int:
        """The step to be made now."""
        self._words[self._at] = self._number
        return self._first + self._number * self._stride

    def finish(self, answer: messages.Answer, descriptor: int | None) -> None:
        """Write what was made into the ring; the lane ends where that cannot be."""
        number, words = self._number, self._words
        self._number = next(self._numbers)
        self._last = answer, descriptor
        body, sign = b"", 1
        if type(answer) is messages.Inline and answer.state is None:
            body, sign = answer.pickled, 1
            if answer.buffers:
                body, sign = pickle.dumps([answer.pickled, *answer.buffers], protocol=5), -1
        if not 0 < len(body) <= ENTRY_BYTES:
            words[_END] = 0
            return
        head = self._memory.heads[number % ENTRIES]
        self._memory.bodies[number % ENTRIES][: len(body)] = body
        head[1] = sign * len(body)
        _fence()
        head[0] = number + 1
        if words[_AWAITED] <= number:
            words[_AWAITED] = _NOTHING
            ring(self._bell)

    def worked(self, seconds: float) -> None:
        """So much time has gone into it, since the last time."""
        self._words[self._nanoseconds] += int(1e9 * seconds)

    def leave(self) -> tuple[messages.Answer, int | None] | None:
        """It ends for all. Returns the answer, with its descriptor, that is to be sent as well, should the parent have
        looked before it was in the ring."""
        self._words[_END] = 0
        return self._last
