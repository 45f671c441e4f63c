"""torch's DataLoader, seeded as well as it can be: `worker_init_fn`, `generator` and `EpochSampler`.

    sampler = EpochSampler(dataset, seed=7)
    for epoch in range(start, end):
        sampler.set_epoch(epoch)
        loader = DataLoader(dataset, 4, sampler=sampler, num_workers=8, worker_init_fn=worker_init_fn,
                            generator=generator(7, epoch=epoch))

A loader made once, with ``generator=generator(7)``, is reproducible as well: each ``iter(loader)`` draws a new base seed.
Only a resume at epoch e needs ``generator(7, epoch=e)``.

**What no seeding can give here.** A DataLoader's workers draw from one stream each, sample after sample, and which samples
a worker gets depends on how many workers there are. So with another ``num_workers``, every random number drawn in a
data set's ``__getitem__`` is another one, and a resume in mid-epoch draws other numbers than the uninterrupted run. With
``persistent_workers=True`` torch calls ``worker_init_fn`` in the first epoch only: later epochs go on in the same streams,
reproducible from the start of the training, but not from a resume. `DeterministicAugmenter.from_dataset` seeds every batch
by its epoch and step and has none of these limits.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence, Sized
from functools import cache
from typing import Any

import torch
from torch.utils.data import Sampler, get_worker_info

from detaug.errors import StateMismatch
from detaug.seeding.global_generators import reseed_global_rngs
from detaug.seeding.tree import SEED_VARIABLE, SeedTree, non_negative_int, positive_int, spawn_key_element
from detaug.sources.dataset import epoch_order
from detaug.training.ranks import broadcast_from_rank_0, known_rank, known_world_size, process_group
from detaug.training.seeding import logger
from detaug.versions import SEED_SCHEME

NOTE = (
    "random numbers drawn in a torch DataLoader's workers depend on num_workers, and a resume in mid-epoch does not "
    "repeat them (with persistent_workers=True no resume does); DeterministicAugmenter.from_dataset gives the same "
    "batches for any number of workers"
)


def worker_init_fn(
    worker_id: int,
    *,
    seed: int | Sequence[int] | None = None,
    rank: int | None = None,
    epoch: int | None = None,
) -> None:
    """Seed `random`, `numpy.random` and torch's CPU generator in a DataLoader worker.

    For ``DataLoader(worker_init_fn=worker_init_fn)``, or, with arguments,
    ``functools.partial(worker_init_fn, seed=7, epoch=3)``. The streams are distinct for every (seed, rank, worker, epoch), by
    SeedSequence: with torch's own ``base_seed + worker_id``, worker 1 of one seed has the stream of worker 0 of the next,
    and torch's base seed is the same on all ranks that were seeded alike.

    Args:
        worker_id: 0 ... num_workers - 1, as torch passes it.
        seed: as `SeedTree` takes it. Left out in a worker: the base seed that torch drew for this iteration over the
            loader, from the loader's `generator` or else from torch's global one. Left out anywhere else: ``DETAUG_SEED``,
            or drawn and logged.
        rank: left out: the process group's, else the launcher's (``RANK``), else 0. Pass it where workers are
            spawned in processes that no launcher started: these know neither.
        epoch: together with `seed`, it alone decides: the same numbers in the same epoch of every run. With `seed` and
            no epoch, torch's base seed is mixed in, so that epochs differ (reproducible if the loader's generator is
            seeded); outside a worker that is epoch 0.

    Raises:
        TypeError, ValueError: a number is no integer or out of range.
    """
    worker, info = spawn_key_element("worker_id", worker_id), get_worker_info()
    base_seed = None if info is None else info.seed - info.id
    tree = SeedTree(base_seed if seed is None else seed).child(f"data_loader/worker/rank {_rank(rank)}")
    if seed is not None and epoch is None and base_seed is not None:
        tree = tree.child(f"iteration {base_seed}")
    reseed_global_rngs(tree.sequence(0 if epoch is None else epoch, stream=worker))


def generator(
    seed: int | Sequence[int] | None = None,
    *,
    rank: int | None = None,
    epoch: int = 0,
    device: str | torch.device = "cpu",
) -> torch.Generator:
    """A generator for ``DataLoader(generator=...)`` that differs by seed, rank and epoch.

    From it the loader draws the base seed of its workers and the order of ``shuffle=True``, anew for each ``iter(loader)``,
    whatever ``num_workers`` is. In a distributed training each rank's order is thus its own: take an `EpochSampler` to
    share one out.

    Args:
        seed: as `SeedTree` takes it; ``None`` takes ``DETAUG_SEED``, or draws one and logs it.
        rank: left out: the process group's, else the launcher's (``RANK``), else 0.
        epoch: where the stream starts. For a resume at epoch e exactly as the run went on, make a new generator (or a
            new loader with it) for every epoch.
        device: where its numbers are drawn, for ``torch.randn(..., generator=...)`` and its like; a DataLoader wants the
            CPU's. One seed draws other numbers on another kind of device.

    Raises:
        TypeError, ValueError: a number is no integer or out of range.
    """
    words = SeedTree(seed).child("data_loader/generator").sequence(epoch, stream=_rank(rank)).generate_state(2)
    _give_note_once()
    # 63 bits: torch takes a signed 64-bit number.
    return torch.Generator(device).manual_seed(int(words[0]) | (int(words[1]) & 0x7FFFFFFF) << 32)


class EpochSampler(Sampler[int]):
    """A data set's indices in an order that depends on the seed and the epoch, shared out among the ranks.

    As torch's DistributedSampler, with its names and three differences: neighbouring seeds and epochs share nothing (there, seed
    1 in epoch 0 has the order of seed 0 in epoch 1: they are added); it can be resumed in mid-epoch; one process needs no
    process group. The order is the same on all ranks; rank r takes its entries r, r + num_replicas, ...

    Call `set_epoch` before each epoch; without it every epoch has the same order, as with DistributedSampler. Lightning
    calls it by itself (``Trainer(use_distributed_sampler=False)`` keeps it from putting its own sampler in the place of
    this one).

    Args:
        dataset: anything with a length.
        seed: as `SeedTree` takes it. ``None``: ``DETAUG_SEED``, or drawn and logged; with several ranks it is rank 0's
            (broadcast: all ranks must make the sampler).
        rank, num_replicas: left out: the process group's, else the launcher's (``RANK``, ``WORLD_SIZE``), else 0 of 1.
        shuffle: False: the data source's own order.
        drop_last: where the length is no multiple of `num_replicas`, leave out the tail of the order; else its start
            is taken again to fill up. Either way all ranks have the same number of indices.

    Raises:
        TypeError: the data source has no length; a number is no integer.
        ValueError: `rank` is not below `num_replicas`; several ranks and no seed that they could share.
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
        super().__init__()
        self.dataset, self.shuffle, self.drop_last = dataset, bool(shuffle), bool(drop_last)
        replicas = known_world_size() or 1 if num_replicas is None else num_replicas
        self.num_replicas, self.rank = positive_int("num_replicas", replicas), _rank(rank)
        if self.rank >= self.num_replicas:
            raise ValueError(f"rank must be within 0 ... {self.num_replicas - 1} (num_replicas - 1), got {self.rank}")
        self.seed = SeedTree(_shared_seed(seed, self.num_replicas)).seed
        self.epoch = self._resume_at = self._handed_out = 0
        self._latest: object = None

    def set_epoch(self, epoch: int) -> None:
        """The order of that epoch, from its start; directly after `load_state_dict` with its epoch, from where it was."""
        number = spawn_key_element("epoch", epoch)
        if number != self.epoch:
            self._resume_at = self._handed_out = 0
        self.epoch = number

    def __len__(self) -> int:
        """How many indices each rank has in an epoch (a resumed epoch's, too: all of it)."""
        length = len(self.dataset)
        return length // self.num_replicas if self.drop_last else -(-length // self.num_replicas)

    def __iter__(self) -> Iterator[int]:
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
        length = len(self.dataset)
        order: Sequence[int] = range(length)
        if self.shuffle:
            entropy = tuple(SeedTree(self.seed).child("data_loader/sampler").entropy)
            order = epoch_order(length, entropy, self.epoch).tolist()
        return [order[i % length] for i in range(self.rank, len(self) * self.num_replicas, self.num_replicas)]

    def state_dict(self, samples: int | None = None) -> dict[str, Any]:
        """Where this rank is, as plain integers. At an epoch's end, it is the next one's start.

        Args:
            samples: how many samples of this epoch the training of this rank has had (batches times batch size).
                Left out: how many indices were handed out. That is the same without worker processes, but with
                ``num_workers`` a DataLoader takes ``num_workers * prefetch_factor`` batches of indices ahead of the
                training, which a resume would then leave out.

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
            StateMismatch: the state is of another seed, length, world size, shuffle, drop_last or seed scheme; the
                message shows both.
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
            "length": len(self.dataset),
            "num_replicas": self.num_replicas,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "seed_scheme": SEED_SCHEME,
        }


def _rank(rank: int | None) -> int:
    """The one given (a data-parallel rank need not be the process group's), else the one known, else 0."""
    return spawn_key_element("rank", (known_rank() or 0) if rank is None else rank)


def _shared_seed(seed: int | Sequence[int] | None, num_replicas: int) -> int | Sequence[int] | None:
    if seed is not None or num_replicas == 1 or os.environ.get(SEED_VARIABLE):
        return seed
    group = process_group()
    if group is None:
        raise ValueError(
            f"{num_replicas} ranks must shuffle by one seed, and there is no process group to agree on one: pass seed=, "
            f"set {SEED_VARIABLE}, or call torch.distributed.init_process_group first"
        )
    return broadcast_from_rank_0(SeedTree(None).seed if group[0] == 0 else None)  # type: ignore[no-any-return]


@cache
def _give_note_once() -> None:
    logger.warning(NOTE)
