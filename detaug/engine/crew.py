"""The processes of an engine: the helper, its spare, the workers, and the worker in reserve.

All of it is called by the coordinator's thread alone, or before that is started.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import time
from dataclasses import dataclass
from typing import Any, Protocol

from detaug.engine.channel import ChannelClosed
from detaug.engine.error_record import ErrorRecord
from detaug.engine.handles import Helper, Worker, start_helper
from detaug.engine.processes import signal_name
from detaug.engine.slots import ParentSlots
from detaug.engine.stalls import StallWatch
from detaug.engine.whereabouts import Whereabouts
from detaug.engine.worker import Job
from detaug.pipeline import Pipeline

logger = logging.getLogger("detaug")

#: A worker that fails to start this many times in a row ends the run.
_START_FAILURES = 3
#: The same where they, or the helper, were killed from outside.
_START_KILLS = 20
#: The index of a worker that fills no place yet.
_IN_RESERVE = -1
#: Having slept for so many seconds longer than asked for, this process was stopped.
_PAUSE = 2.0


@dataclass(frozen=True)
class Settings:
    """How the engine is to behave; nothing here changes a byte of a batch."""

    num_processes: int
    start_method: str
    max_restarts: int
    stall_timeout: float | None
    skip_errors: bool
    pin_memory: bool
    slots_kept: int


class Events(Protocol):
    """What the crew tells of."""

    def describe(self, worker: Worker) -> str:
        """The batch that it is making, in words."""

    def ready(self, worker: Worker) -> None:
        """It can be given tasks."""

    def answered(self, worker: Worker, message: tuple[Any, ...], descriptor: int | None) -> None:
        """A message about one of its tasks has come."""

    def died(self, worker: Worker, exitcode: int, peak: int) -> None:
        """It ended while it made its first task; `peak` bytes of memory is the most it had, 0 if that is not known."""

    def gone(self, worker: Worker) -> None:
        """It is gone, through no fault of its tasks."""

    def say_once(self, text: str) -> None:
        """Tell the user, if that has not been said."""

    def fail(self, error: BaseException) -> None:
        """There can be no more batches."""


class Crew:
    """Starts processes, watches them, and replaces them.

    Args:
        pipeline: what the workers run.
        job: what they have to know.
        settings: see there.
        events: is told what happens.

    Attributes:
        workers: those that fill a place, by number.
    """

    def __init__(self, pipeline: Pipeline, job: Job, settings: Settings, events: Events) -> None:
        self.workers: dict[int, Worker] = {}
        self._pipeline = pipeline
        self._job = job
        self._settings = settings
        self._selector: selectors.BaseSelector = selectors.SelectSelector()  # until there is one to watch with
        self._events = events
        self._helper: Helper | None = None
        self._spare: Helper | None = None
        self._reserve: Worker | None = None
        self._stalls = StallWatch(
            settings.stall_timeout, events.describe, self._signal, self._abandon, self._kill_helper
        )
        self._numbers = 0
        self._start_failures = 0
        self._helper_losses = 0
        self._failed = False

    def start(self, selector: selectors.BaseSelector) -> None:
        """Start the helper, and the workers from it; `selector` is told what to watch, each with the function to call."""
        self._selector = selector
        self._start_all(start_helper(self._settings.start_method, self._pipeline, self._job))

    def stop(self) -> None:
        """End all processes."""
        for worker in [*self.workers.values(), self._reserve]:
            if worker is not None:
                worker.close()
        self.workers.clear()
        for helper in (self._helper, self._spare):
            if helper is not None:
                helper.stop()

    @property
    def has_reserve(self) -> bool:
        """Whether the worker in reserve is ready."""
        reserve = self._reserve
        return reserve is not None and reserve.ready

    def wait(self) -> list[selectors.SelectorKey]:
        """What has happened, as soon as something has; look after workers that hang meanwhile."""
        seconds, before = self._stalls.seconds_to_next_look(self.workers.values()), time.monotonic()
        ready = [key for key, _ in self._selector.select(seconds)]
        late = 0.0 if seconds is None else time.monotonic() - before - seconds
        if late > _PAUSE:
            self._stalls.forgive(self.workers.values(), late)
        return ready

    def look_for_stalls(self) -> None:
        """Say which workers hang, and kill those that do for too long."""
        self._stalls.look(self.workers.values())

    def _watched(self, helper: Helper) -> Helper:
        self._selector.register(helper.control, selectors.EVENT_READ, self._hear_helper)
        if helper.pidfd is not None:
            self._selector.register(helper.pidfd, selectors.EVENT_READ, self._lose_helper)
        return helper

    def _start_all(self, helper: Helper) -> None:
        self._helper = self._watched(helper)
        self._spare = helper.fork_spare()
        for index in range(self._settings.num_processes):
            self._start_worker(index)

    def _start_worker(self, index: int) -> None:
        worker, self._reserve = self._reserve or self._new_worker(), None
        if worker is not None:
            worker.index = index
            self.workers[worker.number] = worker
            self._keep_reserve()

    def _keep_reserve(self) -> None:
        """Where a start takes longer than a fork of what is there, a worker waits to take a dead one's place at once."""
        settled = all(worker.ready for worker in self.workers.values())
        if self._settings.start_method != "fork" and self._reserve is None and settled:
            self._reserve = self._new_worker()

    def _new_worker(self) -> Worker | None:
        assert self._helper is not None
        self._numbers += 1
        try:
            channel = self._helper.start_worker(self._numbers)
        except ChannelClosed:
            return None  # the helper is dead; when that is noticed, all workers are started anew
        worker = Worker(self._numbers, _IN_RESERVE, channel, ParentSlots(self._settings.slots_kept))
        self._selector.register(channel, selectors.EVENT_READ, lambda: self._hear_worker(worker))
        return worker

    def _worker(self, number: int) -> Worker | None:
        if self._reserve is not None and self._reserve.number == number:
            return self._reserve
        return self.workers.get(number)

    def _hear_helper(self) -> None:
        assert self._helper is not None
        try:
            messages = self._helper.control.receive_ready()
        except ChannelClosed:
            self._lose_helper()
            return
        for message, _ in messages:
            worker = self._worker(message[1])
            if message[0] == "started" and worker is not None:
                worker.pid = message[2]
            elif message[0] == "exited" and worker is not None:
                if worker is self._reserve:
                    self._lose_reserve()
                else:
                    self._lose_worker(worker, exitcode=message[3], peak=message[4])
            elif message[0] == "signalled" and worker is not None:
                worker.signalled = True
            elif message[0] == "spare" and self._spare is not None:
                self._spare.spare_started(message[1])
                if self._spare.pidfd is not None:
                    self._selector.register(self._spare.pidfd, selectors.EVENT_READ, self._lose_spare)
            elif message[0] == "failed":
                self._fail(RuntimeError(message[2]))

    def _lose_worker(self, worker: Worker, exitcode: int, peak: int) -> None:
        self._hear_worker(worker)  # it may have sent its batch before it ended
        if worker.number not in self.workers:
            return  # it had retired
        self._remove(worker)
        if not worker.ready:
            self._start_failures += 1
            if self._start_failures >= (_START_KILLS if exitcode == -signal.SIGKILL else _START_FAILURES):
                self._fail(RuntimeError(f"workers end while they start, the last with {signal_name(exitcode)}"))
                return
        if worker.tasks:
            self._events.died(worker, exitcode, peak)
        else:
            text = "worker %d (pid %d) ended with %s between batches; starting another"
            logger.warning(text, *worker.name, signal_name(exitcode))
        self._start_worker(worker.index)

    def _lose_reserve(self) -> None:
        if self._reserve is not None:  # the next worker that is ready brings another
            self._mute(self._reserve)
            self._reserve.close()
            self._reserve = None

    def _retire_worker(self, worker: Worker, memory: int) -> None:
        limit = self._job.max_memory
        assert limit is not None
        text = f"has {memory / 2**20:.0f} MiB of memory to itself (max_worker_memory is {limit / 2**20:.0f} MiB)"
        logger.info("worker %d (pid %d) %s and retires; another takes its place", *worker.name, text)
        if worker.batches <= 1:
            every = "a worker that has made but one batch exceeds max_worker_memory already, so that every batch takes a new"
            self._events.say_once(f"{every} process: it {text}")
        self._remove(worker)
        self._events.gone(worker)
        self._start_worker(worker.index)

    def _signal(self, worker: Worker, which: int) -> None:
        assert self._helper is not None
        with contextlib.suppress(ChannelClosed):
            self._helper.signal_worker(worker.number, which)

    def _abandon(self, worker: Worker) -> None:
        logger.warning("worker %d (pid %d) cannot be killed and is abandoned", *worker.name)
        self._lose_worker(worker, -signal.SIGKILL, 0)

    def _kill_helper(self) -> None:
        assert self._helper is not None
        logger.warning("the helper process (pid %d) does not answer and is killed", self._helper.pid)
        self._helper.kill()

    def _remove(self, worker: Worker) -> None:
        self._mute(worker)
        worker.close()
        del self.workers[worker.number]

    def _lose_helper(self) -> None:
        """The helper was killed, and the kernel has killed its workers: start all of them anew."""
        assert self._helper is not None
        logger.warning("the helper process (pid %d) has ended; starting it and the workers anew", self._helper.pid)
        self._helper_losses += 1
        if self._helper_losses >= _START_KILLS:
            self._fail(RuntimeError(f"the helper process ended {_START_KILLS} times before a worker was ready"))
        self._selector.unregister(self._helper.control)
        if self._helper.pidfd is not None:
            self._selector.unregister(self._helper.pidfd)
        self._helper.reap()
        self._lose_reserve()
        lost = list(self.workers.values())
        for worker in lost:
            self._hear_worker(worker)
            if worker.number in self.workers:  # else it has retired
                self._remove(worker)
                self._events.gone(worker)
        self._helper = None
        if not self._failed:
            self._start_all(self._new_helper())

    def _lose_spare(self) -> None:
        assert self._spare is not None
        assert self._helper is not None
        if self._spare.pidfd is not None:
            self._selector.unregister(self._spare.pidfd)
        self._spare.reap()
        self._spare = self._helper.fork_spare()

    def _new_helper(self) -> Helper:
        spare, self._spare = self._spare, None
        if spare is not None:
            if spare.pidfd is not None:
                self._selector.unregister(spare.pidfd)
            if spare.is_alive():
                return spare
            spare.kill()
            spare.reap()
        method = self._settings.start_method
        if method == "fork" and self._pipeline.frozen is not None:
            # By now the parent has threads, locks and perhaps a CUDA context that a fork would inherit.
            method = "forkserver"
        return start_helper(method, self._pipeline, self._job)

    def _hear_worker(self, worker: Worker) -> None:
        try:
            messages = worker.channel.receive_ready()
        except ChannelClosed:
            # Dead, or about to be: the helper says so. Until then its channel would be readable all the time.
            self._mute(worker)
            worker.left = worker.left or time.monotonic()
            return
        for message, descriptor in messages:
            kind = message[0]
            if kind == "ready":
                worker.ready, worker.pid = True, message[1]
                worker.whereabouts = Whereabouts(descriptor) if descriptor is not None else None
                self._start_failures = self._helper_losses = 0
                if worker is not self._reserve:
                    self._events.ready(worker)
                    self._keep_reserve()
            elif kind == "retiring":
                self._retire_worker(worker, message[1])
            elif kind == "log":
                self._events.say_once(message[1])
            elif kind == "broken":
                record: ErrorRecord = message[1]
                self._fail(
                    RuntimeError(f"a worker could not set up the pipeline: {record.summary}\n\n{record.traceback}")
                )
            else:
                self._events.answered(worker, message, descriptor)

    def _fail(self, error: BaseException) -> None:
        self._failed = True
        self._events.fail(error)

    def _mute(self, worker: Worker) -> None:
        if worker.channel.fileno() in self._selector.get_map():
            self._selector.unregister(worker.channel.fileno())
