"""SeedTree: one child per epoch, stream, batch and sample, no two of them aliases."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import detaug
from detaug import SeedTree

SEEDS = st.one_of(st.integers(0, 3), st.integers(0, 2**256), st.lists(st.integers(0, 2**64), min_size=1, max_size=5))
LETTERS = st.characters(exclude_characters="/", exclude_categories=["Cs"])
NAMES = st.lists(st.text(LETTERS, min_size=1, max_size=5), max_size=3)
U32 = st.integers(0, 2**32 - 1)


def drawn(generator: np.random.Generator) -> tuple[int, ...]:
    return tuple(int(x) for x in generator.integers(2**63, size=3))


def start(tree: SeedTree) -> tuple[int, ...]:
    return drawn(tree.generator(0, 0))


def path(seed: Any, names: list[str]) -> SeedTree:
    tree = SeedTree(seed)
    for name in names:
        tree = tree.child(name)
    return tree


def as_words(seed: Any) -> Any:
    """5 and [5] may be one seed; everything else that differs is another."""
    return tuple(seed) if isinstance(seed, list) and len(seed) != 1 else (seed[0] if isinstance(seed, list) else seed)


@pytest.mark.parametrize(
    ("one", "other"),
    [(5, [5, 0]), ([5], [5, 0]), (2**32 + 9, [9, 1]), ([2**32 + 9], [9, 1]), (0, [0, 0]), ([1, 0], [1, 0, 0]),
     (2**64, [0, 0, 1]), ([1, 2**32], [1, 0, 1]), ([12, 3], [1, 23]), (0, 1), (2**128, 2**128 + 1), (0, 2**128),
     (255, [255, 0, 0, 0])],
)  # fmt: skip
def test_seeds_that_numpy_confuses_are_told_apart(one: Any, other: Any) -> None:
    assert start(SeedTree(one)) != start(SeedTree(other))
    assert SeedTree(one).integer() != SeedTree(other).integer()


@settings(max_examples=300, deadline=None)
@given(SEEDS, SEEDS, NAMES, NAMES)
def test_another_seed_or_name_path_is_another_tree(a: Any, b: Any, names: list[str], others: list[str]) -> None:
    assume((as_words(a), names) != (as_words(b), others))
    assert start(path(a, names)) != start(path(b, others))


@settings(max_examples=100, deadline=None)
@given(SEEDS, NAMES)
def test_equal_trees_draw_equal_numbers(seed: Any, names: list[str]) -> None:
    assert start(path(seed, names)) == start(path(seed, names))
    if names:
        assert start(path(seed, names)) == start(SeedTree(seed).child("/".join(names)))
    assert start(pickle.loads(pickle.dumps(path(seed, names)))) == start(path(seed, names))


def test_slash_in_a_name_is_a_step_down() -> None:
    one, other = SeedTree(7).child("a/b"), SeedTree(7).child("a").child("b")
    assert start(one) == start(other)
    assert one.integer() == other.integer()
    assert start(SeedTree(7).child("ab")) != start(one)
    assert start(SeedTree(7).child("a").child("bc")) != start(SeedTree(7).child("ab").child("c"))


def test_tree_equals_an_equal_tree() -> None:
    assert SeedTree(7).child("a/b") == SeedTree(7).child("a").child("b")
    assert SeedTree(7) != SeedTree(8)


def test_making_children_does_not_change_a_tree() -> None:
    tree = SeedTree(7)
    before = start(tree)
    tree.child("x").child("y")
    tree.integer()
    tree.sequence(3)
    assert start(tree) == before
    assert start(tree.child("x")) == start(SeedTree(7).child("x"))


KEYS = st.tuples(U32, U32, st.one_of(st.none(), U32))


@settings(max_examples=300, deadline=None)
@given(KEYS, KEYS, st.integers(1, 9))
def test_no_two_keys_give_the_same_numbers(one: Any, other: Any, num_streams: int) -> None:
    assume(one != other)
    tree = SeedTree(1)
    a, b = (drawn(tree.generator(e, s, num_streams=num_streams, sample=i)) for e, s, i in (one, other))
    assert a != b


def test_thousands_of_neighbouring_children_are_all_different() -> None:
    seen = []
    for seed in range(3):
        for name in ("", "a", "b"):
            tree = SeedTree(seed).child(name) if name else SeedTree(seed)
            for epoch in range(5):
                for step in range(12):
                    seen += [drawn(tree.generator(epoch, step, num_streams=3, sample=i)) for i in (None, 0, 1, 2)]
    assert len(set(seen)) == len(seen) == 3 * 3 * 5 * 12 * 4
    assert len({each[0] for each in seen}) == len(seen)


@pytest.mark.parametrize("num_streams", [1, 2, 3, 8])
def test_sequence_follows_the_published_path(num_streams: int) -> None:
    tree = SeedTree(5).child("train")
    for epoch, step in [(0, 0), (3, 7), (2**32 - 1, 100)]:
        sequence = tree.sequence(epoch, step, num_streams=num_streams)
        assert isinstance(sequence, np.random.SeedSequence)
        assert sequence.spawn_key == (epoch, step % num_streams, step // num_streams)
        words = np.atleast_1d(np.asarray(sequence.entropy))
        assert len(words) == 4
        assert all(0 <= int(word) < 2**32 for word in words)
        below = tree.sequence(epoch, step, num_streams=num_streams, sample=4)
        assert below.spawn_key == (*sequence.spawn_key, 4)
        generator = np.random.Generator(np.random.PCG64DXSM(tree.sequence(epoch, step, num_streams=num_streams)))
        assert drawn(generator) == drawn(tree.generator(epoch, step, num_streams=num_streams))
    assert tree.sequence(6).spawn_key == (6,)
    assert list(tree.sequence(6).entropy) == list(tree.sequence(9, 1).entropy)


def test_generator_is_pcg64dxsm() -> None:
    assert isinstance(SeedTree(1).generator(0, 0).bit_generator, np.random.PCG64DXSM)


def test_number_of_streams_changes_who_makes_a_step() -> None:
    tree = SeedTree(1)
    assert drawn(tree.generator(0, 0, num_streams=1)) == drawn(tree.generator(0, 0, num_streams=4))
    assert drawn(tree.generator(0, 5, num_streams=1)) != drawn(tree.generator(0, 5, num_streams=4))
    assert drawn(tree.generator(0, 4, num_streams=4)) == drawn(tree.generator(0, 1, num_streams=1))


@pytest.mark.parametrize("bits", [1, 8, 31, 32, 53, 63, 64])
def test_integer_has_as_many_bits_as_asked_for(bits: int) -> None:
    values = [SeedTree(seed).child("torch").integer(bits=bits) for seed in range(200)]
    assert all(type(value) is int and 0 <= value < 2**bits for value in values)
    assert max(values) >= 2 ** (bits - 1)
    assert values == [SeedTree(seed).child("torch").integer(bits=bits) for seed in range(200)]
    if bits >= 31:
        assert len(set(values)) == 200


def test_integer_has_31_bits_unless_told() -> None:
    assert SeedTree(1).integer() == SeedTree(1).integer(bits=31) < 2**31


@pytest.mark.parametrize("bits", [0, -1, 65])
def test_integer_of_no_or_too_many_bits_is_refused(bits: int) -> None:
    with pytest.raises(ValueError, match=str(bits)):
        SeedTree(1).integer(bits=bits)


@pytest.mark.parametrize("seed", [-1, [1, -1], [], 1.0, "1", [1.5], [[1]], b"1", {1}, object(), np.float64(2), np.nan])
def test_seed_that_is_no_non_negative_int_is_refused(seed: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        SeedTree(seed)


def test_numpy_ints_and_arrays_are_seeds_like_their_values() -> None:
    assert start(SeedTree(np.int64(5))) == start(SeedTree(np.uint8(5))) == start(SeedTree(5))
    assert start(SeedTree([np.int32(1), np.uint64(2)])) == start(SeedTree((1, 2))) == start(SeedTree([1, 2]))


@pytest.mark.parametrize(
    ("epoch", "step", "options"),
    [(-1, 0, {}), (2**32, 0, {}), (0, -1, {}), (0, 2**32, {}), (0, 3 * 2**32, {"num_streams": 3}),
     (0, 0, {"sample": -1}), (0, 0, {"sample": 2**32}), (0, 0, {"num_streams": 0}), (0, 0, {"num_streams": -2})],
)  # fmt: skip
def test_key_out_of_range_is_refused(epoch: int, step: int, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"epoch|step|turn|sample|num_streams"):
        SeedTree(1).generator(epoch, step, **options)


@pytest.mark.parametrize(("epoch", "step"), [(0.0, 0), (0, 1.5), ("0", 0), (None, 0)])
def test_key_that_is_no_int_is_refused(epoch: Any, step: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        SeedTree(1).generator(epoch, step)


def test_largest_key_there_is_works() -> None:
    top = 2**32 - 1
    drawn(SeedTree(1).generator(top, 3 * 2**32 - 1, num_streams=3, sample=top))


@pytest.mark.parametrize("name", [3, None, b"a", ["a"]])
def test_name_that_is_no_text_is_refused(name: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        SeedTree(1).child(name)


def test_names_of_any_script_work() -> None:
    assert start(SeedTree(1).child("größe")) != start(SeedTree(1).child("grosse"))
    composed, decomposed = "\u00e9", "e\u0301"
    assert start(SeedTree(1).child(composed)) != start(SeedTree(1).child(decomposed))


def test_same_numbers_in_another_process() -> None:
    code = """
from detaug import SeedTree
print(SeedTree([1, 2]).child("a/b").generator(3, 4, num_streams=2).integers(2**63, size=3).tolist())
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(detaug.__file__).parent.parent), "PYTHONHASHSEED": "7"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    expected = SeedTree([1, 2]).child("a").child("b").generator(3, 4, num_streams=2)
    assert run.stdout.strip() == str(list(drawn(expected)))
