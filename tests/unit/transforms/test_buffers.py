"""Memory of new arrays is used again, but never while somebody holds it."""

from __future__ import annotations

import gc

import numpy as np
import pytest
import torch

from detaug.transforms.building import memory

SHAPE = (64, 64, 64)


@pytest.fixture(autouse=True)
def none_kept() -> None:
    gc.collect()
    memory._drop_others(-1)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_comes_back_when_the_last_view_is_gone() -> None:
    array = memory.empty(SHAPE, np.float32)
    where = address(array)
    view = array[1:].reshape(-1)
    del array
    assert address(memory.empty(SHAPE, np.float32)) != where
    tensor = torch.from_numpy(view)
    del view
    assert address(memory.empty(SHAPE, np.float32)) != where
    tensor = tensor[5:]
    assert address(memory.empty(SHAPE, np.float32)) != where
    del tensor
    again = [memory.empty(SHAPE, np.float32) for _ in range(4)]
    assert where in [address(array) for array in again]


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8, np.bool_, np.float64])
def test_arrays_are_plain_ones(dtype: type) -> None:
    array = memory.empty((128, 128, 64), dtype)
    assert type(array) is np.ndarray
    assert array.dtype == dtype
    assert array.shape == (128, 128, 64)
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[...] = 1
    assert array.all()


def test_no_more_than_a_limit_is_kept() -> None:
    many = [memory.empty((4, 1024, 1024), np.float32) for _ in range(12)]  # 192 MB
    del many
    assert memory._kept <= memory.KEPT_AT_MOST
    assert sum(size * len(free) for size, free in memory._free.items()) == memory._kept
    small = memory.empty(SHAPE, np.float32)
    del small  # memory of another size makes room
    assert list(memory._free) == [4 * 64**3] or memory._kept <= memory.KEPT_AT_MOST
