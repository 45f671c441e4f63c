"""The augmenter of a `detaug.DataLoader`, made on first use, and read by passes or by keys."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch.utils.data import default_collate

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.augmenter.batch_keys import SampleKey
from detaug.augmenter.loader import KeyedReader, refuse_state_of_read
from detaug.augmenter.loader_settings import Settings
from detaug.augmenter.parts import Part, gathered
from detaug.augmenter.passes import Epochs, Pass, Passes
from detaug.augmenter.rank_agreement import FirstBatches, drawn_seed
from detaug.pipeline.sources import DatasetSource, Source
from detaug.seeding.current import Current, SeedBranch
from detaug.seeding.ranks import process_group
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree

logger = logging.getLogger("detaug")

#: The rank of this process, and the number of ranks that share the batches.
RankAndSize = tuple[int, int]
#: The epoch and step of a batch.
EpochAndStep = tuple[int, int]


class LazyAugmenter:
    """The changing state of a loader. Implements `detaug.augmenter.batch_keys.KeyedStream`.

    The augmenter is made for the first pass, state, or key. By then the process group exists, so
    that the rank is known, and the program has finished setting up its objects. Before that the
    loader has started no process and drawn no seed.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.epochs = Epochs(settings.epoch, settings.order.distributed)
        self.reader = KeyedReader(self.epochs)
        self._passes = Passes(self.epochs, self._for_pass, self._share, self._on_batch)
        self._source: Source | None = None
        self._augmenter: DeterministicAugmenter | None = None
        self._seed: Seed | None = None
        self._is_seed_drawn = False
        #: The length that a caller got, and may rely on.
        self._reported_length: int | None = None
        self._has_failed_to_report_length = False
        self._first_batches: FirstBatches | None = None
        #: An iterator of Lightning's, which records the indices of each batch.
        self._observer: Any = None
        #: Several threads may ask for the first batch.
        self._lock = threading.RLock()

    # --- the augmenter ---

    @property
    def is_made(self) -> bool:
        """True if there is an augmenter, so that arguments cannot be changed."""
        return self._augmenter is not None

    def augmenter(self) -> DeterministicAugmenter:
        """Return the augmenter, making it on first use."""
        with self._lock:
            if self._augmenter is None:
                return self._make(self.settings.rank_and_world_size())
            return self._augmenter

    def _make(self, rank_and_size: RankAndSize) -> DeterministicAugmenter:
        if self._seed is None:
            self._seed = self._choose_seed(rank_and_size)
        # `_augmenter` is set last: where it is set, the source is, too.
        self._source = self.settings.source()
        self._augmenter = self.settings.augmenter(self._source, self._seed, *rank_and_size)
        return self._augmenter

    def _choose_seed(self, rank_and_size: RankAndSize) -> Seed:
        """Return the seed of the generator, the argument or the environment, or draw one."""
        settings = self.settings
        self._is_seed_drawn = False
        if settings.generator is not None:
            return settings.generator.initial_seed()
        if settings.seed is not None or os.environ.get(SEED_VARIABLE):
            return SeedTree(settings.seed).seed
        self._is_seed_drawn = True
        return drawn_seed(settings.branch, *rank_and_size)

    def _change_rank(self, rank_and_size: RankAndSize) -> DeterministicAugmenter:
        """Replace the augmenter by one of another rank, at the same position."""
        with self._lock:
            before = self.augmenter()
            state = before.state_dict()
            # Its workers end before the new one starts its own.
            before.close()
            if self._is_seed_drawn and rank_and_size[1] > 1:
                # All ranks must have the seed that rank 0 drew.
                self._seed = None
            augmenter = self._make(rank_and_size)
            # Otherwise the state belongs to another stream, and would be refused.
            if augmenter.seed == before.seed:
                augmenter.load_state_dict(state)
            return augmenter

    def set(self, name: str, value: Any) -> None:
        """Change a setting.

        Raises:
            ValueError: the augmenter was made with another value.
        """
        if self.is_made:
            raise ValueError(
                f"{name} has no effect any more: this loader's pipeline was taken when its first "
                f"pass began (or its state or a batch was asked for). Set {name} before that, or "
                "make another loader"
            )
        self.settings = replace(self.settings, **{name: value})

    def close(self) -> None:
        """End the workers, if there are any."""
        if self._augmenter is not None:
            self._augmenter.close()

    # --- passes ---

    def new_pass(self, is_read_ahead: bool) -> Pass:
        """Return an iterator over one epoch; see `Passes.new`."""
        observer = self.settings.order.observer
        # One for each pass: Lightning's wrapper discards its recorded indices in `__iter__`.
        self._observer = None
        if observer is not None:
            self._observer = iter(observer)
        return self._passes.new(is_read_ahead)

    def empty_pass(self) -> Pass:
        """Return an iterator over an epoch that has no batch."""
        return self._passes.empty()

    def _for_pass(self) -> DeterministicAugmenter:
        """Return the augmenter for a pass that begins; from now on the rank is fixed."""
        rank_and_size = self.settings.rank_and_world_size()
        augmenter = self.augmenter()
        if (augmenter.rank, augmenter.world_size) != rank_and_size:
            # It was made for a state, before the process group existed, or for another loader that
            # divides the keys among ranks.
            augmenter = self._change_rank(rank_and_size)
        self._check_reported_length()
        if self._first_batches is None and rank_and_size[1] == 1:
            self._first_batches = FirstBatches.here(self.settings.branch)
        return augmenter

    def _on_batch(self, batch: Any) -> None:
        if self._observer is not None:
            next(self._observer)
        if self._first_batches is not None:
            self._first_batches.compare(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return the loop's position, after the last batch that it got."""
        refuse_state_of_read(self.reader)
        if self._has_failed_to_report_length:
            self._has_failed_to_report_length = False
            logger.warning(
                "this state may be one batch too far: a loop that gets no length from a loader, as "
                "Lightning did here, reads one batch ahead to find the end, and would leave that "
                "batch out when it resumes. Give %s a __len__",
                type(self.settings.dataset).__name__,
            )
        return self._passes.state_dict(self.augmenter())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self._passes.load_state_dict(state, self._load)

    def _load(self, state: dict[str, Any]) -> DeterministicAugmenter:
        """Load the augmenter's state, and return the augmenter, which may be a new one."""
        augmenter = self.augmenter()
        saved_seed = None
        if isinstance(state, dict):
            saved_seed = state.get("seed")
        if self._is_seed_drawn and saved_seed not in (None, augmenter.seed):
            augmenter = self._replace_seed(augmenter, saved_seed, state)
        else:
            augmenter.load_state_dict(state)
        # The seed is the state's from now on: a change of ranks must not draw another one.
        self._is_seed_drawn = False
        return augmenter

    def _replace_seed(
        self, augmenter: DeterministicAugmenter, seed: Seed, state: dict[str, Any]
    ) -> DeterministicAugmenter:
        """Replace an augmenter whose seed was drawn by one with the seed of a state."""
        with self._lock:
            # Another source: the first one belongs to the augmenter that is replaced.
            source = self.settings.source()
            loaded = self.settings.augmenter(source, seed, augmenter.rank, augmenter.world_size)
            # Before the fields are set: a state that is refused changes nothing.
            loaded.load_state_dict(state)
            augmenter.close()
            self._augmenter = loaded
            self._source = source
            self._seed = seed
            return loaded

    # --- length ---

    def length(self) -> int:
        """Return this rank's number of batches in a whole epoch, and remember that it was asked.

        Raises:
            TypeError: the data set has no length.
        """
        try:
            self._reported_length = self.settings.share()
        except TypeError:
            self._has_failed_to_report_length = True
            raise
        return self._reported_length

    def _share(self) -> int:
        """Return this rank's number of batches in a whole epoch; nobody relies on it."""
        return self.settings.share()

    def _check_reported_length(self) -> None:
        """Raise a RuntimeError if the length has changed since a caller got it."""
        if self._reported_length is None:
            return
        length = self.settings.share()
        if length != self._reported_length:
            world_size = self.settings.rank_and_world_size()[1]
            raise RuntimeError(
                f"len() of this loader was {self._reported_length} when it was first called, and "
                f"is {length} now that there are {world_size} ranks, so its caller has a wrong "
                "number. Call len(), or make the loader, after "
                "torch.distributed.init_process_group (in Lightning: in train_dataloader())"
            )

    # --- what samplers and views read: implements `KeyedStream` ---

    @property
    def has_single_items(self) -> bool:
        """True if each item is a batch by itself."""
        return self.settings.has_single_items

    @property
    def refuses_samples(self) -> bool:
        """True if samples that the loader did not fetch itself are an error."""
        return self.settings.is_iterable or self.settings.has_single_items

    @property
    def rank_and_world_size(self) -> RankAndSize:
        """The rank of this process, and the number of ranks that share the batches."""
        return self.settings.rank_and_world_size()

    def num_batches(self) -> int:
        """Return the number of batches of an epoch, over all ranks."""
        return self.settings.num_batches()

    def indices(self, epoch: int, step: int) -> list[Any]:
        """Return the indices of a batch's samples."""
        augmenter = self._for_keys(None)
        branch = SeedBranch(SeedTree(augmenter.seed).child(augmenter.name), augmenter.num_streams)
        assert isinstance(self._source, DatasetSource)
        return self._source.indices(Current(branch, epoch, step))

    def keyed_epoch(self) -> int:
        """Return the epoch that is being read by keys, or that comes next."""
        return self.reader.epoch

    def batch_of(self, keys: Sequence[SampleKey]) -> Any:
        """Return the samples of these keys as one collated batch."""
        sizes: dict[EpochAndStep, int] = {}
        indices: dict[EpochAndStep, list[int]] = {}
        for key in keys:
            batch = key.epoch, key.step
            sizes[batch] = key.size
            indices.setdefault(batch, []).append(key.index_in_batch)
        batches = list(indices)
        first = batches[0]
        # The usual case is one whole batch in its own order, which needs no indexing.
        if len(batches) == 1 and indices[first] == list(range(sizes[first])):
            self._check_is_own(*first)
            return self._read(first)
        parts = [Part(self._read(batch), sizes[batch], indices[batch]) for batch in batches]
        return gathered(parts, self.settings.collate_fn in (None, default_collate))

    def _read(self, batch: EpochAndStep) -> Any:
        return self.reader.read(self._for_keys(batch), *batch)

    def _for_keys(self, batch: EpochAndStep | None) -> DeterministicAugmenter:
        """Return the augmenter for a loader that a library made of this one's attributes.

        Args:
            batch: the batch that is requested; None: only the order of samples is.
        """
        with self._lock:
            if self._augmenter is None:
                self._check_reported_length()
                return self._make(self._rank_for_keys())
            # A rank that reads two steps in a row reads those of all ranks.
            if batch is None or not self.reader.reads_in_a_row(*batch):
                return self._augmenter
            if self._augmenter.world_size > 1 and not self.settings.shares:
                # This rank reads the batches of all ranks, so its workers make all of them.
                return self._change_rank((0, 1))
            return self._augmenter

    def _rank_for_keys(self) -> RankAndSize:
        if self.settings.shares:
            return self.settings.rank_and_world_size()
        # Accelerate divides the keys of all batches among all ranks.
        return process_group() or (0, 1)

    def _check_is_own(self, epoch: int, step: int) -> None:
        """Raise a RuntimeError if this rank is asked for another rank's batch.

        A loader that shares its batches among ranks was copied by a library that does not.
        """
        rank, world_size = self.settings.rank_and_world_size()
        if step % world_size == rank or self.reader.has_read_all_of(epoch):
            return
        raise RuntimeError(
            f"rank {rank} of {world_size} was asked for batch {step} by another DataLoader made of "
            "this one, which does not share batches out among ranks: with Accelerate, call prepare "
            "before skip_first_batches"
        )
