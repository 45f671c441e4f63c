"""Pickling of a pipeline for other interpreters."""

from __future__ import annotations

import random
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from detaug.objects.frozen import freeze, read_payload, write_payload
from detaug.pipeline.producer import Pipeline
from detaug.pipeline.sources import resolve_source


def test_what_travels_is_as_it_was_handed_in():
    # cloudpickle is needed for a lambda.
    original = SimpleNamespace(items=[1, 2], f=lambda x: x + 1)
    frozen = freeze(original)
    original.items.append(3)
    copy = frozen.thaw()
    assert copy.items == [1, 2]
    assert copy.f(1) == 2


def test_the_same_array_twice_stays_one_array():
    data = np.zeros(100_000)
    frozen = freeze(SimpleNamespace(first=data, second=data))
    assert len(frozen.buffers) == 1
    copy = frozen.thaw()
    assert copy.first is copy.second


@pytest.mark.parametrize("step", [1, 2])
def test_of_a_large_view_its_part_alone_travels(step):
    owner = np.arange(200_000.0)
    part = owner[20_000:60_000:step]
    frozen = freeze({"part": part})
    assert [buffer.nbytes for buffer in frozen.buffers] == [part.nbytes]
    assert frozen.nbytes < part.nbytes + 10_000
    assert np.array_equal(frozen.thaw()["part"], part)


def test_memory_maps_travel_by_their_files_name(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros(100_000))
    frozen = freeze(SimpleNamespace(case=np.load(tmp_path / "a.npy", mmap_mode="r")))
    assert len(frozen.structure) < 10_000
    assert isinstance(frozen.thaw().case, np.memmap)


def test_a_payload_carries_structure_arrays_and_tensors_to_another_interpreter():
    original = SimpleNamespace(
        array=np.arange(100_000.0).reshape(10, -1),
        in_fortran_order=np.asfortranarray(np.ones((300, 300))),
        strided=np.arange(100_000.0)[::2],
        tensor=torch.arange(100_000),
        bfloat16=torch.ones(60_000, dtype=torch.bfloat16),
        function=lambda: 5,
    )
    frozen, job = read_payload(write_payload(freeze(original), {"job": 1}))
    copy = frozen.thaw()
    assert job == {"job": 1}
    assert len(frozen.buffers) == 5
    assert np.array_equal(copy.array, original.array)
    assert np.array_equal(copy.in_fortran_order, original.in_fortran_order)
    assert np.array_equal(copy.strided, original.strided)
    assert torch.equal(copy.tensor, original.tensor)
    assert torch.equal(copy.bfloat16, original.bfloat16)
    assert copy.function() == 5
    # The copy's memory is writable.
    copy.array[:] = 0


def test_the_systems_entropy_has_no_state_to_copy():
    rng = freeze({"rng": random.SystemRandom()}).thaw()["rng"]
    assert type(rng) is random.SystemRandom
    assert 0 <= rng.random() < 1


class Locked:
    """A loader that cannot be pickled."""

    def __init__(self) -> None:
        self.cases = [1, {"lock": threading.Lock()}]

    def __next__(self) -> int:
        return 0


def test_what_cannot_travel_is_named_as_the_user_writes_it() -> None:
    with pytest.raises(
        TypeError, match=r"^data_loader\.cases\[1\]\['lock'\] of type lock cannot be pickled"
    ):
        Pipeline(resolve_source(Locked()), None, must_pickle=True)
