"""`DeterministicAugmenter`: seeded, ordered, crash-proof batches."""

from __future__ import annotations

import inspect
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Generic

from typing_extensions import TypeVar

from detaug.augmenter.loader import AugmenterLoader
from detaug.augmenter.misplaced import refuse_to_be_a_loader
from detaug.augmenter.seed_checks import RankSeeds, RunningAugmenter, log_shared_seed
from detaug.augmenter.setup import Setup
from detaug.augmenter.state_dict import State
from detaug.augmenter.warm_up import warm_up
from detaug.engine import arguments
from detaug.engine.arguments import Check, Skip
from detaug.engine.errors_from_workers import BatchLocator
from detaug.engine.executor import Engine, EngineContext, Executor
from detaug.engine.in_process import InThisProcess
from detaug.engine.job import WorkerConfig
from detaug.engine.local.coordinator import LocalProcesses
from detaug.engine.outcomes import Position
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.replayer import ONE_COPY, Replayer
from detaug.engine.schedule import Schedule
from detaug.engine.wait_stats import RunStats
from detaug.errors import ReproducibilityError
from detaug.ledger.header import Record, header
from detaug.ledger.lines import Key
from detaug.ledger.writing import LedgerWriter
from detaug.objects import description as identity
from detaug.pipeline.calling import WAYS, called
from detaug.pipeline.loader_states import LoaderStates, read_states
from detaug.pipeline.plan import TAILS, BatchKey, StepPlan
from detaug.pipeline.producer import Pipeline, StreamEnded
from detaug.pipeline.sources import LoaderFactory, SampleBatches, Source, resolve_source
from detaug.pipeline.sources.argument_hints import answers_unknown_arguments, refuse_arguments
from detaug.seeding.current import SeedBranch
from detaug.seeding.ranks import check_all_are_known, process_group
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree
from detaug.system.import_lock import refuse_while_importing
from detaug.system.process_settings import ProcessSettings
from detaug.system.processes import interrupts_deferred
from detaug.training.machine import environment

logger = logging.getLogger("detaug")

#: What the pipeline's batches are, for type checkers: ``aug: DeterministicAugmenter[dict[str,
#: np.ndarray]] = ...``.
Batch = TypeVar("Batch", default=Any)


class DeterministicAugmenter(Generic[Batch]):
    """Batches from worker processes, in one fixed order and with the same bytes whatever the
    workers do.

    Takes the place of batchgenerators' ``NonDetMultiThreadedAugmenter`` (same positional arguments)
    and keeps the promises of ``MultiThreadedAugmenter`` for finite loaders. A batch is a pure
    function of (pipeline, seed, epoch, step): number of processes, start method, timing, crashes,
    resume and replay change nothing about it.

    The loader and the transform are taken as they are when the first batch is asked for, or
    `_start`, `replay` or `settle` is called, and again at `restart`. Until then `generator`,
    `transform`, `num_processes`, `num_cached` and `seeds` may be set, and the objects changed.
    Later changes do not reach the workers; what must change with the epoch goes into a method
    ``set_epoch(epoch)`` of either.

    Args:
        data_loader: a batchgenerators loader (nnU-Net's too), an iterator, an iterable, or a
            callable that makes one.
        transform: called on every batch, as `call` says; None for none. Before workers start,
            ``warm_up()`` of it (or of transforms in it and in the loader) is called here, so that
            workers compile nothing.
        num_processes: worker processes; 0 makes every batch in this process when it is asked for.
        num_cached: batches kept ready beyond the one each process works on.
        seeds: as batchgenerators has it, one seed for each process; the list is then the seed, and
            its length the number of streams. Better: `seed`.
        pin_memory: tensors are copied to page-locked memory where there is a GPU.
        wait_time: accepted for compatibility; nothing here polls.
        seed: a non-negative integer or a list of them. None: ``DETAUG_SEED`` from the environment,
            else one is drawn, logged, and shown as `.seed`.
        name: the branch of the seed tree, e.g. "train" or "val"; "a/b" is branch b of branch a.
        batches_per_epoch: an epoch's batches over all ranks; None: until a finite loader ends, or
            for ever.
        num_streams: logical workers. Part of the result, unlike `num_processes`. None: what the
            loader declares.
        stateless: whether any copy of the loader may make any batch. None: only where that is known
            to be safe.
        rank, world_size: this process takes steps rank, rank + world_size, ... of the one global
            stream: a round of steps after the other. A state that was saved with any number of
                ranks loads in any other. None: 0 of 1, which is an
            error where more processes train together; 0 and 1 themselves give each of them all
            batches.
        tail: what several ranks do with an epoch's last round if it has fewer batches than there
            are ranks. "drop": no rank gets any of them. "pad": all of them are given, and the ranks
            that would have none get the epoch's first batches (step 0, 1, ...) once more.
        on_error: "raise", or `Skip` to leave out (and log) batches whose loader or transform
            raises.
        version: change it when code changes behind the same class names, so that older state dicts
            are refused.
        call: how the transform takes a batch that is a dict: "kwargs" is ``transform(**batch)``,
            "dict" ``transform(batch)``, "args" ``transform(*batch.values())``, or
            ``transform(*batch)`` for a list or tuple. None: "dict" for transforms of MONAI,
            torchvision and TorchIO, known by class, else "kwargs". Any other batch is the only
            argument.
        keep: names of attributes that go on from batch to batch although transforms start each one
            as they were handed in: caches (an atlas that is read on first use), and what cannot be
                copied (an open file, an inference session).
            They are shared as they are, so that a batch may depend on others through them.
        check: `Check`, how batches are made a second time and compared. An integer is its `every`,
            False is none, True the default.
        executor: what makes the batches: `LocalProcesses`, `InThisProcess`,
            `detaug.ray.RayExecutor`, or one of your own (`detaug.engine.executor`). None:
            ``LocalProcesses()``, or where `num_processes` is 0 ``InThisProcess()``.
        ledger: a file to which a line is written for every batch that is given (docs/ledger.md):
            JSON Lines. An earlier run's is continued; with several ranks each has a file of its
            own, ``run.jsonl``
            being ``run.rank1of4.jsonl``. None: there is none.

    Raises:
        TypeError, ValueError: an argument cannot be right, or can have no effect beside the others;
            the message says what is allowed.
        ValueError: `torch.distributed` or the launcher (torchrun, srun, mpirun) has more ranks than
            `world_size`, which was not given. Or there are several ranks, and the number of batches
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
        self._starting = threading.RLock()  # several threads may ask for the first batch
        self._closed = False
        self._owner = os.getpid()
        self._settings: ProcessSettings | None = (
            None  # those of the program where the workers were started
        )
        self._rank_seeds: RankSeeds | None = None
        self._num_cached = arguments.count("num_cached", num_cached)
        self.rank, self.world_size = arguments.rank_of(
            rank or 0, 1 if world_size is None else world_size
        )
        self._ranks_are_given = world_size is not None
        self.tail = arguments.one_of("tail", tail, TAILS)
        self.batches_per_epoch = arguments.optional_positive("batches_per_epoch", batches_per_epoch)
        self.on_error = Skip.of(on_error)
        self.version = arguments.text("version", version)
        self._call = call and arguments.one_of("call", call, WAYS)
        self._transform = called(arguments.transform(transform), self._call)
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
        self._num_streams_wanted = arguments.optional_positive("num_streams", num_streams)
        self._user_seed = seed
        self._name = arguments.text("name", name)
        self._set_seeds(seeds)
        self._health = RunStats()
        self._loaded_epoch: int | None = None
        self._rest_is_wanted = False
        self._finalizer: Any = None

        self._data_loader = data_loader
        #: A state that was loaded before the pipeline was taken, with which it is compared then.
        self._loaded_state: State | None = None
        #: Checks made of earlier pipelines of this augmenter, and how many of them found a
        #: difference.
        self._earlier_checks = (0, 0)
        self._said: set[str] = set()
        self._look()
        # Refuses what cannot be copied where the user wrote it, and not at the first batch.
        self._pipeline = self._frozen()
        self._kept_replayer: Replayer | None = None
        self._is_taken = False
        self._begin_checks()
        self._schedule = self._new_schedule()
        self._mention_streams()
        if self._drawn and self.world_size > 1:
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
        """Batches of a torch Dataset, in a new order every epoch.

        Args:
            dataset: has ``__len__`` and ``__getitem__``. While item i of a batch is fetched,
                `detaug.current()` is that sample, with its own Generator. Or a torch
                IterableDataset, which says the order itself: each stream reads a copy of its own,
                    for which `torch.utils.data.get_worker_info()` has the stream's number as ``id``
                    and
                `num_streams` as ``num_workers``. One that shares its items out by these may have
                several streams.
            batch_size: samples per batch; with `batch_sampler` it is left out.
            shuffle: a permutation from the epoch's SeedSequence child; False: the data set's own
                order. None: True, where no other argument says the order.
            sampler: the indices of an epoch, in order: torch's or MONAI's samplers, or any iterable
                with a length that can be pickled. Every epoch it starts as it was handed in, with
                the generators that it holds and the global ones seeded from the epoch's child; its
                ``set_epoch``, if it has one, is told the epoch.
            batch_sampler: as `sampler`, with a list of indices for every batch.
            drop_last: leave out the last, smaller batch of an epoch.
            collate_fn: list of samples → batch. None: torch's default_collate.
            worker_init_fn: is called with the worker's number, 0 ... num_processes-1, in every
                process that makes batches, before the first batch that its copy of the data set
                makes; `torch.utils.data.get_worker_info()` has that
                copy as ``dataset`` meanwhile. Seeds that it sets have no effect: every batch starts
                    from its own.
            transform: applied to the collated batch.
            num_processes: worker processes.
            **options: as for DeterministicAugmenter.

        Raises:
            TypeError: the data set has no length or no items; a sampler has no length or cannot be
                pickled; or arguments exclude each other (`shuffle`, `sampler`, `batch_sampler`).
            ValueError: the data set makes no batch at all; or a sampler gives one rank's share.
        """
        known = {
            *inspect.signature(cls.from_dataset).parameters,
            *inspect.signature(DeterministicAugmenter).parameters,
            *inspect.signature(cls).parameters,
        }
        refuse_arguments(options, known)
        how: dict[str, Any] = {
            "drop_last": drop_last,
            "collate_fn": collate_fn,
            "worker_init_fn": worker_init_fn,
        }
        how |= {"sampler": sampler, "batch_sampler": batch_sampler}
        samples = SampleBatches(dataset, batch_size, shuffle, how)
        return cls(samples, transform, num_processes, **options)

    # --- what may be set until the pipeline is taken
    # ----------------------------------------------------------------

    @property
    def generator(self) -> Any:
        """The loader or data set, as it was passed or set."""
        return self._source.loader

    @generator.setter
    def generator(self, value: Any) -> None:
        self._refuse_if_taken("generator")
        before = self._data_loader
        if isinstance(before, SampleBatches):
            value = replace(before, dataset=value)
        self._data_loader = value
        try:
            self._look()
        except BaseException:
            self._data_loader = before
            raise
        self._renew_schedule()

    @property
    def transform(self) -> Any:
        """The transform, called with keyword arguments: itself, or with `call` what calls it so."""
        return self._transform

    @transform.setter
    def transform(self, value: Callable[..., Any] | None) -> None:
        self._refuse_if_taken("transform")
        self._transform = called(arguments.transform(value), self._call)

    @property
    def num_processes(self) -> int:
        """Worker processes; 0: none."""
        return self._num_processes

    @num_processes.setter
    def num_processes(self, value: int) -> None:
        self._refuse_if_taken("num_processes")
        self._set_num_processes(value)

    @property
    def num_cached(self) -> int:
        """Batches kept ready beyond the one each process works on."""
        return self._num_cached

    @num_cached.setter
    def num_cached(self, value: int) -> None:
        self._refuse_if_taken("num_cached")
        self._num_cached = arguments.count("num_cached", value)

    @property
    def seeds(self) -> list[int | None]:
        """The seeds as batchgenerators has them; None for each process where none were passed."""
        return [None] * self._num_processes if self._seeds is None else self._seeds

    @seeds.setter
    def seeds(self, value: Sequence[int | None] | None) -> None:
        self._refuse_if_taken("seeds")
        self._set_seeds(value)
        self._close_ledger()

    def _refuse_if_taken(self, name: str) -> None:
        if self._is_taken:
            raise AttributeError(
                f"{name} cannot be set now: the pipeline was taken when the first batch was asked "
                "for. Set it before that, or "
                "between aug._finish() and aug.restart(). What must change with the epoch goes "
                "into a method "
                "set_epoch(epoch) of the loader or transform"
            )

    def _set_num_processes(self, value: Any) -> None:
        number = arguments.count("num_processes", value)
        executor = self._user_executor
        if executor is None:
            executor = LocalProcesses() if number else InThisProcess()
        self.executor: Executor = arguments.executor(executor)
        self._num_workers: int = self.executor.num_workers(number)
        self._num_processes = number

    def _set_seeds(self, seeds: Sequence[int | None] | None) -> None:
        listed = arguments.old_style_seeds(
            seeds, self._user_seed, self._num_processes, self._num_streams_wanted
        )
        self._seeds = None if seeds is None else list(seeds)
        self._num_seeds = None if listed is None else len(listed)
        nobody_says = self._user_seed is None and listed is None
        self._drawn = nobody_says and not os.environ.get(SEED_VARIABLE)
        tree = SeedTree(self._user_seed if listed is None else listed)
        self._tree = tree.child(self._name) if self._name else tree

    # --- the pipeline
    # -----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Take the pipeline as it is now, unless it was taken.

        What the program changes later does not reach the workers.

        Raises:
            StateMismatch: (a ValueError) the state that was loaded belongs to another pipeline.
            TypeError, ValueError: the loader or the transform cannot be taken.
        """
        if self._is_taken:  # without the lock, which nobody may be left to release in a fork
            return
        with self._starting:
            if self._is_taken:
                return
            self._look()
            earlier = self._pipeline
            self._pipeline = self._frozen()
            self._kept_replayer = None
            self._renew_schedule()
            if self._description() != self._checked_description:
                self._earlier_checks = self._num_checks()
                self._begin_checks()
                self._close_ledger()
            self._mention_streams()
            self._compare_loaded_state()
            self._pipeline.undeclared.succeed(earlier.undeclared)
            self._is_taken = True

    def _look(self) -> None:
        """Find out what follows from the loader and the transform as they are now."""
        source = resolve_source(self._data_loader, self._stateless, self.batches_per_epoch)
        self._check_ranks()
        declared = [
            *identity.describe(source.seen, "data_loader"),
            *identity.describe(self.transform, "transform"),
            f"batches_per_epoch = {self.batches_per_epoch}",
            f"version = {self.version!r}",
            *source.declared(),
            *(
                line
                for what, part in source.declared_parts().items()
                for line in identity.describe(part, what)
            ),
        ]
        if source.seen is not source.loader:
            warm_up(None, source.seen)
            source.seen = None
        wanted = self._num_streams_wanted if self._num_seeds is None else self._num_seeds
        num_streams = wanted or source.default_num_streams
        if num_streams > 1:
            source.length_hint = None  # what each stream gives is not known
        arguments.epoch_for_all_ranks(source, self.world_size, self.tail)
        self._source: Source = source
        self._declared = declared
        self.num_streams = num_streams

    def _look_again(self) -> None:
        """Find out what has changed since, where the pipeline is not taken yet.

        A callable that makes the loader is not called for it: that may take long.
        """
        if self._is_taken or isinstance(self._source, LoaderFactory):
            return
        with self._starting:
            if not self._is_taken:
                self._look()
                self._renew_schedule()

    def _frozen(self) -> Pipeline:
        """Return the pipeline that was looked at, as it is now."""
        travels = self.executor.travels
        return Pipeline(self._source, self.transform, travels, self.keep, said=self._said)

    def _description(self) -> list[str]:
        return [*self._declared, f"num_streams = {self.num_streams}"]

    def _begin_checks(self) -> None:
        """Forget the checks of an earlier pipeline, and where its loader's copies stood."""
        self._loader_states = LoaderStates(self._source, self.num_streams)
        self._checks = RecheckPolicy(
            self.check, self.num_streams, self._source.stateless, self._loader_states
        )
        self._checked_description = self._description()

    def _compare_loaded_state(self) -> None:
        loaded = self._loaded_state
        if loaded is None:
            return
        loaded.check_belongs_to(self._state(), any_seed=self._drawn)
        self._loader_states.load(read_states(loaded.loader_states, loaded.num_streams))
        self._compare_values(loaded)
        self._loaded_state = None

    def _compare_values(self, loaded: State) -> None:
        """Tell the user of values that no argument declares and that differ from a state's."""
        if loaded.rank == self.rank:  # what the user's objects know of their rank may differ
            self._pipeline.log_remarks(self._pipeline.undeclared.on_load(loaded.values))

    def _mention_streams(self) -> None:
        """Warn of streams that each give all items, and of processes that have no stream to make."""
        name = self._source.class_name
        if self._source.may_end and self.num_streams > 1:
            self._pipeline.warn_once(
                f"{name} may end (it raises StopIteration), and does not say so: each of its "
                f"{self.num_streams} streams (num_streams) is a copy that gives all of its items, "
                "so every item comes as "
                "often. Pass num_streams=1, or let its copies share the items out by "
                "number_of_threads_in_multithreaded"
            )
        idle = self._num_workers - self._busy_workers
        if idle:
            self._pipeline.warn_once(
                f"{idle} of {self._num_workers} processes will be idle: {name} keeps state between "
                "batches, "
                f"and its streams (num_streams={self.num_streams}) can be made by "
                f"{self._num_workers - idle} at most. Pass "
                "num_streams=... if several copies of it may share the work (it changes the "
                "batches), or stateless=True if it "
                "keeps nothing between batches."
            )

    # --- batches
    # ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> DeterministicAugmenter[Batch]:
        """The augmenter itself, at the batch that is due: the first of the next epoch where this
        one's last has been taken and its end not been seen, as by ``for _ in range(len(augmenter)):
        next(augmenter)``. (Directly after `load_state_dict` and `set_epoch` of the loaded epoch it
        is not: the loop is to give the rest of that epoch, which is empty.)
        """
        refuse_to_be_a_loader()
        self._log_if_endless()
        position = self._schedule.position
        if not self._rest_is_wanted and position.taken + position.before > 0 and not self._closed:
            self._look_again()
            self._pass_over_the_end()
        return self

    def _log_if_endless(self) -> None:
        """Log once that a loop over the augmenter does not end by itself, where that is so."""
        self._look_again()
        source = self._source
        if source.total_batches is None and (source.stateless or source.endless):
            self._pipeline.warn_once(
                f"a for loop over this augmenter never ends, because {source.class_name} has no "
                "end: leave the loop with break, or pass batches_per_epoch=... to end each epoch "
                "after that many batches",
                logging.INFO,
            )

    def __next__(self) -> Batch:
        """The batch that is due.

        Raises:
            StopIteration: the epoch is over; the next call gives the next epoch's first batch.
            BatchError: the loader or the transform failed on it; again at every call until
                `set_epoch`, `load_state_dict` or `restart`.
            ValueError: `torch.distributed` is initialised, and another rank has another seed.
        """
        self._loaded_epoch = None
        self._rest_is_wanted = False
        self._start()
        engine = self._engine
        if engine is None:
            raise RuntimeError("the augmenter was closed while its next batch was awaited")
        self._check_owner()
        if self._rank_seeds is not None:
            self._rank_seeds.compare()
        pipeline = self._pipeline
        pipeline.log_remarks(pipeline.undeclared.on_batch(self._schedule.position.epoch))
        try:
            asked = time.perf_counter()
            batch: Batch = (
                engine.next() if self._ledger is None else self._next_noted(engine, self._ledger)
            )
            self._health.on_batch(asked)
            return batch
        except StopIteration:
            end = self._schedule.ended
            if end is not None:
                if end.taken + end.before == 0:
                    whom = (
                        "" if self.world_size == 1 else f" to rank {self.rank} of {self.world_size}"
                    )
                    self._pipeline.warn_once(
                        f"{self._source.class_name} gave no batch{whom} in a whole epoch"
                    )
                self._health.on_epoch_end(end.epoch, self._busy_workers)
            raise

    def _next_noted(self, engine: Engine, ledger: LedgerWriter) -> Any:
        """The batch that is due, which has its line in the ledger then."""
        with ledger.taking:
            asked = time.perf_counter()
            try:
                noted = engine.next()
            except StopIteration:
                ledger.epoch_ended()
                raise
            try:
                waited = time.perf_counter() - asked
                position = self._schedule.taken
                assert position is not None
                step = self._schedule.key_at(position).step
                ledger.delivered(
                    Key(position.epoch, position.step),
                    step,
                    noted[1],
                    waited,
                    self._health.restarts,
                )
            except BaseException:  # Ctrl-C just now: the batch is still due
                engine.put_back(noted)
                raise
            return noted[0]

    def next(self) -> Batch:
        """As ``next(augmenter)``: batchgenerators has it under this name as well."""
        return self.__next__()

    def __len__(self) -> int:
        """This rank's batches in a whole epoch, also where less of one is left after
        `load_state_dict`.

        Raises:
            TypeError: epochs have no end, or the loader does not say where it is.
        """
        self._look_again()
        number = self._source.total_batches
        if number is None:
            why = (
                "its epochs have no end"
                if self._source.endless
                else "its loader does not say how many it gives"
            )
            raise TypeError(
                f"this augmenter's number of batches is not known: {why}. Pass "
                "batches_per_epoch=..."
            )
        return self._schedule.plan.share_of(number)

    def loader(self, epoch: int | None = None) -> AugmenterLoader:
        """The augmenter as the torch DataLoader that training loops ask for (docs/loops.md).

        Args:
            epoch: the epoch that every pass gives, as for a validation that is the same every time.
                None: one epoch after the other.

        Raises:
            TypeError: the number of batches of an epoch is not known. (Lightning and others then
                read one batch ahead, and a state would be one too far.)
        """
        self._look_again()
        if self._source.total_batches is None:
            raise TypeError(
                "aug.loader() needs to know how many batches an epoch has, and "
                f"{self._source.class_name} does not say: pass "
                "batches_per_epoch=... to the augmenter"
            )
        return AugmenterLoader(self, None if epoch is None else arguments.epoch(epoch))

    def replay(self, epoch: int, step: int) -> Batch:
        """Make a batch again, in this process and with the same bytes; the running stream does not
        notice.

        Args:
            epoch: 0 ... 2**32 - 1.
            step: the batch's number in the one global stream; it may be another rank's.

        Raises:
            ValueError: there is no such batch.
            StateMismatch: (a ValueError) the state that was loaded belongs to another pipeline.
            Exception: whatever the loader or the transform raises, as it is.
        """
        self.settle()
        key = BatchKey(arguments.epoch(epoch), arguments.step(step, self.num_streams))
        end = self._source.known_steps
        if end is not None and key.step >= end:
            raise ValueError(f"there is no step {key.step}: an epoch has steps 0 ... {end - 1}")
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
        """Return the one that replays batches and makes them again for checks, if there are no
        workers.

        It is kept with its copy of the pipeline, which has files and stores open.
        """
        job = self._job()
        if self._kept_replayer is None or self._kept_replayer.job != job:
            self._kept_replayer = Replayer(self._pipeline, job)
        return self._kept_replayer

    def stats(self) -> dict[str, Any]:
        """Return what has happened so far, JSON-able.

        ``checked`` batches were made a second time, and ``mismatches`` of them differed. The loop
        ``waited`` for batches for so many seconds. Of the processes, ``restarts`` died and were
        replaced, and ``retirements`` were replaced for their memory.
        """
        num_checked, num_different = self._num_checks()
        health = self._health
        return {
            "checked": num_checked,
            "mismatches": num_different,
            "waited": health.waited,
            "restarts": health.restarts,
            "retirements": health.retirements,
        }

    def _num_checks(self) -> tuple[int, int]:
        """Return how many batches were made a second time, and how many of them differed."""
        earlier, earlier_different = self._earlier_checks
        return earlier + self._checks.done, earlier_different + self._checks.different

    @property
    def setup(self) -> Setup:
        """What its batches are made of: the pipeline is taken."""
        self.settle()
        return Setup(
            source=self._source,
            drew_its_seed=self._drawn,
            declared=self._declared,
            branch=self._branch,
            replayer=Replayer(self._pipeline, self._job()),
        )

    @property
    def _busy_workers(self) -> int:
        """How many can make batches at a time."""
        return min(self._num_workers, self._schedule.busy_workers)

    # --- position
    # ---------------------------------------------------------------------------------------------------

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
        """The step, in the one global stream, of the batch that is due next; where an epoch is
        padded, one of its first.
        """
        position = self._schedule.position
        return (
            position.step
            if self._schedule.is_over(position)
            else self._schedule.key_at(position).step
        )

    def set_epoch(self, epoch: int) -> None:
        """Go to step 0 of an epoch. What was prefetched for it is kept. Directly after
        `load_state_dict`, with the epoch that was loaded, the position stays where it is: ``for e
        in range(aug.epoch, E): aug.set_epoch(e)`` resumes in mid-epoch.
        """
        number = arguments.epoch(epoch)
        self._rest_is_wanted = self._loaded_epoch == number
        self._loaded_epoch = None
        if self._rest_is_wanted:
            return
        self._move(self._schedule.start_of(number))

    def state_dict(self) -> dict[str, int | str | list[int] | None]:
        """Where the stream stands and what it belongs to, as JSON-able integers and strings. One of
        them says where a loader's copies stand, if it has ``state_dict`` and ``load_state_dict`` of
        its own and its state is plain JSON.
        """
        self._look_again()
        return self._state().as_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was taken, by any rank of any number of ranks: all ranks load
        the same state, and go on with the global stream's next steps, the first of which is rank
        0's. A seed that was drawn (none given) is replaced.

        Whether the state belongs to this pipeline is compared when the pipeline is taken, and at
        once where it was.

        Raises:
            StateMismatch: (a ValueError) it belongs to another seed, seed scheme or numerics
                version, or to another pipeline or stream count; the message says what differs.
            ValueError, TypeError: it is no state dict.
        """
        loaded = State.from_dict(state)
        loaded.check_belongs_to(
            self._state(), any_seed=self._drawn, any_pipeline=not self._is_taken
        )
        position = loaded.position_for(self.rank, self.world_size)
        loader_states = read_states(loaded.loader_states, loaded.num_streams)
        if loaded.seed != self.seed:
            self._stop()
            self._close_ledger()
            tree = SeedTree(loaded.seed)
            self._tree = tree.child(loaded.name) if loaded.name else tree
            self._renew_schedule()
        self._loader_states.load(loader_states)
        self._loaded_state = None if self._is_taken else loaded
        if self._is_taken:
            self._compare_values(loaded)
        self._move(position)
        self._loaded_epoch = position.epoch
        self._rest_is_wanted = False

    def _close_ledger(self) -> None:
        """Close the ledger, whose header names the seed or pipeline that was: the next line begins
        another.
        """
        if self._ledger is not None:
            self._ledger.close()

    def _move(self, position: Position) -> None:
        left = self._schedule.position
        if self._engine is None:
            self._schedule.position = position
        else:
            self._check_owner()
            self._engine.move(position)
        self._health.on_epoch_end(left.epoch, self._busy_workers)

    # --- what loaders read, see `detaug.augmenter.passes.BatchStream`
    # -------------------------------------------------------

    @property
    def num_batches(self) -> int | None:
        """The batches of an epoch, over all ranks; None where that is not known."""
        return self._source.total_batches

    @property
    def position(self) -> Position:
        """Where the stream stands, as `move_to` takes it."""
        return self._schedule.position

    @property
    def next_key(self) -> BatchKey | None:
        """The epoch and step of the batch that is due; None at an epoch's end."""
        position = self._schedule.position
        return None if self._schedule.is_over(position) else self._schedule.key_at(position)

    @property
    def has_finished_epoch(self) -> bool:
        """Whether all of the epoch's batches were taken, as far as that is known beforehand."""
        return self._schedule.is_over(self._schedule.position)

    def move_to(self, position: Position) -> None:
        """Continue from a position."""
        self._move(position)

    def start_epoch(self, epoch: int) -> None:
        """Go to an epoch's first batch, also directly after `load_state_dict`."""
        self._loaded_epoch = None
        self.set_epoch(epoch)

    def seek(self, epoch: int, step: int) -> bool:
        """Go to a batch. False: it is none of this rank's."""
        end = self._schedule.plan.end()
        if self._schedule.plan.phase_of(step) or (end is not None and step >= end):
            return False
        if step == self.rank:
            self.start_epoch(epoch)
        else:
            self._move(Position(epoch, step, step // self.world_size))
        return True

    def state_at(self, position: Position | None) -> dict[str, Any]:
        """Return the state dict for a position of this stream; None: for where it stands."""
        return self._state(position).as_dict()

    def _pass_over_the_end(self) -> None:
        """Go to the next epoch, if this one has no more batches."""
        position = self._schedule.position
        if self._schedule.is_over(position):
            self._move(self._schedule.start_of(position.epoch + 1))
        elif (
            not self._source.stateless
            and self._source.num_steps is None
            and os.getpid() == self._owner
        ):
            # Only the loader's end ends an epoch. What says that it has no end may be wrong.
            self._start()
            assert self._engine is not None
            try:
                batch = self._engine.next()
            except ReproducibilityError:
                raise
            except (
                Exception
            ):  # StopIteration, and the position is the next epoch's; what failed is raised again
                return
            self._engine.put_back(batch)

    def _renew_schedule(self) -> None:
        """Forget what was made ahead, and stand where the schedule stood."""
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
        window = self._num_workers + self.num_cached if self._num_workers else 1
        max_skips = self.on_error.most if isinstance(self.on_error, Skip) else None
        return Schedule(
            plan, window, self._num_workers, source.stateless, self.batches_per_epoch, max_skips
        )

    def _state(self, position: Position | None = None) -> State:
        """Where the stream stands, or stood when `position` was due."""
        position = position or self._schedule.position
        return State(
            seed=self.seed,
            name=self.name,
            epoch=position.epoch,
            step=position.step,
            taken=position.taken,
            rank=self.rank,
            world_size=self.world_size,
            num_streams=self.num_streams,
            pipeline=self._declared,
            values=tuple(self._pipeline.undeclared.as_lines()),
            loader_states=self._loader_states.as_text(BatchKey(position.epoch, position.step)),
            skipped=position.skipped,
            before=position.before
            if position.before or self._schedule.plan.phase_of(position.step)
            else None,
        )

    # --- life -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End the workers. Batches that are still held stay valid. A closed augmenter gives no more
        batches until `restart`.
        """
        self._stop()
        if self._ledger is not None and os.getpid() == self._owner:
            if self.has_finished_epoch:
                self._ledger.epoch_ended()
            self._ledger.close()
        self._closed = True

    def restart(self) -> None:
        """Take the pipeline as it is now, and start fresh workers at the start of an epoch.

        It is the current epoch where a seed was passed, as batchgenerators' augmenters repeat their
        seeds' batches. Where the seed was drawn it is the next one, if the current one has begun,
        as theirs go on with new numbers.
        """
        self._finish()
        self._closed = False
        position = self._schedule.position
        has_begun = position.taken + position.before > 0
        epoch = position.epoch + 1 if self._drawn and has_begun else position.epoch
        self._schedule.position = self._schedule.start_of(epoch)
        self._start()

    def __enter__(self) -> DeterministicAugmenter:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _start(self) -> None:
        """Start the workers, if they are not running (as batchgenerators has it)."""
        if self.num_processes:
            # at every batch: nobody waits for one who would have to wait for the import
            refuse_while_importing()
        if self._engine is None:
            self._check_owner()  # in a fork, the thread that had the lock is not there to let it go
            with self._starting:
                self._start_once()

    def _start_once(self) -> None:
        if self._engine is not None:
            return
        if self._closed:
            raise RuntimeError("this augmenter was closed; restart() brings it back")
        self.settle()
        self._check_ranks()
        self._settings = ProcessSettings.here()
        group = process_group()
        shared = (
            group is not None and group[1] == self.world_size > 1
        )  # else the group's ranks are others
        self._rank_seeds = RankSeeds(self.rank, self.name, self.seed) if shared else None
        log_shared_seed(self._running_record())
        warm_up(self.transform, self._source.loader)
        self._pipeline.log_remarks(self._pipeline.undeclared.on_start(self.epoch))
        if self.ledger is not None and self._ledger is None:
            header = weakref.WeakMethod(
                self._ledger_header
            )  # the finalizer must not keep this object alive
            self._ledger = LedgerWriter(self.ledger, lambda: header()())  # type: ignore[misc]
            weakref.finalize(self, self._ledger.close)
        work = self._work()
        # Earlier replays may have opened what one copy in a process can have open, and forks of it.
        work.replayer.close()
        self._health.is_fresh = True
        with interrupts_deferred():  # or processes might run that no object knows of
            engine = self._engine = self.executor.start(work)
            if engine.prefetches:
                self._finalizer = weakref.finalize(self, engine.close)

    def _running_record(self) -> RunningAugmenter:
        return RunningAugmenter(
            entropy=tuple(self._tree.entropy),
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
        """More ranks than are known of, and not on the user's word, would all get the same batches."""
        if not self._ranks_are_given:
            check_all_are_known(self.world_size)

    def _check_owner(self) -> None:
        """A fork of the process that made this augmenter has none of its threads, and would wait
        for ever. Without workers it needs none, and continues.
        """
        if os.getpid() == self._owner or (self._engine is not None and not self._engine.prefetches):
            return
        raise RuntimeError(
            f"this augmenter was made in another process (pid {self._owner}), which this one (pid "
            f"{os.getpid()}) was "
            "forked from; its workers and batches belong to that one. Make an augmenter in the "
            "process that uses it; "
            "state_dict(), load_state_dict() of a new one, and replay() work here"
        )

    def _finish(self, timeout: float = 10, force: bool = False) -> None:
        """End the workers and forget what was prefetched (as batchgenerators has it).

        The pipeline may be changed now: `restart` and `next` take it as it is then, and start the
        workers again.
        """
        self._stop()
        self._is_taken = False

    def _stop(self) -> None:
        """End the workers and forget what was prefetched."""
        engine, self._engine = self._engine, None
        if self._finalizer is not None:
            self._finalizer.detach()
        if self._kept_replayer is not None:
            self._kept_replayer.close()
            self._kept_replayer = None
        if engine is not None:
            engine.close()
        self._renew_schedule()

    # --- what engines and ledgers are given
    # -------------------------------------------------------------------------

    @property
    def _branch(self) -> SeedBranch:
        """Where in the seed tree its batches are."""
        return SeedBranch(self._tree, self.num_streams)

    def _work(self) -> EngineContext:
        return EngineContext(
            pipeline=self._pipeline,
            job=self._job(),
            schedule=self._schedule,
            places=BatchLocator(self._branch, self._source),
            skip_errors=isinstance(self.on_error, Skip),
            pin_memory=self.pin_memory,
            checks=self._checks,
            states=self._loader_states,
            health=self._health,
            replayer=self._replayer(),
            num_processes=self.num_processes,
        )

    def _job(self) -> WorkerConfig:
        return WorkerConfig(
            self._branch,
            self._settings or ProcessSettings.here(),
            self.check.guard,
            check_every=self.check.every,
            check_ignore=tuple(self.check.ignore),
            noted=None if self.ledger is None else tuple(self.check.ignore),
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
        """The class. `isinstance` asks for it where a library wants to know whether this is a
        DataLoader.
        """
        refuse_to_be_a_loader()
        return type(self)

    def __reduce_ex__(self, _: Any) -> Any:
        """`pickle`, `copy.copy` and `copy.deepcopy` all begin here: always a TypeError."""
        raise TypeError(
            f"a {type(self).__name__} can be neither pickled nor copied: it owns its workers and "
            "its place in the stream of "
            "batches. To save where it stands, save aug.state_dict() and load it (load_state_dict) "
            "into an augmenter made in "
            "the same way. Where another process or object needs one (multiprocessing, torch.save, "
            "Ray, Lightning's "
            "save_hyperparameters), pass a function that makes the augmenter, or leave it out"
        )

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self._source.class_name}: {self._num_workers} workers "
            f"({type(self.executor).__name__}), "
            f"seed {self.seed}, epoch {self.epoch}, step {self.step}>"
        )
