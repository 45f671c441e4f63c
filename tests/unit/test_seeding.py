"""The seed scheme: golden vectors, no aliases, ranges."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from detaug import SeedTree
from detaug.seeding.tree import entropy_words

#: (seed, name, entropy, integer(), and three first raw draws: of epoch 3 and step 17 with 5
#: streams, of sample 2 of that batch, and of epoch 3).
GOLDEN = [
    (0, "", [0x0DEB7BC6, 0x07AC9689, 0x311ECCF9, 0xB0A972D9], 2118456516,
     0x12140ACDE5191285, 0x6F3925A2F2B50AC4, 0xBBBE6CFB4FF8A65E),
    (5, "", [0x5797B161, 0xFD2299E4, 0xEE803719, 0x06E5AD21], 1661025340,
     0x0D9949BA7C49FFE5, 0x8527F5871C5F141B, 0x277638CDE4FD1AA9),
    ([5, 0], "", [0x0E27EF6A, 0xC239849F, 0xF58DDA94, 0x621BA400], 635293038,
     0x306A66E025D365BB, 0xA05334AEB08F50EE, 0x245E6D927193674D),
    (2**200 + 7, "", [0x45DAC887, 0x1EDCA589, 0xC902EA09, 0xBEC7C92A], 912935041,
     0x565B86ABB69585C6, 0x008F1238771FE816, 0x51F5380323A2AB90),
    (7, "train", [0x3CDF6F5F, 0xC1804AB2, 0xA7054129, 0xF37DACF6], 659648650,
     0xCB34A4DCCA585B79, 0x2C1A93CF4CFD9C73, 0x10030CFCFA8833C2),
    (7, "a/b", [0x2C4345C6, 0xD971A097, 0xF2E27937, 0x17F15A71], 55189271,
     0xB8FBDBF7FDFBAA8F, 0xCFBEDD5F3CEA1895, 0x797A7939792ED31A),
]  # fmt: skip


def first_word(generator):
    return int(generator.bit_generator.random_raw())


@pytest.mark.parametrize(("seed", "name", "entropy", "integer", "batch", "sample", "epoch"), GOLDEN)
def test_the_scheme_gives_the_published_numbers(seed, name, entropy, integer, batch, sample, epoch):
    tree = SeedTree(seed)
    if name:
        tree = tree.child(name)
    assert tree.entropy == entropy
    assert tree.integer() == integer
    assert first_word(tree.generator(3, 17, num_streams=5)) == batch
    assert first_word(tree.generator(3, 17, num_streams=5, sample=2)) == sample
    assert first_word(tree.generator(3)) == epoch


def u32(number):
    return number.to_bytes(4, "little")


def test_the_encoding_is_the_published_one():
    parts = [
        b"detaug-seed",
        u32(2),
        b"l",
        u32(2),
        u32(1),
        b"\x05",
        u32(0),
        u32(1),
        u32(2),
        b"ab",
    ]
    digest = hashlib.blake2b(b"".join(parts), digest_size=16).digest()
    assert SeedTree([5, 0]).child("ab").entropy == np.frombuffer(digest, "<u4").tolist()


def test_the_spawn_key_is_epoch_stream_turn_sample():
    tree = SeedTree(11)
    assert tree.sequence().spawn_key == ()
    assert tree.sequence(4).spawn_key == (4,)
    assert tree.sequence(4, 17, num_streams=5).spawn_key == (4, 2, 3)
    assert tree.sequence(4, 17, num_streams=5, sample=6).spawn_key == (4, 2, 3, 6)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (5, [5]),
        (5, [5, 0]),
        (2**32 + 9, [9, 1]),
        ([1, 2], [1, 2, 0]),
        ([0], [0, 0]),
        (0, [0]),
        (258, [1, 2]),
    ],
)
def test_what_seedsequence_alone_takes_for_one_is_two(one, other):
    assert SeedTree(one).entropy != SeedTree(other).entropy


seeds = st.one_of(st.integers(0, 2**70), st.lists(st.integers(0, 2**70), min_size=1, max_size=4))
paths = st.lists(
    st.text(st.characters(exclude_characters="/", exclude_categories=("Cs",)), min_size=1),
    max_size=3,
)


@given(st.lists(st.tuples(seeds, paths), min_size=2, max_size=20))
def test_different_seeds_and_names_have_different_entropy(nodes):
    distinct = {(repr(seed), tuple(path)) for seed, path in nodes}
    assert len({entropy_words(seed, tuple(path)) for seed, path in nodes}) == len(distinct)


@given(seeds, paths)
def test_a_path_is_its_children_one_after_the_other(seed, path):
    tree = SeedTree(seed)
    for name in path:
        tree = tree.child(name)
    assert not path or tree.entropy == SeedTree(seed).child("/".join(path)).entropy


WORDS = st.integers(0, 2**32 - 1)
KEYS = st.tuples(WORDS, WORDS, st.none() | WORDS)


@given(KEYS, KEYS, st.integers(1, 9))
def test_no_two_keys_give_the_same_numbers(one, other, num_streams):
    tree = SeedTree(1)

    def words(epoch, step, sample):
        generator = tree.generator(epoch, step, num_streams=num_streams, sample=sample)
        return generator.bit_generator.random_raw(3).tolist()

    assert (words(*one) == words(*other)) is (one == other)


def test_children_share_nothing_with_their_parent_or_each_other():
    tree = SeedTree(3)
    nodes = [
        tree.sequence(),
        tree.sequence(0),
        tree.sequence(0, 0),
        tree.sequence(0, 0, 1, 0),
        tree.sequence(0, 1, 4),
        tree.sequence(1, 0),
        tree.child("x").sequence(),
        tree.child("x/x").sequence(),
    ]
    draws = {node.generate_state(4).tobytes() for node in nodes}
    assert len(draws) == len(nodes)


@pytest.mark.parametrize(
    ("seeds", "error"),
    [
        ([-1, [-1], [], [1, -2]], ValueError),
        ([1.0, "7", True, [1.5], [True], {"a": 1}, np.float32(3)], TypeError),
    ],
)
def test_seeds_that_are_no_positive_integers_are_refused(seeds, error):
    for seed in seeds:
        with pytest.raises(error, match="seed"):
            SeedTree(seed)


def test_numpy_integers_are_integers():
    assert SeedTree(np.uint64(7)).entropy == SeedTree(7).entropy
    assert SeedTree(np.array([7, 8])).seed == [7, 8]
    assert isinstance(SeedTree(np.int32(7)).seed, int)


@pytest.mark.parametrize(
    "arguments",
    [
        {"epoch": -1},
        {"epoch": 2**32},
        {"epoch": 0, "step": -1},
        {"epoch": 0, "step": 2**32},
        {"step": 1},
        {"epoch": 0, "sample": 1},
        {"epoch": 0, "step": 0, "num_streams": 0},
    ],
)
def test_numbers_out_of_range_are_refused(arguments):
    with pytest.raises(ValueError, match=r"epoch|step|turn|num_streams"):
        SeedTree(1).sequence(**arguments)


@pytest.mark.parametrize("name", ["", "/", "a/", "/a", "a//b"])
def test_empty_names_are_refused(name):
    with pytest.raises(ValueError, match="empty"):
        SeedTree(1).child(name)


@pytest.mark.parametrize("bits", [1, 31, 64])
def test_integer_has_that_many_bits(bits):
    drawn = [SeedTree(seed).integer(bits) for seed in range(40)]
    assert min(drawn) >= 0
    assert max(drawn) < 2**bits
    # 40 draws without the top bit: one in 2**40.
    assert max(drawn) >= 2 ** (bits - 1)


@pytest.mark.parametrize("bits", [0, 65, -1])
def test_integer_has_1_to_64_bits(bits):
    with pytest.raises(ValueError, match="bits"):
        SeedTree(1).integer(bits)


@pytest.mark.parametrize("text", ["abc", "-1", "1,x", "1.5", "0x10"])
def test_a_bad_seed_in_the_environment_is_named(monkeypatch, text):
    monkeypatch.setenv("DETAUG_SEED", text)
    with pytest.raises(ValueError, match=f"DETAUG_SEED='{text}'"):
        SeedTree()


def test_the_environment_gives_the_seed(monkeypatch):
    monkeypatch.setenv("DETAUG_SEED", "41")
    assert SeedTree().seed == 41
    assert SeedTree(3).seed == 3
    monkeypatch.setenv("DETAUG_SEED", "4,1")
    assert SeedTree().seed == [4, 1]
