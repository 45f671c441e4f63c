"""`AugmenterLoader`: an augmenter as the torch DataLoader that training loops ask for.

    augmenter           one global stream of batches, each a pure function of (epoch, step)
        │
        ├── AugmenterLoader    reads the stream in order: Lightning, Ignite, MONAI, a plain loop
        │
    KeyedReader         reads a batch by (epoch, step), from the stream if it is due there
        │
    another DataLoader, made of this one's attributes: shards, skips and resumes by keys
                        (Accelerate, Trainer, torchdata)

`detaug.DataLoader` (`detaug.augmenter.data_loader`) has the same parts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from torch.utils.data import DataLoader

from detaug.augmenter.batch_keys import Batches, Collate, MapView, SampleKey, Shared
from detaug.augmenter.passes import BatchStream, Epochs, Passes
from detaug.augmenter.reading_ahead import is_read_ahead

logger = logging.getLogger("detaug")


class Augmenter(BatchStream, Protocol):
    """The part of an augmenter that a loader reads.

    Attributes:
        rank, world_size: this process takes steps rank, rank + world_size, ...
        num_batches: number of batches of an epoch, over all ranks; None: not known.
        on_error: "raise", or a `Skip`, so that batches may be left out.
    """

    rank: int
    world_size: int
    on_error: Any

    @property
    def num_batches(self) -> int | None: ...

    def __len__(self) -> int: ...


class KeyedReader:
    """A reader of batches by their keys.

    Workers make the batches that are requested in the stream's order; others are replayed.
    """

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._last: tuple[int, int] | None = None
        self._has_read_all = False

    @property
    def is_used(self) -> bool:
        """True if a batch was read."""
        return self._last is not None

    def reads_in_a_row(self, epoch: int, step: int) -> bool:
        """Return whether this step follows the last one that was read, of any rank."""
        return self._last == (epoch, step - 1)

    def has_read_all_of(self, epoch: int) -> bool:
        """Return whether a rank's last batch of an epoch was read."""
        return self._last is not None and self._last[0] == epoch and self._has_read_all

    @property
    def epoch(self) -> int:
        """The epoch that is being read, or that comes next."""
        if self._last is None or self._has_read_all:
            return self._epochs.upcoming()
        return self._last[0]

    def read(self, stream: Augmenter, epoch: int, step: int) -> Any:
        """Return a batch of any rank.

        Raises:
            RuntimeError: batches may be left out, so that a step does not identify a batch.
            IndexError: there is no such batch.
        """
        if stream.on_error != "raise":
            raise RuntimeError(
                "on_error=Skip leaves batches out, and another DataLoader, which asks for them by "
                "number, would get some twice: read this loader itself, or with "
                'on_error="raise"'
            )
        num_batches = stream.num_batches
        assert num_batches is not None, "there are no keys without it"
        if not 0 <= step < num_batches:
            raise IndexError(f"an epoch has steps 0 ... {num_batches - 1}, not {step}")
        if self._last is None and epoch == 0 and step >= stream.world_size:
            self._warn_if_epoch_is_guessed(step)
        # To fill a last round, libraries read the epoch's first batches again.
        is_repeat = self._last is not None and self._last[0] == epoch and step <= self._last[1]
        is_last = step + stream.world_size >= num_batches
        self._has_read_all = is_repeat or is_last
        if not is_repeat:
            self._last = epoch, step
            self._epochs.has_begun(epoch)
        # The usual case: the workers prefetch this batch.
        if stream.next_key == (epoch, step):
            return next(stream)
        # Not for a repeat: the stream would be moved back, and its workers' batches be lost.
        if not is_repeat and stream.seek(epoch, step):
            return next(stream)
        # Another rank's batch, or an earlier one again, to fill the last round.
        return stream.replay(epoch, step)

    def _warn_if_epoch_is_guessed(self, num_skipped: int) -> None:
        if self._epochs.is_guessed:
            logger.warning(
                "the first %d batches of epoch 0 were skipped without a call of set_epoch: if the "
                "checkpoint was saved in a later epoch, these are the wrong batches. Call "
                "set_epoch(epoch) on the prepared loader at the start of every epoch, before "
                "skip_first_batches",
                num_skipped,
            )


class _AugmenterKeys:
    """An augmenter as a `KeyedStream`: each batch is one sample."""

    has_single_items = False
    refuses_samples = True

    def __init__(self, augmenter: Augmenter, epochs: Epochs) -> None:
        self.augmenter = augmenter
        self.epochs = epochs
        self.reader = KeyedReader(epochs)

    @property
    def rank_and_world_size(self) -> tuple[int, int]:
        """The augmenter's rank and number of ranks."""
        return self.augmenter.rank, self.augmenter.world_size

    def num_batches(self) -> int:
        """Return the number of batches of an epoch, over all ranks."""
        num_batches = self.augmenter.num_batches
        assert num_batches is not None, "there is no loader without it"
        return num_batches

    def indices(self, epoch: int, step: int) -> list[Any]:
        """Return the index of a batch's one sample: its step."""
        return [step]

    def batch_of(self, keys: Sequence[SampleKey]) -> Any:
        """Return the batch of a key; there is only one."""
        (key,) = keys
        return self.reader.read(self.augmenter, key.epoch, key.step)

    def keyed_epoch(self) -> int:
        """Return the epoch that is being read by keys, or that comes next."""
        return self.reader.epoch


class _BatchNumbers:
    """The data set of an augmenter's loader: item n is batch n of epoch 0, item (e, n) of e."""

    def __init__(self, keys: _AugmenterKeys) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return self._keys.num_batches()

    def __getitem__(self, key: int | tuple[int, int]) -> Any:
        if isinstance(key, int):
            key = (0, key)
        epoch, step = key
        return self._keys.batch_of([SampleKey(step, epoch, step)])


class AugmenterLoader(DataLoader[Any]):
    """An augmenter as a torch DataLoader, returned by `detaug.DeterministicAugmenter.loader`.

    Each `iter()` is one epoch from its start: the first, then the second, and so on. After
    `load_state_dict` it is the rest of the epoch in which the state was saved. A pass that is left
    early does not continue. `set_epoch` (or ``sampler.set_epoch``) chooses a later epoch. No epoch
    is read twice, unless the epoch of all passes is fixed. Several passes may run at the same time.
    Each has the right batches, but they are slow, since the augmenter moves between them.
    """

    def __init__(self, augmenter: Augmenter, epoch: int | None) -> None:
        self._augmenter = augmenter
        self._keys = _AugmenterKeys(augmenter, Epochs(epoch))
        self._passes = Passes(self._keys.epochs, self._stream, self.__len__)
        view = MapView(_BatchNumbers(self._keys), self._keys)
        sampler = Shared(self._keys, view, shuffle=False)
        super().__init__(view, batch_sampler=Batches(sampler), collate_fn=Collate(None, self._keys))
        # Libraries call the set_epoch of a DistributedSampler, and do not replace it.
        self.__dict__["sampler"] = sampler

    def _stream(self) -> Augmenter:
        return self._augmenter

    def __len__(self) -> int:
        """Return this rank's number of batches in an epoch."""
        return len(self._augmenter)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return self._passes.new(is_read_ahead())

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; if it has been read already, the pass is the next one.

        Directly after `load_state_dict`, with the epoch in which the state was saved, the next pass
        is the rest of that epoch.
        """
        self._keys.epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the loop's position, after the last batch that it got, as integers and strings.

        Raises:
            RuntimeError: another loader, made of this one's data set and sampler, reads ahead of
                the loop.
        """
        refuse_state_of_read(self._keys.reader)
        return self._passes.state_dict(self._augmenter)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, with any number of worker processes and ranks.

        Raises:
            TypeError, ValueError: it is not the state of a loader, or belongs to another pipeline;
                see `detaug.DeterministicAugmenter.load_state_dict`.
        """
        self._passes.load_state_dict(state, self._load)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError(
            "aug.loader() can be neither pickled nor copied: make the augmenter and its loader in "
            "the process that reads it. With Lightning's ddp_spawn that is in train_dataloader()"
        )

    def _load(self, state: dict[str, Any]) -> Augmenter:
        self._augmenter.load_state_dict(state)
        return self._augmenter


def refuse_state_of_read(reader: KeyedReader) -> None:
    """Raise a RuntimeError if another DataLoader reads the batches by keys.

    Only that loader knows the position of the loop.
    """
    if reader.is_used:
        raise RuntimeError(
            "another DataLoader reads these batches (Accelerate's prepare makes one), and may be "
            "ahead of the loop: save the state of that one. For Accelerate: "
            "DataLoaderConfiguration(use_stateful_dataloader=True), or skip_first_batches after "
            "load_state"
        )
