"""Map-style torch Datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter
from tests.support.augmenters import Maker
from tests.support.loaders import Pairs, Samples


def indices(batches: Any) -> list[int]:
    return [int(i) for batch in batches for i in batch["index"]]


@pytest.mark.parametrize("n", [0, 2])
def test_unshuffled_goes_through_in_order_with_a_short_last_batch(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(Samples(10), 4, shuffle=False, num_processes=n, seed=1)
    batches = list(augmenter)
    assert indices(batches) == list(range(10))
    assert [len(batch["index"]) for batch in batches] == [4, 4, 2]


@pytest.mark.parametrize("n", [0, 2])
def test_drop_last_leaves_the_short_batch_out(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(Samples(10), 4, drop_last=True, num_processes=n, seed=1)
    assert len(augmenter) == 2
    assert [len(batch["index"]) for batch in augmenter] == [4, 4]


@pytest.mark.parametrize("n", [0, 1])
def test_batches_are_collated_as_torch_does(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(Pairs(4), 2, shuffle=False, num_processes=n, seed=1)
    reference = list(torch.utils.data.DataLoader(Pairs(4), 2))
    for batch, expected in zip(augmenter, reference, strict=True):
        assert type(batch) is type(expected)
        for got, wanted in zip(batch, expected, strict=True):
            assert got.dtype == wanted.dtype
            assert torch.equal(got, wanted)


def stack(samples: list[tuple[torch.Tensor, int]]) -> dict[str, Any]:
    return {"data": np.stack([image.numpy() for image, _ in samples]), "labels": [label for _, label in samples]}


class AddOne:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "data": batch["data"] + 1}


@pytest.mark.parametrize("n", [0, 2])
def test_own_collate_function_and_transform(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(
        Pairs(5), 2, shuffle=False, collate_fn=stack, transform=AddOne(), num_processes=n, seed=1
    )
    batches = list(augmenter)
    assert [batch["labels"] for batch in batches] == [[0, 1], [2, 3], [4]]
    assert batches[1]["data"][:, 0, 0].tolist() == [3.0, 4.0]


def test_default_number_of_processes_works() -> None:
    with DeterministicAugmenter.from_dataset(Pairs(4), 2, seed=1) as augmenter:
        assert len(list(augmenter)) == 2
