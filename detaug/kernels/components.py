"""Connected components of a binary volume, as runs of voxels along the last axis: voxels that share a face, an edge or a
corner belong together.

Components are numbered from 0 in the order in which the first voxel of each is met.
"""

from __future__ import annotations

from typing import Any

from detaug.kernels.compiling import inlined, kernel


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
        first_run: the number of runs in rows before each row, and of all.
        begin, end: of each run, voxels within its row, the end excluded.
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
