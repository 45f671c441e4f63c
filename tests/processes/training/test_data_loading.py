"""DataLoader helpers: distinct and repeatable streams in real workers; samplers; and what they cannot do."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import types
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, Dataset, DistributedSampler, get_worker_info

from detaug import SeedTree, StateMismatch
from detaug.seeding.global_generators import preserved_global_rngs
from detaug.training import data_loading
from detaug.training.data_loading import EpochSampler, generator, worker_init_fn


class Draws(Dataset):
    """Sample i is its index, its worker, and one number from each of the global generators."""

    def __init__(self, length=12):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        info = get_worker_info()
        drawn = random.getrandbits(62), int(np.random.randint(2**62)), int(torch.randint(2**62, ()))
        return i, -1 if info is None else info.id, drawn


def epoch_of(loader):
    """[(index, worker, draws)] of one pass."""
    return [sample for batch in loader for sample in batch]


def loader(num_workers=2, seed=7, length=12, **kwargs):
    defaults = {"worker_init_fn": worker_init_fn, "generator": None if seed is None else generator(seed)}
    return DataLoader(Draws(length), 2, num_workers=num_workers, collate_fn=list, **{**defaults, **kwargs})


@pytest.fixture(autouse=True)
def _own_random_state(monkeypatch):
    for variable in ("RANK", "WORLD_SIZE", "DETAUG_SEED"):
        monkeypatch.delenv(variable, raising=False)
    with preserved_global_rngs():
        yield


@pytest.fixture
def drawn_after(monkeypatch):
    """The three numbers that follow a worker's seeding, here."""

    def draw(worker, base_seed=7, rank=0):
        info = types.SimpleNamespace(id=worker, seed=base_seed + worker)
        monkeypatch.setattr(data_loading, "get_worker_info", lambda: info)
        monkeypatch.setenv("RANK", str(rank))
        worker_init_fn(worker)
        return random.getrandbits(32), int(np.random.randint(2**31)), int(torch.randint(2**31, ()))

    return draw


# ----- worker_init_fn


def test_every_seed_rank_and_worker_has_its_own_streams(drawn_after):
    nodes = [(worker, seed, rank) for seed in (0, 1, 7) for rank in range(3) for worker in range(3)]
    draws = [drawn_after(*node) for node in nodes]
    for stream in zip(*draws, strict=True):
        assert len(set(stream)) == len(nodes)
    assert [drawn_after(*node) for node in nodes] == draws


def test_added_seeds_do_share_streams(drawn_after):
    """What this is there for: torch's own rule gives worker 1 of one seed what worker 0 of the next has."""

    def torchs_rule(base_seed, worker):
        torch.manual_seed(base_seed + worker)
        return torch.rand(3).tolist()

    assert torchs_rule(7, 1) == torchs_rule(8, 0)
    assert drawn_after(1, base_seed=7) != drawn_after(0, base_seed=8)


def test_these_numbers_never_change(drawn_after):
    assert generator(7, rank=1, epoch=3).initial_seed() == GOLDEN_GENERATOR
    assert list(EpochSampler(range(10), seed=7)) == GOLDEN_ORDER
    assert drawn_after(2, base_seed=1000003, rank=1) == GOLDEN_WORKER


GOLDEN_WORKER = (2443055912, 852694646, 1822895529)
GOLDEN_GENERATOR = 199916116783627138
GOLDEN_ORDER = [5, 2, 9, 8, 3, 0, 1, 6, 4, 7]


def test_a_loader_is_repeated_and_its_workers_and_epochs_differ():
    first, again = loader(3), loader(3)
    epochs = [epoch_of(first) for _ in range(2)]
    assert epochs == [epoch_of(again) for _ in range(2)]
    for stream in range(3):
        numbers = [draws[stream] for epoch in epochs for _, _, draws in epoch]
        assert len(set(numbers)) == 24
    assert {worker for _, worker, _ in epochs[0]} == {0, 1, 2}
    assert epoch_of(loader(3, seed=8)) != epochs[0]


def test_without_a_generator_torchs_global_seed_decides():
    torch.manual_seed(3)
    first = epoch_of(loader(seed=None))
    second = epoch_of(loader(seed=None))
    torch.manual_seed(3)
    assert epoch_of(loader(seed=None)) == first != second


def test_ranks_differ_even_where_every_rank_seeds_torch_alike(monkeypatch):
    def run():
        return epoch_of(loader(generator=torch.Generator().manual_seed(1)))

    first = run()
    monkeypatch.setenv("RANK", "1")
    second = run()
    numbers = [draws for epoch in (first, second) for _, _, draws in epoch]
    for stream in zip(*numbers, strict=True):
        assert len(set(stream)) == len(numbers)

    def stock():
        loaded = loader(generator=torch.Generator().manual_seed(1), worker_init_fn=None)
        return epoch_of(loaded)

    monkeypatch.setenv("RANK", "0")
    of_rank_0 = stock()
    monkeypatch.setenv("RANK", "1")
    assert stock() == of_rank_0  # torch alone: the same augmentation on every rank


@pytest.mark.slow
def test_spawned_workers_draw_the_same_as_forked_ones():
    spawned = epoch_of(loader(1, length=4, multiprocessing_context="spawn"))
    assert spawned == epoch_of(loader(1, length=4, multiprocessing_context="fork"))


def test_outside_of_a_worker_it_says_where_it_belongs():
    with pytest.raises(RuntimeError, match="pass it to the DataLoader"):
        worker_init_fn(0)


@pytest.mark.parametrize(
    ("kwargs", "error", "says"),
    [
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": "7"}, TypeError, "seed"),
        ({"seed": 1, "rank": -1}, ValueError, "rank"),
        ({"seed": 1, "epoch": 2**32}, ValueError, "epoch"),
    ],
)
def test_bad_arguments_are_refused(kwargs, error, says):
    with pytest.raises(error, match=says):
        generator(**kwargs)


# ----- what no seeding of workers can do


def test_the_number_of_workers_changes_the_numbers_but_not_the_order():
    by_workers = {n: epoch_of(loader(n, shuffle=True)) for n in (2, 3)}
    torch.manual_seed(0)
    by_workers[0] = epoch_of(loader(0, shuffle=True))
    orders = [[i for i, _, _ in epoch] for epoch in by_workers.values()]
    assert orders[0] == orders[1] == orders[2] != sorted(orders[0])
    numbers = [{i: draws for i, _, draws in epoch} for epoch in by_workers.values()]
    assert numbers[0] != numbers[1] != numbers[2] != numbers[0]


def test_persistent_workers_are_seeded_once_and_cannot_be_resumed():
    kept = loader(2, persistent_workers=True)
    epochs = [epoch_of(kept) for _ in range(2)]
    again = loader(2, persistent_workers=True)
    assert epochs == [epoch_of(again) for _ in range(2)]
    fresh = loader(2)
    assert epoch_of(fresh) == epochs[0]
    assert epoch_of(fresh) != epochs[1]


def test_a_generator_can_be_on_any_device():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    made = generator(7, device=device)
    assert made.device.type == device
    draws = torch.rand(2, generator=made, device=device)
    assert torch.equal(draws, torch.rand(2, generator=generator(7, device=torch.device(device)), device=device))
    with pytest.raises(RuntimeError, match="nowhere"):
        generator(7, device="nowhere")


def test_generators_differ_by_seed_rank_and_epoch_and_are_repeated():
    nodes = [(seed, rank, epoch) for seed in (0, 1, [1]) for rank in range(4) for epoch in range(4)]
    seeds = [generator(seed, rank=rank, epoch=epoch).initial_seed() for seed, rank, epoch in nodes]
    assert len(set(seeds)) == len(nodes)
    assert seeds == [generator(seed, rank=rank, epoch=epoch).initial_seed() for seed, rank, epoch in nodes]
    assert generator(1).device.type == "cpu"


def test_a_generator_takes_rank_and_seed_from_the_environment(monkeypatch, caplog):
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("DETAUG_SEED", "5")
    assert generator().initial_seed() == generator(5, rank=2).initial_seed()
    monkeypatch.delenv("DETAUG_SEED")
    assert generator().initial_seed() != generator().initial_seed()
    assert caplog.text.count("no seed was given") == 2


def test_an_epoch_is_resumed_by_its_number():
    def run(start, end):
        return [epoch_of(loader(generator=generator(7, epoch=epoch), shuffle=True)) for epoch in range(start, end)]

    assert run(0, 4)[2:] == run(2, 4)


# ----- EpochSampler


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 60), st.integers(1, 7), st.integers(0, 5), st.booleans(), st.booleans())
def test_ranks_share_one_order_in_equal_parts(length, num_replicas, epoch, shuffle, drop_last):
    parts = []
    for rank in range(num_replicas):
        sampler = EpochSampler(
            range(length), seed=7, rank=rank, num_replicas=num_replicas, shuffle=shuffle, drop_last=drop_last
        )
        sampler.set_epoch(epoch)
        parts.append(list(sampler))
        assert len(sampler) == len(parts[-1])
    assert len({len(part) for part in parts}) == 1
    together = [index for turn in zip(*parts, strict=True) for index in turn]
    count = Counter(together)
    if drop_last:
        assert len(together) == length // num_replicas * num_replicas
        assert max(count.values(), default=1) == 1
    else:
        assert set(together) == set(range(length))
        assert max(count.values(), default=0) - min(count.values(), default=0) <= 1
    whole = EpochSampler(range(length), seed=7, rank=0, num_replicas=1, shuffle=shuffle)
    whole.set_epoch(epoch)
    assert together[:length] == list(whole)[: len(together)]


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 60), st.integers(1, 7), st.booleans())
def test_lengths_and_parts_without_shuffling_are_those_of_torchs_distributedsampler(length, num_replicas, drop_last):
    for rank in range(num_replicas):
        if drop_last and length < num_replicas:
            continue  # torch's gives a negative length
        ours = EpochSampler(
            range(length), rank=rank, num_replicas=num_replicas, shuffle=False, drop_last=drop_last, seed=0
        )
        theirs = DistributedSampler(range(length), num_replicas, rank, shuffle=False, drop_last=drop_last)
        assert len(ours) == len(theirs)
        assert list(ours) == list(theirs)


def test_epochs_and_seeds_have_their_own_orders():
    orders = {}
    for seed in range(4):
        sampler = EpochSampler(range(50), seed=seed)
        for epoch in range(4):
            sampler.set_epoch(epoch)
            orders[seed, epoch] = list(sampler)
            assert list(sampler) == orders[seed, epoch]
    assert len({tuple(order) for order in orders.values()}) == 16

    def theirs(seed, epoch):
        sampler = DistributedSampler(range(50), 1, 0, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert theirs(1, 0) == theirs(0, 1)  # torch adds


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_loader_stopped_in_mid_epoch_goes_on_there(num_workers):
    def make():
        sampler = EpochSampler(range(20), seed=7, rank=1, num_replicas=2)
        return sampler, DataLoader(range(20), 3, sampler=sampler, num_workers=num_workers, collate_fn=list)

    sampler, whole = make()
    expected = []
    for epoch in range(2, 4):
        sampler.set_epoch(epoch)
        expected += list(whole)

    sampler, stopped = make()
    sampler.set_epoch(2)
    batches = iter(stopped)
    had = [next(batches), next(batches)]
    ahead = sampler.state_dict()
    # workers' prefetching runs ahead of the training, here to the epoch's end
    assert (ahead["epoch"], ahead["samples"]) == ((2, 6) if num_workers == 0 else (3, 0))
    state = json.loads(json.dumps(sampler.state_dict(samples=6)))

    sampler, resumed = make()
    sampler.load_state_dict(state)
    for epoch in range(sampler.epoch, 4):
        sampler.set_epoch(epoch)
        had += list(resumed)
    assert had == expected


def test_a_state_from_the_end_of_an_epoch_goes_on_with_the_next():
    sampler, other = EpochSampler(range(9), seed=7), EpochSampler(range(9), seed=7)
    list(sampler)
    other.load_state_dict(sampler.state_dict())
    assert (other.epoch, sampler.state_dict()["samples"]) == (1, 0)
    other.load_state_dict(sampler.state_dict())
    other.set_epoch(1)
    sampler.set_epoch(1)
    assert list(other) == list(sampler)
    assert other.state_dict()["epoch"] == 2


def test_an_abandoned_pass_does_not_move_the_position():
    sampler = EpochSampler(range(9), seed=7)
    abandoned, walked = iter(sampler), iter(sampler)
    next(walked)
    list(abandoned)
    assert sampler.state_dict()["samples"] == 1


def test_states_of_another_order_are_refused():
    sampler = EpochSampler(range(9), seed=7)
    others = [
        EpochSampler(range(10), seed=7),
        EpochSampler(range(9), seed=8),
        EpochSampler(range(9), seed=7, rank=0, num_replicas=2),
        EpochSampler(range(9), seed=7, shuffle=False),
        EpochSampler(range(9), seed=7, drop_last=True),
    ]
    for other, says in zip(others, ("length", "seed is 7", "num_replicas", "shuffle", "drop_last"), strict=True):
        with pytest.raises(StateMismatch, match=says):
            other.load_state_dict(sampler.state_dict())
    with pytest.raises(StateMismatch, match=r"it has no .*epoch.*samples"):
        sampler.load_state_dict({})
    with pytest.raises(StateMismatch, match="99 samples"):
        sampler.load_state_dict({**sampler.state_dict(), "samples": 99})
    with pytest.raises(ValueError, match="within 0"):
        sampler.state_dict(samples=10)


def test_one_process_draws_a_seed_and_several_must_share_one(caplog, monkeypatch):
    sampler = EpochSampler(range(30))
    assert "no seed was given" in caplog.text
    assert list(sampler) == list(EpochSampler(range(30), seed=sampler.seed))
    with pytest.raises(ValueError, match="pass seed="):
        EpochSampler(range(30), rank=0, num_replicas=2)
    monkeypatch.setenv("DETAUG_SEED", "5")
    assert EpochSampler(range(30), rank=1, num_replicas=2).seed == 5


def test_lightning_leaves_the_sampler_in_place_where_it_would_replace_another():
    pl = pytest.importorskip("pytorch_lightning")
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    replaces = trainer._data_connector._requires_distributed_sampler
    data = range(10)
    assert replaces(DataLoader(data, shuffle=True))
    assert not replaces(DataLoader(data, sampler=EpochSampler(data, num_replicas=2, rank=1, seed=7)))


@pytest.mark.parametrize(
    ("kwargs", "error", "says"),
    [
        ({"dataset": iter([])}, TypeError, "length"),
        ({"rank": 2, "num_replicas": 2}, ValueError, r"rank 2, rank should be in the interval \[0, 1\]"),
        ({"rank": -1, "num_replicas": 2}, ValueError, "rank"),
        ({"num_replicas": 0}, ValueError, "num_replicas"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 0.5}, TypeError, "seed"),
    ],
)
def test_bad_samplers_are_refused(kwargs, error, says):
    with pytest.raises(error, match=says):
        EpochSampler(**{"dataset": range(9), "seed": 7, **kwargs})
    with pytest.raises(ValueError, match="epoch"):
        EpochSampler(range(9), seed=7).set_epoch(-1)


RANK_SCRIPT = """
import json, sys, torch, torch.distributed as dist
from torch.utils.data import DataLoader
from detaug.training.data_loading import EpochSampler, generator, worker_init_fn
rank, store, out = int(sys.argv[1]), sys.argv[2], sys.argv[3]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
class Draws(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return int(torch.randint(2**62, ()))
sampler = EpochSampler(range(11))
loader = DataLoader(Draws(), 2, num_workers=1, worker_init_fn=worker_init_fn, generator=torch.Generator().manual_seed(1))
said = dict(seed=sampler.seed, indices=list(sampler), rank=sampler.rank, generator=generator(7).initial_seed(),
            draws=[int(n) for batch in loader for n in batch])
json.dump(said, open(out, "w"))
dist.destroy_process_group()
"""


@pytest.mark.slow
def test_ranks_of_a_process_group_agree_on_a_seed_and_share_the_order(tmp_path):
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK_SCRIPT, str(rank), str(tmp_path / "store"), str(tmp_path / f"{rank}.json")],
            env=environment,
        )
        for rank in range(2)
    ]
    assert [process.wait(timeout=120) for process in ranks] == [0, 0]
    one, other = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert (one["rank"], other["rank"]) == (0, 1)
    assert one["seed"] == other["seed"]
    assert set(one["indices"]) | set(other["indices"]) == set(range(11))
    assert len(one["indices"]) == len(other["indices"]) == 6
    assert (one["generator"], other["generator"]) == tuple(generator(7, rank=rank).initial_seed() for rank in range(2))
    assert not set(one["draws"]) & set(other["draws"])
    assert SeedTree(one["seed"]).seed == one["seed"]
