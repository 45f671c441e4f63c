"""The parent's side of the process engine: one thread assigns tasks and takes in batches.

`Schedule` → `assign_tasks` → `Worker.assign` → (worker) → `Pool.wait` → `on_result` → the batch in
its slot → `Schedule.finish` → the user's thread

The user's threads run the code of `PrefetchingEngine` only. The coordinator's thread alone uses
workers, channels and slots. Its `Pool` starts and replaces the processes, and tells the coordinator
what happens to their tasks.

No lock is shared with another process, so a signal that ends a worker cannot leave one locked.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
from dataclasses import dataclass, replace
from functools import partial

from detaug.engine import arguments
from detaug.engine.batch_maker import TaskResult
from detaug.engine.executor import DEFAULT_MAX_RESTARTS, EngineContext
from detaug.engine.local.handles import Worker
from detaug.engine.local.pool import Pool
from detaug.engine.prefetching_engine import PrefetchingEngine, assign_tasks
from detaug.engine.recheck.hash_seed import HashOrder
from detaug.engine.recheck.rechecker import Recheck
from detaug.engine.recheck.requests import RecheckCandidate, Request
from detaug.system.channel import ChannelClosed
from detaug.system.limits import LimitReached, MemoryKills, advice_for, explained
from detaug.system.platform import refuse_workers
from detaug.system.processes import signal_name

logger = logging.getLogger("detaug")


@dataclass(frozen=True)
class LocalProcesses:
    """``executor=LocalProcesses(...)``: ``num_processes`` workers of this machine.

    No argument changes a byte of a batch.

    Args:
        start_method: "fork", "spawn" or "forkserver". None: the method that the program has passed
            to `multiprocessing.set_start_method` before, else "fork" on Linux and "spawn" on other
            systems.
        max_restarts: raise `WorkerDied` after one batch has ended this many workers in a row.
        stall_timeout: kill a worker that has been making the same batch for this many seconds;
            another worker makes the batch. A worker that has been starting for as long, and for at
            least a minute, is killed as well; the third one in a row is an error. None: never, but
            the log mentions it.
        max_worker_memory: replace a worker whose private memory (bytes, without shared batches and
            files) exceeds this after a batch. Up to 256 MiB of it is freed memory that is kept for
            the next batch. None: no limit.

    Raises:
        TypeError, ValueError: an argument is invalid; the message says what is allowed.
    """

    start_method: str | None = None
    max_restarts: int = DEFAULT_MAX_RESTARTS
    stall_timeout: float | None = None
    max_worker_memory: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "start_method", arguments.start_method(self.start_method))
        arguments.count("max_restarts", self.max_restarts)
        arguments.seconds("stall_timeout", self.stall_timeout)
        arguments.optional_positive("max_worker_memory", self.max_worker_memory)

    @property
    def requires_pickling(self) -> bool:
        """True for all start methods but "fork". Implements `Executor.requires_pickling`."""
        return self.start_method != "fork"

    def num_workers(self, num_processes: int) -> int:
        """Return `num_processes`. Implements `Executor.num_workers`."""
        if not num_processes:
            raise ValueError(
                f"num_processes=0 makes every batch in this process, so executor={self} has no"
                " effect: leave executor out, or pass num_processes=1 or more"
            )
        refuse_workers(f"num_processes={num_processes}")
        return num_processes

    def start(self, context: EngineContext) -> Coordinator:
        """Return a running engine. Implements `Executor.start`."""
        config = replace(context.worker_config, max_memory=self.max_worker_memory)
        return Coordinator(replace(context, worker_config=config), self)


#: Seconds for which no other worker takes over the streams of a worker that is starting.
START_SECONDS = 3.0


class Coordinator(PrefetchingEngine):
    """The engine with worker processes of this machine.

    Args:
        context: the batches to make.
        settings: the user's executor.
    """

    def __init__(self, context: EngineContext, settings: LocalProcesses) -> None:
        super().__init__(context, settings.max_restarts)
        self._settings = settings
        self._memory_kills = MemoryKills()
        self._pool: Pool
        try:
            hash_order = HashOrder(context.pipeline, context.worker_config, context.recheck_policy)
            self._recheck = Recheck(context.recheck_policy, self, hash_order, self)
            start_method = str(settings.start_method)
            self._pool = Pool(context, start_method, settings.stall_timeout, self, self._recheck)
            self._begin("detaug-coordinator")
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(error, LimitReached):
                raise explained(error, "the workers cannot be started") from error
            advice = advice_for(error)
            if advice:
                raise RuntimeError(f"the workers cannot be started: {error}. {advice}") from error
            raise

    # --- implements `PrefetchingEngine`

    def _wake(self) -> None:
        self._pool.wake()

    def _start_workers(self) -> None:
        self._pool.start()

    def _stop_workers(self) -> None:
        self._pool.stop()

    def _run_once(self) -> None:
        self._assign()
        self._recheck.advance()
        # Directly before `wait`, which releases the interpreter's lock: the user's thread that is
        # woken here needs that lock.
        self._wake_user_if_due()
        self._pool.wait()

    # --- implements `WorkerEvents`

    def on_retired(self, worker: Worker, private: int) -> None:
        """Requeue the tasks of a worker that retired, or that could not be started.

        Args:
            worker: the worker.
            private: bytes of private memory because of which it retired; 0: it did not retire.
        """
        limit = self._settings.max_worker_memory
        if private and limit is not None:
            self._context.run_stats.retirements += 1
            text = (
                f"uses {private / 2**20:.0f} MiB of private memory (max_worker_memory is"
                f" {limit / 2**20:.0f} MiB)"
            )
            logger.info("%s %s; another worker replaces it", worker.name, text)
        self._forget_worker(worker)
        self._requeue(list(worker.tasks))

    def on_crashed(self, worker: Worker, exitcode: int, peak: int) -> None:
        """Requeue the tasks of a worker that ended; the first task may be the cause.

        Args:
            worker: the worker.
            exitcode: negative for a signal.
            peak: the most memory that it had, in bytes; 0: unknown.
        """
        self._context.run_stats.restarts += 1
        tasks = list(worker.tasks)
        self._forget_worker(worker)
        if not tasks:
            _log_crash_without_task(worker, exitcode)
            return
        if exitcode == -signal.SIGKILL and not worker.kill_reason:
            worker.kill_reason = self._memory_kills.describe_new_kill()
        # All its results have been taken in, so it was running the first of these tasks. It has not
        # begun the second.
        self._on_task_crashed(tasks.pop(0), worker.name, worker.kill_reason, exitcode, peak)
        self._requeue(tasks)

    def _forget_worker(self, worker: Worker) -> None:
        """Close a worker that sends no more messages."""
        self._recheck.on_worker_gone(worker.worker_id)
        worker.close()

    def on_result(self, worker: Worker, result: TaskResult, descriptor: int | None) -> None:
        """Take in the result of a worker's first task.

        Args:
            worker: the worker.
            result: the result.
            descriptor: of the new slot that has the batch; None: the slot is known.
        """
        # Before `finish_task`, which restarts the clock.
        seconds = time.monotonic() - worker.task_started_at
        slots = worker.slots
        open_batch = partial(slots.open, result.contents, descriptor)
        get_mark = partial(slots.mark_delivered, result.contents)
        key = worker.finish_task()
        self._take_result(key, result, seconds, f"in {worker.name}", open_batch, get_mark)

    # --- tasks

    def _assign(self) -> None:
        """Assign open tasks to the workers that have room for them."""
        if self._fatal is not None:
            return
        connected = [worker for worker in self._pool.workers.values() if not worker.disconnected_at]
        workers = [worker for worker in connected if worker.ready]
        now = time.monotonic()
        starting = []
        for worker in connected:
            if not worker.ready and now - worker.task_started_at < START_SECONDS:
                starting.append(worker.index)
        with self._lock:
            assignments = list(assign_tasks(self._schedule, workers, starting))
        for worker, key in assignments:
            # If the worker is gone, the helper will report its end, and its tasks are requeued.
            with contextlib.suppress(ChannelClosed):
                worker.assign(key, self._state_for(worker.stream_positions, key))

    # --- implements `RecheckTransport`

    def send_request(self, request: Request, worker_id: int, *, to_checker: bool) -> bool:
        """Send a request of the recheck to a worker, or to the checker."""
        if to_checker:
            recipient = self._pool.checker()
        else:
            recipient = self._pool.workers.get(worker_id)
        if recipient is None or not recipient.ready:
            return False
        # If the process is gone, the helper will report its end, and the check is cancelled.
        with contextlib.suppress(ChannelClosed):
            recipient.channel.send(request)
        return True

    # --- implements `PeerTransport`

    def peer_for(self, candidate: RecheckCandidate, any_will_do: bool) -> int | None:
        """Return a worker that can make an informative check; None: there is none now."""
        for worker in self._others(candidate):
            if not worker.ready:
                continue
            has_history = worker.num_results > 0
            if any_will_do and has_history:
                return worker.worker_id
            if candidate.nth_batch == 1 and has_history:
                return worker.worker_id
            if candidate.nth_batch > 1 and not has_history and not worker.tasks:
                return worker.worker_id
        return None

    def expects_peer(self, candidate: RecheckCandidate) -> bool:
        """Return True if another worker is starting, or has a task."""
        return any(worker.is_busy for worker in self._others(candidate))

    def _others(self, candidate: RecheckCandidate) -> list[Worker]:
        """Return the connected workers that have not made the batch."""
        return [
            worker
            for worker in self._pool.workers.values()
            if worker.worker_id != candidate.worker and not worker.disconnected_at
        ]


def _log_crash_without_task(worker: Worker, exitcode: int) -> None:
    """Log that a worker ended which had no task."""
    moment = "between batches" if worker.ready else "while it started"
    reason = ""
    if worker.kill_reason:
        reason = f" ({worker.kill_reason})"
    logger.warning(
        "%s ended with %s %s%s; starting another",
        worker.name,
        signal_name(exitcode),
        moment,
        reason,
    )
