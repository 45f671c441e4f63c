"""Taking batches apart and putting them together, without processes."""

from __future__ import annotations

from collections import OrderedDict, namedtuple

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug.engine.transfer import pack, unpack

Point = namedtuple("Point", "x y")


def through(batch):
    packed = pack(batch)
    return unpack(packed.pickled, [bytearray(buffer.tobytes()) for buffer in packed.buffers])


BATCHES = {
    "int": 7,
    "none": None,
    "text": "cas\u00e9 1",
    "nested": {"a": [np.arange(3), {"b": (torch.ones(2), 1.5, None)}], 3: b"xy"},
    "ordered": OrderedDict(z=1, a=np.zeros((2, 3))),
    "named": Point(1, np.arange(2000)),
    "fortran": np.asfortranarray(np.arange(6000.0).reshape(20, 300)),
    "strided": np.arange(9000)[::3],
    "reversed": np.arange(900)[::-1],
    "transposed": np.arange(24_000).reshape(20, 30, 40).transpose(2, 0, 1),
    "zero-dimensional": np.array(3.5, dtype=np.float32),
    "empty": np.zeros((0, 4), dtype=np.int16),
    "bool": np.ones((1000, 2), dtype=bool),
    "objects": np.array([1, "a", None], dtype=object),
    "structured": np.zeros(400, dtype=[("a", "i4"), ("b", "f8")]),
    "big endian": np.arange(800, dtype=">i4"),
    "half": np.ones(999, dtype=np.float16),
    "complex": np.ones(999, dtype=np.complex64),
    "datetime": np.array(["2020-01-01"], dtype="M8[D]"),
    "unicode": np.array(["ab", "cde"]),
    "bfloat16": torch.ones(1000, dtype=torch.bfloat16) * 3,
    "channels last": torch.arange(2 * 3 * 20 * 20.0)
    .reshape(2, 3, 20, 20)
    .contiguous(memory_format=torch.channels_last),
    "tensor view": torch.arange(10_000).reshape(100, 100)[:, ::2],
    "tensor scalar": torch.tensor(4, dtype=torch.int8),
    "tensor empty": torch.zeros(0, 3),
    "tensor bool": torch.ones(1000, dtype=torch.bool),
    "tensor complex": torch.ones(1000, dtype=torch.complex64).conj(),
    "expanded": torch.ones(1, 300).expand(20, 300),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_comes_back_as_it_was(name):
    assert fingerprint(through(BATCHES[name])) == fingerprint(BATCHES[name])


def test_arrays_and_tensors_are_writable_and_keep_their_order():
    back = through({"f": BATCHES["fortran"], "c": BATCHES["channels last"]})
    back["f"][0] = 1
    back["c"][0] = 1
    assert back["f"].flags.f_contiguous
    assert back["c"].is_contiguous(memory_format=torch.channels_last)


def test_a_read_only_array_comes_back_writable_and_a_leaf_still_requires_grad():
    array = np.arange(1000)
    array.flags.writeable = False
    back = through({"a": array, "t": torch.ones(300, requires_grad=True)})
    assert back["a"].flags.writeable
    assert back["t"].requires_grad


def test_the_same_array_twice_is_one_array_on_the_other_side():
    array, tensor = np.arange(5000), torch.arange(5000)
    back = through([array, array, tensor, tensor])
    assert back[0] is back[1]
    assert back[2] is back[3]
    assert len(pack([array, array]).buffers) == 1


def test_bulk_stays_out_of_the_pickle():
    packed = pack({"image": torch.zeros(2, 1, 64, 64, 64), "view": torch.zeros(100, 1000)[:, :10]})
    assert len(packed.pickled) < 1000
    assert sorted(buffer.nbytes for buffer in packed.buffers) == [4000, 2 * 64**3 * 4]


@pytest.mark.parametrize(
    ("batch", "where"),
    [
        ({"data": 1, "f": lambda: 0}, r"batch\['f'\]"),
        ({"data": [1, {"deep": (2, lambda: 0)}]}, r"batch\['data'\]\[1\]\['deep'\]\[1\]"),
        ([1, (i for i in range(3))], r"batch\[1\]"),
        ({"t": torch.ones(3, requires_grad=True) * 2}, r"batch\['t'\].*detach"),
    ],
)
def test_what_cannot_be_sent_is_named_by_its_key(batch, where):
    with pytest.raises(TypeError, match=where):
        pack(batch)
