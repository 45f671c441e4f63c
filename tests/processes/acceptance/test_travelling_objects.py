"""Loaders and transforms that plain pickle refuses work under every start method."""

from __future__ import annotations

import random
import threading
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

import detaug
from detaug import LocalProcesses
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import RandomLoader
from tests.support.witness import assert_made_by_workers


def test_lambda_as_transform(make: Maker, mark: str, start_method: str) -> None:
    factor = 3
    augmenter = make(
        RandomLoader(), lambda **batch: {**batch, "tripled": batch["numpy"] * factor}, 1,
        seed=1, executor=LocalProcesses(start_method=start_method),
    )  # fmt: skip
    batches = take(augmenter, 3)
    assert_made_by_workers(start_method, batches)
    for batch in batches:
        assert np.array_equal(batch["tripled"], 3 * batch["numpy"])


def test_local_class_as_loader_and_transform(make: Maker, start_method: str) -> None:
    class LocalLoader(SlimDataLoaderBase):
        def generate_train_batch(self) -> dict[str, Any]:
            return {"data": random.random(), "size": self.batch_size}

    class LocalTransform:
        def __call__(self, **batch: Any) -> dict[str, Any]:
            return {**batch, "step": detaug.current().step}

    expected = fingerprints_of(take(make(LocalLoader(None, 3), LocalTransform(), 0, seed=1), 6))
    batches = take(
        make(
            LocalLoader(None, 3),
            LocalTransform(),
            1,
            seed=1,
            executor=LocalProcesses(start_method=start_method),
        ),
        6,
    )
    assert fingerprints_of(batches) == expected
    assert [batch["step"] for batch in batches] == list(range(6))


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_loader_that_cannot_travel_is_refused_at_once_with_its_place(
    make: Maker, method: str
) -> None:
    loader = RandomLoader()
    loader.lock = threading.Lock()
    with pytest.raises((TypeError, ValueError), match="lock"):
        next(make(loader, None, 1, seed=1, executor=LocalProcesses(start_method=method)))
