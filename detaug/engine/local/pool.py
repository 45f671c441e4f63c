"""The processes of an engine, started, watched and replaced: the helper, the workers, and the
checker.

All of it is called by the coordinator's thread alone, or before that is started. What happens to
the processes is told to the coordinator at once, in order: all answers of a worker before its end.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
import time
from typing import Protocol

from detaug.engine.batch_maker import TaskResult
from detaug.engine.executor import EngineContext
from detaug.engine.local import messages
from detaug.engine.local.handles import (
    Helper,
    Worker,
    execute_helper,
    fork_helper,
)
from detaug.engine.local.slots import ParentSlots
from detaug.engine.local.stall_watch import TICK, StallWatch
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.recheck.requests import RecheckCandidate
from detaug.system.channel import ChannelClosed
from detaug.system.interpreters import InterpreterOptions
from detaug.system.processes import signal_name

logger = logging.getLogger("detaug")

#: After so many seconds another worker is started for one that could not be.
_START_PAUSE = 30.0
#: A worker that fails to start this many times in a row ends the run.
_START_FAILURES = 3
#: Helpers, and workers that have yet to start, may be killed from outside this many times in a row.
_START_KILLS = 20
#: The index of the checker, which fills no place.
_NO_PLACE = -1
_NO_HELPER = (
    "the helper process, from which this augmenter's workers are forked, was killed. Workers as "
    "they were at the "
    "start can no longer be made, and others might make other batches. restart() starts workers "
    "from this program "
    "as it is now, at the start of the epoch; then load_state_dict() with a state_dict() taken "
    "before goes on where "
    "it stood. With LocalProcesses(start_method='forkserver') or 'spawn' workers can be made anew "
    "at any time."
)


class WorkerEvents(Protocol):
    """Receives what happens to workers, in order; all calls come from the thread that calls `wait`."""

    def on_result(self, worker: Worker, made: TaskResult, descriptor: int | None) -> None:
        """A task of the worker has been answered.

        Args:
            worker: The worker.
            made: Its answer.
            descriptor: Of the new slot in which the batch lies; None: of one that is known.
        """

    def on_retired(self, worker: Worker, private: int) -> None:
        """The worker is gone through no fault of its tasks.

        Args:
            worker: The worker.
            private: The bytes of private memory for which it retired; 0: it did not.
        """

    def on_crashed(self, worker: Worker, exitcode: int, peak: int) -> None:
        """The worker ended while it made a batch, or between two.

        Args:
            worker: The worker.
            exitcode: Negative for a signal, as `subprocess` has it.
            peak: The most memory that it had, in bytes; 0: not known.
        """

    def fail(self, error: Exception) -> None:
        """End the run with an error."""

    def warn_once(self, text: str, level: int = logging.WARNING) -> None:
        """Log a text, unless it was logged before."""


class Pool:
    """Starts processes, watches and replaces them.

    Attributes:
        workers: The workers that fill a place, by number.
        helper: The process from which they are started.
    """

    def __init__(
        self,
        work: EngineContext,
        start_method: str,
        stall_timeout: float | None,
        events: WorkerEvents,
        checking: Recheck,
    ) -> None:
        """Start nothing yet.

        Args:
            work: The batches to make, and the pipeline that makes them.
            start_method: "fork", "forkserver" or "spawn".
            stall_timeout: Seconds after which a worker without an answer is killed; None: never.
            events: Receives what happens to workers.
            checking: Receives what happens to checks.
        """
        self.workers: dict[int, Worker] = {}
        self.helper: Helper | None = None
        self._work = work
        self._start_method = start_method
        self._surrounding = InterpreterOptions.here()
        # Twice a worker's share of the window, for some get ahead of others, and two batches that
        # the user holds.
        self._slots_kept = 2 * (work.schedule.window // work.num_processes + 2)
        self._selector: selectors.BaseSelector = (
            selectors.SelectSelector()
        )  # which takes no descriptor, until `start`
        self._wakes, self._wake = socket.socketpair()
        self._wakes.setblocking(False)
        self._wake.setblocking(False)
        self._events = events
        self._checking = checking
        self._checker: Worker | None = None
        self._stalls = StallWatch(stall_timeout, work.places, kill=self.kill, abandon=self.abandon)
        self._numbers = 0
        self._start_failures = 0
        self._pausing: list[
            tuple[float, int]
        ] = []  # (when, index) of workers that are to be started again
        self._helper_losses = 0

    def start(self) -> None:
        """Start the helper, and the workers from it."""
        self._selector = (
            selectors.DefaultSelector()
        )  # each descriptor with the function that takes in what comes
        self._selector.register(self._wakes, selectors.EVENT_READ, lambda: self._wakes.recv(4096))
        self._start_all()

    def stop(self) -> None:
        """End all processes."""
        for worker in [*self.workers.values(), *([self._checker] if self._checker else [])]:
            worker.close()
        self.workers.clear()
        if self.helper is not None:
            self.helper.stop()
        self._selector.close()
        self._wakes.close()
        self._wake.close()

    def wake(self) -> None:
        """End `wait`; from any thread."""
        # It may be full of wakes already, or closed by the thread that would read it.
        with contextlib.suppress(OSError):
            self._wake.send(b"!")

    def wait(self) -> None:
        """Tell what has happened, in order, as soon as something has. Then, and at every tick, say
        which workers hang, kill those that do for too long, and start those whose pause is over.
        """
        for key, _ in self._selector.select(TICK):
            # An earlier one may have closed it, and its number may already be another's.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        while self._pausing and self._pausing[0][0] <= time.monotonic():
            self._start_worker(self._pausing.pop(0)[1])
        self._stalls.look(self.workers.values())

    # --- workers

    def _start_worker(self, index: int) -> None:
        if (worker := self._new_worker(index)) is not None:
            self.workers[worker.number] = worker

    def _new_worker(self, index: int) -> Worker | None:
        assert self.helper is not None
        self._numbers += 1
        try:
            channel = self.helper.start_worker(self._numbers)
        except ChannelClosed:
            return None  # the helper is dead; once that is noticed, all workers restart
        worker = Worker(self._numbers, index, channel, ParentSlots(self._slots_kept))
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear_worker(worker))
        return worker

    def _lose_worker(self, worker: Worker, exitcode: int, peak: int) -> None:
        worker.left = worker.left or time.monotonic()  # it is given nothing more
        self._hear_worker(worker)  # it may have sent its batch before it ended
        if worker.number not in self.workers:
            return  # it had retired
        self._remove(worker)
        if not worker.ready:
            self._start_failures += 1
            was_killed_from_outside = exitcode == -signal.SIGKILL and not worker.leaving
            most = _START_KILLS if was_killed_from_outside else _START_FAILURES
            if self._start_failures >= most:
                worker.close()
                reason = worker.leaving or f"the last with {signal_name(exitcode)}"
                error = RuntimeError(f"workers end while they start, {reason}")
                self._events.fail(error)
                return
        self._events.on_crashed(worker, exitcode, peak)
        self._start_worker(worker.index)

    def _lack_worker(self, worker: Worker, why: str) -> None:
        """Go on for a while without a worker that could not be started."""
        self._remove(worker)
        if not self.workers:
            self._events.fail(RuntimeError(why))
            return
        logger.warning(
            "%s. The others go on; another is tried in %g s", why.rstrip("."), _START_PAUSE
        )
        self._events.on_retired(worker, 0)
        self._pausing.append((time.monotonic() + _START_PAUSE, worker.index))

    def _remove(self, worker: Worker) -> None:
        # It is closed by the coordinator, which may have to ask first what it was at.
        self._mute(worker)
        del self.workers[worker.number]

    def _mute(self, worker: Worker) -> None:
        if worker.channel.fileno() in self._selector.get_map():
            self._selector.unregister(worker.channel.fileno())

    def _hear_worker(self, worker: Worker) -> None:
        try:
            arrived = worker.channel.receive_ready()
        except ChannelClosed:
            # Dead, or about to be: the helper says so. Until then its channel would be readable all
            # the time.
            self._mute(worker)
            worker.left = worker.left or time.monotonic()
            return
        for message, descriptor in arrived:
            self._take_from_worker(worker, message, descriptor)

    def _take_from_worker(
        self, worker: Worker, message: messages.FromWorker, descriptor: int | None
    ) -> None:
        match message:
            case messages.Ready(pid):
                worker.ready, worker.pid = True, pid
                self._start_failures = self._helper_losses = 0
                if worker is self._checker:
                    self._checking.advance()
            case messages.Retiring(private):
                self._remove(worker)
                self._events.on_retired(worker, private)
                self._start_worker(worker.index)
            case messages.Log(text, level):
                self._events.warn_once(text, level)
            case RecheckCandidate():
                self._checking.reported(message._replace(worker=worker.number))
            case messages.Checked(answer, seconds):
                if worker is self._checker and self._start_method == "fork":
                    # It was forked for this answer alone.
                    start_seconds = time.monotonic() - worker.since - seconds
                    self._work.checks.paid_for_process(max(0.0, start_seconds))
                    self._end_checker()
                self._checking.answered(answer, seconds, worker.number)
            case messages.Broken(record):
                why = (
                    "a worker could not set up the pipeline: "
                    f"{record.summary}\n\n{record.users_part}"
                )
                self._events.fail(RuntimeError(why))
            case _:
                self._events.on_result(worker, message, descriptor)

    # --- the checker

    def checker(self) -> Worker | None:
        """Return the process that makes batches again; None: there cannot be one now.

        It may not be ready. `Recheck.advance` follows once it is. A fork has made nothing yet, so
        there is a new one for every check. Elsewhere it is started with the first check, and stays.
        """
        if self._checker is None:
            try:
                self._checker = self._new_worker(_NO_PLACE)
            except OSError:  # without descriptors to spare a check is not what they are for
                self._checking.give_up()
        return self._checker

    def _end_checker(self) -> None:
        if self._checker is not None:
            self.kill(self._checker)  # a fork of the program's may keep its channel open
            self._mute(self._checker)
            self._checker.close()
            self._checker = None

    def _lose_checker(self) -> None:
        self._end_checker()
        self._checking.give_up()

    # --- what `StallWatch` asks for

    def kill(self, worker: Worker) -> None:
        """Have the helper kill it: it knows whether the pid still is that worker's."""
        assert self.helper is not None
        with contextlib.suppress(ChannelClosed):
            self.helper.control.send(messages.Kill(worker.number))

    def abandon(self, worker: Worker) -> None:
        """It cannot be killed."""
        logger.warning("%s cannot be killed and is abandoned", worker.name)
        self._lose_worker(worker, -signal.SIGKILL, 0)

    # --- the helper

    def _start_all(self) -> None:
        pipeline, job = self._work.pipeline, self._work.job
        if self._start_method == "fork":
            helper = fork_helper(pipeline, job)
        else:
            helper = execute_helper(self._start_method, pipeline, job, self._surrounding)
        self.helper = helper
        self._selector.register(helper.control, selectors.EVENT_READ, self._hear_helper)
        self._pausing.clear()
        for index in range(self._work.num_processes):
            self._start_worker(index)

    def _hear_helper(self) -> None:
        assert self.helper is not None
        try:
            arrived = self.helper.control.receive_ready()
        except ChannelClosed:
            self._lose_helper(self.helper)
            return
        for message, _ in arrived:
            if self._checker is not None and self._checker.number == message.number:
                self._lose_checker()
            elif (worker := self.workers.get(message.number)) is None:
                continue
            elif isinstance(message, messages.Exited):
                self._lose_worker(worker, message.exitcode, message.peak)
            else:
                self._lack_worker(worker, message.why)

    def _lose_helper(self, helper: Helper) -> None:
        """It was killed, and the kernel has killed its workers: start all of them anew.

        Not those of "fork". By now the program has gone on: what it would fork has other globals,
        threads, locks, perhaps a CUDA context.
        """
        logger.warning("the helper process (pid %d) has ended", helper.pid)
        self._helper_losses += 1
        self._selector.unregister(helper.control)
        helper.stop()
        self._lose_checker()
        for worker in list(self.workers.values()):
            worker.left = time.monotonic()
            self._hear_worker(worker)
            if worker.number in self.workers:  # else it has retired
                self._remove(worker)
                self._events.on_retired(worker, 0)
        if self._start_method == "fork":
            self._events.fail(RuntimeError(_NO_HELPER))
        elif self._helper_losses >= _START_KILLS:
            how = f"the helper process ended {_START_KILLS} times before a worker was ready"
            self._events.fail(RuntimeError(how))
        else:
            self._start_all()
