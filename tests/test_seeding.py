"""The seed scheme: golden vectors, no aliases, ranges."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detaug import SeedTree
from detaug.seeding import entropy_words

# (seed, name, entropy, integer(), first raw draw of (epoch 3, step 17 of 5 streams), of its sample 2, of epoch 3)
GOLDEN = [
    (0, "", [0x538EF405, 0xF0E4F883, 0xF0061A8A, 0x3B05BBD1], 1142516675,
     0xB7CB5E91CBA35F1B, 0x4E62622061164530, 0xFAB8BF8B98A61512),
    (5, "", [0x64E45AAB, 0x64004CD6, 0x710BB26F, 0xFFBEAC83], 1812600214,
     0x0B1739E84BAE71CF, 0x6C88C2A1E7A5B2B1, 0xFC28A87655C8807F),
    ([5, 0], "", [0x9410DB6B, 0x8E54C0C7, 0xDC7306EE, 0x2D665290], 738157275,
     0x2CC61BACD4C9C2E0, 0xA2686769F796F42D, 0x7F5274A0987A09BA),
    (2**200 + 7, "", [0x7BE59D62, 0x860963D6, 0x4BD98970, 0x632A722F], 574051469,
     0x1D7F3E582F7AC7B7, 0x6E19735557D193FF, 0x4FE07FAA9AA165FA),
    (7, "train", [0x758642AB, 0xF0A49771, 0xF19E892A, 0x16A6C7A8], 181338617,
     0xFBA08365D432E3ED, 0x264EFE279B950558, 0xD7C98A48B8767311),
    (7, "a/b", [0x0A619BAC, 0x377037DC, 0xC82B9B69, 0xB8E560B8], 1034261877,
     0xC0EA79FFA2007D1D, 0xCD3AE118AA78718E, 0xF0763BB18DE4E9F1),
]  # fmt: skip


@pytest.mark.parametrize(("seed", "name", "entropy", "integer", "batch", "sample", "epoch"), GOLDEN)
def test_the_scheme_gives_the_published_numbers(seed, name, entropy, integer, batch, sample, epoch):
    tree = SeedTree(seed).child(name) if name else SeedTree(seed)
    assert tree.entropy == entropy
    assert tree.integer() == integer
    assert int(tree.generator(3, 17, num_streams=5).bit_generator.random_raw()) == batch
    assert int(tree.generator(3, 17, num_streams=5, sample=2).bit_generator.random_raw()) == sample
    assert int(tree.generator(3).bit_generator.random_raw()) == epoch


def test_the_encoding_is_the_published_one():
    def u32(number):
        return number.to_bytes(4, "little")

    encoded = b"detaug-seed" + u32(1) + b"l" + u32(2) + u32(1) + b"\x05" + u32(0) + u32(1) + u32(2) + b"ab"
    digest = hashlib.blake2b(encoded, digest_size=16).digest()
    assert SeedTree([5, 0]).child("ab").entropy == np.frombuffer(digest, "<u4").tolist()


def test_the_spawn_key_is_epoch_stream_turn_sample():
    tree = SeedTree(11)
    assert tree.sequence().spawn_key == ()
    assert tree.sequence(4).spawn_key == (4,)
    assert tree.sequence(4, stream=2).spawn_key == (4, 2)
    assert tree.sequence(4, 17, num_streams=5).spawn_key == (4, 2, 3)
    assert tree.sequence(4, 17, num_streams=5, sample=6).spawn_key == (4, 2, 3, 6)


@pytest.mark.parametrize(
    ("one", "other"),
    [(5, [5]), (5, [5, 0]), (2**32 + 9, [9, 1]), ([1, 2], [1, 2, 0]), ([0], [0, 0]), (0, [0]), (258, [1, 2])],
)
def test_what_seedsequence_alone_takes_for_one_is_two(one, other):
    assert SeedTree(one).entropy != SeedTree(other).entropy


def test_numpy_alone_does_alias():
    assert (
        np.random.SeedSequence(5).generate_state(2).tolist()
        == np.random.SeedSequence([5, 0]).generate_state(2).tolist()
    )


seeds = st.one_of(st.integers(0, 2**70), st.lists(st.integers(0, 2**70), min_size=1, max_size=4))
paths = st.lists(st.text(st.characters(exclude_characters="/", exclude_categories=("Cs",)), min_size=1), max_size=3)


@given(st.lists(st.tuples(seeds, paths), min_size=2, max_size=20))
def test_different_seeds_and_names_have_different_entropy(nodes):
    distinct = {(repr(seed), tuple(path)) for seed, path in nodes}
    assert len({entropy_words(seed, tuple(path)) for seed, path in nodes}) == len(distinct)


@given(seeds, paths)
def test_a_path_is_its_children_one_after_the_other(seed, path):
    tree = SeedTree(seed)
    for name in path:
        tree = tree.child(name)
    assert not path or tree == SeedTree(seed).child("/".join(path))


def test_children_share_nothing_with_their_parent_or_each_other():
    tree = SeedTree(3)
    nodes = [
        tree.sequence(),
        tree.sequence(0),
        tree.sequence(0, stream=0),
        tree.sequence(0, 0),
        tree.sequence(0, 0, 1, 0),
    ]
    nodes += [tree.sequence(0, 1, 4), tree.sequence(1, 0), tree.child("x").sequence(), tree.child("x/x").sequence()]
    draws = [tuple(node.generate_state(4).tolist()) for node in nodes]
    assert len(set(draws)) == len(draws)


@pytest.mark.parametrize("seed", [-1, [-1], [], [1, -2]])
def test_negative_and_empty_seeds_are_refused(seed):
    with pytest.raises(ValueError, match="seed"):
        SeedTree(seed)


@pytest.mark.parametrize("seed", [1.0, "7", True, [1.5], [True], {"a": 1}, np.float32(3)])
def test_seeds_that_are_no_integers_are_refused(seed):
    with pytest.raises(TypeError, match="seed"):
        SeedTree(seed)


def test_numpy_integers_are_integers():
    assert SeedTree(np.uint64(7)) == SeedTree(7)
    assert SeedTree(np.array([7, 8])) == SeedTree([7, 8])
    assert isinstance(SeedTree(np.int32(7)).seed, int)


@pytest.mark.parametrize(
    "arguments",
    [{"epoch": -1}, {"epoch": 2**32}, {"epoch": 0, "step": -1}, {"epoch": 0, "step": 2**32}, {"step": 1},
     {"epoch": 0, "sample": 1}, {"epoch": 0, "step": 0, "num_streams": 0}, {"epoch": 0, "step": 1, "stream": 1}],
)  # fmt: skip
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match=r"epoch|step|turn|num_streams"):
        SeedTree(1).sequence(**arguments)


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a//b"])
def test_empty_names_are_refused(name):
    with pytest.raises(ValueError, match="empty"):
        SeedTree(1).child(name)


@given(st.integers(1, 64))
def test_integer_has_that_many_bits(bits):
    drawn = [SeedTree(i).integer(bits) for i in range(40)]
    assert all(0 <= number < 2**bits for number in drawn)
    assert max(drawn) >= 2 ** (bits - 1)  # 40 draws without the top bit: one in 2**40


@pytest.mark.parametrize("bits", [0, 65, -1])
def test_integer_refuses_other_widths(bits):
    with pytest.raises(ValueError, match="bits"):
        SeedTree(1).integer(bits)


@pytest.mark.parametrize("text", ["abc", "-1", "1,x", "1.5"])
def test_a_bad_seed_in_the_environment_is_named(monkeypatch, text):
    monkeypatch.setenv("DETAUG_SEED", text)
    with pytest.raises(ValueError, match="DETAUG_SEED"):
        SeedTree()


def test_the_environment_gives_the_seed(monkeypatch):
    monkeypatch.setenv("DETAUG_SEED", "41")
    assert SeedTree().seed == 41
    assert SeedTree(3).seed == 3
    monkeypatch.setenv("DETAUG_SEED", "4,1")
    assert SeedTree().seed == [4, 1]
