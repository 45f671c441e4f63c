"""`DeterministicAugmenter`: seeded, ordered, crash-proof batches."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from detaug import identity
from detaug.engine import arguments
from detaug.engine.coordinator import Coordinator
from detaug.engine.crew import Settings
from detaug.engine.failures import SeedPath
from detaug.engine.in_process import InProcess, Replayer
from detaug.engine.processes import interrupts_deferred
from detaug.engine.schedule import Position, Schedule
from detaug.engine.state import State
from detaug.engine.warming import warm_up
from detaug.engine.worker import Job
from detaug.pipeline import Pipeline, StreamEnded
from detaug.plan import BatchKey, Plan
from detaug.seeding import Seed, SeedTree
from detaug.sources import DatasetSource, Source, resolve_source

logger = logging.getLogger("detaug")

DEFAULT_MAX_RESTARTS = 8


class DeterministicAugmenter:
    """Batches from worker processes, in one fixed order and with the same bytes whatever the workers do.

    Takes the place of batchgenerators' ``NonDetMultiThreadedAugmenter`` (same positional arguments) and keeps the
    promises of ``MultiThreadedAugmenter`` for finite loaders. A batch is a pure function of (pipeline, seed, epoch,
    step): number of processes, start method, timing, crashes, resume and replay change nothing about it.

    The loader and the transform are taken as they are at this call. What is done to them later does not reach the
    workers; what must change with the epoch goes into a method ``set_epoch(epoch)`` of either.

    Args:
        data_loader: a batchgenerators loader (nnU-Net's too), an iterator, an iterable, or a callable that makes one.
        transform: called as ``transform(**batch)`` on every batch; None for none. Before workers start, ``warm_up()``
            of it (or of transforms in it and in the loader) is called here, so that workers compile nothing.
        num_processes: worker processes; 0 makes every batch in this process when it is asked for.
        num_cached: batches kept ready beyond the one each process works on.
        seeds: as batchgenerators has it, one seed for each process; the list is then the seed, and its length the
            number of streams. Better: `seed`.
        pin_memory: tensors are copied to page-locked memory where there is a GPU.
        wait_time: accepted for compatibility; nothing here polls.
        seed: a non-negative integer or a list of them. None: ``DETAUG_SEED`` from the environment, else one is drawn,
            logged, and shown as `.seed`.
        name: the branch of the seed tree, e.g. "train" or "val"; "a/b" is branch b of branch a.
        batches_per_epoch: an epoch's batches over all ranks; None: until a finite loader ends, or for ever.
        num_streams: logical workers. Part of the result, unlike `num_processes`. None: what the loader declares.
        stateless: whether any copy of the loader may make any batch. None: only where that is known to be safe.
        rank, world_size: this process takes steps rank, rank + world_size, ... of the one global stream.
        start_method: "fork", "spawn" or "forkserver". None: what `multiprocessing.set_start_method` was told, else
            fork on Linux, spawn elsewhere.
        max_restarts: a batch that ends this many workers in a row is an error.
        stall_timeout: seconds after which a worker that is still making the same batch is killed and the batch made
            elsewhere; None: never, but it is mentioned in the log.
        on_error: "raise", or "skip" to leave out (and log) batches whose loader or transform raises.
        version: set it to something new when code changes behind the same class names, so that older state dicts are
            refused.
        guard: report generators that are created without a seed while batches are made, with the line that does it.
        max_worker_memory: bytes of memory that a worker may have to itself (resident, without shared batches and
            files); one that has more after a batch, for its loader leaks, retires, and a new one goes on with the same
            bytes. Up to 256 MiB of it is memory that was freed and is kept for the next batch. None: no limit.

    Raises:
        TypeError, ValueError: an argument cannot be right; the message says what is allowed.
    """

    def __init__(
        self,
        data_loader: Any,
        transform: Callable[..., Any] | None,
        num_processes: int,
        num_cached: int = 2,
        seeds: Sequence[int | None] | None = None,
        pin_memory: bool = False,
        wait_time: float = 0.02,
        *,
        seed: int | Sequence[int] | None = None,
        name: str = "",
        batches_per_epoch: int | None = None,
        num_streams: int | None = None,
        stateless: bool | None = None,
        rank: int = 0,
        world_size: int = 1,
        start_method: str | None = None,
        max_restarts: int = DEFAULT_MAX_RESTARTS,
        stall_timeout: float | None = None,
        on_error: str = "raise",
        version: str = "",
        guard: bool = False,
        max_worker_memory: int | None = None,
    ) -> None:
        self._engine: Coordinator | InProcess | None = None
        self._closed = False
        self._owner = os.getpid()
        self.num_processes = arguments.count("num_processes", num_processes)
        self.num_cached = arguments.count("num_cached", num_cached)
        self.rank, self.world_size = arguments.rank_of(rank, world_size)
        self.batches_per_epoch = arguments.optional_positive("batches_per_epoch", batches_per_epoch)
        self.max_restarts = arguments.count("max_restarts", max_restarts)
        self.stall_timeout = arguments.seconds("stall_timeout", stall_timeout)
        self.on_error = arguments.one_of("on_error", on_error, ("raise", "skip"))
        self.start_method = arguments.start_method(start_method)
        self.version = arguments.text("version", version)
        self.transform = arguments.transform(transform)
        self.pin_memory = bool(pin_memory)
        self.wait_time = wait_time
        self.guard = bool(guard)
        self.max_worker_memory = arguments.optional_positive("max_worker_memory", max_worker_memory)
        old_style = arguments.old_style_seeds(seeds, seed, self.num_processes, num_streams)
        self.seeds = list(seeds) if seeds is not None else None

        self._source: Source = resolve_source(data_loader, arguments.optional_bool("stateless", stateless))
        self.generator = self._source.loader
        self.num_streams = (
            len(old_style)
            if old_style is not None
            else arguments.optional_positive("num_streams", num_streams) or self._source.default_num_streams
        )
        self._drawn = arguments.seed_will_be_drawn(seed, old_style)
        tree = SeedTree(old_style if old_style is not None else seed)
        self._tree = tree.child(name) if arguments.text("name", name) else tree
        if self._drawn and self.world_size > 1:
            logger.warning("rank %d of %d drew its own seed: pass the same seed on all ranks", self.rank, world_size)

        must_copy = self.num_processes > 0 and self.start_method != "fork"
        self._pipeline = Pipeline(self._source, self.transform, must_copy)
        self._declared = [
            *identity.describe(self._source.loader, "data_loader"),
            *identity.describe(self.transform, "transform"),
            f"batches_per_epoch = {self.batches_per_epoch}",
            f"version = {self.version!r}",
        ]
        if isinstance(self._source, DatasetSource):
            self._declared += self._source.declared()
        self._schedule = self._new_schedule()
        self._loaded_epoch: int | None = None
        self._finalizer: Any = None
        if self.num_processes > 0:
            self._warn_of_idle_processes()

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        batch_size: int,
        *,
        shuffle: bool = True,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        num_processes: int = 2,
        **options: Any,
    ) -> DeterministicAugmenter:
        """Batches of a map-style torch Dataset, in a new order every epoch.

        Args:
            dataset: has ``__len__`` and ``__getitem__``. While item i of a batch is fetched, `detaug.current()` is that
                sample, with a Generator of its own.
            batch_size: samples per batch.
            shuffle: a permutation from the epoch's SeedSequence child; else the data set's own order.
            drop_last: leave out the last, smaller batch of an epoch.
            collate_fn: list of samples → batch. None: torch's default_collate.
            transform: applied to the collated batch.
            num_processes: worker processes.
            **options: as for DeterministicAugmenter.

        Raises:
            TypeError: the data set has no length or no items.
            ValueError: the data set makes no batch at all.
        """
        source = DatasetSource(dataset, batch_size, shuffle, drop_last, collate_fn)
        return cls(source, transform, num_processes, **options)

    # --- batches ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> DeterministicAugmenter:
        return self

    def __next__(self) -> Any:
        """The batch that is due.

        Raises:
            StopIteration: the epoch is over; the next call gives the next epoch's first batch.
            BatchError: the loader or the transform failed on it; again at every call until `set_epoch`,
                `load_state_dict` or `restart`.
        """
        self._loaded_epoch = None
        if self._engine is None:
            self._start()
        assert self._engine is not None
        return self._engine.next()

    def next(self) -> Any:
        """As ``next(augmenter)``: batchgenerators has it under this name as well."""
        return self.__next__()

    def __len__(self) -> int:
        """This rank's batches in an epoch.

        Raises:
            TypeError: epochs have no end, or the loader does not say where it is.
        """
        known = [
            number // self.world_size
            for number in (self.batches_per_epoch, self._source.num_steps)
            if number is not None
        ]
        if not known and self._source.length_hint is not None:
            known = [self._source.length_hint // self.world_size]
        if not known:
            why = "its epochs have no end" if self._source.endless else "its loader does not say how many it gives"
            raise TypeError(f"this augmenter's number of batches is not known: {why}. Pass batches_per_epoch=...")
        return min(known)

    def replay(self, epoch: int, step: int) -> Any:
        """Make a batch again, in this process and with the same bytes; the running stream does not notice.

        Args:
            epoch: 0 ... 2**32 - 1.
            step: the batch's number in the one global stream; it may be another rank's.

        Raises:
            ValueError: there is no such batch.
            Exception: whatever the loader or the transform raises, as it is.
        """
        key = BatchKey(arguments.epoch(epoch), arguments.step(step, self.num_streams))
        known = [self._source.num_steps, self.batches_per_epoch if self._source.stateless else None]
        end = min((number for number in known if number is not None), default=None)
        if end is not None and key.step >= end:
            raise ValueError(f"there is no step {key.step}: an epoch has steps 0 ... {end - 1}")
        try:
            return self._replayer().make(key)
        except StreamEnded:
            raise ValueError(f"there is no step {key.step} in epoch {key.epoch}: its stream ends before it") from None

    # --- position ---------------------------------------------------------------------------------------------------

    @property
    def seed(self) -> Seed:
        """The seed, as given or as drawn."""
        return self._tree.seed

    @property
    def name(self) -> str:
        """The branch of the seed tree."""
        return "/".join(self._tree.path)

    @property
    def epoch(self) -> int:
        """The epoch of the batch that is due next."""
        return self._schedule.position.epoch

    @property
    def step(self) -> int:
        """The step, in the one global stream, of the batch that is due next."""
        return self._schedule.position.step

    def set_epoch(self, epoch: int) -> None:
        """Go to step 0 of an epoch. What was prefetched for it is kept.

        Directly after `load_state_dict`, with the epoch that was loaded, the position stays where it is, so that
        ``for e in range(aug.epoch, E): aug.set_epoch(e)`` resumes in mid-epoch.
        """
        number = arguments.epoch(epoch)
        if self._loaded_epoch == number:
            self._loaded_epoch = None
            return
        self._loaded_epoch = None
        self._move(self._schedule.start_of(number))

    def state_dict(self) -> dict[str, int | str | list[int] | None]:
        """Where the stream stands and what it belongs to, as JSON-able integers and strings."""
        return self._state().as_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        A seed that was drawn (none given) is replaced by the state's own.

        Raises:
            StateMismatch: (a ValueError) it belongs to another pipeline, seed, seed scheme, numerics version or stream
                count; the message says what differs.
            ValueError, TypeError: it is no state dict.
        """
        loaded = State.from_dict(state)
        loaded.check_belongs_to(self._state(), any_seed=self._drawn)
        position = loaded.position_for(self.rank, self.world_size)
        if loaded.seed != self.seed:
            self._finish()
            tree = SeedTree(loaded.seed)
            self._tree = tree.child(loaded.name) if loaded.name else tree
            self._schedule = self._new_schedule()
        self._move(position)
        self._loaded_epoch = position.epoch

    # --- life -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers. Batches that are still held stay valid. A closed augmenter gives no more batches until
        `restart`."""
        self._finish()
        self._closed = True

    def restart(self) -> None:
        """Fresh workers, at the start of the current epoch."""
        self._finish()
        self._closed = False
        self._schedule.position = self._schedule.start_of(self.epoch)
        self._start()

    def __enter__(self) -> DeterministicAugmenter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self) -> None:
        """Start the workers, if they are not running (as batchgenerators has it)."""
        if self._engine is not None:
            return
        if self._closed:
            raise RuntimeError("this augmenter was closed; restart() brings it back")
        if os.getpid() != self._owner:
            raise RuntimeError(
                "this augmenter was made in another process, which this one was forked from; make one here"
            )
        if self.num_processes == 0:
            self._engine = InProcess(self._replayer(), self._schedule, self._seed_path(), self.on_error == "skip")
            return
        settings = Settings(
            num_processes=self.num_processes,
            start_method=self.start_method,
            max_restarts=self.max_restarts,
            stall_timeout=self.stall_timeout,
            skip_errors=self.on_error == "skip",
            pin_memory=self.pin_memory,
            slots_kept=self._schedule.window // self.num_processes + 2,
        )
        warm_up(self.transform, self._source.loader)
        with interrupts_deferred():
            self._engine = Coordinator(self._pipeline, self._job(), self._schedule, settings, self._seed_path())
            self._finalizer = weakref.finalize(self, self._engine.close)

    def _finish(self, timeout: float = 10, force: bool = False) -> None:
        """End the workers and forget what was prefetched (as batchgenerators has it); `next` starts them again."""
        engine, self._engine = self._engine, None
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if engine is not None:
            engine.close()
        position, self._schedule = self._schedule.position, self._new_schedule()
        self._schedule.position = position

    def _move(self, position: Position) -> None:
        if self._engine is None:
            self._schedule.position = position
        elif self._schedule.position != position or isinstance(self._engine, Coordinator):
            self._engine.move(position)

    def _new_schedule(self) -> Schedule:
        plan = Plan(self.num_streams, self.rank, self.world_size, self._source.num_steps)
        limit = None if self.batches_per_epoch is None else self.batches_per_epoch // self.world_size
        probing = limit is None and plan.end is None and not self._source.endless and not self._source.stateless
        window = max(1, self.num_processes + self.num_cached) if self.num_processes else 1
        return Schedule(plan, window, max(1, self.num_processes), self._source.stateless, limit, probing)

    def _job(self) -> Job:
        entropy = tuple(self._tree.entropy)
        return Job(entropy, self.num_streams, torch.get_default_dtype(), self.guard, self.max_worker_memory)

    def _seed_path(self) -> SeedPath:
        return SeedPath(self._tree.seed, self._tree.path, self.num_streams)

    def _replayer(self) -> Replayer:
        return Replayer(self._pipeline, self._job(), self._seed_path())

    def _state(self) -> State:
        return State(
            seed=self.seed,
            name=self.name,
            epoch=self.epoch,
            step=self.step,
            taken=self._schedule.position.taken,
            rank=self.rank,
            world_size=self.world_size,
            num_streams=self.num_streams,
            pipeline=self._declared,
        )

    def _warn_of_idle_processes(self) -> None:
        busy = self._schedule.busy_workers
        if self._source.stateless or busy >= self.num_processes:
            return
        logger.warning(
            "%s has %d stream%s, which keep only %d of %d processes busy. Pass num_streams=... if its copies may share "
            "the work (it changes the batches), or stateless=True if it keeps nothing between batches.",
            type(self._source.loader).__name__,
            self.num_streams,
            "" if self.num_streams == 1 else "s",
            busy,
            self.num_processes,
        )

    def __repr__(self) -> str:
        return (
            f"<DeterministicAugmenter of {type(self._source.loader).__name__}: {self.num_processes} processes, "
            f"seed {self.seed}, epoch {self.epoch}, step {self.step}>"
        )
