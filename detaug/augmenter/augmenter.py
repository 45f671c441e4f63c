"""`DeterministicAugmenter`: seeded, ordered, crash-proof batches."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Generic

from typing_extensions import TypeVar

from detaug.augmenter.loader import AugmenterLoader
from detaug.augmenter.misplaced import refuse_to_be_a_loader
from detaug.augmenter.resuming import RestOfEpoch
from detaug.augmenter.seed_checks import RankSeeds, RunningAugmenter, log_shared_seed
from detaug.augmenter.state_dict import State
from detaug.augmenter.warm_up import warm_up
from detaug.engine import arguments
from detaug.engine.arguments import Check, Skip
from detaug.engine.errors_from_workers import BatchLocator
from detaug.engine.executor import Engine, EngineContext, Executor
from detaug.engine.in_process import InThisProcess
from detaug.engine.local.coordinator import LocalProcesses
from detaug.engine.outcomes import Position
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.replayer import ONE_COPY, Replayer
from detaug.engine.schedule import Schedule
from detaug.engine.wait_stats import RunStats
from detaug.engine.worker_config import WorkerConfig
from detaug.errors import ReproducibilityError
from detaug.ledger.header import Record, header
from detaug.ledger.lines import Key
from detaug.ledger.writing import LedgerWriter
from detaug.objects import description
from detaug.pipeline.calling import WAYS, called
from detaug.pipeline.loader_states import LoaderStates, read_states
from detaug.pipeline.plan import TAILS, BatchKey, StepPlan
from detaug.pipeline.producer import Pipeline, StreamEnded
from detaug.pipeline.sources import LoaderFactory, SampleBatches, Source, resolve_source
from detaug.pipeline.sources.argument_hints import answers_unknown_arguments, refuse_arguments
from detaug.pipeline.undeclared import Undeclared
from detaug.seeding.current import SeedBranch
from detaug.seeding.ranks import check_all_are_known, process_group
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree
from detaug.system.import_lock import refuse_while_importing
from detaug.system.process_settings import ProcessSettings
from detaug.system.processes import interrupts_deferred
from detaug.training.machine import environment

logger = logging.getLogger("detaug")

#: The type of the pipeline's batches, for type checkers: ``aug: DeterministicAugmenter[dict[str,
#: np.ndarray]] = ...``.
Batch = TypeVar("Batch", default=Any)


@dataclass(frozen=True)
class Setup:
    """The parts from which an augmenter makes its batches, for rooms that replay or describe them.

    Attributes:
        source: of raw batches.
        is_seed_drawn: True: no seed was passed.
        declared: the lines that describe the pipeline (`detaug.objects.description`).
        branch: the branch of the seed tree that has the seeds of its batches.
        replayer: makes batches in this process. Several batches of one stream, in order, cost as
            much as the last one alone.
        undeclared: the values that batches may depend on and that no parameter declares.
    """

    source: Source
    is_seed_drawn: bool
    declared: list[str]
    branch: SeedBranch
    replayer: Replayer
    undeclared: Undeclared


class DeterministicAugmenter(Generic[Batch]):
    """Batches from worker processes, in one fixed order and always with the same bytes.

    Replaces batchgenerators' ``NonDetMultiThreadedAugmenter`` (same positional arguments) and keeps
    the promises of ``MultiThreadedAugmenter`` for finite loaders. A batch is a pure function of
    (pipeline, seed, epoch, step). The number of processes, the start method, timing, crashes,
    resuming and replaying do not change it.

    The loader and the transform are copied when the first batch is requested, when `settle`,
    `replay` or `_start` is called, and again at `restart`. Until then you may set `generator`,
    `transform`, `num_processes`, `num_cached` and `seeds`, and change the objects. Later changes do
    not reach the workers. Anything that must change with the epoch belongs in a method
    ``set_epoch(epoch)`` of the loader or the transform.

    Args:
        data_loader: a batchgenerators loader (including nnU-Net's), an iterator, an iterable, or a
            callable that returns one of these.
        transform: called on every batch in the way that `call` says; None: no transform. Before
            workers start, the ``warm_up()`` of the transform (or of transforms inside it and the
            loader) is called in this process, so that workers compile nothing.
        num_processes: number of worker processes; 0: this process makes each batch when it is
            requested.
        num_cached: number of batches kept ready in addition to the one that each process works on.
        seeds: one seed for each process, as in batchgenerators. The list is then the seed, and its
            length the number of streams. Prefer `seed`.
        pin_memory: copy tensors to page-locked memory if there is a GPU.
        wait_time: ignored; accepted for compatibility, since nothing here polls.
        seed: a non-negative integer or a list of them. None: the environment variable
            ``DETAUG_SEED``, or if that is not set, a seed that is drawn, logged, and available as
            `.seed`.
        name: the branch of the seed tree, e.g. "train" or "val"; "a/b" is branch b of branch a.
        batches_per_epoch: number of batches of an epoch, over all ranks. None: an epoch lasts until
            the loader ends, or forever.
        num_streams: number of logical workers. It changes the batches; `num_processes` does not.
            None: the number that the loader declares.
        stateless: True if any copy of the loader may make any batch. None: only for loaders that
            are known to be safe.
        rank, world_size: this process takes steps rank, rank + world_size, ... of the one global
            stream, round by round. A state that was saved with any number of ranks loads into any
            other number. None: 0 and 1, which raises if several processes train together. Pass 0
            and 1 explicitly to give each of them all batches.
        tail: what several ranks do with an epoch's last round if it has fewer batches than there
            are ranks. "drop": no rank gets any of these batches. "pad": all of them are used, and
            the ranks that would have none get the epoch's first batches (step 0, 1, ...) again. A
            single rank gets every batch once with either.
        on_error: "raise", or `Skip` to leave out (and log) batches whose loader or transform
            raises.
        version: change it when code changes without changing class names, so that older state
            dicts are refused.
        call: how the transform is called with a batch that is a dict. "kwargs":
            ``transform(**batch)``; "dict": ``transform(batch)``. None: "dict" for transforms of
            MONAI, torchvision and TorchIO (recognised by class), else "kwargs". A batch of any
            other type is the only argument.
        keep: names of attributes that are carried from batch to batch, although each batch starts
            with the transforms as you passed them. Use it for caches (an atlas that is read on
            first use) and for objects that cannot be copied (an open file, an inference session).
            They are shared, not copied, so that a batch may depend on earlier ones through them.
        check: a `Check` that says which batches are made a second time and compared. An integer is
            its `every`, False turns checks off, True is the default.
        executor: runs the workers: `LocalProcesses`, `InThisProcess`, `detaug.ray.RayExecutor`, or
            your own (`detaug.engine.executor`). None: ``LocalProcesses()``, or ``InThisProcess()``
            if `num_processes` is 0.
        ledger: path of a JSON Lines file that gets one line for each batch (docs/ledger.md). The
            file of an earlier run is continued. With several ranks each one writes its own file:
            ``run.jsonl`` becomes ``run.rank1of4.jsonl``. None: no ledger.

    Raises:
        TypeError, ValueError: an argument is invalid, or has no effect together with the others.
            The message says what is allowed.
        ValueError: `world_size` was not passed, and `torch.distributed` or the launcher (torchrun,
            srun, mpirun) has several ranks. Or there are several ranks, and the number of batches
            of an epoch that ends is not known.
    """

    #: Further entries of the ledger's header.
    _ledger_facts: Mapping[str, Any] = MappingProxyType({})

    @answers_unknown_arguments
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
        rank: int | None = None,
        world_size: int | None = None,
        tail: str = "drop",
        on_error: str | Skip = "raise",
        version: str = "",
        call: str | None = None,
        keep: Sequence[str] = (),
        check: Check | int | bool = True,
        executor: Executor | None = None,
        ledger: str | os.PathLike[str] | None = None,
    ) -> None:
        self._engine: Engine | None = None
        #: Several threads may ask for the first batch.
        self._start_lock = threading.RLock()
        self._is_closed = False
        self._owner_pid = os.getpid()
        #: Settings of the program when the workers were started.
        self._settings: ProcessSettings | None = None
        self._rank_seeds: RankSeeds | None = None
        # Numbers and names are checked before the pipeline is inspected: an invalid one raises
        # before a user's factory is called.
        self._num_cached = arguments.count("num_cached", num_cached)
        self.rank, self.world_size = arguments.rank_of(
            rank or 0, 1 if world_size is None else world_size
        )
        self._is_world_size_explicit = world_size is not None
        self.tail = arguments.one_of("tail", tail, TAILS)
        self.batches_per_epoch = arguments.optional_positive("batches_per_epoch", batches_per_epoch)
        self.on_error = Skip.of(on_error)
        self.version = arguments.text("version", version)
        if call is not None:
            call = arguments.one_of("call", call, WAYS)
        self._call_style = call
        self._transform = called(arguments.transform(transform), self._call_style)
        self.pin_memory = bool(pin_memory)
        self.wait_time = wait_time
        self.keep = arguments.strings("keep", keep, "attribute names", str.isidentifier)
        self.check = Check.of(check)
        self._user_executor = executor
        self._set_num_processes(num_processes)
        self.ledger = arguments.ledger(ledger, self.rank, self.world_size)
        self._ledger: LedgerWriter | None = None
        if not isinstance(stateless, bool | None):
            raise TypeError(f"stateless must be True, False or None, got {stateless!r}")
        self._stateless = stateless
        self._user_num_streams = arguments.optional_positive("num_streams", num_streams)
        self._user_seed = seed
        self._name = arguments.text("name", name)
        self._set_seeds(seeds)
        self._run_stats = RunStats()
        self._rest_of_epoch = RestOfEpoch()
        self._finalizer: Any = None

        self._data_loader = data_loader
        #: A state that was loaded before the pipeline was settled; it is compared at that time.
        self._loaded_state: State | None = None
        #: Checks of this augmenter's earlier pipelines, and how many of them found a difference.
        self._earlier_check_counts = (0, 0)
        #: Texts of the warnings that the user has seen.
        self._logged_warnings: set[str] = set()
        self._inspect_pipeline()
        # Here, where the user wrote it, and not at the first batch: this refuses objects that
        # cannot be copied.
        self._pipeline = self._copy_pipeline(is_trial=True)
        self._cached_replayer: Replayer | None = None
        self._is_settled = False
        self._begin_checks()
        self._schedule = self._new_schedule()
        self._warn_about_streams()
        if self._is_seed_drawn and self.world_size > 1:
            logger.warning(
                "rank %d of %d drew its own seed: pass the same seed on all ranks",
                self.rank,
                world_size,
            )

    @classmethod
    def from_dataset(
        cls,
        dataset: Any,
        batch_size: int | None = None,
        *,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Sequence[Any]] | None = None,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        worker_init_fn: Callable[[int], Any] | None = None,
        transform: Callable[..., Any] | None = None,
        num_processes: int = 2,
        **options: Any,
    ) -> DeterministicAugmenter:
        """Return an augmenter of a torch Dataset, by default in a new order every epoch.

        Args:
            dataset: a map-style data set (``__len__`` and ``__getitem__``), or an IterableDataset.
                While a map-style data set fetches an item, `detaug.current()` is that sample, with
                its own Generator. An IterableDataset sets the order itself: each stream reads its
                own copy, for which `torch.utils.data.get_worker_info()` has the stream's number as
                ``id`` and `num_streams` as ``num_workers``. If it divides its items by these
                numbers, it may have several streams.
            batch_size: samples per batch. Do not pass it together with `batch_sampler`.
            shuffle: True: a permutation drawn from the epoch's SeedSequence child. False: the data
                set's own order. None: True, unless another argument sets the order.
            sampler: the indices of an epoch, in order: a sampler of torch or MONAI, or any iterable
                that has a length and can be pickled. It starts every epoch as you passed it; the
                generators that it holds and the global ones are seeded from the epoch's child. Its
                ``set_epoch``, if it has one, is called with the epoch.
            batch_sampler: like `sampler`, with a list of indices for each batch.
            drop_last: leave out the last, smaller batch of an epoch.
            collate_fn: combines a list of samples into a batch. None: torch's default_collate.
            worker_init_fn: called with the worker's number, 0 ... num_processes - 1, in every
                process that makes batches, before its copy of the data set makes the first one.
                `torch.utils.data.get_worker_info()` has that copy as ``dataset`` during the call.
                Seeds that it sets have no effect, since every batch starts from its own seed.
            transform: applied to the collated batch.
            num_processes: number of worker processes.
            **options: further arguments of `DeterministicAugmenter`.

        Raises:
            TypeError: the data set has no length or no items; a sampler has no length or cannot be
                pickled; or arguments exclude each other (`shuffle`, `sampler`, `batch_sampler`).
            ValueError: an epoch has no batch; or a sampler yields only one rank's share.
        """
        # Of a subclass as well, whose constructor may have arguments of its own.
        known = {
            *inspect.signature(cls.from_dataset).parameters,
            *inspect.signature(DeterministicAugmenter).parameters,
            *inspect.signature(cls).parameters,
        }
        refuse_arguments(options, known)
        dataset_options: dict[str, Any] = {
            "drop_last": drop_last,
            "collate_fn": collate_fn,
            "worker_init_fn": worker_init_fn,
            "sampler": sampler,
            "batch_sampler": batch_sampler,
        }
        samples = SampleBatches(dataset, batch_size, shuffle, dataset_options)
        return cls(samples, transform, num_processes, **options)

    # --- attributes that may be set until the pipeline is settled ---

    @property
    def generator(self) -> Any:
        """The loader or data set, as it was passed or set."""
        return self._source.loader

    @generator.setter
    def generator(self, value: Any) -> None:
        self._refuse_if_settled("generator")
        loader_before = self._data_loader
        # After `from_dataset`, `value` is a data set; the batch size and other arguments stay.
        if isinstance(loader_before, SampleBatches):
            value = replace(loader_before, dataset=value)
        self._data_loader = value
        try:
            self._inspect_pipeline()
        except BaseException:
            self._data_loader = loader_before
            raise
        # The number of streams follows from the loader.
        self._reset_schedule()

    @property
    def transform(self) -> Any:
        """The transform; with `call`, the wrapper that calls it in that way."""
        return self._transform

    @transform.setter
    def transform(self, value: Callable[..., Any] | None) -> None:
        self._refuse_if_settled("transform")
        self._transform = called(arguments.transform(value), self._call_style)

    @property
    def num_processes(self) -> int:
        """The number of worker processes; 0: this process makes the batches."""
        return self._num_processes

    @num_processes.setter
    def num_processes(self, value: int) -> None:
        self._refuse_if_settled("num_processes")
        self._set_num_processes(value)

    @property
    def num_cached(self) -> int:
        """The number of batches kept ready in addition to the one that each process works on."""
        return self._num_cached

    @num_cached.setter
    def num_cached(self, value: int) -> None:
        self._refuse_if_settled("num_cached")
        self._num_cached = arguments.count("num_cached", value)

    @property
    def seeds(self) -> list[int | None]:
        """The seeds as in batchgenerators: one for each process, None where none were passed."""
        if self._seeds is None:
            return [None] * self._num_processes
        return self._seeds

    @seeds.setter
    def seeds(self, value: Sequence[int | None] | None) -> None:
        self._refuse_if_settled("seeds")
        self._set_seeds(value)
        self._close_ledger()

    def _refuse_if_settled(self, name: str) -> None:
        if self._is_settled:
            raise AttributeError(
                f"{name} cannot be set now: the pipeline was taken when the first batch was asked "
                "for. Set it before that, or between aug._finish() and aug.restart(). To change "
                "something with the epoch, give the loader or transform a method set_epoch(epoch)"
            )

    def _set_num_processes(self, value: Any) -> None:
        num_processes = arguments.count("num_processes", value)
        executor = self._user_executor
        if executor is None:
            # Not once in the constructor: the number may be set to 0, or from 0, later.
            executor = LocalProcesses() if num_processes else InThisProcess()
        self.executor: Executor = arguments.executor(executor)
        self._num_workers: int = self.executor.num_workers(num_processes)
        self._num_processes = num_processes

    def _set_seeds(self, seeds: Sequence[int | None] | None) -> None:
        seed_list = arguments.old_style_seeds(
            seeds, self._user_seed, self._num_processes, self._user_num_streams
        )
        self._seeds = None if seeds is None else list(seeds)
        self._num_seeds: int | None = None
        seed = self._user_seed
        if seed_list is not None:
            self._num_seeds = len(seed_list)
            seed = seed_list
        self._is_seed_drawn = seed is None and not os.environ.get(SEED_VARIABLE)
        self._seed_tree = _branch_of(seed, self._name)

    # --- the pipeline ---

    def settle(self) -> None:
        """Copy the pipeline as it is now; do nothing if that has been done.

        Changes that the program makes afterwards do not reach the workers.

        Raises:
            StateMismatch: (a ValueError) the state that was loaded belongs to another pipeline.
            TypeError, ValueError: the loader or the transform is invalid or cannot be copied.
        """
        # Without the lock: in a fork, the thread that holds it does not exist and never releases.
        if self._is_settled:
            return
        with self._start_lock:
            # Another thread may have settled it meanwhile.
            if self._is_settled:
                return
            self._inspect_pipeline()
            earlier = self._pipeline
            self._pipeline = self._copy_pipeline()
            self._cached_replayer = None
            self._reset_schedule()
            if self._description() != self._checked_description:
                # Another pipeline has states and mismatches of its own; the counts go on.
                self._earlier_check_counts = self._check_counts()
                self._begin_checks()
                self._close_ledger()
            self._warn_about_streams()
            self._compare_loaded_state()
            self._pipeline.undeclared.succeed(earlier.undeclared)
            # Last: if anything above raised, the next call tries all of it again.
            self._is_settled = True

    def settle_as_constructed(self) -> None:
        """Settle the pipeline, directly after the constructor, without inspecting it once more."""
        self._pipeline.complete()
        self._is_settled = True

    def _inspect_pipeline(self) -> None:
        """Set everything that follows from the loader and the transform as they are now."""
        source = resolve_source(self._data_loader, self._stateless, self.batches_per_epoch)
        self._check_ranks()
        declared = self._describe(source)
        if source.inspected_loader is not source.loader:
            # A factory's loader, made for the description only. Kernels of its transforms are
            # compiled now: each worker calls the factory after the fork, and would compile its own.
            warm_up(None, source.inspected_loader)
            source.inspected_loader = None
        # One seed for each process, as in batchgenerators, fixes the number of streams.
        num_streams = self._num_seeds
        if num_streams is None:
            num_streams = self._user_num_streams or source.default_num_streams
        if num_streams > 1:
            # The loader's length says nothing about how many batches each stream has.
            source.length_hint = None
        arguments.epoch_for_all_ranks(source, self.world_size, self.tail)
        # After everything that may raise: a refused loader changes nothing.
        self._source: Source = source
        self._declared = declared
        self.num_streams = num_streams

    def _describe(self, source: Source) -> list[str]:
        """Return the lines that describe the pipeline in state dicts and ledgers."""
        lines = [
            *description.describe(source.inspected_loader, "data_loader"),
            *description.describe(self.transform, "transform"),
            f"batches_per_epoch = {self.batches_per_epoch}",
            f"version = {self.version!r}",
            *source.declared(),
        ]
        for name, part in source.declared_parts().items():
            lines.extend(description.describe(part, name))
        return lines

    def _inspect_changes(self) -> None:
        """Inspect the pipeline again unless it is settled.

        A callable that returns the loader is not called for it, since that may take long.
        """
        if self._is_settled or isinstance(self._source, LoaderFactory):
            return
        with self._start_lock:
            if not self._is_settled:
                self._inspect_pipeline()
                self._reset_schedule()

    def _copy_pipeline(self, *, is_trial: bool = False) -> Pipeline:
        """Return a copy of the pipeline that was inspected, as it is now.

        Args:
            is_trial: the copy only shows that there can be one, and `settle` makes another.
        """
        return Pipeline(
            self._source,
            self.transform,
            self.executor.requires_pickling,
            self.keep,
            logged=self._logged_warnings,
            is_trial=is_trial,
        )

    def _description(self) -> list[str]:
        return [*self._declared, f"num_streams = {self.num_streams}"]

    def _begin_checks(self) -> None:
        """Forget the checks and the loader states of an earlier pipeline."""
        self._loader_states = LoaderStates(self._source, self.num_streams)
        self._recheck_policy = RecheckPolicy(
            self.check, self.num_streams, self._source.stateless, self._loader_states
        )
        self._checked_description = self._description()

    def _compare_loaded_state(self) -> None:
        """Compare the pipeline with a state that was loaded before it was settled."""
        loaded = self._loaded_state
        if loaded is None:
            return
        loaded.check_belongs_to(self._state_at(), any_seed=self._is_seed_drawn)
        self._loader_states.load(read_states(loaded.loader_states, loaded.num_streams))
        self._compare_values(loaded)
        self._loaded_state = None

    def _compare_values(self, loaded: State) -> None:
        """Log undeclared values that differ from those in a loaded state."""
        # Another rank's objects may rightly hold other values.
        if loaded.rank == self.rank:
            self._pipeline.log_remarks(self._pipeline.undeclared.on_load(loaded.values))

    def _warn_about_streams(self) -> None:
        """Warn of streams that each yield all items, and of processes without a stream."""
        name = self._source.class_name
        if self._source.may_end and self.num_streams > 1:
            self._pipeline.warn_once(
                f"{name} may end (it raises StopIteration), but does not declare it: each of its "
                f"{self.num_streams} streams (num_streams) is a copy that gives all items, so "
                f"every item comes {self.num_streams} times. Pass num_streams=1, or split the "
                "items among its copies by number_of_threads_in_multithreaded"
            )
        num_idle = self._num_workers - self._num_busy_workers
        if num_idle:
            self._pipeline.warn_once(
                f"{num_idle} of {self._num_workers} processes will be idle: {name} keeps state "
                f"between batches, and at most {self._num_workers - num_idle} can work on its "
                f"streams (num_streams={self.num_streams}). Pass num_streams=... if several copies "
                "of it may share the work (this changes the batches), or stateless=True if it "
                "keeps nothing between batches."
            )

    # --- batches ---

    def __iter__(self) -> DeterministicAugmenter[Batch]:
        """Return the augmenter itself, positioned at the batch that is due.

        If all batches of this epoch were taken and its end was not seen, as after ``for _ in
        range(len(augmenter)): next(augmenter)``, that is the next epoch's first batch. The
        exception: directly after `load_state_dict` and `set_epoch` of the loaded epoch, the loop
        gets the rest of that epoch, which is empty.
        """
        refuse_to_be_a_loader()
        self._log_if_endless()
        # Only for an epoch that has begun: to see whether it is finished may take a batch.
        position = self._schedule.position
        has_begun = position.num_taken + position.num_before_resize > 0
        if has_begun and not self._rest_of_epoch.is_next and not self._is_closed:
            self._inspect_changes()
            self._skip_finished_epoch()
        return self

    def _log_if_endless(self) -> None:
        """Log once that a loop over the augmenter does not end by itself, where that is so."""
        self._inspect_changes()
        source = self._source
        if source.total_batches is None and (source.stateless or source.endless):
            self._pipeline.warn_once(
                f"a for loop over this augmenter never ends, because {source.class_name} has no "
                "end: leave the loop with break, or pass batches_per_epoch=... to end each epoch "
                "after that many batches",
                logging.INFO,
            )

    def __next__(self) -> Batch:
        """Return the batch that is due.

        Raises:
            StopIteration: the epoch has ended; the next call returns the next epoch's first batch.
            BatchError: the loader or the transform failed on this batch. Every further call raises
                it again, until `set_epoch`, `load_state_dict` or `restart`.
            ValueError: `torch.distributed` is initialised, and another rank has another seed.
        """
        self._rest_of_epoch.forget()
        self._start()
        # Another thread may close the augmenter while this one waits.
        engine = self._engine
        if engine is None:
            raise RuntimeError("the augmenter was closed while its next batch was awaited")
        self._check_owner()
        # Again at every batch: rank 0 may publish its seed later, and no rank waits for it.
        if self._rank_seeds is not None:
            self._rank_seeds.compare()
        pipeline = self._pipeline
        pipeline.log_remarks(pipeline.undeclared.on_batch(self._schedule.position.epoch))
        try:
            asked_at = time.perf_counter()
            if self._ledger is None:
                engine.wait()
            else:
                self._wait_with_ledger(engine, self._ledger)
            self._run_stats.on_batch(asked_at)
        except StopIteration:
            self._on_epoch_end()
            raise
        # An interrupt in any line up to here leaves the batch due, so nothing follows this call, a
        # cast neither.
        if self._ledger is None:
            return engine.hand_over()  # type: ignore[no-any-return]
        # (batch, record of the batch).
        return engine.hand_over()[0]  # type: ignore[no-any-return]

    def _wait_with_ledger(self, engine: Engine, ledger: LedgerWriter) -> None:
        """Wait for the batch that is due, and write its line to the ledger."""
        # Two threads must not write their lines in another order than they took their batches in.
        with ledger.order_lock:
            asked_at = time.perf_counter()
            try:
                # (batch, record of the batch).
                _, record = engine.wait()
            except StopIteration:
                ledger.epoch_ended()
                raise
            try:
                waited = time.perf_counter() - asked_at
                position = self._schedule.last_position
                assert position is not None
                ledger.delivered(
                    Key(position.epoch, position.step),
                    self._schedule.key_at(position).step,
                    record,
                    waited,
                    self._run_stats.restarts,
                )
            except BaseException:
                # KeyboardInterrupt as well: a batch that the user does not get is due again.
                engine.put_back()
                raise

    def _on_epoch_end(self) -> None:
        """Warn of an epoch without batches, and log how long the loop waited."""
        end = self._schedule.last_epoch_end
        if end is None:
            return
        if end.num_taken + end.num_before_resize == 0:
            receiver = ""
            if self.world_size > 1:
                receiver = f" to rank {self.rank} of {self.world_size}"
            self._pipeline.warn_once(
                f"{self._source.class_name} gave no batch{receiver} in a whole epoch"
            )
        self._run_stats.on_epoch_end(end.epoch, self._num_busy_workers)

    def next(self) -> Batch:
        """Return ``next(augmenter)``; batchgenerators has this name as well."""
        return self.__next__()

    def __len__(self) -> int:
        """Return this rank's number of batches in a whole epoch.

        The number is the same after `load_state_dict`, when only the rest of an epoch is left.

        Raises:
            TypeError: epochs have no end, or the loader does not have a length.
        """
        self._inspect_changes()
        num_batches = self._source.total_batches
        if num_batches is None:
            reason = "its loader does not say how many it gives"
            if self._source.endless:
                reason = "its epochs have no end"
            raise TypeError(
                f"this augmenter's number of batches is not known: {reason}. Pass "
                "batches_per_epoch=..."
            )
        return self._schedule.plan.share_of(num_batches)

    def loader(self, epoch: int | None = None) -> AugmenterLoader:
        """Return the augmenter as a torch DataLoader, which training loops need (docs/loops.md).

        Args:
            epoch: the epoch of every pass, for a validation that is the same every time. None: each
                pass is the next epoch.

        Raises:
            TypeError: the number of batches of an epoch is not known. Lightning and others then
                read one batch ahead, and a saved state would be one batch too far.
        """
        self._inspect_changes()
        if self._source.total_batches is None:
            raise TypeError(
                "aug.loader() needs to know how many batches an epoch has, but "
                f"{self._source.class_name} does not declare it: pass batches_per_epoch=... to the "
                "augmenter"
            )
        return AugmenterLoader(self, None if epoch is None else arguments.epoch(epoch))

    def replay(self, epoch: int, step: int) -> Batch:
        """Return a batch that this process makes for this call, with the same bytes.

        The running stream is not affected.

        Args:
            epoch: 0 ... 2**32 - 1.
            step: the batch's number in the one global stream. It may belong to another rank.

        Raises:
            ValueError: there is no such batch.
            StateMismatch: (a ValueError) the state that was loaded belongs to another pipeline.
            Exception: any exception of the loader or the transform, unchanged.
        """
        self.settle()
        # After `settle`, which may change the number of streams: it limits the steps.
        key = BatchKey(arguments.epoch(epoch), arguments.step(step, self.num_streams))
        end = self._source.known_steps
        if end is not None and key.step >= end:
            raise ValueError(f"there is no step {key.step}: an epoch has steps 0 ... {end - 1}")
        # This process has the present values of variables, its workers those of their start.
        self._pipeline.log_remarks(self._pipeline.undeclared.on_replay(self.epoch))
        try:
            batch: Batch = self._replayer().make(key, self._loader_states.latest(key))
            return batch
        except StreamEnded:
            raise ValueError(
                f"there is no step {key.step} in epoch {key.epoch}: its stream ends before it"
            ) from None
        except Exception as error:
            if self._engine is not None and not self._engine.prefetches:
                error.add_note(ONE_COPY)
            raise

    def _replayer(self) -> Replayer:
        """Return the replayer, which without workers also makes the batches of checks.

        It is kept together with its copy of the pipeline, which has files and stores open.
        """
        # It depends on settings and variables of the program, which may have changed since.
        config = self._worker_config()
        if self._cached_replayer is None or self._cached_replayer.config != config:
            self._cached_replayer = Replayer(self._pipeline, config)
        return self._cached_replayer

    def stats(self) -> dict[str, Any]:
        """Return counters of this run as a dict that can be written as JSON.

        Returns:
            ``checked``: batches that were made a second time. ``mismatches``: those that differed.
            ``waited``: seconds that the loop has waited for batches. ``restarts``: processes that
            died and were replaced. ``retirements``: processes that were replaced because of their
            memory.
        """
        num_checked, num_mismatches = self._check_counts()
        run_stats = self._run_stats
        return {
            "checked": num_checked,
            "mismatches": num_mismatches,
            "waited": run_stats.wait_seconds,
            "restarts": run_stats.restarts,
            "retirements": run_stats.retirements,
        }

    def _check_counts(self) -> tuple[int, int]:
        """Return how many batches were made a second time, and how many of them differed."""
        earlier_checked, earlier_different = self._earlier_check_counts
        num_checked = earlier_checked + self._recheck_policy.done
        return num_checked, earlier_different + self._recheck_policy.different

    @property
    def setup(self) -> Setup:
        """The parts from which batches are made. Reading it settles the pipeline."""
        self.settle()
        return Setup(
            source=self._source,
            is_seed_drawn=self._is_seed_drawn,
            declared=self._declared,
            branch=self._branch,
            replayer=Replayer(self._pipeline, self._worker_config()),
            undeclared=self._pipeline.undeclared,
        )

    @property
    def _num_busy_workers(self) -> int:
        """The number of workers that can make batches at the same time."""
        return min(self._num_workers, self._schedule.busy_workers)

    # --- position ---

    @property
    def seed(self) -> Seed:
        """The seed that was passed or drawn."""
        return self._seed_tree.seed

    @property
    def name(self) -> str:
        """The branch of the seed tree."""
        return "/".join(self._seed_tree.path)

    @property
    def epoch(self) -> int:
        """The epoch of the batch that is due."""
        return self._schedule.position.epoch

    @property
    def step(self) -> int:
        """The step, in the one global stream, of the batch that is due.

        In the padded tail of an epoch it is one of the epoch's first steps.
        """
        position = self._schedule.position
        if self._schedule.is_over(position):
            return position.step
        return self._schedule.key_at(position).step

    def set_epoch(self, epoch: int) -> None:
        """Go to step 0 of an epoch, keeping the batches that were prefetched for it.

        Directly after `load_state_dict`, with the epoch that was loaded, the position does not
        change: ``for e in range(aug.epoch, E): aug.set_epoch(e)`` resumes within the epoch.
        """
        epoch = arguments.epoch(epoch)
        if not self._rest_of_epoch.is_named_by(epoch):
            self._move(self._schedule.start_of(epoch))

    def state_dict(self) -> dict[str, int | str | list[int] | None]:
        """Return the position and the identity of the stream, as values that JSON can hold.

        If the loader has ``state_dict`` and ``load_state_dict`` of its own, and its state is plain
        JSON, the states of the loader's copies are included.
        """
        self._inspect_changes()
        return self._state_at().as_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, by any rank of any number of ranks.

        All ranks load the same state and continue with the global stream's next steps, beginning
        with rank 0. If no seed was passed to this augmenter, it takes the state's seed.

        The state is compared with the pipeline at once if the pipeline is settled, and otherwise
        when it is.

        Raises:
            StateMismatch: (a ValueError) the state belongs to another seed, seed scheme, numerics
                version, pipeline or number of streams. The message says what differs.
            TypeError, ValueError: it is not a state dict.
        """
        # Everything that may refuse the state comes first: a refused state changes nothing.
        loaded = State.from_dict(state)
        loaded.check_belongs_to(
            self._state_at(), any_seed=self._is_seed_drawn, any_pipeline=not self._is_settled
        )
        position = loaded.position_for(self.rank, self.world_size)
        loader_states = read_states(loaded.loader_states, loaded.num_streams)
        if loaded.seed != self.seed:
            # Workers may be making batches for the drawn seed, which the loaded one replaces.
            self._stop()
            self._close_ledger()
            self._seed_tree = _branch_of(loaded.seed, loaded.name)
            self._reset_schedule()
        self._loader_states.load(loader_states)
        if self._is_settled:
            self._loaded_state = None
            self._compare_values(loaded)
        else:
            self._loaded_state = loaded
        self._move(position)
        self._rest_of_epoch.load(position.epoch)

    def _close_ledger(self) -> None:
        """Close the ledger; its header names an earlier seed or pipeline.

        The next line begins a new header.
        """
        if self._ledger is not None:
            self._ledger.close()

    def _move(self, position: Position) -> None:
        # For the statistics: the loop may leave an epoch before its end.
        epoch_before = self._schedule.position.epoch
        if self._engine is None:
            self._schedule.position = position
        else:
            self._check_owner()
            self._engine.move(position)
        self._run_stats.on_epoch_end(epoch_before, self._num_busy_workers)

    # --- what loaders read: implements `detaug.augmenter.passes.BatchStream` ---

    @property
    def num_batches(self) -> int | None:
        """The number of batches of an epoch, over all ranks; None if it is not known."""
        return self._source.total_batches

    @property
    def position(self) -> Position:
        """The position of the stream, for `move_to`."""
        return self._schedule.position

    @property
    def next_key(self) -> BatchKey | None:
        """The epoch and step of the batch that is due; None at an epoch's end."""
        position = self._schedule.position
        if self._schedule.is_over(position):
            return None
        return self._schedule.key_at(position)

    @property
    def has_finished_epoch(self) -> bool:
        """True if all batches of the epoch were taken, as far as that is known beforehand."""
        return self._schedule.is_over(self._schedule.position)

    def move_to(self, position: Position) -> None:
        """Continue from a position."""
        self._move(position)

    def start_epoch(self, epoch: int) -> None:
        """Go to an epoch's first batch, even directly after `load_state_dict`."""
        self._rest_of_epoch.forget()
        self.set_epoch(epoch)

    def seek(self, epoch: int, step: int) -> bool:
        """Go to a batch. Return False if this rank does not have it."""
        plan = self._schedule.plan
        # Rounds begin at step 0 of an epoch that is entered here, so it is another rank's.
        if plan.phase_of(step):
            return False
        end = plan.end()
        if end is not None and step >= end:
            return False
        if step == self.rank:
            self.start_epoch(epoch)
        else:
            self._move(Position(epoch, step, step // self.world_size))
        return True

    def state_at(self, position: Position | None) -> dict[str, Any]:
        """Return the state dict for a position of this stream; None: for the current position."""
        return self._state_at(position).as_dict()

    def _skip_finished_epoch(self) -> None:
        """Go to the next epoch if this one has no more batches."""
        position = self._schedule.position
        if self._schedule.is_over(position):
            self._move(self._schedule.start_of(position.epoch + 1))
            return
        # Such an epoch ends by a number that is known, and the position has not reached it.
        if self._source.stateless or self._source.num_steps is not None:
            return
        if os.getpid() != self._owner_pid:
            return
        # Only the loader's own end ends an epoch, even if the loader claims to have none. So a
        # batch is taken, and put back.
        self._start()
        assert self._engine is not None
        try:
            self._engine.wait()
        except ReproducibilityError:
            raise
        except Exception:
            # StopIteration has moved the position to the next epoch. Any other error leaves the
            # batch due, and the next call raises it again.
            return
        self._engine.put_back()

    def _reset_schedule(self) -> None:
        """Forget what was prefetched, and keep the position."""
        position = self._schedule.position
        self._schedule = self._new_schedule()
        self._schedule.position = position

    def _new_schedule(self) -> Schedule:
        """Return a schedule at the start of epoch 0."""
        source = self._source
        # A single rank passes over the gaps of streams that ended, so that its epoch may have more
        # steps than batches.
        num_steps = source.known_steps if self.world_size == 1 else source.total_batches
        plan = StepPlan(self.num_streams, self.rank, self.world_size, num_steps, self.tail)
        window = 1
        if self._num_workers:
            window = self._num_workers + self.num_cached
        max_skips = self.on_error.most if isinstance(self.on_error, Skip) else None
        return Schedule(
            plan, window, self._num_workers, source.stateless, self.batches_per_epoch, max_skips
        )

    def _state_at(self, position: Position | None = None) -> State:
        """Return the state for a position of this stream; None: for the current position."""
        if position is None:
            position = self._schedule.position
        before = None
        # Otherwise rounds begin at multiples of the number of ranks, and `before` stays None.
        if position.num_before_resize or self._schedule.plan.phase_of(position.step):
            before = position.num_before_resize
        return State(
            seed=self.seed,
            name=self.name,
            epoch=position.epoch,
            step=position.step,
            taken=position.num_taken,
            rank=self.rank,
            world_size=self.world_size,
            num_streams=self.num_streams,
            pipeline=self._declared,
            values=tuple(self._pipeline.undeclared.as_lines()),
            loader_states=self._loader_states.as_text(BatchKey(position.epoch, position.step)),
            skipped=position.num_skipped,
            before=before,
        )

    # --- starting and stopping ---

    def close(self) -> None:
        """End the workers. Batches that you still hold stay valid.

        A closed augmenter returns no more batches until `restart`.
        """
        self._stop()
        # In a fork the ledger belongs to the parent, which still writes it.
        if self._ledger is not None and os.getpid() == self._owner_pid:
            if self.has_finished_epoch:
                self._ledger.epoch_ended()
            self._ledger.close()
        self._is_closed = True

    def restart(self) -> None:
        """Copy the pipeline as it is now, and start new workers at the start of an epoch.

        If a seed was passed, it is the current epoch: batchgenerators' augmenters repeat the
        batches of their seeds too. If the seed was drawn and the current epoch has begun, it is the
        next epoch: batchgenerators' augmenters continue with new numbers too.
        """
        self._finish()
        self._is_closed = False
        # The workers have ended, so nobody else moves it.
        position = self._schedule.position
        epoch = position.epoch
        has_begun = position.num_taken + position.num_before_resize > 0
        if self._is_seed_drawn and has_begun:
            epoch += 1
        self._schedule.position = self._schedule.start_of(epoch)
        self._start()

    def __enter__(self) -> DeterministicAugmenter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self) -> None:
        """Start the workers if they are not running (batchgenerators has this name)."""
        if self.num_processes:
            # At every batch, before the lock: no thread waits for one that waits for an import.
            refuse_while_importing()
        if self._engine is None:
            # Before the lock: in a fork, the thread that held it does not exist and never releases.
            self._check_owner()
            with self._start_lock:
                self._start_once()

    def _start_once(self) -> None:
        if self._engine is not None:
            return
        if self._is_closed:
            raise RuntimeError("this augmenter was closed; restart() starts it again")
        self.settle()
        # Checked again: the process group may have been created since the constructor.
        self._check_ranks()
        self._settings = ProcessSettings.here()
        self._rank_seeds = None
        group = process_group()
        # A group of another size has ranks of another kind.
        if group is not None and group[1] == self.world_size > 1:
            self._rank_seeds = RankSeeds(self.rank, self.name, self.seed)
        log_shared_seed(self._running_record())
        # Before the fork, so that workers inherit the compiled kernels.
        warm_up(self.transform, self._source.loader)
        self._pipeline.log_remarks(self._pipeline.undeclared.on_start(self.epoch))
        if self.ledger is not None and self._ledger is None:
            # The finalizer holds the writer, which must not keep this object alive in turn.
            ledger_header = weakref.WeakMethod(self._ledger_header)
            self._ledger = LedgerWriter(self.ledger, partial(_call_weak_method, ledger_header))
            weakref.finalize(self, self._ledger.close)
        context = self._engine_context()
        # A replayer may hold files that only one copy in a process, or in its forks, can have open.
        context.replayer.close()
        self._run_stats.is_fresh = True
        # An interrupt here would leave processes running that no object knows of.
        with interrupts_deferred():
            engine = self.executor.start(context)
            self._engine = engine
            if engine.prefetches:
                self._finalizer = weakref.finalize(self, engine.close)

    def _running_record(self) -> RunningAugmenter:
        return RunningAugmenter(
            entropy=tuple(self._seed_tree.entropy),
            rank=self.rank,
            declared=tuple(self._declared),
            source_name=self._source.class_name,
            seed=self.seed,
            name=self.name,
            is_running=weakref.WeakMethod(self._is_running),
        )

    def _is_running(self) -> bool:
        return self._engine is not None

    def _check_ranks(self) -> None:
        """Raise if there are several ranks and `world_size` was not passed.

        All of them would get the same batches.
        """
        if not self._is_world_size_explicit:
            check_all_are_known(self.world_size)

    def _check_owner(self) -> None:
        """Raise in a fork of the process that made this augmenter, unless there are no workers.

        A fork has none of the augmenter's threads, and would wait forever.
        """
        if os.getpid() == self._owner_pid:
            return
        if self._engine is not None and not self._engine.prefetches:
            return
        raise RuntimeError(
            f"this augmenter was made in another process (pid {self._owner_pid}), which this one "
            f"(pid {os.getpid()}) was forked from; its workers and batches belong to that one. "
            "Make an augmenter in the process that uses it; state_dict(), load_state_dict() of a "
            "new one, and replay() work here"
        )

    def _finish(self, timeout: float = 10, force: bool = False) -> None:
        """End the workers and forget what was prefetched (batchgenerators has this name).

        The pipeline may be changed now. `restart` and `next` copy it as it is then, and start the
        workers again.
        """
        self._stop()
        self._is_settled = False

    def _stop(self) -> None:
        """End the workers and forget what was prefetched."""
        # The engine is forgotten last: after an interrupt (Ctrl-C) while it ends, the next call
        # closes it, or its finalizer does. Otherwise nobody would end its processes.
        engine = self._engine
        if engine is not None:
            engine.close()
        self._engine = None
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._cached_replayer is not None:
            self._cached_replayer.close()
            self._cached_replayer = None
        self._reset_schedule()

    # --- what engines and ledgers are given ---

    @property
    def _branch(self) -> SeedBranch:
        """The branch of the seed tree that has the seeds of all batches."""
        return SeedBranch(self._seed_tree, self.num_streams)

    def _engine_context(self) -> EngineContext:
        return EngineContext(
            pipeline=self._pipeline,
            worker_config=self._worker_config(),
            schedule=self._schedule,
            locator=BatchLocator(self._branch, self._source),
            skip_errors=isinstance(self.on_error, Skip),
            pin_memory=self.pin_memory,
            recheck_policy=self._recheck_policy,
            states=self._loader_states,
            run_stats=self._run_stats,
            replayer=self._replayer(),
            num_processes=self.num_processes,
        )

    def _worker_config(self) -> WorkerConfig:
        return WorkerConfig(
            self._branch,
            self._settings or ProcessSettings.here(),
            self.check.guard,
            check_every=self.check.every,
            check_ignore=tuple(self.check.ignore),
            keeps_ledger=self.ledger is not None,
            num_workers=max(1, self._num_workers),
            variables=self._pipeline.undeclared.variables(),
        )

    def _ledger_header(self) -> Record:
        return header(
            self._declared,
            environment(),
            seed=self.seed,
            name=self.name,
            num_streams=self.num_streams,
            batches_per_epoch=self.batches_per_epoch,
            stateless=self._source.stateless,
            keep=list(self.keep),
            version=self.version,
            rank=self.rank,
            world_size=self.world_size,
            tail=self.tail,
            left_out=list(self.check.ignore),
            **self._ledger_facts,
        )

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        """The class, which `isinstance` reads when a library asks for a DataLoader."""
        refuse_to_be_a_loader()
        return type(self)

    def __reduce_ex__(self, _: Any) -> Any:
        """Raise a TypeError: `pickle`, `copy.copy` and `copy.deepcopy` begin here."""
        raise TypeError(
            f"a {type(self).__name__} can be neither pickled nor copied: it owns its workers and "
            "its place in the stream of batches. To save where it stands, save aug.state_dict() "
            "and load it (load_state_dict) into an augmenter made in the same way. Where another "
            "process or object needs one (multiprocessing, torch.save, Ray, Lightning's "
            "save_hyperparameters), pass a function that makes the augmenter, or leave it out"
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self._source.class_name}: {self._num_workers} workers "
            f"({type(self.executor).__name__}), seed {self.seed}, epoch {self.epoch}, "
            f"step {self.step}>"
        )


def _branch_of(seed: Seed | Sequence[int] | None, name: str) -> SeedTree:
    """Return the branch `name` of a seed's tree; "": the tree itself."""
    tree = SeedTree(seed)
    if not name:
        return tree
    return tree.child(name)


def _call_weak_method(reference: weakref.WeakMethod[Callable[[], Record]]) -> Record:
    """Return the result of a method whose object is alive."""
    method = reference()
    assert method is not None
    return method()
