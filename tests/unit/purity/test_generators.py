"""Seeding generators in place: their state is a function of all bits of a seed sequence."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from detaug.seeding.generators import (
    MT19937_BYTES,
    random_bytes,
    seed_bit_generator,
    seed_python_random,
    seed_random_state,
    seed_torch_generator,
)
from detaug.seeding.reseeders import reseeder_of
from detaug.seeding.tree import of_part

NUMPY_KINDS = [
    np.random.MT19937,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
]


class Named(np.random.PCG64):
    """A subclass with a constructor of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(1)
        self.name = name


class Counting(random.Random):
    """A subclass that overrides `seed` and `random`."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        self.heard = a
        super().seed(a, version)

    def random(self) -> float:
        return super().random() / 2


def sequence(*key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([1, 2, 3, 4], spawn_key=key)


def numpy_draws(generator: np.random.Generator) -> Any:
    return [
        generator.random(3).tolist(),
        generator.integers(0, 9, 3, dtype=np.uint8).tolist(),
        generator.normal(),
    ]


def legacy_draws(state: np.random.RandomState) -> Any:
    # After an odd number of normals the second one of a pair stays in the cache.
    return [state.rand(3).tolist(), state.randn(1).tolist()]


def python_draws(generator: random.Random) -> Any:
    return [generator.random(), generator.gauss(0, 1), generator.getrandbits(100)]


def torch_draws(generator: torch.Generator) -> Any:
    return [
        torch.rand(3, generator=generator).tolist(),
        torch.randn(1, generator=generator).tolist(),
        torch.randn(1, generator=generator, dtype=torch.float64).tolist(),
    ]


def over(kind: Any, bits: Any, argument: Any) -> Any:
    """Return a NumPy generator with a new bit generator."""
    return kind(bits(argument))


#: Name -> (function that makes a generator, function that draws from it).
CASES: dict[str, tuple[Any, Any]] = {
    "subclass of PCG64": (partial(over, np.random.Generator, Named, "x"), numpy_draws),
    "random.Random": (partial(random.Random, 7), python_draws),
    "subclass of random.Random": (partial(Counting, 7), python_draws),
    "torch.Generator": (torch.Generator, torch_draws),
}
for bits in NUMPY_KINDS:
    CASES[bits.__name__] = (partial(over, np.random.Generator, bits, 7), numpy_draws)
    make_state = partial(over, np.random.RandomState, bits, 7)
    CASES[f"RandomState over {bits.__name__}"] = (make_state, legacy_draws)


@pytest.mark.parametrize(("make", "draw"), CASES.values(), ids=CASES)
def test_the_same_sequence_alone_gives_the_same_draws_whatever_was_drawn_before(
    make: Any, draw: Any
) -> None:
    generator = make()
    other = make()
    reseed = reseeder_of(type(generator))
    assert reseed is not None
    child = sequence(3, 1)
    reseed(generator, child)
    expected = draw(generator)
    draw(generator)
    reseed(generator, child)
    assert draw(generator) == expected
    for _ in range(5):
        draw(other)
    reseed(other, sequence(3, 1))
    assert draw(other) == expected
    assert child.n_children_spawned == 0
    drawn = []
    for turn in range(20):
        reseed(generator, sequence(0, turn))
        drawn.append(str(draw(generator)))
    assert len(set(drawn)) == 20


def test_the_bit_generator_itself_and_one_that_numpy_does_not_know_are_seeded() -> None:
    generator = np.random.PCG64(1)
    seed_bit_generator(generator, sequence(4))
    assert generator.state == np.random.PCG64(sequence(4)).state
    named = Named("x")
    seed_bit_generator(named, sequence(4))
    assert named.state["bit_generator"] == "Named"
    assert named.random_raw(4).tolist() == np.random.PCG64(sequence(4)).random_raw(4).tolist()
    # It draws from the operating system and cannot be seeded.
    assert reseeder_of(random.SystemRandom) is None


def test_parts_have_branches_of_their_own() -> None:
    children = [sequence(0, 0, turn) for turn in range(20)]
    of_a = [of_part(child, b"a" * 16) for child in children]
    of_b = [of_part(child, b"b" * 16) for child in children]
    states = {node.generate_state(4).tobytes() for node in children + of_a + of_b}
    assert len(states) == 60
    assert tuple(of_part(sequence(5), b"a" * 16).generate_state(2)) == (3610809966, 648277738)


def test_states_hold_all_words_and_no_second_normal() -> None:
    node = sequence(5, 6, 7)
    assert random_bytes(node, 5) == np.random.SFC64(node).random_raw(1).tobytes()[:5]
    words = np.frombuffer(random_bytes(node, MT19937_BYTES), np.uint32).tolist()
    words[0] = 1 << 31
    python = random.Random(1)
    numpys = np.random.RandomState(1)
    torchs = torch.Generator()
    python.gauss(0, 1)
    numpys.standard_normal()
    torch.randn(3, generator=torchs)

    seed_python_random(python, node)
    assert python.getstate() == (3, (*words, 624), None)
    counting = Counting()
    seed_python_random(counting, node)
    words_of_seed = node.generate_state(8).astype("<u4")
    assert counting.heard == int.from_bytes(words_of_seed.tobytes(), "little")
    seed_random_state(numpys, node)
    state = numpys.get_state(legacy=False)
    assert state["state"]["key"].tolist() == words
    assert state["state"]["pos"] == 624
    assert state["has_gauss"] == 0
    seed_torch_generator(torchs, node)
    assert torchs.initial_seed() < 2**63
    assert torch.randint(2**24, (8,), generator=torchs).tolist() == _drawn_by_mersenne(words, 8)


def _drawn_by_mersenne(words: list[int], count: int) -> list[int]:
    """Return integers below 2**24 that a Mersenne Twister with these words draws."""
    python = random.Random()
    python.setstate((3, (*words, 624), None))
    return [python.getrandbits(32) % 2**24 for _ in range(count)]


@pytest.mark.parametrize("kind", NUMPY_KINDS)
def test_a_random_state_forgets_its_second_normal(kind: Any) -> None:
    state = np.random.RandomState(kind(7))
    state.standard_normal()
    assert state.get_state(legacy=False)["has_gauss"] == 1
    seed_random_state(state, sequence(5))
    new_state = state.get_state(legacy=False)
    assert new_state["has_gauss"] == 0
    assert new_state["gauss"] == 0.0
