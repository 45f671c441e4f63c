"""Map-style torch Datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter
from tests.support.augmenters import Maker
from tests.support.loaders import Pairs


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("drop_last", [False, True])
def test_unshuffled_batches_are_those_of_torchs_loader(make: Maker, n: int, drop_last: bool) -> None:
    augmenter = make.from_dataset(Pairs(10), 4, shuffle=False, drop_last=drop_last, num_processes=n, seed=1)
    reference = torch.utils.data.DataLoader(Pairs(10), 4, drop_last=drop_last)
    assert len(augmenter) == len(reference)
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
