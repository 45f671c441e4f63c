"""Batches of plain arrays and tensors travel without a pickle, and come back as a pickle would bring them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug.transport.plain import describe, is_description
from detaug.transport.transfer import pack, unpack

NNUNET = {
    "data": torch.rand(2, 1, 16, 16, 16),
    "target": [torch.ones(2, 1, 16, 16, 16, dtype=torch.int16), torch.zeros(2, 1, 8, 8, 8, dtype=torch.int16)],
    "keys": ["case_1", "case_2"],
}
PLAIN: dict[str, Any] = {
    "nnU-Net's": NNUNET,
    "an array": np.arange(1000.0),
    "a small array": np.arange(3, dtype=np.uint8),
    "of no axis": np.array(3.5),
    "a tensor": torch.arange(1000),
    "a small tensor": torch.tensor([True, False]),
    "of complex numbers": np.ones(100, np.complex64),
    "a tuple": (np.ones(200), [1, 2.5, None, True, "ä", b"b", 2**70, -0.0], {"a": {}}),
    "an atom": 3,
    "nothing": {},
}
ONCE = np.zeros(300)
OTHERS: dict[str, Any] = {
    "one object twice": {"a": ONCE, "b": ONCE},
    "read-only": np.broadcast_to(np.float32(1), (300,)),
    "in columns": np.asfortranarray(np.ones((30, 40))),
    "strided": np.arange(1000)[::2],
    "without elements": np.zeros((0, 3)),
    "of objects": np.array([None, {}], dtype=object),
    "records": np.zeros(100, dtype=[("a", "<f4")]),
    "of another byte order": np.arange(1000, dtype=">i4"),
    "a number of NumPy's": np.float32(3),
    "other keys": {1: "a"},
    "a set": {1, 2},
    "channels last": torch.ones(2, 3, 16, 16).to(memory_format=torch.channels_last),
    "one channel last": torch.ones(2, 1, 16, 16).to(memory_format=torch.channels_last),
    "requires grad": torch.ones(300, requires_grad=True),
    "bfloat16": torch.ones(300, dtype=torch.bfloat16),
    "negated lazily": torch.ones(300, dtype=torch.complex64).conj().imag,
    "with an attribute": torch.ones(300),
}
OTHERS["with an attribute"].note = "kept"


def through(batch: Any) -> Any:
    packed = pack(batch)
    return unpack(packed.pickled, [bytearray(buffer.tobytes()) for buffer in packed.buffers])


@pytest.mark.parametrize("name", PLAIN)
def test_plain_batches_need_no_pickle_and_come_back_equal(name: str) -> None:
    batch = PLAIN[name]
    assert is_description(pack(batch).pickled)
    assert fingerprint(through(batch)) == fingerprint(batch)


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_plain_is_left_to_pickle(name: str) -> None:
    buffers: list[Any] = []
    assert describe({"plain": np.zeros(300), "other": OTHERS[name]}, buffers, 512) is None
    assert buffers == []
    assert not is_description(pack(OTHERS[name]).pickled)


def test_large_arrays_view_what_they_came_in_and_small_ones_own_their_memory() -> None:
    packed = pack({"large": np.ones(1000), "small": np.ones(3), "tensor": torch.ones(3)})
    room = np.frombuffer(bytearray(packed.buffers[0].tobytes()), np.uint8)
    batch = unpack(packed.pickled, [room])
    assert np.shares_memory(batch["large"], room)
    assert batch["small"].flags.owndata
    for value in batch.values():
        value += 1
    assert room.view(np.float64)[0] == 2


def test_a_list_that_holds_itself_comes_back_as_such() -> None:
    batch: list[Any] = [1]
    batch.append(batch)
    back = through(batch)
    assert back[1] is back
