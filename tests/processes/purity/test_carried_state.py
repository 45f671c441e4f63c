"""A counter in a transform stands still, and the log says so; the table is in tests/unit/purity."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detaug import DeterministicAugmenter
from tests.processes.purity.ways import CARRIED, listening
from tests.support.augmenters import workers


class Cases:
    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.random.random(3), "case": index}


class Ramp:
    step = 0

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.step += 1
        return {"x": x + self.step, **others}


def run(num_processes: int, method: str = "fork", **options: Any) -> list[str]:
    """Return what is said in an epoch of 24 batches."""
    with (
        listening() as heard,
        DeterministicAugmenter.from_dataset(
            Cases(),
            2,
            transform=Ramp(),
            num_processes=num_processes,
            seed=2,
            executor=workers(num_processes, method),
            **options,
        ) as augmenter,
    ):
        assert all(batch["x"].min() >= 1 and batch["x"].max() < 2 for batch in augmenter)
    return heard


@pytest.mark.parametrize(
    ("num_processes", "method"),
    [(0, "fork"), (3, "fork"), pytest.param(2, "spawn", marks=pytest.mark.slow)],
)
def test_carried_state_is_told_once_by_one_of_the_processes(
    num_processes: int, method: str
) -> None:
    (text,) = run(num_processes, method)
    assert CARRIED in text
    assert text.startswith("Ramp.step was 0 when the batch began and 1 when it ended")


def test_nothing_is_looked_at_without_the_check() -> None:
    assert run(2, check=False) == []
