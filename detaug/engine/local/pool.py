"""The processes of an engine, started, watched and replaced: the workers, the one in reserve, and the checker.

All of it is called by the coordinator's thread alone, or before that is started.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from detaug.engine.executor import Work
from detaug.engine.local import messages
from detaug.engine.local.handles import Worker, keep_from_helpers, leave_to_helpers
from detaug.engine.local.helpers import NO_HELPER, START_KILLS, Helpers
from detaug.engine.local.stalls import StallWatch
from detaug.engine.local.waker import Waker
from detaug.processes.control import signal_name
from detaug.processes.whereabouts import Whereabouts
from detaug.transport.channel import ChannelClosed
from detaug.transport.slots import ParentSlots, Stock

logger = logging.getLogger("detaug")

#: After so many seconds another worker is started for one that could not be.
_START_PAUSE = 30.0
#: A worker that fails to start this many times in a row ends the run.
_START_FAILURES = 3
#: The index of a worker that fills no place yet.
_IN_RESERVE = -1
#: Having slept for so many seconds longer than asked for, this process was stopped.
_PAUSE = 2.0


class Listener(Protocol):
    """Is told, in order, what happens to the processes."""

    def ready(self, worker: Worker) -> None:
        """The worker can be given tasks."""

    def missing(self, worker: Worker) -> None:
        """The place of this worker is empty, and will stay so for a while."""

    def answered(self, worker: Worker, answer: messages.Answer, descriptor: int | None) -> None:
        """The answer to one of its tasks has come, with a descriptor if it lies in a new slot."""

    def died(self, worker: Worker, exitcode: int, peak: int) -> None:
        """It ended while it made a batch, or between two. All its answers were told of before; another worker starts. `peak`:
        the most memory it had, in bytes; 0: not known."""

    def gone(self, worker: Worker, private: int) -> None:
        """It is gone through no fault of its tasks. `private`: the bytes of memory for which it retired; 0: it did not."""

    def reported(self, worker: Worker, message: messages.Report | messages.Checked | messages.Explained) -> None:
        """What the run-time check needs to know has come."""

    def checker_ready(self) -> None:
        """The process that makes batches again can be told what to make."""

    def checker_took(self, seconds: float) -> None:
        """A process that was forked for a check has ended, and has cost so much processor time in all."""

    def checker_lost(self) -> None:
        """It is gone, and what it was to make is not made."""

    def say_once(self, text: str, level: int = logging.WARNING) -> None:
        """Tell the user, if that has not been said."""

    def fail(self, error: BaseException) -> None:
        """There can be no more batches."""


class Pool:
    """Starts processes, watches them, and replaces them.

    Args:
        work: what the workers make.
        start_method, stall_timeout: see `detaug.engine.local.coordinator.LocalProcesses`.
        waker: ends `wait`.
        describe: the batch that a worker is making, in words.
        listener: is told what happens, by `wait`.

    Attributes:
        workers: those that fill a place, by number.
    """

    def __init__(
        self,
        work: Work,
        start_method: str,
        stall_timeout: float | None,
        waker: Waker,
        describe: Callable[[Worker], str],
        listener: Listener,
    ) -> None:
        self.workers: dict[int, Worker] = {}
        self._start_method = start_method
        self._places = work.num_processes
        self._slots_kept = work.schedule.window // self._places + 2
        self._selector: selectors.BaseSelector = selectors.SelectSelector()  # which takes no descriptor, until `start`
        self._waker = waker
        self._listener = listener
        self._events: list[Callable[[], None]] = []  # of which the listener has yet to be told
        self._stock = Stock(self._places * self._slots_kept)
        self._helpers = Helpers(work.pipeline, work.job, start_method, self._take_from_helper, self._lose_helper)
        self._reserve: Worker | None = None
        self._checkers: set[int] = set()  # numbers of those that were forked for a check and have yet to end
        self._checker: Worker | None = None
        self._asked: Worker | None = (
            None  # the one that owes a check's answer; meanwhile it may have taken a dead one's place
        )
        self._stalls = StallWatch(
            stall_timeout, describe, self._signal, self._abandon, self._is_missing, self._helpers.kill
        )
        self._numbers = 0
        self._start_failures = 0
        self._pausing: list[tuple[float, int]] = []  # (when, index) of workers that are to be started again
        self._helper_losses = 0
        self._failed = False

    def start(self) -> None:
        """Start the helper, and the workers from it.

        Raises:
            RuntimeError, OSError: they cannot be started. Call `stop` nevertheless.
        """
        self._selector = selectors.DefaultSelector()  # each descriptor with the function that takes in what comes
        self._selector.register(self._waker, selectors.EVENT_READ, self._waker.drain)
        keep_from_helpers(self._selector)
        self._helpers.start(self._selector)
        self._start_workers()

    def stop(self) -> None:
        """End all processes."""
        leave_to_helpers(self._selector)
        for worker in [*self.workers.values(), self._reserve, self._checker]:
            if worker is not None:
                worker.close()
        self.workers.clear()
        self._helpers.stop()
        self._selector.close()

    @property
    def has_reserve(self) -> bool:
        """Whether the worker in reserve is ready."""
        reserve = self._reserve
        return reserve is not None and reserve.ready

    def wait(self, most: float | None = None) -> None:
        """Tell what has happened, in order, as soon as something has; nothing after `most` seconds."""
        seconds, before = self._stalls.seconds_to_next_look(self.workers.values()), time.monotonic()
        if self._pausing:
            seconds = max(0.0, min(self._pausing[0][0] - before, _PAUSE if seconds is None else seconds))
        if most is not None:
            seconds = most if seconds is None else min(most, seconds)
        ready = self._selector.select(0.0 if self._events else seconds)
        waited = time.monotonic() - before
        if seconds is not None and waited - seconds > _PAUSE:
            # Nobody knows when in this time it was stopped. A worker that hangs is found a second later at most.
            self._stalls.forgive(self.workers.values(), waited)
        for key, _ in ready:
            # An earlier one may have closed it, and its number may already be another's.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        events, self._events = self._events, []
        for tell in events:
            tell()

    def look_for_stalls(self) -> None:
        """Say which workers hang, kill those that do for too long, and start those whose pause is over."""
        while self._pausing and self._pausing[0][0] <= time.monotonic():
            self._start_worker(self._pausing.pop(0)[1])
        self._stalls.look(self.workers.values())

    def _start_workers(self) -> None:
        self._pausing.clear()
        for index in range(self._places):
            self._start_worker(index)

    def _start_worker(self, index: int) -> None:
        worker, self._reserve = self._reserve or self._new_worker(), None
        if worker is not None:
            worker.index = index
            self.workers[worker.number] = worker
            if worker.ready:
                self._events.append(partial(self._listener.ready, worker))
            self._keep_reserve()

    def _keep_reserve(self) -> None:
        """Where a start takes longer than a fork of what is there, a worker waits to take a dead one's place at once."""
        settled = all(worker.ready for worker in self.workers.values())
        if self._start_method != "fork" and self._reserve is None and settled:
            self._reserve = self._new_worker()

    def _new_worker(self) -> Worker | None:
        assert self._helpers.current is not None
        self._numbers += 1
        try:
            channel = self._helpers.current.start_worker(self._numbers)
        except ChannelClosed:
            return None  # the helper is dead; once that is noticed, all workers restart
        worker = Worker(self._numbers, _IN_RESERVE, channel, ParentSlots(self._slots_kept, self._stock))
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear_worker(worker))
        return worker

    def ask_checker(self, message: messages.MakeAgain | messages.Explain) -> bool:
        """Send something to the process that makes batches again; False: it has yet to start, and `checker_ready` follows.

        A fork costs little, and has made nothing yet: there is a new one for every check. Elsewhere it is the worker in
        reserve, which has nothing else to do.
        """
        forks = self._start_method == "fork"
        if forks and self._checker is None and self._helpers.current is not None:
            try:
                self._checker = self._new_worker()
                self._checkers.add(self._numbers)
            except OSError:  # without descriptors to spare a check is not what they are for
                self._events.append(self._listener.checker_lost)
                return False
        checker = self._checker if forks else self._reserve
        if checker is None or not checker.ready:
            return False
        try:
            checker.channel.send(message)
        except ChannelClosed:
            return False  # the helper will say that it ended
        self._asked = checker
        return True

    def _end_checker(self) -> None:
        """It has answered, or is lost."""
        if self._checker is not None:
            self._mute(self._checker)
            self._checker.close()
            self._checker = None

    def _worker(self, number: int) -> Worker | None:
        for worker in (self._reserve, self._checker):
            if worker is not None and worker.number == number:
                return worker
        return self.workers.get(number)

    def _take_from_helper(self, message: messages.FromHelper) -> None:
        match message:
            case messages.Started(number, pid):
                if (worker := self._worker(number)) is not None:
                    worker.pid = pid
            case messages.Exited(number, exitcode, peak, seconds):
                worker = self._worker(number)
                if number in self._checkers:
                    self._checkers.discard(number)
                    self._events.append(partial(self._listener.checker_took, seconds))
                if worker is not None and not self._is_beside(worker):
                    self._lose_worker(worker, exitcode, peak)
            case messages.Signalled(number):
                if (worker := self._worker(number)) is not None:
                    worker.signalled = True
            case messages.CannotStart(number, why):
                worker = self._worker(number)
                if worker is not None and not self._is_beside(worker):
                    self._lack_worker(worker, why)

    def _lose_worker(self, worker: Worker, exitcode: int, peak: int) -> None:
        self._hear_worker(worker)  # it may have sent its batch before it ended
        if worker.number not in self.workers:
            return  # it had retired
        self._remove(worker)
        if not worker.ready:
            self._start_failures += 1
            if self._start_failures >= (START_KILLS if exitcode == -signal.SIGKILL else _START_FAILURES):
                self._fail(RuntimeError(f"workers end while they start, the last with {signal_name(exitcode)}"))
                return
        self._events.append(partial(self._listener.died, worker, exitcode, peak))
        self._start_worker(worker.index)

    def _lack_worker(self, worker: Worker, why: str) -> None:
        """It could not be started: those that are there go on without it for a while."""
        self._remove(worker)
        if not self.workers:
            self._fail(RuntimeError(why))
            return
        logger.warning("%s. The others go on; another is tried in %g s", why.rstrip("."), _START_PAUSE)
        self._is_missing(worker)
        self._events.append(partial(self._listener.gone, worker, 0))
        self._pausing.append((time.monotonic() + _START_PAUSE, worker.index))

    def _is_beside(self, worker: Worker) -> bool:
        """Whether it is the one in reserve, or the checker; then it is lost now."""
        if worker is self._reserve:
            self._lose_reserve()
        elif worker is self._checker:
            self._end_checker()
            self._events.append(self._listener.checker_lost)
        else:
            return False
        return True

    def _is_missing(self, worker: Worker) -> None:
        self._events.append(partial(self._listener.missing, worker))

    def _lose_reserve(self) -> None:
        if self._reserve is not None:  # the next worker that is ready brings another
            self._mute(self._reserve)
            self._reserve.close()
            self._reserve = None
            self._events.append(self._listener.checker_lost)

    def _retire_worker(self, worker: Worker, private: int) -> None:
        self._remove(worker)
        self._events.append(partial(self._listener.gone, worker, private))
        self._start_worker(worker.index)

    def _signal(self, worker: Worker, which: int) -> None:
        assert self._helpers.current is not None
        with contextlib.suppress(ChannelClosed):
            self._helpers.current.signal_worker(worker.number, which)

    def _abandon(self, worker: Worker) -> None:
        logger.warning("worker %d (pid %d) cannot be killed and is abandoned", *worker.name)
        self._lose_worker(worker, -signal.SIGKILL, 0)

    def _remove(self, worker: Worker) -> None:
        # It is closed by the coordinator, which has yet to open what it sent last.
        self._mute(worker)
        del self.workers[worker.number]
        if worker is self._asked:
            self._asked = None
            self._events.append(self._listener.checker_lost)

    def _lose_helper(self) -> None:
        """The helper was killed, and the kernel has killed its workers: restart all of them."""
        helper = self._helpers.current
        assert helper is not None
        logger.warning("the helper process (pid %d) has ended; starting it and the workers anew", helper.pid)
        self._helper_losses += 1
        if self._helper_losses >= START_KILLS:
            self._fail(RuntimeError(f"the helper process ended {START_KILLS} times before a worker was ready"))
        self._helpers.bury()
        self._lose_reserve()
        self._end_checker()
        self._events.append(self._listener.checker_lost)
        lost = list(self.workers.values())
        for worker in lost:
            self._hear_worker(worker)
            if worker.number in self.workers:  # else it has retired
                self._remove(worker)
                self._events.append(partial(self._listener.gone, worker, 0))
        self._helpers.current = None
        if self._failed:
            return
        if self._helpers.replace():
            self._start_workers()
        else:
            self._fail(RuntimeError(NO_HELPER))

    def _hear_worker(self, worker: Worker) -> None:
        try:
            arrived = worker.receive()
        except ChannelClosed:
            # Dead, or about to be: the helper says so. Until then its channel would be readable all the time.
            self._mute(worker)
            worker.left = worker.left or time.monotonic()
            return
        for message, descriptor in arrived:
            self._take_from_worker(worker, message, descriptor)

    def _take_from_worker(self, worker: Worker, message: messages.FromWorker, descriptor: int | None) -> None:
        match message:
            case messages.Ready(pid):
                worker.ready, worker.pid = True, pid
                worker.whereabouts = Whereabouts(descriptor) if descriptor is not None else None
                self._start_failures = self._helper_losses = 0
                if worker is self._checker or worker is self._reserve:
                    self._events.append(self._listener.checker_ready)
                else:
                    self._events.append(partial(self._listener.ready, worker))
                    self._keep_reserve()
            case messages.Retiring(private):
                self._retire_worker(worker, private)
            case messages.Log(text):
                self._events.append(partial(self._listener.say_once, text))
            case messages.Report() | messages.Checked() | messages.Explained():
                if worker is self._checker:  # which was forked for this answer alone
                    self._end_checker()
                if worker is self._asked and not isinstance(message, messages.Report):
                    self._asked = None
                self._events.append(partial(self._listener.reported, worker, message))
            case messages.Broken(record):
                self._fail(
                    RuntimeError(f"a worker could not set up the pipeline: {record.summary}\n\n{record.users_part}")
                )
            case _:
                self._events.append(partial(self._listener.answered, worker, message, descriptor))

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._events.append(partial(self._listener.fail, error))

    def _mute(self, worker: Worker) -> None:
        if worker.channel.fileno() in self._selector.get_map():
            self._selector.unregister(worker.channel.fileno())
