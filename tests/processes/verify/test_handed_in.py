"""What a factory may return: a loader with its transform, a data set, or an augmenter with
arguments of its own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

from detaug import DeterministicAugmenter, fingerprint
from detaug.pipeline.sources.dataset import DatasetSource
from detaug.seeding.tree import SeedTree
from detaug.verification import Result, UnusableError, verify
from detaug.verification.augmenter_runs import RealRuns
from detaug.verification.factories import BATCH_SIZE, DEFAULT_SEED, call_factory
from tests.processes.verify import pipelines

QUICK: dict[str, Any] = {"batches": 3, "processes": [1], "start_methods": ["fork"]}


class Squares(Dataset[Any]):
    def __init__(self, length: int = 23) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        return torch.tensor([index, index**2])


class WithoutTorch:
    """Map-style all the same."""

    def __len__(self) -> int:
        return 21

    def __getitem__(self, index: int) -> Any:
        return np.array([index], dtype=np.float32)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([{"data": np.zeros(2)}] * 6)


def add_noise(batch: Any) -> Any:
    return batch + torch.rand(batch.shape)


def with_a_transform() -> Any:
    return Squares(), add_noise


def augmenter() -> DeterministicAugmenter:
    return DeterministicAugmenter(
        pipelines.Walker(),
        pipelines.Noise(),
        2,
        seed=[3, 9],
        name="val",
        num_streams=5,
        batches_per_epoch=4,
    )


def of_a_data_set() -> DeterministicAugmenter:
    return DeterministicAugmenter.from_dataset(
        Squares(10), 5, shuffle=False, seed=8, keep=("length",)
    )


def test_map_style_data_set_is_verified() -> None:
    result = verify(with_a_transform, **QUICK)
    assert {row.verdict for row in result.rows} == {"equal"}, str(result)
    assert isinstance(call_factory(WithoutTorch).source, DatasetSource)


def test_augmenter_is_verified_with_its_own_seed() -> None:
    result = verify(augmenter, **QUICK)
    assert isinstance(result, Result)
    assert {row.verdict for row in result.rows} == {"equal"}, str(result)
    assert result.seed == [3, 9]


@pytest.mark.parametrize(
    ("length", "batch_size"), [(100, BATCH_SIZE), (16, 4), (9, 2), (3, 1), (1, 1)]
)
def test_batches_of_a_data_set_are_small_where_it_is(length: int, batch_size: int) -> None:
    source = call_factory(lambda: Squares(length)).source
    assert isinstance(source, DatasetSource)
    assert (source.batch_size, source.shuffle, source.stateless) == (batch_size, True, True)


def test_augmenters_arguments_are_taken_over() -> None:
    assert not call_factory(augmenter).source.stateless
    made = call_factory(lambda: DeterministicAugmenter(pipelines.Loader(), None, 0, stateless=True))
    assert made.seed is None  # it was drawn
    assert made.source.stateless
    made = call_factory(of_a_data_set)
    assert isinstance(made.source, DatasetSource)
    assert (made.source.batch_size, made.source.shuffle, made.keep) == (5, False, ("length",))


def test_batches_are_those_of_the_augmenter() -> None:
    reference = RealRuns(augmenter, batches=6).reference()
    assert reference.branch.tree.entropy == SeedTree([3, 9]).child("val").entropy
    with augmenter() as own:
        expected = []
        while len(expected) < 6:
            expected += [fingerprint(batch) for batch in own]
    assert reference.fingerprints == expected[:6]


def test_a_seed_given_to_verify_comes_before_the_augmenters() -> None:
    reference = RealRuns(augmenter, batches=2, seed=6).reference()
    assert (reference.branch.tree.seed, reference.branch.num_streams) == (6, 5)
    unseeded = RealRuns(pipelines.sound, batches=2).reference()
    assert unseeded.branch.tree.seed == DEFAULT_SEED


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (partial(Squares, 0), "is empty"),
        (lambda: ([], None), "no batch"),
        (Endless, r"returned Endless: return \(it, None\)"),
        (lambda: (1, 2, 3), "it returned tuple of 3"),
        (lambda: [{"data": 1}], r"return \(it, None\)"),
        (lambda: Squares, "it returned type"),
        (lambda: None, "it returned NoneType"),
        (lambda: torch.utils.data.DataLoader(Squares()), "DataLoader: return its data set"),
    ],
)
def test_anything_else_is_refused_with_what_is_expected(factory: Any, message: str) -> None:
    with pytest.raises(UnusableError, match=message):
        verify(factory, **QUICK)
