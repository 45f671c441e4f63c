"""Packing and unpacking of batches, offsets in a slot, and messages through a channel."""

from __future__ import annotations

import os
import resource
import threading
from collections import namedtuple

import numpy as np
import pytest
import SimpleITK as sitk
import torch
from hypothesis import given
from hypothesis import strategies as st

from detaug import fingerprint
from detaug.objects.batch_pickling import pack, unpack
from detaug.system.channel import Channel, ChannelClosed
from detaug.system.shared_memory import ALIGNMENT, capacity_for, pack_offsets
from tests.support.waiting import join, result_of, wait_readable

Point = namedtuple("Point", "x y")


def through(batch):
    """Return a batch after it was packed and unpacked."""
    packed = pack(batch)
    buffers = [bytearray(buffer.tobytes()) for buffer in packed.buffers]
    return unpack(packed.pickled, buffers)


class Meta(torch.Tensor):
    """A tensor that behaves as MONAI's MetaTensor.

    It has attributes, a constructor of its own, and takes part in every operation of torch.
    """

    def __new__(cls, data, affine=None):
        return torch.as_tensor(data).as_subclass(cls)

    def __init__(self, data, affine=None):
        self.affine = affine
        self.applied = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        result = super().__torch_function__(function, types, args, kwargs)
        if isinstance(result, Meta):
            source = next(arg for arg in args if isinstance(arg, Meta))
            result.__dict__.update(source.__dict__)
        return result


class Plain(np.ndarray):
    """An array of another class, with nothing new."""


BATCHES = {
    "named": Point(1, np.arange(2000)),
    "fortran": np.asfortranarray(np.arange(6000.0).reshape(20, 300)),
    "strided": np.arange(9000)[::3],
    "reversed": np.arange(900)[::-1],
    "transposed": np.arange(24_000).reshape(20, 30, 40).transpose(2, 0, 1),
    "bool": np.ones((1000, 2), dtype=bool),
    "structured": np.zeros(400, dtype=[("a", "i4"), ("b", "f8")]),
    "big endian": np.arange(800, dtype=">i4"),
    "half": np.ones(999, dtype=np.float16),
    "complex": np.ones(999, dtype=np.complex64),
    "bfloat16": torch.ones(1000, dtype=torch.bfloat16) * 3,
    "channels last": torch.arange(2 * 3 * 20 * 20.0)
    .reshape(2, 3, 20, 20)
    .contiguous(memory_format=torch.channels_last),
    "tensor view": torch.arange(10_000).reshape(100, 100)[:, ::2],
    "tensor bool": torch.ones(1000, dtype=torch.bool),
    "tensor complex": torch.ones(1000, dtype=torch.complex64).conj(),
    "expanded": torch.ones(1, 300).expand(20, 300),
}


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_a_batch_comes_back_as_it_was(batch):
    assert fingerprint(through(batch)) == fingerprint(batch)


def test_arrays_and_tensors_are_writable_and_keep_their_order():
    read_only = BATCHES["fortran"].copy(order="F")
    read_only.flags.writeable = False
    back = through({"f": read_only, "c": BATCHES["channels last"]})
    back["f"][0] = 1
    back["c"][0] = 1
    assert back["f"].flags.f_contiguous
    assert back["c"].is_contiguous(memory_format=torch.channels_last)


UNSENDABLE = [
    ({"data": 1, "f": lambda: 0}, r"batch\['f'\]"),
    ({"data": [1, {"deep": (2, lambda: 0)}]}, r"batch\['data'\]\[1\]\['deep'\]\[1\]"),
    ([1, (i for i in range(3))], r"batch\[1\]"),
    ({"row": namedtuple("Row", "p q")(1, 2)}, r"batch\['row'\] of type Row"),
    ({"t": torch.ones(3, requires_grad=True) * 2}, r"batch\['t'\].*detach"),
]


@pytest.mark.parametrize(("batch", "where"), UNSENDABLE)
def test_what_cannot_be_sent_is_named_by_its_key(batch, where):
    with pytest.raises(TypeError, match=where):
        pack(batch)


ROWS = np.zeros((50, 60))
DIAGONAL = torch.zeros(9, 9).fill_diagonal_(1)
IMAGES = torch.zeros(2, 3, 40, 50)

BULKY = {
    "tensor subclass": Meta(torch.zeros(5000), np.eye(4)),
    "part of a larger tensor subclass": Meta(torch.zeros(100, 100, 10))[:2, ::2],
    "channels-last tensor subclass": Meta(IMAGES.to(memory_format=torch.channels_last)),
    "bfloat16 tensor subclass": Meta(torch.zeros(5000, dtype=torch.bfloat16)),
    "float8 tensor subclass": Meta(torch.zeros(5000, dtype=torch.float8_e4m3fn)),
    "parameter": torch.nn.Parameter(torch.zeros(5000)),
    "sparse tensor": DIAGONAL.repeat(50, 50).to_sparse(),
    "array subclass": ROWS.view(Plain),
    "array subclass in F order": np.asfortranarray(ROWS).view(Plain),
    "array subclass with gaps": ROWS.view(Plain)[::2, ::3],
    "matrix": ROWS.view(np.matrix),
    "record array": np.rec.array([(1, 2.5)] * 600, dtype=[("a", "i4"), ("b", "f8")]),
    "masked array": np.ma.masked_greater(np.arange(5000.0), 7),
}


#: Pairs of a view into 400 kilobytes or more and the number of bytes that it shows.
VIEWS = [
    (np.zeros((100, 1000))[:, :10], 8_000),
    (np.zeros((100, 1000))[3:5], 16_000),
    (np.zeros((100, 1000)).view(Plain)[3:5], 16_000),
    (torch.zeros(100, 1000)[:, :10], 4_000),
    (torch.zeros(100, 1000)[3:5], 8_000),
    (Meta(torch.zeros(100, 1000))[3:5], 8_000),
]


@pytest.mark.parametrize(("view", "size"), VIEWS)
def test_only_the_part_that_is_seen_of_an_array_or_tensor_is_sent(view, size):
    packed = pack(view)
    assert len(packed.pickled) < 2_000
    assert [buffer.nbytes for buffer in packed.buffers] == [size]


def assert_same_array(back, array):
    assert back.dtype == array.dtype
    assert back.shape == array.shape
    assert back.flags.writeable
    assert back.flags.f_contiguous == array.flags.f_contiguous
    assert np.array_equal(np.ma.getmaskarray(back), np.ma.getmaskarray(array))
    assert np.array_equal(np.ma.filled(back), np.ma.filled(array))


def as_floats(tensor):
    if tensor.is_sparse:
        return tensor.to_dense().float()
    return tensor.detach().as_subclass(torch.Tensor).float()


def assert_same_tensor(back, tensor):
    assert back.dtype == tensor.dtype
    assert back.shape == tensor.shape
    assert back.layout == tensor.layout
    assert back.requires_grad == tensor.requires_grad
    assert torch.equal(as_floats(back), as_floats(tensor))


@pytest.mark.parametrize("batch", BULKY.values(), ids=BULKY)
def test_what_is_sent_comes_back_in_its_class_with_its_bytes_out_of_the_pickle(batch):
    packed = pack({"image": batch})
    assert len(packed.pickled) < 2000
    assert sum(buffer.nbytes for buffer in packed.buffers) >= 2000
    back = through(batch)
    assert type(back) is type(batch)
    if isinstance(batch, np.ndarray):
        assert_same_array(back, batch)
    else:
        assert_same_tensor(back, batch)


def test_a_tensor_subclass_keeps_its_attributes():
    batch = Meta(torch.arange(3000.0), affine=np.arange(16.0).reshape(4, 4))
    batch.applied.append({"class": "Rotate", "extra": torch.ones(2)})
    back = through([batch, batch])
    assert back[0] is back[1]
    assert np.array_equal(back[0].affine, batch.affine)
    assert back[0].applied[0]["class"] == "Rotate"
    assert torch.equal(back[0].applied[0]["extra"], torch.ones(2))
    assert torch.equal(back[0] + 1, batch + 1)


def test_a_subclass_in_a_graph_is_refused():
    with pytest.raises(TypeError, match="detach"):
        pack({"t": Meta(torch.zeros(3)).requires_grad_() * 2})


def test_a_memory_map_is_sent_as_what_it_shows(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(9000.0).reshape(90, 100))
    mapped = np.load(tmp_path / "a.npy", mmap_mode="r")
    packed = pack(mapped[5:7])
    assert len(packed.pickled) < 500
    back = through(mapped[5:7])
    assert np.array_equal(back, mapped[5:7])
    back[:] = 0


def test_masks_fill_values_and_hardness_are_kept():
    numbers = np.arange(2000)
    batch = np.ma.array(numbers, mask=numbers % 3 == 0, fill_value=-7, hard_mask=True)
    back = through(batch)
    assert np.array_equal(back.mask, batch.mask)
    assert back.fill_value == -7
    assert back.hardmask
    back[1] = np.ma.masked
    unset = through(np.ma.array(numbers))
    assert unset.mask is np.ma.nomask
    assert unset._fill_value is None
    assert not unset.hardmask


def test_aliases_are_one_object_of_any_class():
    for batch in (np.arange(3000), torch.arange(3000), Meta(torch.zeros(3000))):
        back = through({"a": batch, "b": [batch]})
        assert back["a"] is back["b"][0]
        (buffer,) = pack([batch, batch]).buffers
        assert buffer.nbytes <= 8 * 3000


def test_an_itk_image_is_packed_with_its_voxels_which_end_with_it() -> None:
    voxels = np.arange(6**3, dtype=np.float32).reshape(6, 6, 6)
    # The image ends as soon as it is packed, as nothing else refers to it.
    packed = pack({"image": sitk.GetImageFromArray(voxels)})
    image = unpack(packed.pickled, packed.buffers)["image"]
    assert np.array_equal(sitk.GetArrayFromImage(image), voxels)


@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_buffers_are_aligned_in_order_and_apart(sizes):
    offsets, size_of_all = pack_offsets(sizes)
    end = 0
    for offset, size in zip(offsets, sizes, strict=True):
        assert offset % ALIGNMENT == 0
        assert offset >= end
        end = offset + size
    assert size_of_all == end
    assert end <= sum(sizes) + ALIGNMENT * len(sizes)


@given(st.integers(0, 2**34))
def test_a_slot_holds_its_batch_and_not_much_more(size):
    capacity = capacity_for(size)
    assert capacity >= max(size, 1)
    assert capacity <= size + size // 8 + 4096


@pytest.fixture
def ends():
    """Yield the two ends of a channel."""
    parent_end, child_end = Channel.pair()
    yield parent_end, child_end
    parent_end.close()
    child_end.close()


def received(channel):
    """Wait for a message and return it with its descriptor."""
    return result_of(channel.receive, "a message has come")


def read(descriptor):
    """Wait until a pipe can be read, and return its contents."""
    wait_readable(descriptor, "something was written into the pipe")
    return os.read(descriptor, 10)


def test_nothing_is_waited_for_when_nothing_is_there(ends):
    _, child_end = ends
    assert child_end.receive_ready() == []


def test_the_other_sides_end_is_noticed_after_what_it_sent(ends):
    parent_end, child_end = ends
    parent_end.send("last words")
    parent_end.close()
    assert received(child_end) == ("last words", None)
    with pytest.raises(ChannelClosed):
        received(child_end)
    with pytest.raises(ChannelClosed):
        child_end.send("anyone?")


def test_message_of_any_size_arrives_whole_and_in_order(ends):
    parent_end, child_end = ends
    large = ("large", os.urandom(700_000))
    messages = [
        ("small", 1),
        large,
        ("small", 2),
        ("just above what is read at once", b"x" * 65_537),
    ]
    reading, writing = os.pipe()

    def send():
        for message in messages:
            parent_end.send(message)
        parent_end.send(large, writing)

    # In a thread, as `send` waits while the channel's buffer is full.
    sender = threading.Thread(target=send)
    sender.start()
    for message in messages:
        assert received(child_end) == (message, None)
    message, descriptor = received(child_end)
    join(sender, "all messages are sent")
    assert message == large
    os.write(descriptor, b"hello")
    assert read(reading) == b"hello"
    for number in (reading, writing, descriptor):
        os.close(number)


def test_a_descriptor_for_which_there_is_no_number_is_none_and_later_ones_are_those_of_their_messages(
    ends,
):
    parent_end, child_end = ends
    reading, writing = os.pipe()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    parent_end.send("lost", writing)
    parent_end.send("comes", writing)
    # Occupy all free numbers up to the limit.
    highest = max(reading, writing, parent_end.fileno(), child_end.fileno())
    duplicates = [os.dup(reading) for _ in range(highest)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(duplicates[-1] + 1, soft), hard))
    try:
        assert received(child_end) == ("lost", None)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in duplicates:
            os.close(number)
    message, descriptor = received(child_end)
    assert message == "comes"
    os.write(descriptor, b"hello")
    assert read(reading) == b"hello"
    for number in (reading, writing, descriptor):
        os.close(number)
