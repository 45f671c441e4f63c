"""The augmenter of a `detaug.DataLoader`: made when it is first needed, and read by passes or by
keys.
"""

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
from detaug.augmenter.passes import Epochs, Passes
from detaug.augmenter.rank_agreement import FirstBatches, drawn_seed
from detaug.pipeline.sources import DatasetSource, Source
from detaug.seeding.current import Current, SeedBranch
from detaug.seeding.ranks import process_group
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree

logger = logging.getLogger("detaug")

#: A rank, and the number of ranks that share the batches.
Place = tuple[int, int]


class LazyAugmenter:
    """All that changes of a loader; it implements `detaug.augmenter.batch_keys.KeyedStream`.

    The augmenter is made for the first pass, state, or key: the process group exists by then, so
    that the rank is known, and the user's objects are as they are to be. A loader that was only
    made has started nothing and drawn nothing.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.epochs = Epochs(settings.epoch, settings.order.distributed)
        self.reader = KeyedReader(self.epochs)
        self._passes = Passes(self.epochs, self._for_pass, self._on_batch)
        self._source: Source | None = None
        self._augmenter: DeterministicAugmenter | None = None
        self._seed: Seed | None = None
        self._is_seed_drawn = False
        self._length_told: int | None = None
        self._has_asked_for_length_in_vain = False
        self._first_batches: FirstBatches | None = None
        self._observed: Any = None
        self._making = threading.RLock()  # several threads may ask for the first batch

    # --- the augmenter
    # ------------------------------------------------------------------------------------------------

    @property
    def is_made(self) -> bool:
        """Whether there is an augmenter, so that arguments can change no more."""
        return self._augmenter is not None

    def augmenter(self) -> DeterministicAugmenter:
        """Return the augmenter; make it, if there is none."""
        with self._making:
            if self._augmenter is None:
                return self._make(self.settings.rank_and_world_size())
            return self._augmenter

    def _make(self, place: Place) -> DeterministicAugmenter:
        if self._seed is None:
            self._seed = self._chosen_seed(place)
        self._source = self.settings.source()
        self._augmenter = self.settings.augmenter(self._source, self._seed, *place)
        return self._augmenter

    def _chosen_seed(self, place: Place) -> Seed:
        settings = self.settings
        self._is_seed_drawn = False
        if settings.generator is not None:
            return settings.generator.initial_seed()
        if settings.seed is not None or os.environ.get(SEED_VARIABLE):
            return SeedTree(settings.seed).seed
        self._is_seed_drawn = True
        return drawn_seed(settings.branch, *place)

    def _move_to_place(self, place: Place) -> DeterministicAugmenter:
        """Make the augmenter of another place, which stands where this one does."""
        with self._making:
            before = self.augmenter()
            state = before.state_dict()
            before.close()
            if self._is_seed_drawn and place[1] > 1:
                self._seed = None  # all ranks take rank 0's
            augmenter = self._make(place)
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
                "pass began (or its state or "
                f"a batch was asked for). Set {name} before that, or make another loader"
            )
        self.settings = replace(self.settings, **{name: value})

    def close(self) -> None:
        """End the workers, if there are any."""
        if self._augmenter is not None:
            self._augmenter.close()

    # --- passes
    # -------------------------------------------------------------------------------------------------------

    def new_pass(self) -> Any:
        """Return an iterator over one epoch."""
        observer = self.settings.order.observer
        self._observed = None if observer is None else iter(observer)
        return self._passes.new()

    def _for_pass(self) -> DeterministicAugmenter:
        """Return the augmenter for a pass that begins: from now on the rank is fixed."""
        place = self.settings.rank_and_world_size()
        augmenter = self.augmenter()
        if (augmenter.rank, augmenter.world_size) != place:
            # It was made for a state before the process group existed, or for another loader that
            # shares out.
            augmenter = self._move_to_place(place)
        self._check_length_told()
        if self._first_batches is None and place[1] == 1:
            self._first_batches = FirstBatches.here(self.settings.branch)
        return augmenter

    def _on_batch(self, batch: Any) -> None:
        if self._observed is not None:
            next(self._observed)
        if self._first_batches is not None:
            self._first_batches.compare(batch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop stands."""
        refuse_state_of_read(self.reader)
        if self._has_asked_for_length_in_vain:
            self._has_asked_for_length_in_vain = False
            logger.warning(
                "a state was asked for of a loader that does not know its length, after its "
                "length: a loop that reads one "
                "batch ahead to find the end, as Lightning does, would leave that batch out when "
                "it resumes. Give %s a __len__",
                type(self.settings.dataset).__name__,
            )
        return self._passes.state_dict(self.augmenter())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a state was taken."""
        self._passes.load_state_dict(state, self._load)

    def _load(self, state: dict[str, Any]) -> DeterministicAugmenter:
        augmenter = self.augmenter()
        saved = state.get("seed") if isinstance(state, dict) else None
        if not self._is_seed_drawn or saved in (None, augmenter.seed):
            augmenter.load_state_dict(state)
        else:
            # A seed that was drawn gives way to the state's.
            with self._making:
                source = self.settings.source()
                place = augmenter.rank, augmenter.world_size
                loaded = self.settings.augmenter(source, saved, *place)
                loaded.load_state_dict(state)
                augmenter.close()
                augmenter = self._augmenter = loaded
                self._source = source
                self._seed = saved
        self._is_seed_drawn = False
        return augmenter

    # --- length
    # -------------------------------------------------------------------------------------------------------

    def length(self) -> int:
        """Return this rank's batches of a whole epoch, to somebody who will count on it.

        Raises:
            TypeError: the data set has no length.
        """
        try:
            self._length_told = self.settings.share()
        except TypeError:
            self._has_asked_for_length_in_vain = True
            raise
        return self._length_told

    def _check_length_told(self) -> None:
        if self._length_told is None:
            return
        length = self.settings.share()
        if length != self._length_told:
            world_size = self.settings.rank_and_world_size()[1]
            raise RuntimeError(
                f"len() of this loader was {self._length_told} when it was asked for, and is "
                f"{length} now that there are "
                f"{world_size} ranks: whoever asked counts on the wrong number. Ask for it, or "
                "make the loader, after "
                "torch.distributed.init_process_group (in Lightning: in train_dataloader())"
            )

    # --- what samplers and views read
    # ---------------------------------------------------------------------------------

    @property
    def has_single_items(self) -> bool:
        """Implements `KeyedStream`; so do the following."""
        return self.settings.has_single_items

    @property
    def refuses_samples(self) -> bool:
        return self.settings.is_iterable or self.settings.has_single_items

    @property
    def rank_and_world_size(self) -> Place:
        return self.settings.rank_and_world_size()

    def num_batches(self) -> int:
        return self.settings.num_batches()

    def indices(self, epoch: int, step: int) -> list[Any]:
        augmenter = self._for_keys(None)
        branch = SeedBranch(SeedTree(augmenter.seed).child(augmenter.name), augmenter.num_streams)
        assert isinstance(self._source, DatasetSource)
        return self._source.indices(Current(branch, epoch, step))

    def keyed_epoch(self) -> int:
        return self.reader.epoch

    def batch_of(self, keys: Sequence[SampleKey]) -> Any:
        sizes: dict[tuple[int, int], int] = {}
        places: dict[tuple[int, int], list[int]] = {}
        for key in keys:
            sizes[key.epoch, key.step] = key.size
            places.setdefault((key.epoch, key.step), []).append(key.place)
        batches = list(places)
        if len(batches) == 1 and places[batches[0]] == list(range(sizes[batches[0]])):
            self._check_is_own(*batches[0])
            return self._read(batches[0])
        parts = [Part(self._read(batch), sizes[batch], places[batch]) for batch in batches]
        return gathered(parts, self.settings.collate_fn in (None, default_collate))

    def _read(self, batch: tuple[int, int]) -> Any:
        return self.reader.read(self._for_keys(batch), *batch)

    def _for_keys(self, batch: tuple[int, int] | None) -> DeterministicAugmenter:
        """Return the augmenter for a loader that somebody made of this one's parts.

        Args:
            batch: which one is asked for; None: its order alone.
        """
        with self._making:
            if self._augmenter is None:
                self._check_length_told()
                shares = self.settings.shares
                # Accelerate shares the keys of all batches out among all ranks.
                place = self.settings.rank_and_world_size() if shares else process_group()
                return self._make(place or (0, 1))
            if batch is not None and self.reader.reads_in_a_row(*batch):
                is_ahead_of_others = self._augmenter.world_size > 1 and not self.settings.shares
                if is_ahead_of_others:  # this rank reads all of them: workers are to make them all
                    return self._move_to_place((0, 1))
            return self._augmenter

    def _check_is_own(self, epoch: int, step: int) -> None:
        """RuntimeError: a loader that shares its batches out was remade by somebody who does not."""
        rank, world_size = self.settings.rank_and_world_size()
        if step % world_size == rank or self.reader.has_read_all_of(epoch):
            return
        raise RuntimeError(
            f"rank {rank} of {world_size} was asked for batch {step} by another DataLoader made of "
            "this one, which does not "
            "share batches out among ranks: with Accelerate, call prepare before skip_first_batches"
        )
