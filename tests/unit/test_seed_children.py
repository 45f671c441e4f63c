"""`Child` against NumPy's SeedSequence, and states written in place against what NumPy, Python and torch make of them."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from detaug.seeding.children import Child
from detaug.seeding.generator_kinds import (
    MT19937_BYTES,
    random_bytes,
    seed_python_random,
    seed_random_state,
    write_torch_state,
)

EDGES = (0, 1, 2**31, 2**32 - 1)


def pairs(count: int = 500) -> list[tuple[Child, np.random.SeedSequence]]:
    """Children of all depths, also with zeros and the largest numbers in entropy and key, and NumPy's own."""
    rng = np.random.default_rng(3)

    def number() -> int:
        return EDGES[rng.integers(4)] if rng.random() < 0.3 else int(rng.integers(2**32))

    found = []
    for _ in range(count):
        entropy, key = (tuple(number() for _ in range(n)) for n in (4, 1 + rng.integers(4)))
        found.append((Child(entropy, key), np.random.SeedSequence(entropy, spawn_key=key)))
    return found


def test_words_are_numpys() -> None:
    for child, theirs in pairs():
        assert child.words(16) == theirs.generate_state(16).tolist()


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
@pytest.mark.parametrize("count", [1, 4, 8, 16, 40])
def test_states_are_numpys(count: int, dtype: type) -> None:
    for child, theirs in pairs(20):
        ours = child.generate_state(count, dtype)
        assert ours.dtype == dtype
        assert ours.tolist() == theirs.generate_state(count, dtype).tolist()


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "SFC64", "Philox", "MT19937"])
def test_bit_generators_take_children(kind: str) -> None:
    for child, theirs in pairs(10):
        ours, expected = (getattr(np.random, kind)(seed) for seed in (child, theirs))
        assert ours.random_raw(5).tolist() == expected.random_raw(5).tolist()


def test_generators_of_children_spawn_as_numpys() -> None:
    for child, theirs in pairs(20):
        ours, numpys = (np.random.Generator(np.random.PCG64DXSM(each)) for each in (child, theirs))
        for count in (2, 1):
            spawned = zip(ours.spawn(count), numpys.spawn(count), strict=True)
            assert all(one.random() == other.random() for one, other in spawned)


def test_three_words_of_neighbours_are_numpys() -> None:
    for child, _ in pairs(50):
        last = child.key[-1]
        for number in {last, max(0, last - 1), min(2**32 - 1, last + 1), last // 16 * 16, last // 16 * 16 + 15}:
            key = (*child.key[:-1], number)
            theirs = np.random.SeedSequence(child.entropy, spawn_key=key).generate_state(3, np.uint64)
            assert Child(child.entropy, key).three_words() == tuple(theirs.tolist())


def test_the_second_normal_of_a_pair_is_forgotten() -> None:
    class Own(np.random.RandomState):
        pass

    for state in (np.random.RandomState(3), Own(3), np.random.mtrand._rand):
        child = Child((1, 2, 3, 4), (0, 0, 5))
        seed_random_state(state, child)
        expected = state.standard_normal(3)
        state.standard_normal(4)  # a second one is left
        seed_random_state(state, child)
        assert state.standard_normal(3).tolist() == expected.tolist()


def test_a_child_of_before_is_no_other() -> None:
    first, *others = (Child((1, 2, 3, 4), (0, 0, turn)) for turn in range(50))
    words = first.words(6)
    assert all(other.words(6) != words for other in others)
    assert first.words(6) == words


def test_parts_have_branches_of_their_own() -> None:
    children = [Child((1, 2, 3, 4), (0, 0, turn)) for turn in range(20)]
    drawn = [tuple(child.of_part(part).words(4)) for child in children for part in (b"a" * 16, b"b" * 16)]
    assert len({*drawn, *(tuple(child.words(4)) for child in children)}) == 60


def test_random_bytes_are_those_of_sfc64() -> None:
    for child, theirs in pairs(20):
        expected = np.random.SFC64(theirs).random_raw(100).tobytes()
        assert random_bytes(child, 800) == random_bytes(theirs, 800) == expected
        assert random_bytes(child, 5) == expected[:5]


def test_states_hold_all_words_and_no_second_normal() -> None:
    child = Child((1, 2, 3, 4), (5, 6, 7))
    words = np.frombuffer(random_bytes(child, MT19937_BYTES), np.uint32).tolist()
    words[0] = 1 << 31
    python, numpys, torchs = random.Random(1), np.random.RandomState(1), torch.Generator()
    python.gauss(0, 1)
    numpys.standard_normal()
    torch.randn(3, generator=torchs)

    seed_python_random(python, child)
    assert python.getstate() == (3, (*words, 624), None)
    seed_random_state(numpys, child)
    state = numpys.get_state(legacy=False)
    assert state["state"]["key"].tolist() == words
    assert (state["state"]["pos"], state["has_gauss"]) == (624, 0)
    write_torch_state(torchs, child)
    assert torch.randint(2**24, (8,), generator=torchs).tolist() == _drawn_by_mersenne(words, 8)


def _drawn_by_mersenne(words: list[int], count: int) -> list[int]:
    python = random.Random()
    python.setstate((3, (*words, 624), None))
    return [python.getrandbits(32) % 2**24 for _ in range(count)]


class Listening(random.Random):
    def seed(self, number: object = None, version: int = 2) -> None:
        self.heard = number
        super().seed(0)


def test_a_subclass_with_a_seed_of_its_own_is_asked() -> None:
    generator, child = Listening(), Child((1, 2, 3, 4), (5,))
    seed_python_random(generator, child)
    assert generator.heard == sum(word << 32 * i for i, word in enumerate(child.words(8)))
