"""`AugmenterLoader`: an augmenter as the torch DataLoader that training loops ask for.

    augmenter      one global stream of batches, each a pure function of (epoch, step)
        │
    Batches        a map-style data set: batches[(epoch, step)]
    Steps          the batch sampler: the (epoch, step) of an epoch, in order, those of all ranks
        │
    AugmenterLoader               reads the augmenter itself: Lightning, Ignite, MONAI, a plain loop
    another DataLoader of both    shards, skips and resumes by keys: Accelerate, Trainer, torchdata

Libraries that rebuild a DataLoader keep its data set and its batch sampler. A key says which batch it is, whoever made it, so
that what they do with keys is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, DataLoader, Dataset, DistributedSampler, get_worker_info

from detaug.seeding.tree import spawn_key_element

if TYPE_CHECKING:
    from detaug.engine.augmenter import DeterministicAugmenter
    from detaug.engine.order.outcomes import Position

#: An augmenter whose name ends like this is read from epoch 0 by every pass.
VALIDATION_NAMES = ("val", "valid", "validation", "test")

#: A batch's epoch and step, as samplers pass it on.
Key = tuple[int, int]


class Batches(Dataset[Any]):
    """Batches by (epoch, step). Those that are asked for in the augmenter's order come from its workers; any other is made
    when it is asked for."""

    def __init__(self, augmenter: DeterministicAugmenter) -> None:
        self.augmenter = augmenter
        #: The key that comes next if batches are asked for in order; None: none was asked for by its key.
        self.due: Key | None = None

    def __len__(self) -> int:
        """Batches of an epoch, over all ranks."""
        total = self.augmenter._source.total_batches
        assert total is not None, "there is no loader without it"
        return total

    def __getitem__(self, key: int | Key) -> Any:
        """The batch with this epoch and step; a step alone is of epoch 0. IndexError: there is none."""
        worker = get_worker_info()
        if worker is not None:
            raise RuntimeError(
                "the augmenter's own workers make these batches, and a DataLoader's worker processes cannot read them: make that "
                f"DataLoader with num_workers=0, and the augmenter with num_processes={worker.num_workers}"
            )
        if self.augmenter.on_error != "raise":
            raise RuntimeError(
                "on_error=Skip leaves batches out, and another DataLoader, which asks for them by number, would get some "
                'twice: read aug.loader() itself, or with on_error="raise"'
            )
        epoch, step = (0, key) if isinstance(key, int) else key
        if not 0 <= step < len(self):
            raise IndexError(f"an epoch has steps 0 ... {len(self) - 1}, not {step}")
        augmenter = self.augmenter
        if (epoch, step) != self.due and not augmenter._seek(epoch, step):
            return augmenter.replay(epoch, step)  # another rank's, or behind the last round
        batch = next(augmenter)
        self.due = (epoch, step + augmenter.world_size)
        return batch

    def __reduce_ex__(self, _: Any) -> Any:
        raise TypeError(
            "what aug.loader() reads can be neither pickled nor copied: make the augmenter and its loader in the process that "
            "reads it. With Lightning's ddp_spawn that is in train_dataloader()"
        )


class Epochs(DistributedSampler[Any]):
    """Which epoch comes next: the one behind the last, or that of `set_epoch`; in every pass the `fixed` one, if there is one.

    Libraries call `set_epoch`, and put no sampler that divides a data set among ranks in the place of a DistributedSampler: an
    augmenter divides its steps itself.
    """

    def __init__(self, batches: Batches, fixed: int | None = None) -> None:
        self.dataset = self.data_source = batches
        self.num_replicas, self.rank = batches.augmenter.world_size, batches.augmenter.rank
        self.fixed = fixed
        self.epoch = 0
        #: What set_epoch said last, and how much later the epoch is: Accelerate counts from 0 again after a state was loaded.
        self._told: int | None = None
        self._later = 0
        #: The epoch of which a state was loaded, until a pass begins.
        self.rest: int | None = None
        self._rest_was_named = False
        #: set_epoch has said which pass comes next, and that one has not begun.
        self.is_named = False

    def __len__(self) -> int:
        return len(self.data_source)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self)))

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch; the rest of it, directly after a state of it was loaded."""
        self._told = epoch
        self.is_named = True
        epoch += self._later
        self._rest_was_named = self.rest == epoch
        if not self._rest_was_named:
            self.rest = None
            self.epoch = epoch

    def begin(self) -> tuple[int, bool]:
        """The epoch of the pass that begins now, and whether it is the rest of one."""
        rest, self.rest = self.rest, None
        self.is_named = False
        if rest is not None and (
            self._rest_was_named or not self.data_source.augmenter._has_had_all_of_an_epoch
        ):
            return rest, True
        epoch = self.epoch if self.fixed is None else self.fixed
        self.epoch = epoch + 1
        return epoch, False

    def goes_on_in(self, epoch: int) -> None:
        """A pass that begins now was put into the middle of this epoch."""
        self.epoch = epoch + 1
        if self._told is not None:
            self._later = epoch - self._told


class Steps(BatchSampler):
    """The keys of an epoch's batches over all ranks, each in a list of its own."""

    sampler: Epochs

    def __init__(
        self, sampler: Any, batch_size: int | None = None, drop_last: bool = False
    ) -> None:
        # Lightning's overfit_batches puts a SequentialSampler in the place of `Epochs`.
        self.sampler = (
            sampler if isinstance(sampler, Epochs) else Epochs(sampler.data_source, fixed=0)
        )
        self.batch_size = batch_size  # type: ignore[assignment]
        self.drop_last = drop_last

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Keys:  # type: ignore[override]
        return Keys(self.sampler)

    def set_epoch(self, epoch: int) -> None:
        self.sampler.set_epoch(epoch)


class Keys(Iterator[list[Key]]):
    """An epoch's keys for another DataLoader. torchdata's StatefulDataLoader saves and loads where it stands."""

    def __init__(self, epochs: Epochs) -> None:
        self._epochs = epochs
        self._due: Key | None = (
            None  # the epoch is known when the first key is asked for: set_epoch may come between
        )

    def __next__(self) -> list[Key]:
        if self._due is None:
            epoch, is_rest = self._epochs.begin()
            if is_rest:
                raise RuntimeError(
                    "a state was loaded into aug.loader(), and another loader made of it now begins at the epoch's start and "
                    "skips by itself: load the state into one of them alone"
                )
            self._due = (epoch, 0)
        epoch, step = self._due
        if step >= len(self._epochs):
            raise StopIteration
        self._due = (epoch, step + 1)
        return [(epoch, step)]

    def state_dict(self) -> dict[str, Any]:
        return {"due": self._due and list(self._due)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if (due := state["due"]) is not None:
            self._due = (int(due[0]), int(due[1]))
            self._epochs.goes_on_in(self._due[0])


class AugmenterLoader(DataLoader[Any]):
    """An augmenter as a torch DataLoader: every `iter()` is one epoch from its start.

    After `load_state_dict` it is the rest of the epoch in which the state was saved. A pass that is left early is not gone on
    with: the next one begins the next epoch. `set_epoch` (or ``sampler.set_epoch``) says which one that is. Several passes at
    once are each right, and slow, as the augmenter goes from one place to the other.

    `detaug.DeterministicAugmenter.loader` makes it. Libraries make more of it, with a DataLoader's arguments.
    """

    dataset: Batches
    batch_sampler: Steps

    def __init__(self, dataset: Batches, **options: Any) -> None:
        super().__init__(dataset, **options)
        #: Libraries call its set_epoch, and put none of theirs in its place.
        if isinstance(self.batch_sampler, Steps):
            self.__dict__["sampler"] = self.batch_sampler.sampler
        #: Behind the batch that was given last, by whichever pass; None: that one's epoch is over, or none was given.
        self._place: Position | None = None
        self._loads = 0

    @classmethod
    def of(cls, augmenter: DeterministicAugmenter, epoch: int | None) -> AugmenterLoader:
        batches = Batches(augmenter)
        return cls(batches, batch_sampler=Steps(Epochs(batches, epoch)), collate_fn=_the_only_one)

    def __len__(self) -> int:
        """This rank's batches in an epoch."""
        return len(self.dataset.augmenter)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        # Lightning's predict puts a sampler around ours, which notes what was asked for.
        return self._pass() if isinstance(self.batch_sampler, Steps) else super().__iter__()

    def _pass(self) -> Iterator[Any]:
        augmenter = self.dataset.augmenter
        epoch, is_rest = self.batch_sampler.sampler.begin()
        if not is_rest:
            augmenter._go_to_epoch(epoch)
        loads, place = self._loads, augmenter._schedule.position
        while True:
            if (
                augmenter._schedule.position != place
            ):  # another pass, or another loader, went on from elsewhere
                augmenter._move(place)
            try:
                batch = next(augmenter)
            except StopIteration:
                if loads == self._loads:
                    self._place = None
                return
            place = augmenter._schedule.position
            if (
                loads == self._loads
            ):  # a pass that was open when a state was loaded is no longer the loop's
                self._place = place
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch. Directly after `load_state_dict`, with the epoch of the state, it is the rest of it."""
        self.batch_sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands: behind the batch that it was given last. Plain integers and strings.

        RuntimeError: another loader, made of this one's data set and sampler, reads ahead of the loop.
        """
        if self.dataset.due is not None:
            raise RuntimeError(
                "another DataLoader reads these batches (Accelerate's prepare makes one), and may be ahead of the loop: save "
                "where that one stands. For Accelerate: DataLoaderConfiguration(use_stateful_dataloader=True), or "
                "skip_first_batches after load_state"
            )
        epochs, place = self.batch_sampler.sampler, self._place
        if place is not None and epochs.is_named and epochs.epoch != place.epoch:
            place = None  # that pass was left early, and the next one is to begin
        return {
            "augmenter": self.dataset.augmenter._state(place).as_dict(),
            "next_epoch": epochs.epoch,
            "in_epoch": place is not None or epochs.rest is not None,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state_dict` was called, with any number of worker processes and ranks.

        Raises:
            TypeError, ValueError: it is no state of a loader, or one of another pipeline; see
                `detaug.DeterministicAugmenter.load_state_dict`.
        """
        if not isinstance(state, dict) or set(state) != {"augmenter", "next_epoch", "in_epoch"}:
            raise ValueError(
                f"this is no state of aug.loader(): {state!r:.200}. A state of the augmenter goes into aug.load_state_dict"
            )
        next_epoch = spawn_key_element("the state's 'next_epoch'", state["next_epoch"])
        if not isinstance(state["in_epoch"], bool):
            raise ValueError(
                f"the state's 'in_epoch' is True or False, not {state['in_epoch']!r:.200}"
            )
        augmenter, epochs = self.dataset.augmenter, self.batch_sampler.sampler
        augmenter.load_state_dict(state["augmenter"])
        epochs.epoch = next_epoch
        epochs.rest = augmenter.epoch if state["in_epoch"] else None
        self._loads += 1
        self._place = augmenter._schedule.position if state["in_epoch"] else None


def _the_only_one(batches: list[Any]) -> Any:
    """What a DataLoader collates: one batch, ready as it is."""
    (batch,) = batches
    return batch
