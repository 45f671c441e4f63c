"""Where buffers lie in a slot."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detaug.memory.blocks import ALIGNMENT, capacity_for, lay_out


@given(st.lists(st.integers(0, 10_000), max_size=30))
def test_buffers_are_aligned_in_order_and_apart(sizes):
    layout = lay_out(sizes)
    assert all(offset % ALIGNMENT == 0 for offset in layout.offsets)
    ends = [0, *(offset + size for offset, size in zip(layout.offsets, sizes, strict=True))]
    assert all(offset >= end for offset, end in zip(layout.offsets, ends, strict=False))
    assert layout.size == ends[-1] <= sum(sizes) + ALIGNMENT * len(sizes)


@given(st.integers(0, 2**34))
def test_a_slot_holds_its_batch_and_not_much_more(size):
    capacity = capacity_for(size)
    assert capacity >= max(size, 1)
    assert capacity % 4096 == 0
    assert capacity <= size + size // 8 + 4096
