"""The parent's side of the process engine: one thread that starts workers, hands out tasks and takes in batches.

Division of labour:
- the user's thread reads the due outcome and moves the position, under `_lock`, and wakes the coordinator;
- the coordinator's thread does everything else. It alone touches workers, channels and slots.

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
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from detaug.engine import failures
from detaug.engine.channel import ChannelClosed
from detaug.engine.error_record import ErrorRecord, describe
from detaug.engine.failures import SeedPath
from detaug.engine.handles import Helper, Worker, start_helper
from detaug.engine.limits import LimitReached, MemoryKills, advice_for, explained
from detaug.engine.pinning import gpu_to_pin_for, pin
from detaug.engine.processes import signal_name
from detaug.engine.schedule import Delivered, EpochEnd, Exists, Failed, Outcome, Position, Schedule, Skipped, Task
from detaug.engine.slots import Parcel, ParentSlots
from detaug.engine.stalls import StallWatch
from detaug.engine.transfer import unpack
from detaug.engine.whereabouts import Whereabouts
from detaug.engine.worker import Job
from detaug.errors import BatchError
from detaug.pipeline import Pipeline
from detaug.plan import BatchKey

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
        self._pipeline = pipeline
        self._job = job
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
        self._workers: dict[int, Worker] = {}
        self._helper: Helper | None = None
        self._spare: Helper | None = None
        self._reserve: Worker | None = None
        self._stalls = StallWatch(
            settings.stall_timeout,
            lambda worker: failures.describe_batch(worker.tasks[0][1].key, self._seeds),
            self._signal,
            self._abandon,
            self._kill_helper,
        )
        self._numbers = 0
        self._tickets = 0
        self._deaths: dict[BatchKey, int] = {}
        self._not_taken: dict[BatchKey, int] = {}
        self._start_failures = 0
        self._helper_losses = 0
        self._said: set[str] = set()
        self._memory_kills = MemoryKills()
        self._selector: selectors.BaseSelector = selectors.SelectSelector()  # which takes no descriptor
        self._wake_read = self._wake_write = -1
        try:
            self._selector = selectors.DefaultSelector()
            self._wake_read, self._wake_write = _pipe()
            self._selector.register(self._wake_read, selectors.EVENT_READ, self._drain_wakes)
            self._start_all(start_helper(settings.start_method, pipeline, job))
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
        while True:
            with self._lock:
                position, outcome = self._schedule.due()
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
                raise StopIteration
            if isinstance(outcome, Failed):
                raise outcome.error.with_traceback(None)
            if fatal is not None:
                raise fatal.with_traceback(None)
            if self._closing:
                raise RuntimeError("the augmenter was closed while its next batch was awaited")
            if moved:
                self._wake()  # the window has moved with the position
            self._news.get()

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

    def worker_pids(self) -> list[int]:
        """The workers that are alive now."""
        return [worker.pid for worker in list(self._workers.values()) if worker.pid]

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
                for key in self._wait():
                    # An earlier event of this round may have closed it, and its number may already be another's.
                    if self._selector.get_map().get(key.fd) is key:
                        key.data()
                self._stalls.look(self._workers.values())
        except OSError as error:
            self._fail(explained(error, "the workers cannot go on"))
        except Exception as error:  # a defect of ours must not leave the user waiting for ever
            logger.exception("the coordinator failed")
            self._fail(error)
        finally:
            self._tear_down()

    def _tear_down(self) -> None:
        for worker in [*self._workers.values(), self._reserve]:
            if worker is not None:
                worker.close()
        self._workers.clear()
        for helper in (self._helper, self._spare):
            if helper is not None:
                helper.stop()
        self._selector.close()
        for descriptor in (self._wake_read, self._wake_write):
            if descriptor >= 0:
                os.close(descriptor)
        self._tell_user()

    def _wait(self) -> list[selectors.SelectorKey]:
        """What there is to do, now or once something happens."""
        seconds, before = self._stalls.seconds_to_next_look(self._workers.values()), time.monotonic()
        ready = [key for key, _ in self._selector.select(seconds)]
        late = 0.0 if seconds is None else time.monotonic() - before - seconds
        if late > _PAUSE:
            self._stalls.forgive(self._workers.values(), late)
        return ready

    def _drain_wakes(self) -> None:
        try:
            os.read(self._wake_read, 4096)
        except BlockingIOError:
            pass

    def _fail(self, error: BaseException) -> None:
        self._fatal = error
        self._tell_user()

    def _tell_user(self) -> None:
        # One unread note is enough: whoever reads it looks at everything that has changed before it.
        if self._news.empty():
            self._news.put(None)

    # --- processes

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
            self._workers[worker.number] = worker
            self._keep_reserve()

    def _keep_reserve(self) -> None:
        """Under "spawn", where a start takes seconds, a worker waits to take a dead one's place at once."""
        settled = all(worker.ready for worker in self._workers.values())
        if self._settings.start_method == "spawn" and self._reserve is None and settled:
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
        return self._workers.get(number)

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
        if worker.number not in self._workers:
            return  # it had retired
        self._remove(worker)
        if not worker.ready:
            self._start_failures += 1
            if self._start_failures >= (_START_KILLS if exitcode == -signal.SIGKILL else _START_FAILURES):
                self._fail(RuntimeError(f"workers end while they start, the last with {signal_name(exitcode)}"))
                return
        if worker.tasks:
            self._lose_task(worker, worker.tasks[0][1], exitcode, peak)
            self._lose_waiting(list(worker.tasks)[1:])
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
            self._say_once("a worker that has made but one batch exceeds max_worker_memory already, so that every batch "
                           f"takes a new process: it {text}")  # fmt: skip
        self._remove(worker)
        self._lose_waiting(list(worker.tasks))
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

    def _remove(self, worker: Worker) -> None:
        self._mute(worker)
        worker.close()
        del self._workers[worker.number]

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
        lost = list(self._workers.values())
        for worker in lost:
            self._hear_worker(worker)
            if worker.number in self._workers:  # else it has just retired
                self._remove(worker)
                self._lose_waiting(list(worker.tasks))
        self._helper = None
        if self._fatal is None:
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

    # --- batches

    def _assign_all(self) -> None:
        """A first task for every worker, then a second one that it finds waiting when it is done with the first."""
        with self._lock:
            self._schedule.prune()
            wanted = {task.key for task in self._schedule.upcoming()}
        for worker in self._workers.values():
            for ticket, task in list(worker.tasks)[1:]:
                if task.key not in wanted:
                    self._take_back(worker, ticket, task)
        for worker in list(self._workers.values()):
            if not worker.tasks and not self._assign(worker):
                self._take_over(worker)
        for worker in list(self._workers.values()):
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
            for worker in self._workers.values()
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
                    self._assign(worker)
                    self._keep_reserve()
            elif kind == "retiring":
                self._retire_worker(worker, message[1])
            elif kind == "log":
                self._say_once(message[1])
            elif kind == "broken":
                record: ErrorRecord = message[1]
                self._fail(
                    RuntimeError(f"a worker could not set up the pipeline: {record.summary}\n\n{record.traceback}")
                )
            else:
                self._take_answer(worker, message, descriptor)

    def _say_once(self, text: str) -> None:
        if text not in self._said:  # every worker says it
            self._said.add(text)
            logger.warning("%s", text)

    def _mute(self, worker: Worker) -> None:
        if worker.channel.fileno() in self._selector.get_map():
            self._selector.unregister(worker.channel.fileno())

    def _take_answer(self, worker: Worker, message: tuple[Any, ...], descriptor: int | None) -> None:
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
