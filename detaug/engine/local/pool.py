"""The processes of an engine, started, watched and replaced: helper, workers and checker.

Everything here is called by the coordinator's thread, or before that thread is started. Events are
passed to the coordinator at once and in order: all results of a worker come before its end.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import signal
import socket
import time
from functools import partial
from typing import NamedTuple, Protocol

from detaug.engine.batch_maker import TaskResult
from detaug.engine.executor import EngineContext
from detaug.engine.local import messages
from detaug.engine.local.handles import Helper, Worker, execute_helper, fork_helper
from detaug.engine.local.slots import ParentSlots
from detaug.engine.local.stall_watch import TICK, StallWatch
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.recheck.requests import RecheckCandidate
from detaug.system.channel import ChannelClosed
from detaug.system.interpreters import InterpreterOptions
from detaug.system.processes import signal_name

logger = logging.getLogger("detaug")

#: Seconds after which another worker is started for one that could not be started.
_START_PAUSE = 30.0
#: Workers that fail to start this many times in a row end the run.
_START_FAILURES = 3
#: Helpers, and workers that are starting, may be killed from outside this many times in a row.
_START_KILLS = 20
#: The index of the checker, which owns no streams.
_CHECKER_INDEX = -1
_NO_HELPER = (
    "the helper process, from which this augmenter's workers are forked, was killed. Workers as"
    " they were at the start can no longer be made, and others might make other batches. restart()"
    " starts workers from this program as it is now, at the start of the epoch; then"
    " load_state_dict() with a state_dict() taken before continues with the batch that was due."
    " With LocalProcesses(start_method='forkserver') or 'spawn' they can be replaced at any time."
)


class WorkerEvents(Protocol):
    """The receiver of events of workers, in order, in the thread that calls `Pool.wait`."""

    def on_result(self, worker: Worker, result: TaskResult, descriptor: int | None) -> None:
        """Take in the result of a worker's first task.

        Args:
            worker: the worker.
            result: the result.
            descriptor: of the new slot that has the batch; None: the slot is known.
        """

    def on_retired(self, worker: Worker, private: int) -> None:
        """Requeue the tasks of a worker that retired, or that could not be started.

        Args:
            worker: the worker.
            private: bytes of private memory because of which it retired; 0: it did not retire.
        """

    def on_crashed(self, worker: Worker, exitcode: int, peak: int) -> None:
        """Requeue the tasks of a worker that ended; the first task may be the cause.

        Args:
            worker: the worker.
            exitcode: negative for a signal, as in `subprocess`.
            peak: the most memory that it had, in bytes; 0: unknown.
        """

    def fail(self, error: Exception) -> None:
        """End the run with an error."""

    def warn_once(self, text: str, level: int = logging.WARNING) -> None:
        """Log a text, unless it was logged before."""


class _Restart(NamedTuple):
    """A worker that is to be started later, by the monotonic clock in seconds."""

    when: float
    worker_index: int


class Pool:
    """The processes of an engine.

    Attributes:
        workers: the workers by id, without the checker.
        helper: the process from which they are started; None before `start`.

    Args:
        context: the batches to make, and the pipeline that makes them.
        start_method: "fork", "forkserver" or "spawn".
        stall_timeout: seconds after which a worker without a result is killed; None: never.
        events: receives the events of workers.
        recheck: receives the candidates and responses of the run-time check.
    """

    def __init__(
        self,
        context: EngineContext,
        start_method: str,
        stall_timeout: float | None,
        events: WorkerEvents,
        recheck: Recheck,
    ) -> None:
        self.workers: dict[int, Worker] = {}
        self.helper: Helper | None = None
        self._context = context
        self._start_method = start_method
        self._options = InterpreterOptions.here()
        # Twice a worker's share of the window, because some workers get ahead of others, and two
        # batches that the user holds.
        self._slots_kept = 2 * (context.schedule.window // context.num_processes + 2)
        # Until `start`, one that needs no descriptor.
        self._selector: selectors.BaseSelector = selectors.SelectSelector()
        self._wakeup_receiver, self._wakeup_sender = socket.socketpair()
        self._wakeup_receiver.setblocking(False)
        self._wakeup_sender.setblocking(False)
        self._events = events
        self._recheck = recheck
        self._checker: Worker | None = None
        self._stall_watch = StallWatch(
            stall_timeout, context.locator, kill=self.kill, abandon=self.abandon
        )
        self._last_worker_id = 0
        self._start_failures = 0
        self._helper_losses = 0
        self._restarts: list[_Restart] = []

    def start(self) -> None:
        """Start the helper, and the workers from it."""
        # The data of each key is the function that reads what arrives.
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wakeup_receiver, selectors.EVENT_READ, self._read_wakeups)
        self._start_all()

    def stop(self) -> None:
        """End all processes."""
        for worker in self.workers.values():
            worker.close()
        if self._checker is not None:
            self._checker.close()
        self.workers.clear()
        if self.helper is not None:
            self.helper.stop()
        self._selector.close()
        self._wakeup_receiver.close()
        self._wakeup_sender.close()

    def wake(self) -> None:
        """Make `wait` return; called from any thread."""
        # The socket may be full of wake-ups, or the reading thread may have closed it.
        with contextlib.suppress(OSError):
            self._wakeup_sender.send(b"!")

    def _read_wakeups(self) -> None:
        self._wakeup_receiver.recv(4096)

    def wait(self) -> None:
        """Wait for events and handle them in order; then start workers and check for stalls.

        It returns after `TICK` seconds at the latest.
        """
        for key, _ in self._selector.select(TICK):
            # The handler of an earlier event may have closed this descriptor, and its number may be
            # another channel's by now.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        while self._restarts and self._restarts[0].when <= time.monotonic():
            self._start_worker(self._restarts.pop(0).worker_index)
        self._stall_watch.check(self.workers.values())

    # --- workers

    def _start_worker(self, index: int) -> None:
        worker = self._new_worker(index)
        if worker is not None:
            self.workers[worker.worker_id] = worker

    def _new_worker(self, index: int) -> Worker | None:
        """Return a worker that is starting; None: the helper is dead."""
        assert self.helper is not None
        self._last_worker_id += 1
        try:
            channel = self.helper.start_worker(self._last_worker_id)
        except ChannelClosed:
            # Once the closed channel is noticed, all workers are restarted.
            return None
        worker = Worker(self._last_worker_id, index, channel, ParentSlots(self._slots_kept))
        read_messages = partial(self._read_messages, worker)
        self._selector.register(channel, selectors.EVENT_READ, read_messages)
        return worker

    def _on_worker_ended(self, worker: Worker, exitcode: int, peak: int) -> None:
        """Replace a worker that has ended, or end the run if too many end while they start."""
        # It gets no more tasks from now on.
        _mark_disconnected(worker)
        # It may have sent its batch before it ended.
        self._read_messages(worker)
        # Its last message may have been that it retires, which has replaced it.
        if worker.worker_id not in self.workers:
            return
        self._remove(worker)
        if not worker.ready and self._has_failed_to_start(worker, exitcode):
            worker.close()
            reason = worker.kill_reason or f"the last with {signal_name(exitcode)}"
            error = RuntimeError(f"workers end while they start, {reason}")
            self._events.fail(error)
            return
        self._events.on_crashed(worker, exitcode, peak)
        self._start_worker(worker.index)

    def _has_failed_to_start(self, worker: Worker, exitcode: int) -> bool:
        """Count a worker that ended while it started; True: there are too many in a row."""
        self._start_failures += 1
        if exitcode == -signal.SIGKILL and not worker.kill_reason:
            return self._start_failures >= _START_KILLS
        return self._start_failures >= _START_FAILURES

    def _on_start_failed(self, worker: Worker, reason: str) -> None:
        """Continue for a while without a worker that could not be started."""
        self._remove(worker)
        if not self.workers:
            self._events.fail(RuntimeError(reason))
            return
        logger.warning(
            "%s. The other workers continue; the next attempt is in %g s",
            reason.rstrip("."),
            _START_PAUSE,
        )
        self._events.on_retired(worker, 0)
        self._restarts.append(_Restart(time.monotonic() + _START_PAUSE, worker.index))

    def _remove(self, worker: Worker) -> None:
        """Remove a worker. The coordinator closes it, after it has read its tasks."""
        self._unregister(worker)
        del self.workers[worker.worker_id]

    def _unregister(self, worker: Worker) -> None:
        """Wait no longer for messages of a worker."""
        descriptor = worker.channel.fileno()
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def _read_messages(self, worker: Worker) -> None:
        """Handle the messages of a worker that have arrived."""
        try:
            arrived = worker.channel.receive_ready()
        except ChannelClosed:
            # The worker is dead or dying, and the helper will report its end. Until then the closed
            # channel would be readable all the time.
            self._unregister(worker)
            _mark_disconnected(worker)
            return
        for message, descriptor in arrived:
            self._handle_message(worker, message, descriptor)

    def _handle_message(
        self, worker: Worker, message: messages.FromWorker, descriptor: int | None
    ) -> None:
        match message:
            case messages.Ready(pid):
                self._on_ready(worker, pid)
            case messages.Retiring(private):
                self._remove(worker)
                self._events.on_retired(worker, private)
                self._start_worker(worker.index)
            case messages.Log(text, level):
                self._events.warn_once(text, level)
            case RecheckCandidate():
                self._recheck.on_candidate(message._replace(worker=worker.worker_id))
            case messages.RecheckReply():
                self._on_recheck_reply(worker, message)
            case messages.Broken(record):
                reason = (
                    "a worker could not set up the pipeline:"
                    f" {record.summary}\n\n{record.users_part}"
                )
                self._events.fail(RuntimeError(reason))
            case _:
                self._events.on_result(worker, message, descriptor)

    def _on_ready(self, worker: Worker, pid: int) -> None:
        worker.ready = True
        worker.pid = pid
        self._start_failures = 0
        self._helper_losses = 0
        if worker is self._checker:
            self._recheck.advance()

    def _on_recheck_reply(self, worker: Worker, reply: messages.RecheckReply) -> None:
        if worker is self._checker and self._start_method == "fork":
            # It was forked for this response alone, so its start is a part of the check's cost.
            start_seconds = time.monotonic() - worker.task_started_at - reply.seconds
            self._context.recheck_policy.add_process_time(max(0.0, start_seconds))
            # Before the response is passed on: the next request needs a new checker.
            self._end_checker()
        elif worker is not self._checker:
            # Its next task begins now, although it may have been sent before.
            worker.restart_clock()
        self._recheck.on_response(reply.response, reply.seconds, worker.worker_id)

    # --- the checker

    def checker(self) -> Worker | None:
        """Return the checker, which remakes batches; None: there cannot be one now.

        It may not be ready; `Recheck.advance` is called when it is. A fork has made no batch yet,
        so with "fork" every check gets a new one. With other start methods the checker is started
        with the first check, and stays.
        """
        if self._checker is None:
            try:
                self._checker = self._new_worker(_CHECKER_INDEX)
            except OSError:
                # The limit of descriptors is reached: they are needed for workers.
                self._recheck.cancel_check()
        return self._checker

    def _end_checker(self) -> None:
        if self._checker is not None:
            # Killed, because closing the channel may not end it: a fork of the program may have a
            # copy of the parent's end.
            self.kill(self._checker)
            self._unregister(self._checker)
            self._checker.close()
            self._checker = None

    def _lose_checker(self) -> None:
        self._end_checker()
        self._recheck.cancel_check()

    # --- used by `StallWatch`

    def kill(self, worker: Worker) -> None:
        """Make the helper kill a worker: it knows whether the pid is still that worker's."""
        assert self.helper is not None
        with contextlib.suppress(ChannelClosed):
            self.helper.control.send(messages.Kill(worker.worker_id))

    def abandon(self, worker: Worker) -> None:
        """Treat a worker that cannot be killed as ended."""
        logger.warning("%s cannot be killed and is abandoned", worker.name)
        self._on_worker_ended(worker, -signal.SIGKILL, 0)

    # --- the helper

    def _start_all(self) -> None:
        pipeline = self._context.pipeline
        config = self._context.worker_config
        if self._start_method == "fork":
            helper = fork_helper(pipeline, config)
        else:
            helper = execute_helper(self._start_method, pipeline, config, self._options)
        # At once: `stop` ends the helper that is assigned here, whatever raises afterwards.
        self.helper = helper
        self._selector.register(helper.control, selectors.EVENT_READ, self._read_helper_messages)
        self._restarts.clear()
        for index in range(self._context.num_processes):
            self._start_worker(index)

    def _read_helper_messages(self) -> None:
        assert self.helper is not None
        try:
            arrived = self.helper.control.receive_ready()
        except ChannelClosed:
            self._on_helper_ended(self.helper)
            return
        for message, _ in arrived:
            self._handle_helper_message(message)

    def _handle_helper_message(self, message: messages.Exited | messages.CannotStart) -> None:
        if self._checker is not None and self._checker.worker_id == message.worker_id:
            self._lose_checker()
            return
        # A checker that was killed, or a worker that had retired, is not known any more.
        worker = self.workers.get(message.worker_id)
        if worker is None:
            return
        if isinstance(message, messages.Exited):
            self._on_worker_ended(worker, message.exitcode, message.peak)
        else:
            self._on_start_failed(worker, message.reason)

    def _on_helper_ended(self, helper: Helper) -> None:
        """Start all processes again: the helper was killed, and the kernel has killed its workers.

        With "fork" the run ends instead: the program has continued meanwhile, and a fork of it
        would have other globals, threads, locks, perhaps a CUDA context.
        """
        logger.warning("the helper process (pid %d) has ended", helper.pid)
        self._helper_losses += 1
        self._selector.unregister(helper.control)
        helper.stop()
        self._lose_checker()
        for worker in list(self.workers.values()):
            worker.disconnected_at = time.monotonic()
            self._read_messages(worker)
            # Its last message may have been that it retires.
            if worker.worker_id in self.workers:
                self._remove(worker)
                self._events.on_retired(worker, 0)
        if self._start_method == "fork":
            self._events.fail(RuntimeError(_NO_HELPER))
        elif self._helper_losses >= _START_KILLS:
            reason = f"the helper process ended {_START_KILLS} times before a worker was ready"
            self._events.fail(RuntimeError(reason))
        else:
            self._start_all()


def _mark_disconnected(worker: Worker) -> None:
    """Record when a worker was found disconnected; it gets no more tasks."""
    if not worker.disconnected_at:
        worker.disconnected_at = time.monotonic()
