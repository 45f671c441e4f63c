"""What an epoch is, for whatever is told of it, goes on through it, or ends in it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import DeterministicAugmenter, Skip
from detaug.errors import BatchError
from tests.processes.purity.ways import (
    BATCHES,
    OneOf,
    Then,
    making,
    making_from,
    run_all_ways,
    with_workers,
)

# --- set_epoch that changes what it finds
# -------------------------------------------------------------------------------


class Fading:
    """``set_epoch`` multiplies what it finds: on a pristine copy that is one factor in every epoch."""

    def __init__(self) -> None:
        self.sigma = 1.0
        self.history: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.75 / (1 + epoch)
        self.history.append(epoch)

    def __call__(self, data: Any, **others: Any) -> dict[str, Any]:
        assert len(self.history) == 1
        return {"data": data * self.sigma, **others}


class FadingTable(Fading):
    """Keeps its factor in an array that is too large to be copied byte by byte, and writes into it."""

    def __init__(self) -> None:
        super().__init__()
        self.table = np.ones(20_000)

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch)
        self.table *= 0.75 / (1 + epoch)

    def __call__(self, data: Any, **others: Any) -> dict[str, Any]:
        return {"data": data * self.table[-1], **others}


class FadingAloud(Fading):
    """Holds the standard streams, in whose place workers have others."""

    def __init__(self) -> None:
        super().__init__()
        self.streams = (sys.stdout, sys.stderr)

    def __call__(self, data: Any, **others: Any) -> dict[str, Any]:
        for stream in self.streams:
            stream.write("made ")
        return super().__call__(data, **others)


class Constant(DataLoader):
    """Stateless; with transforms of its own, if it is given any."""

    def __init__(self, transforms: Any = None) -> None:
        super().__init__(list(range(9)), 2, infinite=True)
        self.indices = list(range(9))
        if transforms is not None:
            self.transforms = transforms

    def generate_train_batch(self) -> dict[str, Any]:
        batch = {"data": np.full(2, 100.0)}
        return self.transforms(**batch) if hasattr(self, "transforms") else batch


class FadingLoader(Constant):
    sigma = 1.0

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.75 / (1 + epoch)

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.full(2, 100.0) * self.sigma}


class FadingIterator:
    """Bound to its stream."""

    def __init__(self) -> None:
        self.sigma, self.number = 1.0, 0

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.75 / (1 + epoch)

    def __iter__(self) -> FadingIterator:
        return self

    def __next__(self) -> dict[str, Any]:
        self.number += 1
        return {"data": np.full(2, 100.0) * self.sigma, "number": self.number}


class FadingItems:
    def __init__(self) -> None:
        self.inner = FadingIterator()

    def __len__(self) -> int:
        return 3 * BATCHES

    def __getitem__(self, index: int) -> Any:
        return 100.0 * self.inner.sigma


class Passing(Then):
    """A composition that passes the epoch on by itself, once."""

    def set_epoch(self, epoch: int) -> None:
        for transform in self.transforms:
            if hasattr(transform, "set_epoch"):
                transform.set_epoch(epoch)


TOLD: dict[str, Any] = {
    "transform": lambda: making(Constant(), Fading()),
    "transform with a large array": lambda: making(Constant(), FadingTable()),
    "transform with standard streams": lambda: making(Constant(), FadingAloud()),
    "transform of an endless iterator": lambda: making(FadingIterator(), None, num_streams=2),
    "OneOf": lambda: making(Constant(), OneOf(Fading(), Fading(), Then(Fading()))),
    "passed on": lambda: making(Constant(), Passing(Then(Passing(Fading())))),
    "bound method": lambda: making(Constant(), Fading().__call__),
    "closure": lambda: making(Constant(), (lambda fade: lambda **batch: fade(**batch))(Fading())),
    "loader": lambda: making(FadingLoader()),
    "loader's transforms": lambda: making(Constant(Then(OneOf(Fading())))),
    "inside a data set": lambda: making_from(
        FadingItems(), 3, collate_fn=lambda items: {"data": np.array(items)}
    ),
}


#: Bound to their streams, stateless, and a data set: what workers are told by their loader in a way
#: of its own.
OTHER_IN_WORKERS = (
    "transform with a large array",
    "transform with standard streams",
    "transform of an endless iterator",
    "loader",
    "inside a data set",
)


@pytest.mark.parametrize("where", TOLD)
def test_set_epoch_meets_a_pristine_copy_once(where: str) -> None:
    found = run_all_ways(TOLD[where](), with_workers(where, OTHER_IN_WORKERS))
    found.assert_right()
    for way in found.batches:
        for epoch in (0, 2):
            for batch in found.epoch(way, epoch):
                np.testing.assert_allclose(batch["data"], 75.0 / (1 + epoch))


# --- the end of a search
# -----------------------------------------------------------------------------------------------


class Searches:
    """``next(... for ...)`` finds nothing for one item. Issue: the epoch ended there without a
    word.
    """

    def __init__(self, items: int, matches: tuple[int, ...]) -> None:
        self.items, self.missing = items, matches

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> int:
        return next(
            item for item in range(self.items) if item == index and item not in self.missing
        )


def _collates_by_search(items: list[int]) -> int:
    return next(item for item in items if item != 13)


@pytest.mark.parametrize(
    "num_processes", [0, pytest.param(2, marks=pytest.mark.slow)]
)  # in workers: the next test
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Searches(31, (13,)), {}),
        (Searches(31, ()), {"collate_fn": _collates_by_search, "batch_size": 1}),
        (
            Searches(31, ()),
            {
                "transform": lambda batch: next(item for item in batch if int(item) != 13),
                "batch_size": 1,
            },
        ),
    ],
)
def test_a_search_without_a_match_is_an_error_and_not_the_end(
    dataset: Any, options: Any, num_processes: int
) -> None:
    settings = {"batch_size": 2, "seed": 3, "num_processes": num_processes, **options}
    with (
        DeterministicAugmenter.from_dataset(dataset, **settings) as augmenter,
        pytest.raises(BatchError, match="StopIteration"),
    ):
        list(augmenter)
    with DeterministicAugmenter.from_dataset(dataset, on_error=Skip(), **settings) as augmenter:
        assert len(list(augmenter)) == len(augmenter) - 1


class SearchesInALoader(Constant):
    def generate_train_batch(self) -> dict[str, Any]:
        case = np.random.randint(6)
        return {"data": next(np.full(2, item) for item in range(1, 6) if item == case)}


def test_so_it_is_in_a_stateless_loader() -> None:
    with (
        making(SearchesInALoader(), batches_per_epoch=60)(num_processes=1) as augmenter,
        pytest.raises(BatchError),
    ):
        list(augmenter)
