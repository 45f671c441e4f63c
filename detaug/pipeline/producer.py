"""A batch as a pure function of (pipeline, seed, epoch, step): `Producer.make`.

(epoch, step) → SeedSequence → every generator of the process, of the loader and of the transforms
loader        → its copy in this process, or its stream's copy, stepped forward → raw batch
transforms    → a fresh copy, called with copies of the raw batch's arrays → batch
    (pure transforms: one copy for all batches, called with the raw arrays themselves)
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from detaug.objects.frozen import Frozen, freeze, why_not_picklable
from detaug.pipeline.batch_report import (
    BatchReport,
    TraceResponse,
    batch_fingerprints,
    explain,
    random_keys,
)
from detaug.pipeline.calling import transform_name
from detaug.pipeline.carried_state import CarriedState
from detaug.pipeline.copying.array_copies import copy_arrays
from detaug.pipeline.copying.generators import GlobalGenerators, name_of, new_generators
from detaug.pipeline.copying.pipeline_snapshot import LoaderCopy, PipelineSnapshot, TransformCopies
from detaug.pipeline.copying.snapshot import SnapshotCopy
from detaug.pipeline.draws import DrawRecord
from detaug.pipeline.first_use import loaded_on_first_use
from detaug.pipeline.loader_states import CannotRestore, LoaderState, NotPlain
from detaug.pipeline.sources import Source
from detaug.pipeline.streams import StreamCursor, StreamEnded
from detaug.pipeline.undeclared import Remark, Undeclared
from detaug.seeding.batch_memory import ordinary_memory
from detaug.seeding.current import Current, SeedBranch, making
from detaug.seeding.generators import global_generators, reseed_global_rngs
from detaug.seeding.reseeders import install, registered
from detaug.seeding.tree import of_part
from detaug.system.interrupts import is_interrupt
from detaug.system.process_settings import ProcessSettings
from detaug.system.unseeded_draws import Guard

__all__ = ["Log", "Pipeline", "Producer", "StreamEnded", "log_nothing"]

logger = logging.getLogger("detaug")

#: The seed path's part for a callable that makes the loader.
_MAKING = name_of("data_loader()")
#: Number of batches of a process. Then its transforms are searched for large objects that they
#: have loaded on first use.
_LOADED_BY = 20
#: Turns. A stream with transforms inside its loader is stepped this far to make a batch again.
_MOST_TURNS = 16


class Log(Protocol):
    """A function that logs a message for the user, at a level of `logging`."""

    def __call__(self, text: str, level: int = logging.WARNING, /) -> None: ...


def log_nothing(text: str, level: int = logging.WARNING, /) -> None:
    """Do nothing: whatever a replayed batch logs was logged when it was made first."""


class Pipeline:
    """A source and the transform of its batches (or None), taken as they were handed in.

    Args:
        source: where raw batches come from.
        transform: the user's, or None.
        must_pickle: the pipeline is sent to other interpreters.
        keep: names of attributes that pass from one copy of a transform to the next.
        logged: the messages that were logged before, which are not logged again. It is added to.
        is_trial: the pipeline only shows that it can be copied, until `complete` is called.

    Raises:
        TypeError: an object cannot be copied, or sent to other interpreters; the message names it.
    """

    def __init__(
        self,
        source: Source,
        transform: Any,
        must_pickle: bool,
        keep: Collection[str] = (),
        logged: set[str] | None = None,
        is_trial: bool = False,
    ) -> None:
        if logged is None:
            logged = set()
        self._logged = logged
        self.pristine = PipelineSnapshot(source, transform, keep, is_trial=is_trial)
        #: Values that batches may depend on and that no parameter declares.
        self.undeclared = Undeclared(self.pristine)
        if must_pickle:
            self.freeze()
        else:
            self.pristine.check_carried()

    def complete(self) -> None:
        """Finish a trial, so that batches can be made from the pipeline."""
        self.pristine.complete()

    def warn_once(self, text: str, level: int = logging.WARNING) -> None:
        """Log a message, unless it was logged before."""
        if text not in self._logged:
            self._logged.add(text)
            logger.log(level, "%s", text)

    def log_remarks(self, remarks: Iterable[Remark]) -> None:
        """Log each of these messages, unless it was logged before."""
        for text, level in remarks:
            self.warn_once(text, level)

    @staticmethod
    def thaw(frozen: Frozen) -> PipelineSnapshot:
        """Return, in another interpreter, the pipeline that `freeze` took."""
        source, transform, keep, reseeders = frozen.thaw()
        install(reseeders)
        return PipelineSnapshot(source, transform, keep)

    def freeze(self) -> Frozen:
        """Return the pipeline as it is sent to other interpreters.

        Raises:
            TypeError: an object in it cannot be sent; the message names it.
        """
        # From the snapshot: the user's own objects may have changed since.
        copy = self.pristine.new_loader()
        transform = TransformCopies(self.pristine).for_batch(copy).value["transform"]
        try:
            return freeze((copy.source, transform, self.pristine.keep, registered()))
        except Exception as error:
            parts = SimpleNamespace(
                data_loader=copy.source.loader, transform=transform, register_reseeder=registered()
            )
            reason = why_not_picklable(parts, "").removeprefix(".")
            raise TypeError(
                f"{reason}. This start method sends the loader and the transform to other "
                "interpreters: keep such an object out of them (open it on first use), pass a "
                "callable that makes the loader, or use "
                "executor=LocalProcesses(start_method='fork')."
            ) from error


class Producer:
    """The maker of one process's batches.

    It makes any batch from a stateless source, and otherwise those of its streams, in their order.

    Args:
        pristine: the pipeline.
        branch: the branch of the seed tree that batches are seeded from.
        log: logs a message for the user.
        guard: report generators created without a seed.
        owns_pipeline: nothing else in this process copies the pipeline or uses the objects that the
            user passed.
        takes_states: after each batch, ask the loader's copy for its state, if it has any.
        checks_carried_state: make an early batch again from the state that the one before it has
            left in the transforms, and log which of that state would have changed it.
        ignore: keys of batches that may differ then.
    """

    def __init__(
        self,
        pristine: PipelineSnapshot,
        branch: SeedBranch,
        log: Log,
        guard: bool = False,
        owns_pipeline: bool = False,
        takes_states: bool = False,
        checks_carried_state: bool = False,
        ignore: Collection[str] = (),
    ) -> None:
        def seed_factory() -> None:
            reseed_global_rngs(of_part(branch.tree.sequence(0), _MAKING))

        pristine = pristine.in_this_process(seed_factory)
        self._guarded: Callable[[], AbstractContextManager[Any]] = nullcontext
        if guard:
            self._guarded = Guard(log).watching
        self._branch = branch
        self._log = log
        self._pristine = pristine
        self._owns_pipeline = owns_pipeline
        self._stateless = pristine.source.stateless
        self._transforms = TransformCopies(pristine)
        self._num_batches = 0
        self._carried_state = CarriedState(self._transforms, pristine.keep, ignore, log)
        self._checks_carried_state = checks_carried_state and not self._transforms.pure
        self._loader: LoaderCopy | None = None
        self._last_epoch_set: int | None = None
        self._streams: dict[int, StreamCursor] = {}
        #: The copy that made the latest batch; `make_reported` looks for new generators in it.
        self._last_transforms: SnapshotCopy | None = None
        self._takes_states = takes_states and pristine.source.keeps_states
        self.draws = DrawRecord()
        #: This process's index and the number of processes, as `worker_init_fn` gets them.
        self.worker = (0, 1)
        #: Where the loader's copy stood after the latest batch; None if the loader did not say.
        self.loader_state: LoaderState | None = None
        if pristine.num_benchmarks_disabled:
            log(
                f"switched benchmark=True off in {pristine.num_benchmarks_disabled} "
                "GaussianBlurTransform: it chooses an algorithm by the clock"
            )

    def make(
        self,
        epoch: int,
        step: int,
        on_raw_batch: Callable[[Any], None] | None = None,
        state: LoaderState | None = None,
    ) -> Any:
        """Return the batch.

        Args:
            epoch: the batch's epoch.
            step: its step in the epoch, over all ranks.
            on_raw_batch: called with the raw batch.
            state: a state of its stream's loader. It is used if no running copy is nearer.

        Raises:
            StreamEnded: there is no such batch.
        """
        with self._guarded():
            start = time.perf_counter()
            self.loader_state = None
            batch = Current(self._branch, epoch, step)
            stream: StreamCursor | None = None
            if self._stateless:
                loader = self._process_loader(epoch)
            else:
                stream = self._stream(batch, state)
                loader = stream.loader
            with loader.settings.held():
                # Copied before the raw batch is made, since the loader may call transforms itself.
                transforms = self._fresh_transforms(epoch, loader)
                if stream is None:
                    raw = self._from_stateless(batch, loader, transforms)
                else:
                    raw = self._from_stream(batch, stream, transforms)
                    if self._takes_states:
                        self._take_state(stream)
                if on_raw_batch is not None:
                    on_raw_batch(raw)
                item = self._transformed(batch, raw, transforms)
                self.draws.end_batch(_generators(self._pristine.shared, loader, transforms))
                # Not reached if the transform raises: no later batch gets what it left half done.
                self._transforms.carry_on_from(transforms)
                self._last_transforms = transforms
                self._num_batches += 1
                if self._num_batches == _LOADED_BY:
                    self._log_loaded_objects(transforms)
                if self._checks_carried_state:
                    seconds = time.perf_counter() - start
                    self._check_carried_state(batch, raw, loader, transforms, seconds)
                return item

    def _transformed(self, batch: Current, raw: Any, transforms: SnapshotCopy) -> Any:
        """Return the raw batch as this copy of the transforms changes it."""
        if self._pristine.transform is None:
            return raw
        item = raw
        # Transforms may write into the arrays, which the loader may hold and give again.
        if not self._transforms.pure:
            item = copy_arrays(raw)
        with making(batch):
            return _call(transforms.value["transform"], item)

    def _check_carried_state(
        self, batch: Current, raw: Any, loader: LoaderCopy, used: SnapshotCopy, seconds: float
    ) -> None:
        """Pass a batch that was just made to `CarriedState`, in one of the processes."""
        if self.worker[0] != 0:
            return

        def remake(copy: SnapshotCopy) -> dict[str, str]:
            # A `Current` of its own: the first making has counted its calls in `batch`.
            second = Current(self._branch, batch.epoch, batch.step)
            return batch_fingerprints(self._remade(second, raw, loader, copy))

        # None of these batches is sent to the parent: they need no slot.
        with ordinary_memory():
            self._carried_state.add(loader, used, remake, seconds)
        if self._carried_state.is_done or not self._can_remake(batch):
            self._checks_carried_state = False

    def _can_remake(self, batch: Current) -> bool:
        """Return whether the next batches can be made again without a long fast-forward."""
        if self._stateless or not self._holds_transforms:
            return True
        if self._pristine.source.continues_epochs and batch.epoch > 0:
            # The earlier epochs would have to be walked through as well.
            return False
        return batch.turn < _MOST_TURNS

    @property
    def _holds_transforms(self) -> bool:
        return len(self._pristine.transforms) > 1

    def _remade(
        self, batch: Current, raw: Any, loader: LoaderCopy, transforms: SnapshotCopy
    ) -> Any:
        """Return a batch made again with other transforms.

        It is made from the raw batch, unless the loader has transforms of its own.
        """
        if not self._holds_transforms:
            child = batch.sequence()
            reseed_global_rngs(child)
            self._pristine.shared.reseed(child, transforms)
        elif self._stateless:
            _set_in_loader(transforms, loader)
            raw = self._from_stateless(batch, loader, transforms)
        else:
            stream = StreamCursor(self._pristine, batch, self._branch, log_nothing)
            _set_in_loader(transforms, stream.loader)
            raw = self._from_stream(batch, stream, transforms)
        return self._transformed(batch, raw, transforms)

    def _log_loaded_objects(self, used: SnapshotCopy) -> None:
        if self._transforms.pure:
            return
        pristine = self._pristine
        remark = loaded_on_first_use(pristine.transforms, used.value, pristine.keep)
        if remark:
            self._log(remark)

    def make_reported(
        self, epoch: int, step: int, state: LoaderState | None = None
    ) -> tuple[Any, BatchReport]:
        """Return the batch, and fingerprints that another making of it is compared with.

        Arguments and errors are those of `make`.
        """
        # Only the fingerprints, not the raw batch: it would be kept alive until the batch is sent.
        raw_fingerprints: dict[str, str] = {}
        raw_random: tuple[str, ...] = ()

        def on_raw_batch(raw: Any) -> None:
            nonlocal raw_fingerprints, raw_random
            raw_fingerprints = batch_fingerprints(raw)
            raw_random = random_keys(raw)

        batch = self.make(epoch, step, on_raw_batch, state)
        # Pure transforms create no generators, so the search, which takes time, is skipped.
        generators: dict[str, str] = {}
        if self._last_transforms is not None and not self._transforms.pure:
            generators = new_generators(self._last_transforms.value, self._last_transforms.parts)
        fingerprints = raw_fingerprints
        random = raw_random
        if self._pristine.transform is not None:
            fingerprints = batch_fingerprints(batch)
            random = random_keys(batch)
        report = BatchReport(raw_fingerprints, fingerprints, random, raw_random, generators)
        return batch, report

    def explain(self, epoch: int, step: int) -> TraceResponse:
        """Return how that batch comes to be in this process as it is now."""
        # Further makings of the batch would be treated as stages of this one.
        self._checks_carried_state = False
        objects: dict[str, Any] = {}
        if self._stateless:
            objects["data_loader"] = self._process_loader(epoch).source.loader
        return explain(partial(self.make, epoch, step), objects, self._pristine.references())

    def start_over(self) -> None:
        """Forget a stateless loader's caches: the next batch is made by a pristine copy."""
        self._loader = None

    def _fresh_transforms(self, epoch: int, loader: LoaderCopy) -> SnapshotCopy:
        """Return the transforms for one batch, and put the loader's own into the loader."""
        if self._transforms.is_due(epoch):
            self._seed_epoch(epoch)
            self._transforms.set_epoch_on_parts(epoch, loader)
        transforms = self._transforms.for_batch(loader)
        _set_in_loader(transforms, loader)
        return transforms

    def _process_loader(self, epoch: int) -> LoaderCopy:
        """Return this process's copy of the loader, with its own caches.

        A loader with ``set_epoch`` starts each epoch pristine.
        """
        loader = self._loader
        if loader is not None:
            is_epoch_aware = bool(loader.snapshot.epoch_aware_parts)
            if not is_epoch_aware or epoch == self._last_epoch_set:
                return loader
        is_sole_copy = self._owns_pipeline and loader is None
        # Until the new one is ready there is none. If `worker_init_fn` or `set_epoch` raises, the
        # next batch begins with another pristine copy, and never with one half prepared.
        self._loader = None
        loader = self._pristine.new_loader(is_sole_copy)
        source: Any = loader.source
        if hasattr(source, "before_sample"):
            source.before_sample = self._reseeder_of(loader)
            # Whatever its worker_init_fn draws, it draws in every process.
            self._seed_epoch(0)
            begin_process = partial(source.begin_process, *self.worker)
            loader.settings = ProcessSettings.changed_by(begin_process)
        if loader.snapshot.epoch_aware_parts:
            self._seed_epoch(epoch, loader)
            loader.set_epoch_on_parts(epoch)
        self._last_epoch_set = epoch
        self._loader = loader
        return loader

    def _reseeder_of(self, loader: LoaderCopy) -> Callable[[Current], None]:
        """Return the function that seeds all generators for a sample, before it is fetched."""
        shared = self._pristine.shared
        draws = self.draws
        # The loader holds the function, and must not be kept alive by it: once nobody uses a copy
        # of a data set, the files and stores that it has opened are closed at once, and another
        # copy may open them.
        reference = weakref.ref(loader)

        def reseed(sample: Current) -> None:
            loader = reference()
            draws.end_part(_generators(shared, loader))
            shared.reseed(sample.sequence(), loader)

        return reseed

    def _from_stateless(self, batch: Current, loader: LoaderCopy, transforms: SnapshotCopy) -> Any:
        loader.source.prepare(batch)
        child = batch.sequence()
        reseed_global_rngs(child)
        self._pristine.shared.reseed(child, loader, transforms)
        with making(batch):
            try:
                return loader.source.make(batch)
            except StopIteration:
                raise StreamEnded from None

    def _stream(self, batch: Current, state: LoaderState | None) -> StreamCursor:
        """Return a copy of the loader that can be stepped forward to this batch.

        The running copy is preferred, unless the state is nearer; a new one is the last resort.
        """
        copy = self._running_copy(batch)
        # If the loader refuses the state, the running copy steps the rest of the way.
        if state is not None and _is_ahead(state, copy):
            copy = self._restored_copy(batch, state) or copy
        if copy is None and batch.epoch > 0 and self._pristine.source.is_undecided:
            self._make_first_batch(batch.stream)
            copy = self._running_copy(batch)
        if copy is None:
            copy = StreamCursor(self._pristine, batch, self._branch, self._log)
        self._streams[batch.stream] = copy
        return copy

    def _make_first_batch(self, stream: int) -> None:
        """Make a stream's first batch, which shows what the loader's epochs are."""
        first = Current(self._branch, 0, stream)
        copy = StreamCursor(self._pristine, first, self._branch, log_nothing)
        # The stream may have no batch, or fail to make it: then it has shown nothing.
        with suppress(Exception):
            copy.take(first)
        self._pristine.source.learn_from(copy.source)
        self._streams[stream] = copy

    def _running_copy(self, batch: Current) -> StreamCursor | None:
        copy = self._streams.get(batch.stream)
        if copy is not None and copy.leads_to(batch.epoch, batch.turn):
            return copy
        return None

    def _restored_copy(self, batch: Current, state: LoaderState) -> StreamCursor | None:
        """Return a copy that continues from `state`; None if the loader refuses it."""
        try:
            return StreamCursor(self._pristine, batch, self._branch, self._log, state)
        except CannotRestore as error:
            self._log(f"{error}; its streams are stepped forward instead")
            return None

    def _take_state(self, copy: StreamCursor) -> None:
        try:
            self.loader_state = copy.take_state()
            return
        except NotPlain as error:
            reason = str(error)
        except Exception as error:
            reason = f"state_dict() raised {type(error).__name__}: {error}"
        self._takes_states = False
        self._log(
            f"the state of {type(copy.source.loader).__name__} is not used to resume, its streams "
            f"are stepped forward: {reason}",
            logging.INFO,
        )

    def _from_stream(self, batch: Current, copy: StreamCursor, transforms: SnapshotCopy) -> Any:
        try:
            copy.step_forward_to(batch.epoch, batch.turn)
            self._pristine.shared.reseed(batch.sequence(), transforms)
            item = copy.take(batch)
            self._pristine.source.learn_from(copy.source)
            return item
        except BaseException as error:
            # An interrupt stopped the loader in the middle of its code: its state is unknown.
            if is_interrupt(error) and self._streams.get(batch.stream) is copy:
                del self._streams[batch.stream]
            raise

    def _seed_epoch(self, epoch: int, loader: LoaderCopy | None = None) -> None:
        """Seed all generators for ``set_epoch``, equally in all processes."""
        child = self._branch.tree.sequence(epoch)
        reseed_global_rngs(child)
        self._pristine.shared.reseed(child, loader)


def _generators(shared: GlobalGenerators, *copies: SnapshotCopy | None) -> Iterator[Any]:
    """Yield all generators that are seeded for a batch or sample, those of the copies as well."""
    yield from global_generators()
    yield from shared.generators()
    for copy in copies:
        if copy is not None:
            yield from copy.generators()


def _is_ahead(state: LoaderState, copy: StreamCursor | None) -> bool:
    """Return whether a saved state is further than a running copy, or there is no copy."""
    if copy is None:
        return True
    return (copy.epoch, copy.turn) < (state.epoch, state.turn)


def _set_in_loader(transforms: SnapshotCopy, loader: LoaderCopy) -> None:
    """Put the transforms that are the loader's own into its attributes."""
    for path, value in transforms.value.items():
        if path != "transform":
            setattr(loader.source.loader, path.partition(".")[2], value)


def _call(transform: Any, item: Any) -> Any:
    try:
        # Called from this frame: `_does_not_fit` looks at the traceback's depth.
        if isinstance(item, Mapping):
            result = transform(**item)
        else:
            result = transform(item)
    except StopIteration as error:
        # The callers would treat it as the loader's end.
        raise RuntimeError("the transform raised StopIteration") from error
    except TypeError as error:
        if isinstance(item, Mapping) and _does_not_fit(error, item):
            raise TypeError(
                f"{error}. A batch that is a dict is passed as keyword arguments, "
                "transform(**batch), as batchgenerators does; "
                'for a transform that takes the dict itself pass call="dict"'
            ) from error
        raise
    if result is None and item is not None:
        raise TypeError(
            f"the transform {transform_name(transform)} returned None instead of a batch: is its "
            "return statement missing? A transform must return the batch, even if it has changed "
            "it in place"
        )
    return result


def _does_not_fit(error: TypeError, batch: Mapping[Any, Any]) -> bool:
    """Return whether a transform was called with arguments that it does not take."""
    traceback = error.__traceback__
    if traceback is not None and traceback.tb_next is None:
        # It was raised by the call itself, before the transform's first line.
        return True
    message = str(error)
    return any(f"unexpected keyword argument {key!r}" in message for key in batch)
