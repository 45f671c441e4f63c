"""Hugging Face's streaming data sets, with and without a shuffle buffer; MONAI's SmartCacheDataset."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
import torch

from detaug import DeterministicAugmenter
from detaug.objects.description import describe

LENGTH = 40


def streaming(buffer_size: int) -> Any:
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict({"x": list(range(LENGTH))}).to_iterable_dataset(num_shards=4)
    shuffled = rows.shuffle(seed=3, buffer_size=buffer_size) if buffer_size else rows
    return shuffled.map(lambda row: {"x": row["x"] + 1})


class Wrapped:
    """A loader of the user's that passes a data set's own state on."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.state_dict, self.load_state_dict = dataset.state_dict, dataset.load_state_dict

    def __iter__(self) -> Any:
        return iter(self.dataset)


def rest(augmenter: DeterministicAugmenter) -> list[int]:
    with augmenter:
        return [batch["x"] for batch in augmenter]


@pytest.mark.parametrize(
    ("buffer_size", "n", "wrap"),
    [
        (0, 0, Wrapped),
        (4, 2, lambda data: data),
        pytest.param(16, 0, Wrapped, marks=pytest.mark.slow),
    ],
)
def test_a_state_saved_at_any_batch_goes_on_with_the_next(
    buffer_size: int, n: int, wrap: Any
) -> None:
    def make(processes: int = n) -> DeterministicAugmenter:
        options: dict[str, Any] = {"seed": 5}
        return DeterministicAugmenter(
            wrap(streaming(buffer_size)), lambda x: {"x": x}, processes, **options
        )

    expected = rest(make(0))
    assert sorted(expected) == list(range(1, LENGTH + 1))
    with make() as first:
        states = [(first.state_dict(), [next(first)])[0] for _ in range(LENGTH - 1)]
    for taken in (2, 3, 13):
        resumed = make(0)
        resumed.load_state_dict(json.loads(json.dumps(states[taken])))
        assert rest(resumed) == expected[taken:]


def test_a_cache_whose_items_are_replaced_is_refused_by_name() -> None:
    data = pytest.importorskip("monai.data")
    cache = data.SmartCacheDataset(
        list(range(8)), transform=lambda x: x, cache_num=4, replace_rate=0.5, progress=False
    )
    for wrapped in (
        cache,
        torch.utils.data.Subset(cache, [0, 1]),
        torch.utils.data.ConcatDataset([[1], cache]),
    ):
        with pytest.raises(
            TypeError, match=r"SmartCacheDataset .* monai\.data\.CacheDataset\(data, transform\)"
        ):
            DeterministicAugmenter.from_dataset(wrapped, 2, num_processes=0)
    with pytest.raises(TypeError, match="SmartCacheDataset"):
        DeterministicAugmenter(data.DataLoader(cache, batch_size=2), None, 0)


class Holds:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_a_table_of_hugging_face_is_known_by_its_contents_not_by_its_random_fingerprint() -> None:
    datasets = pytest.importorskip("datasets")

    def table(n: int = 100) -> Any:
        cells = datasets.table.InMemoryTable.from_pydict({"x": list(range(n))})
        return datasets.Dataset(cells, fingerprint=str(random.getrandbits(64)))

    assert describe(Holds(table()), "x") == describe(Holds(table()), "x")
    assert describe(Holds(table()), "x") != describe(Holds(table(99)), "x")
    one, other = (table().shuffle(seed=seed, new_fingerprint="a") for seed in (1, 2))
    assert describe(Holds(one), "x") != describe(Holds(other), "x")
    assert "fingerprint" not in "".join(describe(Holds(one), "x"))
