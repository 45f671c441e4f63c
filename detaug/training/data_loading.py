"""torch's DataLoader, seeded as well as it can be: `worker_init_fn`, `generator` and `EpochSampler`.

    sampler = EpochSampler(dataset, seed=7)
    for epoch in range(start, end):
        sampler.set_epoch(epoch)
        loader = DataLoader(dataset, 4, sampler=sampler, num_workers=8, worker_init_fn=worker_init_fn,
                            generator=generator(7, epoch=epoch))

A loader made once, with ``generator=generator(7)``, is reproducible as well: each ``iter(loader)`` draws a new base seed.
Only a resume at epoch e needs ``generator(7, epoch=e)``.

**Limits of a DataLoader.** Its workers draw from one stream each, sample after sample. With another ``num_workers``, a data
set's ``__getitem__`` therefore draws other numbers, as does a resume in mid-epoch. With ``persistent_workers=True`` torch
calls ``worker_init_fn`` in the first epoch only: later epochs are reproducible from the start of the training, but not from
a resume. `DeterministicAugmenter.from_dataset`, which seeds every batch by its epoch and step, has none of these limits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import torch
from torch.utils.data import DistributedSampler, get_worker_info

from detaug.errors import StateMismatch
from detaug.seeding.global_generators import reseed_global_rngs
from detaug.seeding.ranks import check_all_are_known, common_seed, known_place, known_rank
from detaug.seeding.tree import SeedTree, non_negative_int, positive_int, spawn_key_element
from detaug.sources.dataset import epoch_order
from detaug.versions import SEED_SCHEME


def worker_init_fn(worker_id: int) -> None:
    """Seed `random`, `numpy.random` and torch's CPU generator in a DataLoader worker, for ``worker_init_fn=worker_init_fn``.

    The seed is the one that torch draws for each ``iter(loader)``, from the loader's `generator` or else from torch's global
    one. Every (seed, rank, worker) has its own stream, by SeedSequence. With torch's ``base_seed + worker_id``, worker 1 of
    one seed has the stream of worker 0 of the next, and all ranks of one seed have the same streams. A spawned worker knows
    its rank from the launcher's variables only: without them, a `generator` that has the rank makes the difference.

    Raises:
        RuntimeError: outside of a worker.
    """
    info = get_worker_info()
    if info is None:
        raise RuntimeError("worker_init_fn seeds a DataLoader's worker, and this is none: pass it to the DataLoader")
    tree = SeedTree(info.seed - info.id).child(f"data_loader/worker/rank {known_rank() or 0}")
    reseed_global_rngs(tree.sequence(0, stream=worker_id))


def generator(
    seed: int | Sequence[int] | None = None,
    *,
    rank: int | None = None,
    epoch: int = 0,
    device: str | torch.device = "cpu",
) -> torch.Generator:
    """A generator for ``DataLoader(generator=...)`` that differs by seed, rank and epoch.

    From it the loader draws the base seed of its workers and the order of ``shuffle=True``, again for each ``iter(loader)``,
    for any ``num_workers``. Each rank's order is its own: an `EpochSampler` shares one order among the ranks.

    Args:
        seed: as `SeedTree` takes it; None takes ``DETAUG_SEED``, or draws one and logs it.
        rank: None: the process group's, else the launcher's (``RANK``), else 0.
        epoch: where the stream starts. To resume exactly at an epoch, make a new generator (or a loader with it) for each.
        device: where its numbers are drawn, for ``torch.randn(..., generator=...)``; a DataLoader wants the CPU's. Another
            kind of device draws other numbers from one seed.

    Raises:
        TypeError, ValueError: a number is no integer or out of range.
    """
    words = SeedTree(seed).child("data_loader/generator").sequence(epoch, stream=_rank(rank)).generate_state(2)
    # 63 bits: torch takes a signed 64-bit number.
    return torch.Generator(device).manual_seed(int(words[0]) | (int(words[1]) & 0x7FFFFFFF) << 32)


class EpochSampler(DistributedSampler[int]):
    """A data set's indices in an order that depends on the seed and the epoch, shared out among the ranks.

    As torch's DistributedSampler, with three differences: neighbouring seeds and epochs have unrelated orders
    (DistributedSampler adds the two, so that seed 1 in epoch 0 has the order of seed 0 in epoch 1); it can be resumed in
    mid-epoch; one process needs no process group. Rank r takes the order's entries r, r + num_replicas, ...

    Call `set_epoch` before each epoch, as Lightning does; without it every epoch has the same order, as with
    DistributedSampler. Lightning leaves it in place.

    Args:
        dataset: anything with a length.
        seed: as `SeedTree` takes it. None: ``DETAUG_SEED``, or drawn and logged; with several ranks rank 0's, which is
            broadcast: all ranks must make the sampler.
        rank, num_replicas: None: the process group's, else the launcher's (``RANK``, ``WORLD_SIZE``), else 0 of 1.
        shuffle: False: the data set's own order.
        drop_last: where the length is no multiple of `num_replicas`, leave out the tail of the order; else its start
            is repeated. Either way all ranks have the same number of indices.

    Raises:
        TypeError: the data set has no length; a number is no integer.
        ValueError: `rank` is not below `num_replicas`; several ranks, no seed, and no process group to share one; nothing says
            which of several ranks this is; ``iter()`` finds more ranks than there were.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int | Sequence[int] | None = None,
        drop_last: bool = False,
    ) -> None:
        if not isinstance(dataset, Sized):
            raise TypeError(f"dataset must have a length, got {type(dataset).__name__}")
        replicas = positive_int("num_replicas", known_place()[1] if num_replicas is None else num_replicas)
        self._replicas_are_given = num_replicas is not None
        super().__init__(dataset, replicas, _rank(rank), bool(shuffle), drop_last=bool(drop_last))  # type: ignore[arg-type]
        self._length = len(dataset)
        if seed is None and replicas > 1:
            seed = common_seed(self.rank, replicas, verbose=False)
        self.seed: Any = SeedTree(seed).seed
        self.epoch = self._resume_at = self._handed_out = 0
        self._latest: object = None

    def set_epoch(self, epoch: int) -> None:
        """The order of that epoch, from its start; directly after `load_state_dict` with its epoch, from where it was."""
        number = spawn_key_element("epoch", epoch)
        if number != self.epoch:
            self._resume_at = self._handed_out = 0
        self.epoch = number

    def __iter__(self) -> Iterator[int]:
        if not self._replicas_are_given:  # the process group may have come since
            check_all_are_known(self.num_replicas, "EpochSampler(dataset, seed=...)")
        start, self._resume_at = self._resume_at, 0
        self._latest, self._handed_out = object(), start
        return self._walk(self._indices(), start, self._latest)

    def _walk(self, indices: list[int], start: int, token: object) -> Iterator[int]:
        for position in range(start, len(indices)):
            if token is self._latest:  # an abandoned iterator does not move the position
                self._handed_out = position + 1
            yield indices[position]

    def _indices(self) -> list[int]:
        """This rank's indices of the whole epoch."""
        length = self._length
        order: Sequence[int] = range(length)
        if self.shuffle:
            entropy = tuple(SeedTree(self.seed).child("data_loader/sampler").entropy)
            order = epoch_order(length, entropy, self.epoch).tolist()
        return [order[i % length] for i in range(self.rank, len(self) * self.num_replicas, self.num_replicas)]

    def state_dict(self, samples: int | None = None) -> dict[str, Any]:
        """This rank's position, as plain integers. An epoch's end is the next one's start.

        Args:
            samples: how many samples of this epoch this rank has trained on (batches times batch size). None: how many
                indices were delivered. With ``num_workers``, pass it: a DataLoader then takes
                ``num_workers * prefetch_factor`` batches of indices ahead of the training.

        Raises:
            ValueError: `samples` is larger than ``len(self)``.
        """
        position = self._handed_out if samples is None else non_negative_int("samples", samples)
        if position > len(self):
            raise ValueError(f"samples must be within 0 ... {len(self)}, one rank's epoch, got {position}")
        over = position == len(self)  # a resume begins the next epoch, and not an empty rest of this one
        return {"epoch": self.epoch + over, "samples": 0 if over else position, **self._identity()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on there: the next ``iter()`` gives the rest of that epoch.

        Raises:
            StateMismatch: the state is of another seed, length, world size, shuffle, drop_last or seed scheme.
        """
        own = self._identity()
        missing = sorted({"epoch", "samples", *own} - set(state))
        if missing:
            raise StateMismatch(f"this is not an EpochSampler's state: it has no {', '.join(missing)}")
        others = [
            f"{key} is {state[key]!r} in the state and {own[key]!r} here" for key in own if state[key] != own[key]
        ]
        if others:
            raise StateMismatch("the state belongs to another order of samples: " + "; ".join(others))
        epoch, samples = spawn_key_element("epoch", state["epoch"]), non_negative_int("samples", state["samples"])
        if samples > len(self):
            raise StateMismatch(f"the state has {samples} samples of an epoch that has {len(self)} on each rank")
        self.epoch, self._resume_at, self._handed_out, self._latest = epoch, samples, samples, None

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "length": self._length,
            "num_replicas": self.num_replicas,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed_scheme": SEED_SCHEME,
        }


def _rank(rank: int | None) -> int:
    """The one given (a data-parallel rank need not be the process group's), else the one known, else 0."""
    return spawn_key_element("rank", known_place(rank_alone=True)[0] if rank is None else rank)
