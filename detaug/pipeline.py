"""A batch as a pure function of (pipeline, seed, epoch, step): reseed, take from the source, transform."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from detaug.context import Current, making
from detaug.frozen import Frozen, freeze, why_not_picklable
from detaug.global_rng import reseed_global_rngs
from detaug.guard import Guard
from detaug.history import History, settle_known_quirks
from detaug.sources import Source

logger = logging.getLogger("detaug")

#: Stepping a loader forward for longer than this (seconds) is said in the log.
_NOTICEABLE = 5.0


class StreamEnded(Exception):
    """The stream that was to give this batch has no more in this epoch. Not an error: the step is a gap."""


class Pipeline:
    """A source and the transform of its batches, frozen as they were handed in.

    Args:
        source: where raw batches come from.
        transform: called as ``transform(**batch)`` for a mapping, ``transform(batch)`` for anything else; may be None.
        must_copy: copies will be needed in other interpreters, so that what cannot be pickled is refused now.

    Raises:
        TypeError: something that has to be copied cannot be; the message names it.
    """

    def __init__(self, source: Source, transform: Any, must_copy: bool) -> None:
        self.source = source
        self.transform = transform
        self._frozen: Frozen | None
        bulk = getattr(source.loader, "_data", None)
        try:
            self._frozen = freeze((source, transform), protect=not source.stateless, bulk_in=(bulk,))
        except Exception as error:
            if must_copy or not source.stateless:
                reason = why_not_picklable({"data_loader": source.loader, "transform": transform}, "")
                need = (
                    "Each stream and each epoch needs a copy of the loader"
                    if not source.stateless
                    else "This start method sends the loader and the transform to other processes"
                )
                raise TypeError(
                    f"{reason}. {need}; keep such an object out of it (open it on first use), pass a callable that "
                    "makes the loader, or declare a loader that keeps nothing between batches stateless=True with "
                    "start_method='fork'."
                ) from error
            self._frozen = None

    @property
    def frozen(self) -> Frozen | None:
        """What copies are made from; None where the objects can only be inherited by a fork."""
        return self._frozen

    def copy(self) -> tuple[Source, Any]:
        """A pristine (source, transform)."""
        if self._frozen is None:
            return self.source, self.transform
        source, transform = self._frozen.thaw()
        return source, transform


class Producer:
    """Makes batches in one process: any of them from a stateless source, stream by stream otherwise.

    Args:
        copy: gives a pristine (source, transform).
        entropy: the four words of the seed branch.
        num_streams: logical workers.
        log: what is told to the user.
        guard: report generators created without a seed.
        repairs: "all", "generators" (those that the objects own are reseeded for every batch, and that is all), or
            "none": the objects as they are by themselves, which only those who test them want.
    """

    def __init__(
        self,
        copy: Callable[[], tuple[Source, Any]],
        entropy: tuple[int, ...],
        num_streams: int,
        log: Callable[[str], None] = logger.warning,
        guard: bool = False,
        repairs: str = "all",
    ) -> None:
        self._guard = Guard(log) if guard else None
        self._repairs = repairs
        self._copy = copy
        self._entropy = entropy
        self._num_streams = num_streams
        self._log = log
        source, self._transform = self._pristine()
        self._stateless = source.stateless
        self._source = source
        # A stateless loader's own small state is history as well; a stream's copy is meant to have a history.
        roots = [self._transform, source.loader] if source.stateless else [self._transform]
        self._tellable = _with_set_epoch(self._transform)
        self._roots = roots
        self._history = self._remember()
        self._told_epoch: int | None = None
        self._streams: dict[int, _StreamCopy] = {}

    def make(self, epoch: int, step: int, transform: bool = True) -> Any:
        """The batch; without its transform where only the loader's part of it is asked for.

        Raises:
            StreamEnded: there is no such batch.
            Exception: whatever the loader or the transform raises.
        """
        if self._guard is not None:
            with self._guard.watching():
                return self._make(epoch, step, transform)
        return self._make(epoch, step, transform)

    def _make(self, epoch: int, step: int, transform: bool) -> Any:
        turn, stream = divmod(step, self._num_streams)
        batch = Current(self._entropy, epoch, stream, turn, self._num_streams)
        self._tell_epoch(epoch)
        self._history.restore()
        item = self._from_stateless(batch) if self._stateless else self._from_stream(batch)
        if self._transform is not None and transform:
            with making(batch):
                item = _call(self._transform, item)
        return item

    def _pristine(self) -> tuple[Source, Any]:
        source, transform = self._copy()
        if self._repairs == "all":
            settle_known_quirks((source, transform), self._log)
        return source, transform

    def _remember(self) -> History:
        if self._repairs == "none":
            return History([])
        return History(self._roots, restore=self._repairs == "all")

    def _tell_epoch(self, epoch: int) -> None:
        if epoch == self._told_epoch:
            return
        self._history.restore()
        for target in self._tellable:
            target.set_epoch(epoch)
        if self._stateless and hasattr(self._source.loader, "set_epoch"):
            self._source.loader.set_epoch(epoch)
        # What set_epoch changed is what every batch of this epoch starts from.
        self._history = self._remember()
        self._told_epoch = epoch

    def _from_stateless(self, batch: Current) -> Any:
        self._seed(batch, self._history)
        with making(batch):
            try:
                return self._source.make(batch)
            except StopIteration:
                raise StreamEnded from None

    def _from_stream(self, batch: Current) -> Any:
        turn = batch.step // self._num_streams
        copy = self._streams.get(batch.stream)
        if copy is None or not copy.leads_to(batch.epoch, turn):
            source, _ = self._pristine()
            copy = self._streams[batch.stream] = _StreamCopy(source, batch, self._num_streams)
        try:
            copy.step_forward_to(batch.epoch, turn, self._seed, self._log)
            self._seed_transform(batch)
            return copy.take(batch, self._seed)
        except Exception:
            raise
        except BaseException:  # Ctrl-C in the middle of the loader: nobody knows what it had done by then
            del self._streams[batch.stream]
            raise

    def _seed(self, batch: Current, history: History | None) -> None:
        sequence = batch.sequence()
        reseed_global_rngs(sequence)
        if history is not None:
            history.reseed(sequence)

    def _seed_transform(self, batch: Current) -> None:
        self._history.reseed(batch.sequence())


class _StreamCopy:
    """One stream's own copy of a loader, and which batch it gives next."""

    def __init__(self, source: Source, batch: Current, num_streams: int) -> None:
        self._source = source
        self._stream = batch.stream
        self._num_streams = num_streams
        self._entropy = batch.entropy
        # Generators of a finite loader shuffle what its streams share: reseeding them would tear the streams apart.
        self._own = History([source.loader]) if source.endless else None
        self.epoch = 0 if source.pass_per_epoch else batch.epoch
        self.turn = 0
        self.ended = False
        epoch_child = np.random.SeedSequence(batch.entropy, spawn_key=(self.epoch,))
        source.begin(batch.stream, num_streams, self.epoch, epoch_child)
        if hasattr(source.loader, "set_epoch"):
            source.loader.set_epoch(self.epoch)

    def leads_to(self, epoch: int, turn: int) -> bool:
        """Whether stepping this copy forward arrives at that batch."""
        if epoch == self.epoch:
            return self.turn <= turn
        return self._source.pass_per_epoch and self.epoch < epoch

    def step_forward_to(
        self, epoch: int, turn: int, seed: Callable[[Current, History | None], None], log: Callable[[str], None]
    ) -> None:
        """Take and drop what comes before that batch, seeding each as if it were kept."""
        started, said = time.monotonic(), False
        while (self.epoch, self.turn) < (epoch, turn):
            if self.ended:
                if self.epoch == epoch:
                    raise StreamEnded
                self.epoch, self.turn, self.ended = self.epoch + 1, 0, False
                self._source.next_pass()
                continue
            try:
                self.take(Current(self._entropy, self.epoch, self._stream, self.turn, self._num_streams), seed)
            except StreamEnded:
                pass
            if not said and time.monotonic() - started > _NOTICEABLE:
                said = True
                log(
                    f"stream {self._stream} is being stepped forward to epoch {epoch}, turn {turn} "
                    f"(now at epoch {self.epoch}, turn {self.turn}); a stateless loader would not need it"
                )

    def take(self, batch: Current, seed: Callable[[Current, History | None], None]) -> Any:
        """The next raw batch, which is `batch`."""
        if self.ended:
            raise StreamEnded
        seed(batch, self._own)
        with making(batch):
            try:
                item = self._source.make(batch)
            except StopIteration:
                self.ended = True
                raise StreamEnded from None
        self.turn += 1
        return item


def _call(transform: Any, item: Any) -> Any:
    try:
        return transform(**item) if isinstance(item, Mapping) else transform(item)
    except StopIteration as error:
        # It would be taken for the loader's end further up.
        raise RuntimeError("the transform raised StopIteration") from error


def _with_set_epoch(transform: Any) -> list[Any]:
    """The transform, or those inside a composition, that want to know the epoch."""
    if transform is None:
        return []
    if callable(getattr(transform, "set_epoch", None)):
        return [transform]
    inner = getattr(transform, "transforms", None) or getattr(transform, "transform", None)
    if inner is None:
        return []
    parts = inner if isinstance(inner, (list, tuple)) else [inner]
    return [found for part in parts if part is not transform for found in _with_set_epoch(part)]
