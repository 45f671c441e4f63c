"""Connected components of a binary volume, as runs of voxels along the last axis: voxels that share a face, an edge or a
corner belong together.

Components are numbered from 0 in the order in which the first voxel of each is met.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel

_ONE = np.uint64(1)
_NONE = np.uint64(0)


# Every 6 neighbouring bits of this number differ: multiplied by a power of two, its upper ones tell which.
_DE_BRUIJN = 0x03F79D71B4CB0A89
_PLACE = np.zeros(64, np.int64)
for _place in range(64):
    _PLACE[((_DE_BRUIJN << _place) & 0xFFFFFFFFFFFFFFFF) >> 58] = _place
_FACTOR = np.uint64(_DE_BRUIJN)


@inlined
def _lowest(bits: Any) -> Any:
    """The place of the lowest bit that is set."""
    alone = bits & (np.uint64(~bits) + _ONE)
    return _PLACE[np.uint64(np.uint64(alone * _FACTOR) >> np.uint64(58))]


@kernel("int64(uint64[:, ::1], int64[::1])")
def count_runs(bits: Any, first_run: Any) -> Any:
    """Set ``first_run[r]`` to the number of runs in rows before row r (of ``bits``, see `detaug.kernels.bits`), for all
    rows and one beyond; returns the number of all.
    """
    total = 0
    for row in range(bits.shape[0]):
        first_run[row] = total
        before = _NONE
        for word in range(bits.shape[1]):
            value = bits[row, word]
            # a run begins at a set bit that has none below it
            begins = value & np.uint64(~np.uint64(np.uint64(value << _ONE) | before))
            while begins != _NONE:
                begins &= begins - _ONE
                total += 1
            before = value >> np.uint64(63)
    first_run[bits.shape[0]] = total
    return total


@kernel("void(uint64[:, ::1], int64, int64[::1], int64[::1], int64[::1])")
def find_runs(bits: Any, voxels: Any, first_run: Any, begin: Any, end: Any) -> None:
    """Set voxels ``begin[i]`` (included) to ``end[i]`` of every run, counted within its row."""
    for row in range(bits.shape[0]):
        opened = first_run[row]
        closed = first_run[row]
        if opened == first_run[row + 1]:
            continue
        before = _NONE
        for word in range(bits.shape[1]):
            value = bits[row, word]
            below = np.uint64(value << _ONE) | before
            begins = value & np.uint64(~below)
            while begins != _NONE:
                begin[opened] = 64 * word + _lowest(begins)
                opened += 1
                begins &= begins - _ONE
            ends = below & np.uint64(~value)
            while ends != _NONE:
                end[closed] = 64 * word + _lowest(ends)
                closed += 1
                ends &= ends - _ONE
            before = value >> np.uint64(63)
        if closed < opened:
            end[closed] = voxels


@inlined
def _root(parent: Any, run: Any) -> Any:
    while parent[run] != run:
        parent[run] = parent[parent[run]]
        run = parent[run]
    return run


@inlined
def _join_rows(first_run: Any, begin: Any, end: Any, parent: Any, row: Any, other: Any) -> None:
    """Join the runs of two neighbouring rows that touch, be it at a corner."""
    i = first_run[row]
    j = first_run[other]
    while i < first_run[row + 1] and j < first_run[other + 1]:
        if begin[i] <= end[j] and begin[j] <= end[i] and parent[i] != parent[j]:
            a = _root(parent, i)
            b = _root(parent, j)
            parent[max(a, b)] = min(a, b)
        if end[i] < end[j]:
            i += 1
        else:
            j += 1


@kernel("int64(int64, int64, int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])")
def join_runs(n0: Any, n1: Any, first_run: Any, begin: Any, end: Any, component: Any, sizes: Any) -> Any:
    """Set every run's component and every component's size in voxels; returns how many components there are.

    Args:
        n0, n1: rows of the volume along its first two axes.
        component: one per run. sizes: as long, of which the first are used.
    """
    parent = component
    for i in range(component.shape[0]):
        parent[i] = i
    for i in range(n0):
        for j in range(n1):
            row = i * n1 + j
            if first_run[row] == first_run[row + 1]:
                continue
            if j > 0:
                _join_rows(first_run, begin, end, parent, row, row - 1)
            if i > 0:
                for other in range(max(0, j - 1), min(n1, j + 2)):
                    _join_rows(first_run, begin, end, parent, row, (i - 1) * n1 + other)
    count = 0
    for i in range(component.shape[0]):
        # a root is the first run of its component, and its number is known before that of any other
        if parent[i] == i:
            component[i] = count
            sizes[count] = 0
            count += 1
        else:
            # roots are behind, and hold numbers by now; parents in between do as well
            component[i] = component[parent[i]]
        sizes[component[i]] += end[i] - begin[i]
    return count


@kernel("void(int64[::1], int64[::1], int64[::1], int64[::1], int64, int64, float32, float32[::1])")
def set_component(
    first_run: Any, begin: Any, end: Any, component: Any, which: Any, voxels: Any, value: Any, values: Any
) -> None:
    """Give the voxels of one component a value."""
    for row in range(first_run.shape[0] - 1):
        for run in range(first_run[row], first_run[row + 1]):
            if component[run] == which:
                for i in range(row * voxels + begin[run], row * voxels + end[run]):
                    values[i] = value
