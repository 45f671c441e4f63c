"""Data sets that are read in one direction or change while they are read.

These are Hugging Face's streaming data sets and MONAI's SmartCacheDataset.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch

from detaug import DeterministicAugmenter
from detaug.objects.description import describe

LENGTH = 40


def with_one_added(row: dict[str, int]) -> dict[str, int]:
    """Return a row whose number is larger by 1."""
    return {"x": row["x"] + 1}


def streaming(buffer_size: int) -> Any:
    """Return a streaming data set of the numbers 1 ... LENGTH.

    Args:
        buffer_size: of the buffer in which rows are shuffled; 0: they are not shuffled.
    """
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({"x": list(range(LENGTH))})
    rows = table.to_iterable_dataset(num_shards=4)
    if buffer_size:
        rows = rows.shuffle(seed=3, buffer_size=buffer_size)
    return rows.map(with_one_added)


class Wrapped:
    """A loader of the user's that has the state of its data set."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.state_dict = dataset.state_dict
        self.load_state_dict = dataset.load_state_dict

    def __iter__(self) -> Any:
        return iter(self.dataset)


def unwrapped(dataset: Any) -> Any:
    """Return the data set itself, in place of `Wrapped`."""
    return dataset


def unchanged(x: Any) -> dict[str, Any]:
    """Return a batch as it is."""
    return {"x": x}


def rest(augmenter: DeterministicAugmenter) -> list[int]:
    """Return the numbers that remain in the epoch."""
    with augmenter:
        return [batch["x"] for batch in augmenter]


@pytest.mark.parametrize(
    ("buffer_size", "num_processes", "wrap"),
    [
        (0, 0, Wrapped),
        (4, 2, unwrapped),
        pytest.param(16, 0, Wrapped, marks=pytest.mark.slow),
    ],
)
def test_a_state_saved_at_any_batch_goes_on_with_the_next(
    buffer_size: int, num_processes: int, wrap: Any
) -> None:
    def make(num_processes: int) -> DeterministicAugmenter:
        loader = wrap(streaming(buffer_size))
        return DeterministicAugmenter(loader, unchanged, num_processes, seed=5)

    expected = rest(make(0))
    assert sorted(expected) == list(range(1, LENGTH + 1))
    states = []
    with make(num_processes) as first:
        for _ in range(LENGTH - 1):
            states.append(first.state_dict())
            next(first)
    for num_taken in (2, 3, 13):
        resumed = make(0)
        resumed.load_state_dict(json.loads(json.dumps(states[num_taken])))
        assert rest(resumed) == expected[num_taken:]


def test_a_cache_whose_items_are_replaced_is_refused_by_name() -> None:
    data = pytest.importorskip("monai.data")
    cache = data.SmartCacheDataset(
        list(range(8)), transform=unchanged, cache_num=4, replace_rate=0.5, progress=False
    )
    subset = torch.utils.data.Subset(cache, [0, 1])
    both = torch.utils.data.ConcatDataset([[1], cache])
    advice = r"SmartCacheDataset .* monai\.data\.CacheDataset\(data, transform\)"
    for dataset in (cache, subset, both):
        with pytest.raises(TypeError, match=advice):
            DeterministicAugmenter.from_dataset(dataset, 2, num_processes=0)
    with pytest.raises(TypeError, match="SmartCacheDataset"):
        DeterministicAugmenter(data.DataLoader(cache, batch_size=2), None, 0)


class Holds:
    """An object of the user's that holds a table."""

    def __init__(self, value: Any) -> None:
        self.value = value


def test_a_table_of_hugging_face_is_known_by_its_contents_not_by_its_random_fingerprint() -> None:
    datasets = pytest.importorskip("datasets")

    def table(length: int = 100) -> Any:
        cells = datasets.table.InMemoryTable.from_pydict({"x": list(range(length))})
        return datasets.Dataset(cells, fingerprint=str(random.getrandbits(64)))

    def description(table: Any) -> Any:
        return describe(Holds(table), "x")

    assert description(table()) == description(table())
    assert description(table()) != description(table(99))
    one = table().shuffle(seed=1, new_fingerprint="a")
    other = table().shuffle(seed=2, new_fingerprint="a")
    assert description(one) != description(other)
    assert "fingerprint" not in "".join(description(one))
