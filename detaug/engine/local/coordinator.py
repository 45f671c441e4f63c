"""The parent's side of the process engine: one thread that starts workers, hands out tasks and
takes in batches.

The user's threads do no more than `PrefetchingEngine` has them do. The coordinator's thread alone
touches workers, channels and slots. Its `Pool` starts and replaces the processes, and returns to
the coordinator what becomes of their tasks.

No lock is shared with another process, so no signal that ends a worker can leave one locked.
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
from detaug.engine.recheck.requests import Request
from detaug.system.channel import ChannelClosed
from detaug.system.limits import LimitReached, MemoryKills, advice_for, explained
from detaug.system.platform import refuse_workers
from detaug.system.processes import signal_name

logger = logging.getLogger("detaug")


@dataclass(frozen=True)
class LocalProcesses:
    """``executor=LocalProcesses(...)``: ``num_processes`` workers of this machine. Nothing here
    changes a byte of a batch.

    Args:
        start_method: "fork", "spawn" or "forkserver". None: what `multiprocessing.set_start_method`
            was told before this call, else fork on Linux, spawn elsewhere.
        max_restarts: raise `WorkerDied` after one batch has ended this many workers in a row.
        stall_timeout: kill a worker that has been making the same batch for this many seconds;
            another worker makes the batch. A worker that has been starting for as long, and for a
            minute, is killed as well; the third one in a
            row is an error. None: never, but the log mentions it.
        max_worker_memory: replace a worker whose private memory (bytes, without shared batches and
            files) exceeds this after a batch. Up to 256 MiB of it is freed memory that is kept for
            the next batch. None: no limit.

    Raises:
        TypeError, ValueError: an argument cannot be right; the message says what is allowed.
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
    def travels(self) -> bool:
        """See `detaug.engine.executor.Executor`; so with the following."""
        return self.start_method != "fork"

    def num_workers(self, num_processes: int) -> int:
        if not num_processes:
            raise ValueError(
                f"num_processes=0 makes every batch in this process, so executor={self} has no "
                "effect: leave executor out, "
                "or pass num_processes=1 or more"
            )
        refuse_workers(f"num_processes={num_processes}")
        return num_processes

    def start(self, work: EngineContext) -> Coordinator:
        return Coordinator(
            replace(work, job=replace(work.job, max_memory=self.max_worker_memory)), self
        )


#: Seconds for which nobody takes over the streams of a worker that is starting.
_START_SECONDS = 3.0


class Coordinator(PrefetchingEngine):
    """Workers for one pipeline, and their batches in order. See `detaug.engine.executor.Engine`."""

    def __init__(self, work: EngineContext, settings: LocalProcesses) -> None:
        super().__init__(work, settings.max_restarts)
        self._settings = settings
        self._memory_kills = MemoryKills()
        self._pool: Pool
        try:
            self._checking = Recheck(
                work.checks, self, HashOrder(work.pipeline, work.job, work.checks)
            )
            self._pool = Pool(
                work, str(settings.start_method), settings.stall_timeout, self, self._checking
            )
            self._begin("detaug-coordinator")
        except Exception as error:
            if isinstance(error, OSError) and not isinstance(error, LimitReached):
                raise explained(error, "the workers cannot be started") from error
            if advice := advice_for(error):
                raise RuntimeError(f"the workers cannot be started: {error}. {advice}") from error
            raise

    # --- the user's thread
    # ---------------------------------------------------------------------------------------

    def _wake(self) -> None:
        self._pool.wake()

    def _start_workers(self) -> None:
        self._pool.start()

    def _stop_workers(self) -> None:
        self._pool.stop()

    # --- the coordinator's thread
    # ----------------------------------------------------------------------------------

    def _turn(self) -> None:
        self._assign()
        self._checking.advance()
        # Last of all: the interpreter's lock, which the user's thread then wants, is let go in
        # `wait`.
        self._tell_what_is_due()
        self._pool.wait()

    # --- what happens to the processes, as the pool tells

    def on_retired(self, worker: Worker, private: int) -> None:
        """It is gone through no fault of its tasks. `private`: the bytes of memory for which it
        retired; 0: it did not.
        """
        limit = self._settings.max_worker_memory
        if private and limit is not None:
            self._work.health.retirements += 1
            text = (
                f"uses {private / 2**20:.0f} MiB of private memory (max_worker_memory is "
                f"{limit / 2**20:.0f} MiB)"
            )
            logger.info("%s %s and retires; another takes its place", worker.name, text)
        self._leave(worker)
        self._lose([*worker.tasks])

    def on_crashed(self, worker: Worker, exitcode: int, peak: int) -> None:
        """It ended while it made a batch, or between two. `peak`: the most memory it had, in bytes;
        0: not known.
        """
        self._work.health.restarts += 1
        tasks = list(worker.tasks)
        self._leave(worker)
        if not tasks:
            moment = "between batches" if worker.ready else "while it started"
            known = f" ({worker.leaving})" if worker.leaving else ""
            logger.warning(
                "%s ended with %s %s%s; starting another",
                worker.name,
                signal_name(exitcode),
                moment,
                known,
            )
            return
        if exitcode == -signal.SIGKILL and not worker.leaving:
            worker.leaving = self._memory_kills.what_happened()
        # Its answers have all been taken in: the one that waits behind the first has not been
        # looked at.
        self._blame(tasks.pop(0), worker.name, worker.leaving, exitcode, peak)
        self._lose(tasks)

    def _leave(self, worker: Worker) -> None:
        """The worker will not answer again."""
        self._checking.lost(worker.number)
        worker.close()

    # --- batches

    def _assign(self) -> None:
        if self._fatal is not None:
            return
        living = [worker for worker in self._pool.workers.values() if not worker.left]
        workers = [worker for worker in living if worker.ready]
        now = time.monotonic()
        starting = []
        for worker in living:
            if not worker.ready and now - worker.since < _START_SECONDS:
                starting.append(worker.index)
        with self._lock:
            given = list(assign_tasks(self._schedule, workers, starting))
        for worker, key in given:
            # If it is gone, the helper will say that it ended, and others get the batch.
            with contextlib.suppress(ChannelClosed):
                worker.assign(key, self._state_for(worker.stream_positions, key))

    def on_result(self, worker: Worker, made: TaskResult, descriptor: int | None) -> None:
        """The answer to one of its tasks has come, with a descriptor if it lies in a new slot."""
        seconds, slots, contents = time.monotonic() - worker.since, worker.slots, made.contents
        batch, to_user = (
            partial(slots.open, contents, descriptor),
            partial(slots.mark_delivered, contents),
        )
        self._take(worker.answered(), made, seconds, f"in {worker.name}", batch, to_user)

    # --- the run-time check, see `detaug.engine.recheck.rechecker.Asks`

    def ask(self, request: Request, worker: int, another: bool) -> bool:
        """See there."""
        asked = self._pool.checker() if another else self._pool.workers.get(worker)
        if asked is None or not asked.ready:
            return False
        with contextlib.suppress(ChannelClosed):  # the helper will say that it ended
            asked.channel.send(request)
        return True
