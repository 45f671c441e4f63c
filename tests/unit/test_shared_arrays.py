"""Arrays in files that processes share: what is added comes back, within the limit, and never in another state."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from detaug.nnunet.loading import shared_arrays
from detaug.nnunet.loading.shared_arrays import ChangedMeanwhile, NoRoom, add, enough_is_left, mapped

SHAPE = (2, 7, 9, 11)
SIZE = 128 + 2 * 7 * 9 * 11 * 4
EVERYTHING = 10**9


def array(number: int) -> np.ndarray:
    return np.random.default_rng(number).normal(size=SHAPE).astype(np.float32)


def added(folder: Path, number: int, limit: int = EVERYTHING) -> np.ndarray | None:
    return add(folder / f"{number}.npy", array(number), limit, lambda: True)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def grow_old(folder: Path, number: int, seconds: float = 2 * shared_arrays.IN_USE) -> None:
    used = time.time() - seconds
    os.utime(folder / f"{number}.npy", (used, used))


@pytest.mark.parametrize("dtype", ["<f4", "<i2", "i1", "u1", ">f4"])
@pytest.mark.parametrize("shape", [SHAPE, (5, 4, 3), (1, 40, 3, 2)])
def test_what_is_added_is_what_is_mapped(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    original = (100 * np.random.default_rng(1).normal(size=shape)).astype(dtype)
    assert mapped(tmp_path / "a.npy") is None
    for found in (add(tmp_path / "a.npy", original, EVERYTHING, lambda: True), mapped(tmp_path / "a.npy")):
        assert found is not None
        assert (found.dtype, found.shape, found.tobytes()) == (original.dtype, shape, original.tobytes())
        assert found.flags.c_contiguous
        assert not found.flags.writeable
    assert names(tmp_path) == ["a.npy", "lock"]
    assert np.array_equal(np.load(tmp_path / "a.npy"), original), "anyone can read it"


class Chunked(NamedTuple):
    """An array that knows what is best read at once, as blosc2's do."""

    array: np.ndarray
    chunks: tuple[int, ...]
    parts: list[Any]

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def __getitem__(self, part: Any) -> np.ndarray:
        self.parts.append(part)
        return self.array[part]


def test_chunks_are_read_once_each(tmp_path: Path) -> None:
    source = Chunked(array(1), (1, 4, 9, 11), [])
    found = add(tmp_path / "a.npy", source, EVERYTHING, lambda: True)
    assert np.array_equal(found, source.array)
    assert source.parts == [(c, slice(start, start + 4)) for c in range(2) for start in (0, 4)]


def test_the_limit_holds_and_what_is_in_use_stays(tmp_path: Path) -> None:
    for number in range(3):
        assert added(tmp_path, number, 3 * SIZE) is not None
    with pytest.raises(NoRoom):
        added(tmp_path, 3, 3 * SIZE)  # all others were used a moment ago
    with pytest.raises(NoRoom):
        added(tmp_path, 4, SIZE - 1)
    assert names(tmp_path) == ["0.npy", "1.npy", "2.npy", "lock"]


def test_the_least_recently_used_array_makes_room(tmp_path: Path) -> None:
    for number in range(4):
        added(tmp_path, number)
        grow_old(tmp_path, number, 2 * shared_arrays.IN_USE - number)
    mapped(tmp_path / "0.npy")  # used now
    assert added(tmp_path, 9, 4 * SIZE) is not None
    assert names(tmp_path) == ["0.npy", "2.npy", "3.npy", "9.npy", "lock"]


def test_a_mapped_array_is_not_removed_however_old(tmp_path: Path) -> None:
    held = added(tmp_path, 0)
    added(tmp_path, 1)
    for number in range(2):
        grow_old(tmp_path, number)
    assert added(tmp_path, 2, 2 * SIZE) is not None
    assert names(tmp_path) == ["0.npy", "2.npy", "lock"]
    (tmp_path / "0.npy").unlink()  # someone else's doing
    assert np.array_equal(held, array(0))


@pytest.mark.parametrize(
    ("free", "total", "enough"),
    [(5, 100, True), (4, 100, False), (2 * 10**9, 10**13, True), (2 * 10**9 - 1, 10**13, False)],
)
def test_a_part_of_every_disk_stays_free(free: int, total: int, enough: bool) -> None:
    assert enough_is_left(free, total) is enough


def test_a_source_that_changes_meanwhile_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ChangedMeanwhile):
        add(tmp_path / "a.npy", array(0), EVERYTHING, lambda: False)
    assert names(tmp_path) == ["lock"]


class Unreadable(NamedTuple):
    shape = SHAPE
    dtype = np.dtype(np.float32)

    def __getitem__(self, part: Any) -> np.ndarray:
        raise RuntimeError("a damaged block")


def test_a_source_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="damaged"):
        add(tmp_path / "a.npy", Unreadable(), EVERYTHING, lambda: True)
    assert names(tmp_path) == ["lock"]


@pytest.mark.parametrize("harm", [lambda content: content[:-1], lambda content: content[:40], lambda _: b""])
def test_a_damaged_file_is_removed(tmp_path: Path, harm: Any) -> None:
    added(tmp_path, 0)
    file = tmp_path / "0.npy"
    file.write_bytes(harm(file.read_bytes()))
    assert mapped(file) is None
    assert not file.exists()


def test_partial_files_of_writers_that_are_gone_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".0.npy.4711.partial").write_bytes(bytes(SIZE))
    assert added(tmp_path, 0, SIZE) is not None
    assert names(tmp_path) == ["0.npy", "lock"]


class WrittenTwice(NamedTuple):
    """While it is read, another tries to add the same array, and one more."""

    array: np.ndarray
    folder: Path
    second: list[Any]

    shape = property(lambda self: self.array.shape)
    dtype = property(lambda self: self.array.dtype)

    def __getitem__(self, part: Any) -> np.ndarray:
        self.second.append(added(self.folder, 0, 2 * SIZE))
        if len(self.second) == 1:
            assert added(self.folder, 1, 2 * SIZE) is not None
            with pytest.raises(NoRoom):  # what is being written counts with all its bytes
                added(self.folder, 2, 2 * SIZE)
        return self.array[part]


def test_nobody_writes_what_another_is_writing(tmp_path: Path) -> None:
    source = WrittenTwice(array(0), tmp_path, [])
    found = add(tmp_path / "0.npy", source, 2 * SIZE, lambda: True)
    assert np.array_equal(found, array(0))
    assert set(source.second) == {None}
    assert names(tmp_path) == ["0.npy", "1.npy", "lock"]
