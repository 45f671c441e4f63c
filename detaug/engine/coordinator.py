"""The parent's side of the process engine: one thread that starts workers, hands out tasks and takes in batches.

Division of labour:
- the user's thread reads the due outcome and moves the position, under `_lock`, and wakes the coordinator;
- the coordinator's thread does everything else. It alone touches workers, channels and slots. Its `Crew` starts and
  replaces the processes, and tells the coordinator what becomes of their tasks.

No lock is shared with another process, so no signal that ends a worker can leave one locked.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import selectors
import signal
import threading
from collections.abc import Callable
from typing import Any

import torch

from detaug.engine import failures
from detaug.engine.channel import ChannelClosed
from detaug.engine.crew import Crew, Settings
from detaug.engine.error_record import describe
from detaug.engine.failures import SeedPath
from detaug.engine.handles import Worker
from detaug.engine.limits import LimitReached, MemoryKills, advice_for, explained
from detaug.engine.pinning import gpu_to_pin_for, pin
from detaug.engine.processes import signal_name
from detaug.engine.schedule import Delivered, EpochEnd, Exists, Failed, Outcome, Position, Schedule, Skipped, Task
from detaug.engine.slots import Parcel
from detaug.engine.transfer import unpack
from detaug.engine.worker import Job
from detaug.errors import BatchError
from detaug.pipeline import Pipeline
from detaug.plan import BatchKey

logger = logging.getLogger("detaug")


class Coordinator:
    """Workers for one pipeline, and their batches in order.

    Args:
        pipeline: what the workers run.
        job: what they have to know.
        schedule: what is due; shared between the two threads under the lock.
        settings: see there.
        seeds: for messages.
    """

    def __init__(self, pipeline: Pipeline, job: Job, schedule: Schedule, settings: Settings, seeds: SeedPath) -> None:
        self._schedule = schedule
        self._settings = settings
        self._seeds = seeds
        self._lock = threading.Lock()
        # C code throughout, so that an interrupt in the user's thread finds it whole.
        self._news: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._closing = False
        self._fatal: BaseException | None = None
        self._owner = os.getpid()
        self._gpu = gpu_to_pin_for(settings.pin_memory)
        self._tickets = 0
        self._deaths: dict[BatchKey, int] = {}
        self._not_taken: dict[BatchKey, int] = {}
        self._said: set[str] = set()
        self._memory_kills = MemoryKills()
        self._selector: selectors.BaseSelector = selectors.SelectSelector()  # which takes no descriptor
        self._wake_read = self._wake_write = -1
        self._crew = Crew(pipeline, job, settings, self)
        try:
            self._selector = selectors.DefaultSelector()
            self._wake_read, self._wake_write = _pipe()
            self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wakes)
            self._crew.start(self._selector)
            self._thread = threading.Thread(target=self._run, name="detaug-coordinator", daemon=True)
            self._thread.start()
        except BaseException as error:
            self._closing = True
            self._tear_down()
            if isinstance(error, OSError) and not isinstance(error, LimitReached):
                raise explained(error, "the workers cannot be started") from error
            if advice := advice_for(error):
                raise RuntimeError(f"the workers cannot be started: {error}. {advice}") from error
            raise

    # --- the user's thread ---------------------------------------------------------------------------------------

    def next(self) -> Any:
        """The due batch, once it is there.

        Raises:
            StopIteration: the epoch has ended; the position is at the start of the next one.
            BatchError: the due batch cannot be made; raised again until the position is moved.
        """
        taken: tuple[Position, Outcome | EpochEnd | None] | None = None
        try:
            while True:
                with self._lock:
                    position, outcome = taken = self._schedule.due()
                    if isinstance(outcome, Delivered):
                        self._schedule.position = self._schedule.after(position)
                        self._schedule.outcomes.pop(BatchKey(position.epoch, position.step), None)
                    elif isinstance(outcome, EpochEnd):
                        self._schedule.position = outcome.then
                    moved = self._schedule.position != position
                    if isinstance(outcome, Failed) or outcome is None:
                        self._schedule.position = position  # past gaps and skipped steps
                    fatal = self._fatal
                if isinstance(outcome, Delivered):
                    self._wake()
                    return outcome.batch
                if isinstance(outcome, EpochEnd):
                    self._wake()
                    break
                if isinstance(outcome, Failed):
                    raise outcome.error.with_traceback(None)
                if fatal is not None:
                    raise fatal.with_traceback(None)
                if self._closing:
                    raise RuntimeError("the augmenter was closed while its next batch was awaited")
                if moved:
                    self._wake()  # the window has moved with the position
                self._news.get()
        except BaseException:  # Ctrl-C just now: the batch is still due
            if taken is not None:
                self._put_back(*taken)
            raise
        raise StopIteration

    def _put_back(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        with self._lock:
            if isinstance(outcome, Delivered):
                self._schedule.outcomes[BatchKey(position.epoch, position.step)] = outcome
            if isinstance(outcome, (Delivered, EpochEnd)):
                self._schedule.position = position
        self._wake()

    def move(self, position: Position) -> None:
        """Go elsewhere; what is already there or being made for the new place is kept."""
        with self._lock:
            self._schedule.position = position
            failed = [key for key, outcome in self._schedule.outcomes.items() if isinstance(outcome, Failed)]
            for key in failed:
                del self._schedule.outcomes[key]
            # what arrived without its descriptor a moment ago is tried as often again
            self._not_taken.clear()
        self._wake()

    def close(self) -> None:
        """End all processes and give everything back, but for the memory of batches that the user still holds."""
        if os.getpid() != self._owner or self._closing:
            return  # a fork of the user's process has no business with our workers
        self._closing = True
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def worker_pids(self, ready: bool = False) -> list[int]:
        """The workers that are alive now; with `ready` only those that have set themselves up."""
        return [
            worker.pid for worker in list(self._crew.workers.values()) if worker.pid and (worker.ready or not ready)
        ]

    def has_reserve(self) -> bool:
        """Whether a worker stands ready to take a dead one's place at once (not under "fork")."""
        return self._crew.has_reserve

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"!")
        except (BlockingIOError, OSError):
            pass  # the pipe is full of wakes already, or the coordinator has closed it

    # --- the coordinator's thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            if self._gpu is not None:
                torch.cuda.set_device(self._gpu)
            while not self._closing:
                self._assign_all()
                for key in self._crew.wait():
                    # An earlier event of this round may have closed it, and its number may already be another's.
                    if self._selector.get_map().get(key.fd) is key:
                        key.data()
                self._crew.look_for_stalls()
        except OSError as error:
            self.fail(explained(error, "the workers cannot go on"))
        except Exception as error:  # a defect of ours must not leave the user waiting for ever
            logger.exception("the coordinator failed")
            self.fail(error)
        finally:
            self._tear_down()

    def _tear_down(self) -> None:
        self._crew.stop()
        self._selector.close()
        for descriptor in (self._wake_read, self._wake_write):
            if descriptor >= 0:
                os.close(descriptor)
        self._tell_user()

    def _drain_wakes(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass

    def _tell_user(self) -> None:
        # One unread note is enough: whoever reads it looks at everything that has changed before it.
        if self._news.empty():
            self._news.put(None)

    # --- what the crew tells of

    def describe(self, worker: Worker) -> str:
        """See `detaug.engine.crew.Events`; so with the following."""
        return failures.describe_batch(worker.tasks[0][1].key, self._seeds)

    def ready(self, worker: Worker) -> None:
        self._assign(worker)

    def died(self, worker: Worker, exitcode: int, peak: int) -> None:
        self._lose_task(worker, worker.tasks[0][1], exitcode, peak)
        self._lose_waiting(list(worker.tasks)[1:])

    def gone(self, worker: Worker) -> None:
        self._lose_waiting(list(worker.tasks))

    def say_once(self, text: str) -> None:
        if text not in self._said:  # every worker says it
            self._said.add(text)
            logger.warning("%s", text)

    def fail(self, error: BaseException) -> None:
        self._fatal = error
        self._tell_user()

    # --- batches

    def _lose_task(self, worker: Worker, task: Task, exitcode: int, peak: int) -> None:
        times = self._deaths[task.key] = self._deaths.get(task.key, 0) + 1
        what = failures.describe_batch(task.key, self._seeds)
        if exitcode == -signal.SIGKILL and not worker.leaving:
            worker.leaving = self._memory_kills.what_happened()
        if times < max(1, self._settings.max_restarts):
            with self._lock:
                self._schedule.lose(task.key)
            memory = f", its memory having peaked at {peak / 2**20:.0f} MiB," if peak else ""
            why = f". It was {worker.leaving}" if worker.leaving else ""
            text = "worker %d (pid %d) ended with %s%s while making %s; another one makes it again%s"
            logger.warning(text, *worker.name, signal_name(exitcode), memory, what, why)
            return
        self._deaths.pop(task.key)
        error = failures.died(task.key, self._seeds, times, exitcode, peak, worker.leaving)
        self._finish(task, self._failure(error))

    def _lose_waiting(self, entries: list[tuple[int, Task]]) -> None:
        with self._lock:
            for _, task in entries:
                self._schedule.lose(task.key)

    def _assign_all(self) -> None:
        """A first task for every worker, then a second one that it finds waiting when it is done with the first."""
        with self._lock:
            self._schedule.prune()
            wanted = {task.key for task in self._schedule.upcoming()}
        for worker in self._crew.workers.values():
            for ticket, task in list(worker.tasks)[1:]:
                if task.key not in wanted:
                    self._take_back(worker, ticket, task)
        for worker in list(self._crew.workers.values()):
            if not worker.tasks and not self._assign(worker):
                self._take_over(worker)
        for worker in list(self._crew.workers.values()):
            if len(worker.tasks) == 1:
                self._assign(worker)

    def _assign(self, worker: Worker) -> bool:
        if not worker.ready or self._fatal is not None:
            return False
        with self._lock:
            task = self._schedule.next_for(worker.index)
            if task is not None:
                self._schedule.start(task.key)
        if task is None:
            return False
        self._tickets += 1
        with contextlib.suppress(ChannelClosed):  # the helper will say that it ended; another then gets the task
            worker.assign(self._tickets, task)
        return True

    def _take_over(self, idle: Worker) -> None:
        """Give an idle worker the lowest task that waits behind one that another worker is still making."""
        if not self._schedule.stateless or not idle.ready:
            return
        waiting = [
            (task.key, ticket, worker, task)
            for worker in self._crew.workers.values()
            for ticket, task in list(worker.tasks)[1:]
        ]
        if waiting:
            _, ticket, worker, task = min(waiting, key=lambda entry: entry[0])
            self._take_back(worker, ticket, task)
            self._assign(idle)

    def _take_back(self, worker: Worker, ticket: int, task: Task) -> None:
        with contextlib.suppress(ChannelClosed):
            worker.cancel(ticket)
        with self._lock:
            self._schedule.lose(task.key)

    def answered(self, worker: Worker, message: tuple[Any, ...], descriptor: int | None) -> None:
        task = worker.answered(message[1])
        if task is None:  # it was taken back too late; another worker makes it as well
            if message[0] == "slot":
                worker.slots.refuse(descriptor, message[2])
            return
        self._deaths.pop(task.key, None)
        with self._lock:
            wanted = any(other == task for other in self._schedule.upcoming())
        if message[0] != "slot":
            self._settle(worker, task, message, wanted)
        elif wanted:
            if len(worker.tasks) < 2:
                self._assign(worker)  # before its batch is unpacked here
            self._open(worker, task, message[2], descriptor)
        else:
            worker.slots.refuse(descriptor, message[2])
            with self._lock:
                self._schedule.lose(task.key)

    def _settle(self, worker: Worker, task: Task, message: tuple[Any, ...], wanted: bool) -> None:
        kind = message[0]
        if kind == "ended":
            with self._lock:
                self._schedule.end_stream(task.key)
            self._tell_user()
        elif kind == "exists":
            self._finish(task, Exists())
        elif kind == "error":
            where = f"in worker {worker.number} (pid {worker.pid})"
            error = failures.error_of(message[2], task.key, self._seeds, where)
            self._finish(task, self._failure(error, say=wanted))
        elif kind == "inline":
            self._finish(task, self._unpacked(task, lambda: unpack(message[2], [bytearray(b) for b in message[3]])))

    def _open(self, worker: Worker, task: Task, parcel: Parcel, descriptor: int | None) -> None:
        try:
            worker.slots.map(parcel, descriptor)
        except LimitReached:
            times = self._not_taken[task.key] = self._not_taken.get(task.key, 0) + 1
            if times < self._settings.max_restarts:  # descriptors come and go: by then there may be some
                with self._lock:
                    self._schedule.lose(task.key)
                return
        self._not_taken.pop(task.key, None)
        self._finish(task, self._unpacked(task, lambda: worker.slots.open(parcel)))

    def _unpacked(self, task: Task, open_batch: Callable[[], Any]) -> Outcome:
        try:
            batch = open_batch()
            return Delivered(pin(batch) if self._gpu is not None else batch)
        except Exception as error:
            where = "in the parent process, which could not take the batch in"
            return self._failure(failures.error_of(describe(error), task.key, self._seeds, where, error))

    def _failure(self, error: BatchError, say: bool = True) -> Outcome:
        if not self._settings.skip_errors:
            return Failed(error)
        if say:
            logger.warning("skipped: %s", error)
        return Skipped()

    def _finish(self, task: Task, outcome: Outcome) -> None:
        with self._lock:
            self._schedule.finish(task.key, outcome)
        self._tell_user()


def _pipe() -> tuple[int, int]:
    if hasattr(os, "pipe2"):
        return os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write
