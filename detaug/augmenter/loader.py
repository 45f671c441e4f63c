"""`AugmenterLoader`: an augmenter as the torch DataLoader that training loops ask for.

    augmenter      one global stream of batches, each a pure function of (epoch, step)
        │
    KeyedReader    a batch by its (epoch, step), from the stream where it is due there
        │
    AugmenterLoader                      reads the augmenter itself: Lightning, Ignite, MONAI, a
    plain loop another DataLoader of its parts      shards, skips and resumes by keys: Accelerate,
    Trainer, torchdata

`detaug.DataLoader` (`detaug.augmenter.data_loader`) is made of the same parts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch.utils.data import DataLoader

from detaug.augmenter.batch_keys import Batches, Collate, MapView, SampleKey, Shared
from detaug.augmenter.passes import BatchStream, Epochs, Passes

logger = logging.getLogger("detaug")


class Augmenter(BatchStream, Protocol):
    """What a loader needs of an augmenter.

    Attributes:
        num_batches: of an epoch, over all ranks; None: that is not known.
        on_error: "raise", or what says how many batches may be left out.
    """

    rank: int
    world_size: int
    on_error: Any

    @property
    def num_batches(self) -> int | None: ...

    def __len__(self) -> int: ...


class KeyedReader:
    """Reads batches by their keys; those that are asked for in the stream's order come from its
    workers.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._last: tuple[int, int] | None = None
        self._has_read_all = False

    @property
    def is_used(self) -> bool:
        """Whether a batch was read."""
        return self._last is not None

    def reads_in_a_row(self, epoch: int, step: int) -> bool:
        """Return whether this batch comes directly after the last one, of whatever rank."""
        return self._last == (epoch, step - 1)

    def has_read_all_of(self, epoch: int) -> bool:
        """Return whether a rank's last batch of an epoch was read."""
        return self._last is not None and self._last[0] == epoch and self._has_read_all

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or comes next."""
        if self._last is None or self._has_read_all:
            return self._epochs.upcoming()
        return self._last[0]

    def read(self, stream: Augmenter, epoch: int, step: int) -> Any:
        """Return a batch, whoever's turn it is.

        Raises:
            RuntimeError: batches may be left out, so that numbers do not say which one is meant.
            IndexError: there is no such batch.
        """
        if stream.on_error != "raise":
            raise RuntimeError(
                "on_error=Skip leaves batches out, and another DataLoader, which asks for them by "
                "number, would get some "
                'twice: read this loader itself, or with on_error="raise"'
            )
        total = stream.num_batches
        assert total is not None, "there are no keys without it"
        if not 0 <= step < total:
            raise IndexError(f"an epoch has steps 0 ... {total - 1}, not {step}")
        if self._last is None and epoch == 0 and step >= stream.world_size:
            self._mention_skipped(step)
        is_back = self._last is not None and self._last[0] == epoch and step <= self._last[1]
        is_last = step + stream.world_size >= total
        self._has_read_all = is_back or is_last
        if not is_back:
            self._last = epoch, step
            self._epochs.has_begun(epoch)
        if stream.next_key == (epoch, step) or (not is_back and stream.seek(epoch, step)):
            return next(stream)
        return stream.replay(epoch, step)  # another rank's, or once more, to fill the last round

    def _mention_skipped(self, step: int) -> None:
        if self._epochs.is_guessed:
            logger.warning(
                "the first %d batches of epoch 0 were skipped, and nobody said that it is epoch 0: "
                "if the checkpoint was saved "
                "in a later epoch, these are the wrong batches. Call set_epoch(epoch) on the "
                "prepared loader at the start of "
                "every epoch, before skip_first_batches",
                step,
            )


class _AugmenterKeys:
    """An augmenter whose batches are the samples that keys speak of."""

    has_single_items = False
    refuses_samples = True

    def __init__(self, augmenter: Augmenter, epochs: Epochs) -> None:
        self.augmenter = augmenter
        self.epochs = epochs
        self.reader = KeyedReader(epochs)

    @property
    def rank_and_world_size(self) -> tuple[int, int]:
        return self.augmenter.rank, self.augmenter.world_size

    def num_batches(self) -> int:
        total = self.augmenter.num_batches
        assert total is not None, "there is no loader without it"
        return total

    def indices(self, epoch: int, step: int) -> list[Any]:
        return [step]

    def batch_of(self, keys: Sequence[SampleKey]) -> Any:
        (key,) = keys
        return self.reader.read(self.augmenter, key.epoch, key.step)

    def keyed_epoch(self) -> int:
        return self.reader.epoch


class _BatchNumbers:
    """The data set of an augmenter's loader: item n is batch n of epoch 0."""

    def __init__(self, keys: _AugmenterKeys) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return self._keys.num_batches()

    def __getitem__(self, key: int | tuple[int, int]) -> Any:
        epoch, step = (0, key) if isinstance(key, int) else key
        return self._keys.batch_of([SampleKey(step, epoch, step)])


class AugmenterLoader(DataLoader[Any]):
    """An augmenter as a torch DataLoader: every `iter()` is one epoch from its start, the next one.

    After `load_state_dict` it is the rest of the epoch in which the state was saved. A pass that is
    left early is not gone on with. `set_epoch` (or ``sampler.set_epoch``) names a later epoch; none
    is given twice, but for a fixed one. Several passes at once are each right, and slow, as the
    augmenter goes from one place to the other.

    `detaug.DeterministicAugmenter.loader` makes it.
    """

    def __init__(self, augmenter: Augmenter, epoch: int | None) -> None:
        self._augmenter = augmenter
        self._keys = _AugmenterKeys(augmenter, Epochs(epoch))
        self._passes = Passes(self._keys.epochs, self._stream)
        view = MapView(_BatchNumbers(self._keys), self._keys)
        sampler = Shared(self._keys, view, shuffle=False)
        super().__init__(view, batch_sampler=Batches(sampler), collate_fn=Collate(None, self._keys))
        # Libraries call its set_epoch, and put none of theirs in its place.
        self.__dict__["sampler"] = sampler

    def _stream(self) -> Augmenter:
        return self._augmenter

    def __len__(self) -> int:
        """Return this rank's batches in an epoch."""
        return len(self._augmenter)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self._passes.new()

    def set_epoch(self, epoch: int) -> None:
        """Name the next pass. Directly after `load_state_dict`, with the epoch of the state, it is
        the rest of it.
        """
        self._keys.epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop stands: after the batch that it was given last. Plain integers and
        strings.

        Raises:
            RuntimeError: another loader, made of this one's data set and sampler, reads ahead of
                the loop.
        """
        refuse_state_of_read(self._keys.reader)
        return self._passes.state_dict(self._augmenter)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, with any number of worker processes and ranks.

        Raises:
            TypeError, ValueError: it is no state of a loader, or one of another pipeline; see
                `detaug.DeterministicAugmenter.load_state_dict`.
        """
        self._passes.load_state_dict(state, self._load)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "aug.loader() can be neither pickled nor copied: make the augmenter and its loader in "
            "the process that reads it. "
            "With Lightning's ddp_spawn that is in train_dataloader()"
        )

    def _load(self, state: dict[str, Any]) -> Augmenter:
        self._augmenter.load_state_dict(state)
        return self._augmenter


def refuse_state_of_read(reader: KeyedReader) -> None:
    """RuntimeError: another DataLoader reads the batches, and only that one's state says where the
    loop is.
    """
    if reader.is_used:
        raise RuntimeError(
            "another DataLoader reads these batches (Accelerate's prepare makes one), and may be "
            "ahead of the loop: save "
            "where that one stands. For Accelerate: "
            "DataLoaderConfiguration(use_stateful_dataloader=True), or "
            "skip_first_batches after load_state"
        )
