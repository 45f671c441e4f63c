"""Seeds, switches and random state where a process is used in unusual ways: threads, launchers, replaced generators."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from detaug import SeedTree
from detaug.training import (
    deterministic_mode,
    isolate_rng,
    seed_everything,
    set_deterministic_mode,
)


@pytest.fixture(autouse=True)
def _as_found(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("DETAUG_SEED", raising=False)
    threads = torch.get_num_threads()
    with isolate_rng(), deterministic_mode():
        torch.use_deterministic_algorithms(False)
        yield
    torch.set_num_threads(threads)


@pytest.mark.parametrize("seed", [2**62 + 1, 2**32, [4, 1], [2**70]])
def test_every_seed_that_a_seed_tree_takes_is_taken_also_from_the_environment(monkeypatch, seed) -> None:
    assert seed_everything(seed) == seed
    drawn = random.random(), np.random.random(), torch.rand(1).item()
    assert SeedTree(None).seed == seed  # through DETAUG_SEED
    assert seed_everything() == seed
    assert (random.random(), np.random.random(), torch.rand(1).item()) == drawn


def test_isolation_outlives_another_kind_of_numpy_generator() -> None:
    bits, state = np.random.get_bit_generator(), np.random.get_state(legacy=False)
    with isolate_rng():
        np.random.set_bit_generator(np.random.PCG64(1))
        np.random.random()
    assert np.random.get_bit_generator() is bits
    after = np.random.get_state(legacy=False)
    assert after["bit_generator"] == state["bit_generator"]
    assert np.array_equal(after["state"]["key"], state["state"]["key"])


class Stubborn(random.Random):
    def setstate(self, state):
        raise OSError("cannot be put back")


def test_isolation_shows_the_users_exception_and_not_its_own(caplog) -> None:
    with pytest.raises(KeyError, match="the user's"), isolate_rng(generators={"stubborn": Stubborn(1)}):
        raise KeyError("the user's")
    assert "could not be put back" in caplog.text
    with pytest.raises(OSError, match="cannot be put back"), isolate_rng(generators={"stubborn": Stubborn(1)}):
        pass


def test_isolation_is_a_decorator_without_brackets_too() -> None:
    @isolate_rng
    def draw(bound: int) -> int:
        """Draws."""
        return random.randrange(bound)

    state = random.getstate()
    assert draw(10) == draw(10)
    assert random.getstate() == state
    assert draw.__doc__ == "Draws."


def test_false_switches_off() -> None:
    set_deterministic_mode(True)
    changes = set_deterministic_mode(False)
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.backends.cudnn.deterministic
    assert "torch.use_deterministic_algorithms" in changes
    set_deterministic_mode(True)
    with deterministic_mode(False):
        assert not torch.are_deterministic_algorithms_enabled()
    assert torch.are_deterministic_algorithms_enabled()


def test_threads_and_cudnn_are_set_and_put_back() -> None:
    torch.set_num_threads(2)
    with deterministic_mode(threads=1, cudnn=False) as changes:
        assert torch.get_num_threads() == 1
        assert not torch.backends.cudnn.enabled
    assert changes["torch.get_num_threads"] == (2, 1)
    assert torch.get_num_threads() == 2
    assert torch.backends.cudnn.enabled
    with pytest.raises(ValueError, match="threads must be at least 1"), deterministic_mode(threads=0):
        pass


def test_without_a_number_of_threads_a_deterministic_run_on_a_cpu_says_so(caplog) -> None:
    seed_everything(1, deterministic=True)
    text = f"with {torch.get_num_threads()} threads"
    assert any(text in each.message for each in caplog.records) == (not torch.cuda.is_available())
    caplog.clear()
    seed_everything(1, deterministic=True, threads=1)
    assert torch.get_num_threads() == 1
    assert not [each for each in caplog.records if "threads" in each.message and each.levelname == "WARNING"]


def test_threads_between_operations_are_set_in_a_fresh_process() -> None:
    code = """
import torch
from detaug.training import seed_everything
seed_everything(1, deterministic=True, threads=1)
print(torch.get_num_threads(), torch.get_num_interop_threads())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["1", "1"], done.stderr
