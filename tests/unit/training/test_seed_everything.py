"""seed_everything: draws of all global generators, origins of the seed, exported variable, log."""

from __future__ import annotations

import logging
import os
import random

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter, SeedTree
from detaug.training import deterministic_mode, isolate_rng, seed_everything
from tests.support.logs import levels_of


def draws():
    return [random.random(), float(np.random.random()), float(torch.rand(1))]


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    for variable in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(variable, raising=False)
    # With a value to restore, monkeypatch undoes what a test sets.
    monkeypatch.setenv("DETAUG_SEED", "")
    with isolate_rng():
        yield


@pytest.fixture
def accelerator_seeds(monkeypatch):
    """Return the list of all seeds that CUDA devices get in a test."""
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    return seeds


def test_one_seed_draws_the_same_again_and_another_draws_anew():
    assert seed_everything(7) == 7
    first = draws()
    # Each of these leaves a second normal in a cache.
    random.gauss(0, 1)
    np.random.standard_normal()
    torch.randn(1)
    assert seed_everything(np.uint32(7)) == 7
    normals = [random.gauss(0, 1), np.random.standard_normal(), float(torch.randn(1))]
    seed_everything(7)
    assert draws() == first
    seed_everything(7)
    assert [random.gauss(0, 1), np.random.standard_normal(), float(torch.randn(1))] == normals
    seed_everything(8)
    assert all(a != b for a, b in zip(draws(), first, strict=True))


def test_the_words_are_those_of_the_seed_tree(accelerator_seeds):
    sequence = SeedTree(7).child("everything").sequence()
    python, numpys, torchs, _ = np.split(
        np.random.SFC64(sequence).random_raw(937).view("<u4"), (624, 1248, 1872)
    )
    words = sequence.generate_state(20, np.uint32)
    seed_everything(7)
    expected = random.Random()
    expected.setstate((3, (1 << 31, *python[1:].tolist(), 624), None))
    assert random.random() == expected.random()
    expected.setstate((3, (1 << 31, *numpys[1:].tolist(), 624), None))
    assert np.random.random() == expected.random()
    expected.setstate((3, (1 << 31, *torchs[1:].tolist(), 624), None))
    assert int(torch.randint(2**24, ())) == expected.getrandbits(32) % 2**24
    assert accelerator_seeds == [int(words[18]) | (int(words[19]) & 0x7FFFFFFF) << 32]


def test_no_two_of_neighbouring_seeds_and_ranks_draw_the_same(accelerator_seeds):
    drawn = []
    for seed in range(4):
        for rank in range(4):
            seed_everything(seed, rank=rank, diff_rank_seed=True)
            drawn.append([*draws(), accelerator_seeds[-1]])
    # If the rank were added to the seed, seed 0 on rank 1 would draw what seed 1 on rank 0 draws.
    for numbers_of_one_generator in zip(*drawn, strict=True):
        assert len(set(numbers_of_one_generator)) == 16


def test_the_rank_changes_nothing_unless_ranks_are_to_differ(accelerator_seeds):
    numbers = []
    for keywords in ({}, {"rank": 0}, {"rank": 3}):
        seed_everything(11, **keywords)
        numbers.append([*draws(), accelerator_seeds[-1]])
    assert numbers[0] == numbers[1] == numbers[2]
    assert seed_everything(11, rank=0, diff_rank_seed=True) == 11
    assert draws() != numbers[0][:3]


@pytest.mark.parametrize("seed", [33, 2**62 + 1, 2**32, [4, 1], [2**70]])
def test_workers_augmenters_and_later_calls_take_the_seed_from_the_environment(seed, caplog):
    assert seed_everything(seed) == seed
    drawn = draws()
    assert SeedTree(None).seed == seed
    with DeterministicAugmenter([{"x": np.zeros(1)}], None, 0) as augmenter:
        assert augmenter.seed == seed
    with caplog.at_level(logging.INFO, logger="detaug"):
        assert seed_everything() == seed
    assert draws() == drawn
    exported = os.environ["DETAUG_SEED"]
    assert f"seed={exported} (from DETAUG_SEED)" in caplog.text
    assert seed_everything(34, workers=False) == 34
    assert os.environ["DETAUG_SEED"] == exported


def test_a_wrong_variable_is_refused_and_named(monkeypatch):
    monkeypatch.setenv("DETAUG_SEED", "1.5")
    with pytest.raises(ValueError, match=r"DETAUG_SEED='1\.5'"):
        seed_everything()
    assert seed_everything(5, workers=False) == 5, "a given seed does not read it"


def test_without_any_seed_one_is_drawn_said_aloud_and_can_be_repeated(caplog):
    with caplog.at_level(logging.INFO, logger="detaug"):
        seed = seed_everything(workers=False)
    assert levels_of(caplog) == [logging.WARNING]
    assert f"seed={seed}" in caplog.text
    first = draws()
    assert 0 <= seed < 2**63
    assert seed_everything(seed) == seed
    assert draws() == first


@pytest.mark.parametrize(
    ("keywords", "error"),
    [
        ({"seed": -1}, ValueError),
        ({"rank": -1}, ValueError),
        ({"rank": 1.0}, TypeError),
        ({"rank": True}, TypeError),
        ({"rank": "0"}, TypeError),
        ({"deterministic": "yes"}, ValueError),
        ({"deterministic": 1}, TypeError),
        ({"deterministic": None}, TypeError),
        ({"workers": 4}, TypeError),
        ({"diff_rank_seed": "no"}, TypeError),
        # It has no effect without deterministic=True.
        ({"threads": 1}, ValueError),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_seeded(keywords, error):
    seed_everything(7)
    expected = draws()
    seed_everything(7)
    with pytest.raises(error, match=next(iter(keywords))):
        seed_everything(**{"seed": 8, **keywords})
    assert draws() == expected
    assert os.environ["DETAUG_SEED"] == "7"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: it draws there")
def test_cuda_devices_repeat_themselves():
    def draws_of_devices():
        seed_everything(5)
        devices = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
        return [torch.rand(4, device=device).cpu() for device in devices]

    for first, second in zip(draws_of_devices(), draws_of_devices(), strict=True):
        assert torch.equal(first, second)


def test_without_a_number_of_threads_a_deterministic_run_on_a_cpu_says_so(caplog):
    with deterministic_mode(threads=torch.get_num_threads()):
        seed_everything(1, deterministic=True)
    is_logged = f"with {torch.get_num_threads()} threads" in caplog.text
    assert is_logged != torch.cuda.is_available()
    caplog.clear()
    with deterministic_mode(threads=2):
        seed_everything(1, deterministic=True, threads=1)
        assert torch.get_num_threads() == 1
    for record in caplog.records:
        assert record.levelname != "WARNING" or "threads" not in record.message
