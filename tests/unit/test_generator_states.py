"""States that are written against what NumPy, Python and torch make of them."""

from __future__ import annotations

import random

import numpy as np
import torch

from detaug.seeding.generator_kinds import (
    MT19937_BYTES,
    random_bytes,
    seed_python_random,
    seed_random_state,
    write_torch_state,
)
from detaug.seeding.tree import of_part


def child(*key: int) -> np.random.SeedSequence:
    return np.random.SeedSequence((1, 2, 3, 4), spawn_key=key)


def test_the_second_normal_of_a_pair_is_forgotten() -> None:
    class Own(np.random.RandomState):
        pass

    for state in (np.random.RandomState(3), Own(3), np.random.mtrand._rand):
        seed_random_state(state, child(0, 0, 5))
        expected = state.standard_normal(3)
        state.standard_normal(4)  # a second one is left
        seed_random_state(state, child(0, 0, 5))
        assert state.standard_normal(3).tolist() == expected.tolist()


def test_parts_have_branches_of_their_own() -> None:
    children = [child(0, 0, turn) for turn in range(20)]
    parts = [of_part(each, part) for each in children for part in (b"a" * 16, b"b" * 16)]
    assert len({tuple(each.generate_state(4)) for each in [*parts, *children]}) == 60
    assert tuple(of_part(child(5), b"a" * 16).generate_state(2)) == (3610809966, 648277738)


def test_random_bytes_are_those_of_sfc64() -> None:
    expected = np.random.SFC64(child(3)).random_raw(100).tobytes()
    assert random_bytes(child(3), 800) == expected
    assert random_bytes(child(3), 5) == expected[:5]


def test_states_hold_all_words_and_no_second_normal() -> None:
    node = child(5, 6, 7)
    words = np.frombuffer(random_bytes(node, MT19937_BYTES), np.uint32).tolist()
    words[0] = 1 << 31
    python, numpys, torchs = random.Random(1), np.random.RandomState(1), torch.Generator()
    python.gauss(0, 1)
    numpys.standard_normal()
    torch.randn(3, generator=torchs)

    seed_python_random(python, node)
    assert python.getstate() == (3, (*words, 624), None)
    seed_random_state(numpys, node)
    state = numpys.get_state(legacy=False)
    assert state["state"]["key"].tolist() == words
    assert (state["state"]["pos"], state["has_gauss"]) == (624, 0)
    write_torch_state(torchs, node)
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
    generator = Listening()
    seed_python_random(generator, child(5))
    assert generator.heard == sum(word << 32 * i for i, word in enumerate(child(5).generate_state(8).tolist()))
