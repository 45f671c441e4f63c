"""Caches are the pipeline's own: a correct one stays right, and saves what it is there to save."""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.processes.purity.ways import Findings, items_of, making_from, run_all_ways, with_workers

ITEMS, BATCH = 46, 4


def assert_every_item_once(found: Findings) -> None:
    """In both epochs, in every way that runs whole ones."""
    found.assert_right()
    for way in found.batches:
        if way not in ("resumed", "replayed"):
            assert items_of(found.epoch(way, 0)) == list(range(ITEMS))
            assert items_of(found.epoch(way, 2)) == list(range(ITEMS))


class LeastRecentlyUsed:
    """A dict and the list of its keys, which must stay in step."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}
        self.keys: list[int] = []

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> int:
        group = index // 5
        if group in self.known:
            self.keys.remove(group)
        else:
            self.known[group] = 5 * group
        self.keys.append(group)
        if len(self.keys) > 3:
            del self.known[self.keys.pop(0)]
        return self.known[group] + index % 5


class PlaceForEach:
    """A list with a place for every item, as MONAI's ``CacheDataset(runtime_cache=True)`` has it.
    Writes down what it loads.
    """

    def __init__(self, diary: Path | None = None) -> None:
        self.places: list[np.ndarray[Any, Any] | None] = [None] * ITEMS
        self.diary = diary

    def __len__(self) -> int:
        return ITEMS

    def load(self, index: int) -> int:
        if self.diary is not None:
            with self.diary.open("a") as file:
                file.write(f"{json.dumps([os.getpid(), index])}\n")
        return index

    def __getitem__(self, index: int) -> int:
        place = self.places[index]
        if place is None:
            place = self.places[index] = np.array([self.load(index)])
        return int(place[0])


class Preallocated(PlaceForEach):
    """One array for all items, 1.5 MB of unwritten memory, and which of its rows are filled."""

    def __init__(self, diary: Path | None = None) -> None:
        super().__init__(diary)
        self.rows = np.empty((ITEMS, 4_000))
        self.filled = np.zeros(ITEMS, bool)

    def __getitem__(self, index: int) -> int:
        if not self.filled[index]:
            self.rows[index] = self.load(index)
            self.filled[index] = True
        return int(self.rows[index, 77])


class OfAMethod(PlaceForEach):
    """``functools.lru_cache`` on a method, which keeps results by the object."""

    def __getitem__(self, index: int) -> int:
        return self.remembered(index)

    @lru_cache(maxsize=ITEMS)  # noqa: B019
    def remembered(self, index: int) -> int:
        return self.load(index)


CACHES = (LeastRecentlyUsed, PlaceForEach, Preallocated, OfAMethod)
#: Whose memory workers share, and of which they have a copy each.
SHARED, COPIED = Preallocated, LeastRecentlyUsed


@pytest.mark.parametrize("kind", CACHES)
def test_a_data_set_with_a_cache_gives_every_item_once(kind: type) -> None:
    dataset = kind()
    assert [dataset[index] for index in (44, 3, 17, 4)] == [
        44,
        3,
        17,
        4,
    ]  # as it was filled when it was handed in
    assert_every_item_once(
        run_all_ways(making_from(dataset, BATCH), with_workers(kind, (SHARED, COPIED)))
    )


@pytest.mark.parametrize("kind", [PlaceForEach, Preallocated, OfAMethod])
@pytest.mark.parametrize("num_processes", [0, 1])
def test_what_is_cached_is_loaded_once_for_each_process(
    kind: type, num_processes: int, tmp_path: Path
) -> None:
    diary = tmp_path / "loaded"
    with making_from(kind(diary), BATCH, check=False)(num_processes=num_processes) as augmenter:
        for _ in range(3):
            assert items_of(list(augmenter)) == list(range(ITEMS))
    loaded = [json.loads(line) for line in diary.read_text().splitlines()]
    assert len({process for process, _ in loaded}) == 1
    assert sorted(index for _, index in loaded) == list(range(ITEMS))


class Atlas:
    """A transform that reads something large on first use."""

    def __init__(self, diary: Path) -> None:
        self.diary = diary
        self.atlas: np.ndarray[Any, Any] | None = None

    def __call__(self, item: Any) -> Any:
        if self.atlas is None:
            with self.diary.open("a") as file:
                file.write("read\n")
            self.atlas = np.arange(3_000)
        return item + int(self.atlas[2]) - 2


class AtlasOfTheClass(Atlas):
    """The same with the default in the class."""

    atlas = None

    def __init__(self, diary: Path) -> None:
        self.diary = diary


@pytest.mark.parametrize("kind", [Atlas, AtlasOfTheClass])
def test_keep_lets_a_transforms_cache_stay(kind: type, tmp_path: Path) -> None:
    diary = tmp_path / "read"
    for keep, times in (((), 12), (("atlas",), 1)):
        with making_from(PlaceForEach(), BATCH, transform=kind(diary), keep=keep, check=False)(
            num_processes=0
        ) as augmenter:
            assert items_of(list(augmenter)) == list(range(ITEMS))
        assert diary.read_text().count("read") == times
        diary.unlink()
    assert_every_item_once(
        run_all_ways(making_from(PlaceForEach(), BATCH, transform=kind(diary), keep=("atlas",)))
    )
