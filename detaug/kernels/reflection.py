"""Indices beyond an axis' ends, mirrored back onto it as often as it takes."""

from __future__ import annotations

from typing import Any

from detaug.kernels.compiling import inlined


@inlined
def reflected(i: Any, n: Any, edge_twice: Any) -> Any:
    """The voxel of an axis of n that stands in for index i.

    ``edge_twice`` False mirrors at the outermost voxels' centres (``c b | a b c | b a``: torch's and NumPy's
    "reflect"), True at their outer faces (``b a | a b c | c b``: SciPy's "reflect", NumPy's "symmetric").
    """
    if n == 1:
        return 0
    if edge_twice:
        period = 2 * n
        at = i % period
        return at if at < n else period - 1 - at
    period = 2 * (n - 1)
    at = i % period
    return at if at < n else period - at
