"""Seeding generators in place: the same sequence gives the same state, another one another, and no bit is lost."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from detaug.seeding.generator_kinds import child_of, seed_bit_generator, seed_random_state, write_torch_state
from detaug.seeding.reseeders import reseeder_of

NUMPY_KINDS = [np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64]


class Named(np.random.PCG64):
    """A subclass with a constructor of its own."""

    def __init__(self, name: str) -> None:
        super().__init__(1)
        self.name = name


class Counting(random.Random):
    """A subclass that writes `seed` and `random` anew."""

    def seed(self, a: Any = None, version: int = 2) -> None:
        self.counter = a
        super().seed(a, version)

    def random(self) -> float:
        return super().random() / 2


def sequence(*key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence([1, 2, 3, 4], spawn_key=key)


def numpy_draws(generator: np.random.Generator) -> Any:
    return [generator.random(3).tolist(), generator.integers(0, 9, 3, dtype=np.uint8).tolist(), generator.normal()]


def legacy_draws(state: np.random.RandomState) -> Any:
    return [state.rand(3).tolist(), state.randn(1).tolist()]  # an odd number: the second normal is kept for later


def python_draws(generator: random.Random) -> Any:
    return [generator.random(), generator.gauss(0, 1), generator.getrandbits(100)]


def torch_draws(generator: torch.Generator) -> Any:
    numbers = torch.rand(3, generator=generator).tolist() + torch.randn(1, generator=generator).tolist()
    return numbers + torch.randn(1, generator=generator, dtype=torch.float64).tolist()


CASES = [
    *[
        pytest.param(lambda kind=kind: np.random.Generator(kind(7)), numpy_draws, id=kind.__name__)
        for kind in NUMPY_KINDS
    ],
    pytest.param(lambda: np.random.Generator(Named("x")), numpy_draws, id="subclass of PCG64"),
    *[
        pytest.param(
            lambda kind=kind: np.random.RandomState(kind(7)), legacy_draws, id=f"RandomState over {kind.__name__}"
        )
        for kind in NUMPY_KINDS
    ],
    pytest.param(lambda: random.Random(7), python_draws, id="random.Random"),
    pytest.param(lambda: Counting(7), python_draws, id="subclass of random.Random"),
    pytest.param(torch.Generator, torch_draws, id="torch.Generator"),
]


@pytest.mark.parametrize(("make", "draw"), CASES)
def test_the_same_sequence_gives_the_same_draws_whatever_was_drawn_before(make: Any, draw: Any) -> None:
    generator, other = make(), make()
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


@pytest.mark.parametrize(("make", "draw"), CASES)
def test_different_sequences_give_different_draws(make: Any, draw: Any) -> None:
    generator = make()
    reseed = reseeder_of(type(generator))
    assert reseed is not None
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


def test_all_bits_of_the_sequence_reach_numpys_legacy_state_and_pythons() -> None:
    """Sequences that agree in the first 32 bits of their words would be one seed to `seed(int)`."""

    class Words(np.random.SeedSequence):
        def __init__(self, last: int) -> None:
            super().__init__(1)
            self.last = last

        def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
            words = np.full(n_words * np.dtype(dtype).itemsize // 4, 9, np.uint32)
            words[5:6] = self.last
            return words.view(dtype)

    states = []
    for last in (0, 1):
        legacy, python = np.random.RandomState(0), random.Random(0)
        seed_random_state(legacy, Words(last))
        reseed = reseeder_of(random.Random)
        assert reseed is not None
        reseed(python, Words(last))
        states.append((legacy.random_sample(), python.random()))
    assert states[0][0] != states[1][0]
    assert states[0][1] != states[1][1]


def test_the_systems_entropy_is_never_seeded() -> None:
    assert reseeder_of(random.SystemRandom) is None


def test_torch_state_holds_the_whole_twister_as_numpy_has_it() -> None:
    """A state written word by word draws what NumPy's Mersenne Twister draws from the same words."""
    generator = torch.Generator()
    write_torch_state(generator, sequence(2))
    words = generator.get_state().numpy()[24 : 24 + 8 * 624].view(np.uint64)
    twister = np.random.MT19937()
    state: Any = twister.state
    twister.state = {**state, "state": {"key": words.astype(np.uint32), "pos": 624}}
    drawn = torch.rand(2000, generator=generator)  # 24 bits of a word each
    assert drawn.tolist() == ((twister.random_raw(2000) & 0xFFFFFF) / 2.0**24).tolist()
    assert len(set(words.tolist())) > 620
    assert words.max() < 2**32
    assert words[0] == 0x80000000


def test_torch_state_is_as_new_after_it_was_used_and_tells_apart_more_than_32_bits() -> None:
    used, new = torch.Generator(), torch.Generator()
    torch.randn(1, generator=used, dtype=torch.float64)  # caches a normal
    torch.randn(1, generator=used)
    torch.rand(1000, generator=used)
    write_torch_state(used, sequence(1))
    write_torch_state(new, sequence(1))
    assert torch.equal(used.get_state(), new.get_state())
    assert used.initial_seed() == new.initial_seed() < 2**63
    assert len({_written(number).tobytes() for number in range(500)}) == 500
    ones = np.mean([np.unpackbits(_written(number).view(np.uint8)) for number in range(400)], axis=0)
    low_words = ones.reshape(624, 64)[1:, :32]
    assert low_words.min() > 0.3
    assert low_words.max() < 0.7


def _written(number: int) -> Any:
    generator = torch.Generator()
    write_torch_state(generator, sequence(number))
    return generator.get_state().numpy()[24 : 24 + 8 * 624].copy()


def test_the_default_generator_can_be_written_and_put_back() -> None:
    saved = torch.default_generator.get_state()
    try:
        write_torch_state(torch.default_generator, sequence(8))
        first = torch.rand(4)
        write_torch_state(torch.default_generator, sequence(8))
        assert torch.equal(torch.rand(4), first)
    finally:
        torch.default_generator.set_state(saved)


def test_child_of_meets_no_child_that_spawning_gives() -> None:
    parent = sequence(3)
    ours = {tuple(child_of(parent, key).generate_state(4)) for key in range(50)}
    spawned = {tuple(sequence(3, key).generate_state(4)) for key in range(50)}
    assert len(ours) == 50
    assert not ours & spawned
