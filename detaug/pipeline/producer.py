"""A batch as a pure function of (pipeline, seed, epoch, step): reseed, take from the source,
transform.
"""

from __future__ import annotations

import logging
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext, suppress
from functools import partial
from types import SimpleNamespace
from typing import Any, Protocol

from detaug.objects.frozen import Frozen, freeze, why_not_picklable
from detaug.pipeline.batch_report import BatchReport, TraceResponse, explain, prints_of, random_keys
from detaug.pipeline.calling import transform_name
from detaug.pipeline.carried_state import CarriedState
from detaug.pipeline.copying.array_copies import own
from detaug.pipeline.copying.generators import SnapshotCopy, made_late, name_of
from detaug.pipeline.copying.pipeline_snapshot import LoaderCopy, PipelineSnapshot, TransformCopies
from detaug.pipeline.first_use import loaded_on_first_use
from detaug.pipeline.loader_states import CannotRestore, LoaderState, NotPlain
from detaug.pipeline.sources import Source
from detaug.pipeline.streams import StreamCursor, StreamEnded
from detaug.pipeline.undeclared import Remark, Undeclared
from detaug.seeding.batch_memory import ordinary_memory
from detaug.seeding.current import Current, SeedBranch, making
from detaug.seeding.generators import reseed_global_rngs
from detaug.seeding.reseeders import install, registered
from detaug.seeding.tree import of_part
from detaug.system.interrupts import is_interrupt
from detaug.system.process_settings import ProcessSettings
from detaug.system.unseeded_draws import Guard

__all__ = ["Log", "Pipeline", "Producer", "StreamEnded", "log_nothing"]

logger = logging.getLogger("detaug")

#: From this part's generators a callable that makes the loader draws.
_MAKING = name_of("data_loader()")
#: After this batch of a process it is looked whether transforms have loaded something large.
_LOOK_AT_LOADED = 20
#: A stream with transforms inside its loader is stepped this far (turns) to make a batch again.
_MOST_TURNS = 16


class Log(Protocol):
    """Tells the user something, at a level of `logging`."""

    def __call__(self, text: str, level: int = logging.WARNING, /) -> None: ...


def log_nothing(text: str, level: int = logging.WARNING, /) -> None:
    """Do nothing: what is made again was told of when it was made first."""


class Pipeline:
    """A source and the transform of its batches (or None), taken as they were handed in.

    TypeError: what has to be copied, or sent to other interpreters (`must_pickle`), cannot be; the
    message names it.

    Args:
        said: what the user was told before, which is not said again. It is added to.
    """

    def __init__(
        self,
        source: Source,
        transform: Any,
        must_pickle: bool,
        keep: Collection[str] = (),
        said: set[str] | None = None,
    ) -> None:
        self._said = set() if said is None else said
        self.pristine = PipelineSnapshot(source, transform, keep)
        #: What batches may depend on beside the declared parameters.
        self.undeclared = Undeclared(self.pristine)
        if must_pickle:
            self.freeze()
        else:
            self.pristine.check_kept()

    def warn_once(self, text: str, level: int = logging.WARNING) -> None:
        """Tell the user, if that has not been said."""
        if text not in self._said:
            self._said.add(text)
            logger.log(level, "%s", text)

    def log_remarks(self, remarks: Iterable[Remark]) -> None:
        """Tell the user each of these, if that has not been said."""
        for text, level in remarks:
            self.warn_once(text, level)

    @staticmethod
    def thaw(frozen: Frozen) -> PipelineSnapshot:
        """In another interpreter: the pipeline that `freeze` took."""
        source, transform, keep, reseeders = frozen.thaw()
        install(reseeders)
        return PipelineSnapshot(source, transform, keep)

    def freeze(self) -> Frozen:
        """What other interpreters make it from. TypeError: something in it cannot be sent; the
        message names it.
        """
        copy = self.pristine.new_loader()
        transform = TransformCopies(self.pristine).fresh(copy).value["transform"]
        try:
            return freeze((copy.source, transform, self.pristine.keep, registered()))
        except Exception as error:
            parts = SimpleNamespace(
                data_loader=copy.source.loader, transform=transform, register_reseeder=registered()
            )
            reason = why_not_picklable(parts, "").removeprefix(".")
            raise TypeError(
                f"{reason}. This start method sends the loader and the transform to other "
                "interpreters: keep such an object "
                "out of them (open it on first use), pass a callable that makes the loader, or use "
                "executor=LocalProcesses(start_method='fork')."
            ) from error


class Producer:
    """Makes batches in one process: any of them from a stateless source, stream by stream
    otherwise.

    Args:
        log: called with what the user should know.
        guard: report generators created without a seed.
        only: nothing else in this process copies the pipeline or uses the objects that the user
            passed.
        takes_states: after each batch, ask the loader's copy for its state, if it has any.
        looks_at_state: make an early batch again from what the one before it has left behind in the
            transforms, and tell the user of state that would have changed it.
        ignore: keys of batches that may differ then.
    """

    def __init__(
        self,
        pristine: PipelineSnapshot,
        branch: SeedBranch,
        log: Log,
        guard: bool = False,
        only: bool = False,
        takes_states: bool = False,
        looks_at_state: bool = False,
        ignore: Collection[str] = (),
    ) -> None:
        pristine = pristine.in_this_process(
            lambda: reseed_global_rngs(of_part(branch.tree.sequence(0), _MAKING))
        )
        self._watching = Guard(log).watching if guard else nullcontext
        self._branch = branch
        self._log = log
        self._pristine = pristine
        self._only = only
        self._stateless = pristine.source.stateless
        self._transforms = TransformCopies(pristine)
        self._batches_made = 0
        self._carried_state = CarriedState(self._transforms, pristine.keep, ignore, log)
        self._looks_at_state = looks_at_state and not self._transforms.pure
        self._loader: LoaderCopy | None = None
        self._told_epoch: int | None = None
        self._streams: dict[int, StreamCursor] = {}
        self._used: SnapshotCopy | None = None
        self._takes_states = takes_states and pristine.source.keeps_states
        #: Which of how many processes this one is, as `worker_init_fn` is told.
        self.worker = 0, 1
        #: Where the loader's copy stood after the batch that was made last; None: it did not say.
        self.loader_state: LoaderState | None = None
        if pristine.settled:
            log(
                f"switched benchmark=True off in {pristine.settled} GaussianBlurTransform: it "
                "chooses an algorithm by the "
                "clock"
            )

    def make(
        self,
        epoch: int,
        step: int,
        watch: Callable[[Any], None] | None = None,
        state: LoaderState | None = None,
    ) -> Any:
        """Return the batch.

        Args:
            epoch: Epoch and step say which batch.
            step: See `epoch`.
            watch: Called with the loader's part of it.
            state: Where its stream may be continued from. It is used if no running copy is nearer.

        Raises:
            StreamEnded: There is no such batch.
        """
        with self._watching():
            began = time.perf_counter()
            self.loader_state = None
            batch = Current(self._branch, epoch, step)
            stream = None if self._stateless else self._stream(batch, state)
            loader = self._process_loader(epoch) if stream is None else stream.loader
            with loader.settings.held():
                transforms = self._fresh_transforms(epoch, loader)
                if stream is None:
                    raw = self._from_stateless(batch, loader, transforms)
                else:
                    raw = self._from_stream(batch, stream, transforms)
                    if self._takes_states:
                        self._take_state(stream)
                if watch is not None:
                    watch(raw)
                item = self._transformed(batch, raw, transforms)
                self._transforms.is_done_with(transforms)
                self._used = transforms
                self._batches_made += 1
                if self._batches_made == _LOOK_AT_LOADED:
                    self._mention_loaded(transforms)
                if self._looks_at_state:
                    seconds = time.perf_counter() - began
                    self._look_at_state(batch, raw, loader, transforms, seconds)
                return item

    def _transformed(self, batch: Current, raw: Any, transforms: SnapshotCopy) -> Any:
        """Return the loader's part of a batch as this copy of the transforms changes it."""
        if self._pristine.transform is None:
            return raw
        item = raw if self._transforms.pure else own(raw)
        with making(batch):
            return _call(transforms.value["transform"], item)

    def _look_at_state(
        self, batch: Current, raw: Any, loader: LoaderCopy, used: SnapshotCopy, seconds: float
    ) -> None:
        """Have `CarriedState` look at a batch that was just made, in one of the processes."""
        if self.worker[0] != 0:
            return

        def remake(copy: SnapshotCopy) -> dict[str, str]:
            again = Current(self._branch, batch.epoch, batch.step)
            return prints_of(self._made_again(again, raw, loader, copy))

        with ordinary_memory():  # none of these batches travels
            self._carried_state.add(loader, used, remake, seconds)
        if self._carried_state.is_done or not self._can_make_again(batch):
            self._looks_at_state = False

    def _can_make_again(self, batch: Current) -> bool:
        """Return whether the next batches can be made again without stepping a loader far."""
        if self._stateless or not self._holds_transforms:
            return True
        goes_on = self._pristine.source.goes_on and batch.epoch > 0
        return not goes_on and batch.turn < _MOST_TURNS

    @property
    def _holds_transforms(self) -> bool:
        return len(self._pristine.transforms) > 1

    def _made_again(
        self, batch: Current, raw: Any, loader: LoaderCopy, transforms: SnapshotCopy
    ) -> Any:
        """Return a batch, made from its raw part where the loader has no transforms of its own."""
        if not self._holds_transforms:
            child = batch.sequence()
            reseed_global_rngs(child)
            self._pristine.shared.reseed(child, transforms)
        elif self._stateless:
            _give_to_loader(transforms, loader)
            raw = self._from_stateless(batch, loader, transforms)
        else:
            stream = StreamCursor(self._pristine, batch, self._branch, log_nothing)
            _give_to_loader(transforms, stream.loader)
            raw = self._from_stream(batch, stream, transforms)
        return self._transformed(batch, raw, transforms)

    def _mention_loaded(self, used: SnapshotCopy) -> None:
        if self._transforms.pure:
            return
        pristine = self._pristine
        if remark := loaded_on_first_use(pristine.transforms, used.value, pristine.keep):
            self._log(remark)

    def make_reported(
        self, epoch: int, step: int, state: LoaderState | None = None
    ) -> tuple[Any, BatchReport]:
        """Return the batch, and fingerprints that another making of it is compared with.

        Arguments and errors are those of `make`.
        """
        raw: list[Any] = []

        def watch(item: Any) -> None:
            raw.extend((prints_of(item), random_keys(item)))

        batch = self.make(epoch, step, watch, state)
        late = (
            {}
            if self._used is None or self._transforms.pure
            else made_late(self._used.value, self._used.parts)
        )
        final: list[Any] = (
            raw if self._pristine.transform is None else [prints_of(batch), random_keys(batch)]
        )
        return batch, BatchReport(raw[0], final[0], final[1], raw[1], late)

    def explain(self, epoch: int, step: int) -> TraceResponse:
        """How that batch comes to be in this process as it is now."""
        self._looks_at_state = False  # other makings are not to be taken for its stages
        objects = (
            {"data_loader": self._process_loader(epoch).source.loader} if self._stateless else {}
        )
        return explain(lambda: self.make(epoch, step), objects, self._pristine.references())

    def start_over(self) -> None:
        """Forget what a stateless loader keeps: the next batch is made by a pristine copy."""
        self._loader = None

    def _fresh_transforms(self, epoch: int, loader: LoaderCopy) -> SnapshotCopy:
        """Those for one batch that this loader gives, which holds its own from now on."""
        if self._transforms.is_due(epoch):
            self._seed_epoch(epoch)
            self._transforms.set_epoch_on_parts(epoch, loader)
        transforms = self._transforms.fresh(loader)
        _give_to_loader(transforms, loader)
        return transforms

    def _process_loader(self, epoch: int) -> LoaderCopy:
        """This process's copy, with its own caches. A loader with ``set_epoch`` starts each epoch
        pristine.
        """
        loader = self._loader
        if loader is None or (loader.template.tellable and epoch != self._told_epoch):
            loader = self._loader = self._pristine.new_loader(self._only and self._loader is None)
            self._told_epoch = epoch
            source: Any = loader.source
            if hasattr(source, "before_sample"):
                source.before_sample = self._reseeder_of(loader)
                self._seed_epoch(0)  # whatever its worker_init_fn draws, it draws in every process
                loader.settings = ProcessSettings.changed_by(
                    partial(source.begin_process, *self.worker)
                )
            if loader.template.tellable:
                self._seed_epoch(epoch, loader)
                loader.set_epoch_on_parts(epoch)
        return loader

    def _reseeder_of(self, loader: LoaderCopy) -> Callable[[Current], None]:
        """Return what is called before each sample of a data set is fetched."""
        shared = self._pristine.shared
        # The loader has it, and must not be kept by it: once nobody uses a copy of a data set, the
        # files and stores that it has opened are closed at once, and another copy may open them.
        reference = weakref.ref(loader)

        def reseed(sample: Current) -> None:
            shared.reseed(sample.sequence(), reference())

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
        if state is not None and (
            copy is None or (copy.epoch, copy.turn) < (state.epoch, state.turn)
        ):
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
        with suppress(Exception):  # it has no batch, or cannot make it
            copy.take(first)
        self._pristine.source.learn(copy.source)
        self._streams[stream] = copy

    def _running_copy(self, batch: Current) -> StreamCursor | None:
        copy = self._streams.get(batch.stream)
        if copy is not None and copy.leads_to(batch.epoch, batch.turn):
            return copy
        return None

    def _restored_copy(self, batch: Current, state: LoaderState) -> StreamCursor | None:
        """Return a copy that continues from `state`; None: the loader refuses it."""
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
            self._pristine.source.learn(copy.source)
            return item
        except BaseException as error:
            # In the middle of the loader: its state is unknown.
            if is_interrupt(error) and self._streams.get(batch.stream) is copy:
                del self._streams[batch.stream]
            raise

    def _seed_epoch(self, epoch: int, loader: LoaderCopy | None = None) -> None:
        """What is drawn for a whole epoch, in ``set_epoch``, is the same in all processes."""
        child = self._branch.tree.sequence(epoch)
        reseed_global_rngs(child)
        self._pristine.shared.reseed(child, loader)


def _give_to_loader(transforms: SnapshotCopy, loader: LoaderCopy) -> None:
    """Put the transforms that are the loader's own into its attributes."""
    for path, value in transforms.value.items():
        if path != "transform":
            setattr(loader.source.loader, path.partition(".")[2], value)


def _call(transform: Any, item: Any) -> Any:
    try:
        made = transform(**item) if isinstance(item, Mapping) else transform(item)
    except StopIteration as error:
        # It would be taken for the loader's end further up.
        raise RuntimeError("the transform raised StopIteration") from error
    except Exception as error:
        if (
            isinstance(error, TypeError)
            and isinstance(item, Mapping)
            and _does_not_fit(error, item)
        ):
            raise TypeError(
                f"{error}. A batch that is a dict is passed as keyword arguments, "
                "transform(**batch), as batchgenerators does; "
                'for a transform that takes the dict itself pass call="dict", for one of '
                'positional arguments call="args"'
            ) from error
        raise
    if made is None and item is not None:
        raise TypeError(
            f"the transform {transform_name(transform)} returned None in the place of the batch. A "
            "transform returns what it "
            "made, also where it changed the batch in place: is its return statement missing?"
        )
    return made


def _does_not_fit(error: TypeError, batch: Mapping[Any, Any]) -> bool:
    """Whether a transform was called with arguments that it does not take."""
    was_not_begun = error.__traceback__ is not None and error.__traceback__.tb_next is None
    return was_not_begun or any(
        f"unexpected keyword argument {key!r}" in str(error) for key in batch
    )
