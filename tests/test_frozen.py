"""Pristine copies of what was handed in."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from detaug.engine.payload import read_payload, write_payload
from detaug.frozen import freeze, why_not_picklable


def loader(**attributes):
    return SimpleNamespace(**attributes)


def test_a_copy_is_as_it_was_handed_in():
    original = loader(items=[1, 2], f=lambda x: x + 1)
    frozen = freeze(original, protect=True)
    original.items.append(3)
    copy = frozen.thaw()
    assert copy.items == [1, 2]
    assert copy.f(1) == 2
    copy.items.clear()
    assert frozen.thaw().items == [1, 2]


def test_declared_data_is_shared_read_only():
    data = np.zeros(100_000)
    frozen = freeze(loader(_data=data, other=3), protect=True, bulk_in=(data,))
    one, other = frozen.thaw(), frozen.thaw()
    assert np.shares_memory(one._data, other._data)
    assert np.shares_memory(one._data, data)
    with pytest.raises(ValueError, match="read-only"):
        one._data[0] = 1
    assert data.flags.writeable, "the user's own array is not touched"


@pytest.mark.parametrize("alias", [lambda data: data, lambda data: data[:10], lambda data: data.reshape(10, -1).T])
def test_data_that_something_else_aliases_is_copied(alias):
    data = np.arange(100_000)
    frozen = freeze(loader(_data=data, indices=alias(data)), protect=True, bulk_in=(data,))
    copy = frozen.thaw()
    copy._data[0] = 7
    assert frozen.thaw()._data[0] == 0
    assert data[0] == 0


def test_the_same_array_twice_stays_one_array():
    data = np.arange(100_000)
    copy = freeze(loader(_data=data, indices=data), protect=True, bulk_in=(data,)).thaw()
    assert copy._data is copy.indices


def test_a_scratch_buffer_is_each_copys_own():
    frozen = freeze(loader(_data=None, buffer=np.zeros(100_000)), protect=True, bulk_in=(None,))
    one, other = frozen.thaw(), frozen.thaw()
    one.buffer[:] = 1
    assert other.buffer[0] == 0


def test_memory_maps_are_shared_and_not_read_into_memory(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(100_000))
    frozen = freeze(loader(case=np.load(tmp_path / "a.npy", mmap_mode="r")), protect=True)
    assert len(frozen.structure) < 10_000
    assert isinstance(frozen.thaw().case, np.memmap)


def test_a_payload_carries_structure_arrays_and_tensors_to_another_interpreter():
    original = loader(
        a=np.arange(100_000.0).reshape(10, -1), f=np.asfortranarray(np.ones((300, 300))),
        t=torch.arange(100_000), b=torch.ones(60_000, dtype=torch.bfloat16), k=lambda: 5,
    )  # fmt: skip
    frozen, job = read_payload(write_payload(freeze(original, protect=False), {"job": 1}))
    copy = frozen.thaw()
    assert job == {"job": 1}
    assert len(frozen.shared) == 4
    assert np.array_equal(copy.a, original.a)
    assert np.array_equal(copy.f, original.f)
    assert torch.equal(copy.t, original.t)
    assert torch.equal(copy.b, original.b)
    assert copy.k() == 5
    copy.a[:] = 0  # private to this process


def test_the_systems_entropy_has_no_state_to_copy():
    chance = freeze({"chance": random.SystemRandom()}, protect=True).thaw()["chance"]
    assert type(chance) is random.SystemRandom
    assert 0 <= chance.random() < 1


def test_what_cannot_be_pickled_is_named():
    original = {"data_loader": loader(cases=[1, {"lock": threading.Lock()}]), "transform": None}
    text = why_not_picklable(original, "")
    assert "['data_loader'].cases[1]['lock']" in text
    assert "lock" in text
