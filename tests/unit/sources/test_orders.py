"""The order of an epoch is a pure function of the epoch's SeedSequence, however it is drawn."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare
from torch.utils.data import BatchSampler, SequentialSampler

from detaug import fingerprint
from detaug.pipeline.sources.orders import LARGE, Order, Sampled, Shuffled
from detaug.training import rng_state

ENTROPY = (1, 2, 3, 4)
#: The first entries of epoch 3 for LARGE + 1 items, and the order of epoch 0 for 10 items.
PUBLISHED_LARGE = [656566, 504146, 800810]
PUBLISHED = [7, 8, 6, 1, 0, 3, 2, 4, 5, 9]


class Own:
    """A sampler that draws from all kinds of generators and has `set_epoch`."""

    def __init__(self) -> None:
        self.numbers = np.random.default_rng(4)
        self.python = random.Random(4)
        self.torch = torch.Generator()
        self.legacy = np.random.RandomState(4)
        self.epoch = -1
        self.begun = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 9

    def __iter__(self) -> Iterator[Any]:
        self.begun += 1
        yield self.epoch
        yield self.begun
        yield random.randrange(999)
        yield np.random.randint(999)
        yield torch.randint(999, ())
        yield self.numbers.integers(999)
        yield self.python.randrange(999)
        yield torch.randint(999, (), generator=self.torch)
        yield self.legacy.randint(999)


class Short(list):
    """A list that claims to have another length."""

    def __len__(self) -> int:
        return 5


def of(order: Order, epoch: int = 0) -> list[Any]:
    """Return all entries of an epoch."""
    return order.entries(ENTROPY, epoch, 0, order.length)


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 5000), epoch=st.integers(0, 2**32 - 1), cut=st.integers(0, 5000))
def test_a_computed_permutation_has_every_item_once_wherever_it_is_cut(
    length: int, epoch: int, cut: int
) -> None:
    order = Shuffled(length, large=0)
    cut = min(cut, length)
    first = order.entries(ENTROPY, epoch, 0, cut)
    second = order.entries(ENTROPY, epoch, cut, length)
    whole = of(order, epoch)
    assert first + second == whole
    assert sorted(whole) == list(range(length))


@pytest.mark.parametrize("length", [40, 256])
def test_a_computed_permutation_puts_every_item_everywhere_equally_often(length: int) -> None:
    order = Shuffled(length, large=0)
    drawn = np.array([of(order, epoch) for epoch in range(3000)])
    for index in (0, 1, length // 2, length - 1):
        counts = np.bincount(drawn[:, index], minlength=length)
        assert chisquare(counts).pvalue > 1e-4
    # For two neighbours all differences modulo the length are equally probable, except 0.
    differences = np.diff(drawn, axis=1) % length
    some_differences = differences[:, :: length // 10].ravel()
    count_of_zero, *other_counts = np.bincount(some_differences, minlength=length)
    assert count_of_zero == 0
    assert chisquare(other_counts).pvalue > 1e-4


def test_a_computed_permutation_is_the_published_one() -> None:
    assert Shuffled(10, large=0).entries(ENTROPY, 0, 0, 10) == PUBLISHED
    assert Shuffled(LARGE + 1).entries(ENTROPY, 3, 0, 3) == PUBLISHED_LARGE


def test_large_data_sets_alone_have_a_computed_permutation_and_declare_it() -> None:
    assert of(Shuffled(100)) != of(Shuffled(100, large=99))
    assert Shuffled(LARGE).declared() == []
    assert Shuffled(LARGE + 1).declared() == ["permutation = Feistel"]


def test_ten_million_items_cost_nothing_before_the_first() -> None:
    order = Shuffled(10**7)
    assert len(set(order.entries(ENTROPY, 0, 9_999_000, 10**7))) == 1000


def test_a_sampler_starts_every_epoch_as_it_was_handed_in() -> None:
    sampler = Own()
    order = Sampled(sampler, "sampler")
    seventh = of(order, 7)
    # Changes of the user's own object have no effect any more.
    sampler.begun = 100
    torch.manual_seed(0)
    for epoch in (0, 3, 7):
        assert of(order, epoch) == of(Sampled(Own(), "sampler"), epoch)
    assert of(order, 7) == seventh
    epoch, begun, *draws = of(order, 3)
    assert epoch == 3
    assert begun == 1
    assert len(set(draws)) == 7, "the generators are seeded alike"
    for draw, draw_of_another_epoch in zip(draws, seventh[2:], strict=True):
        assert draw != draw_of_another_epoch


class Alike:
    """A sampler with two generators of one kind and seed."""

    def __init__(self) -> None:
        self.first = np.random.default_rng(4)
        self.second = np.random.default_rng(4)

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        yield self.first.integers(999_999)
        yield self.second.integers(999_999)


def test_each_generator_of_a_sampler_is_seeded_in_its_own_way() -> None:
    first, second = of(Sampled(Alike(), "sampler"))
    assert first != second


def test_drawing_an_order_leaves_the_programs_random_numbers_alone() -> None:
    state_before = fingerprint(rng_state())
    of(Sampled(Own(), "sampler"))
    assert fingerprint(rng_state()) == state_before


def test_a_batch_sampler_gives_lists() -> None:
    sampler = BatchSampler(SequentialSampler(range(5)), 2, False)
    order = Sampled(sampler, "batch_sampler", gives_batches=True)
    assert of(order) == [[0, 1], [2, 3], [4]]


def test_a_batch_without_samples_is_refused() -> None:
    order = Sampled([[1], []], "batch_sampler", gives_batches=True)
    with pytest.raises(
        ValueError, match=r"the batch_sampler \(list\) gave a batch without samples"
    ):
        of(order)


def test_another_number_of_entries_than_a_samplers_length_is_refused() -> None:
    order = Sampled(Short([1, 2, 3]), "sampler")
    with pytest.raises(
        ValueError, match=r"the sampler \(Short\) gave 3 entries in epoch 2, but its length is 5"
    ):
        of(order, 2)
