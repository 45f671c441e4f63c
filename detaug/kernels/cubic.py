"""Images resampled with Keys' cubic kernel (a = -0.75, as torch's grid_sample has it).

R. Keys, "Cubic convolution interpolation for digital image processing", 1981. Of the four
neighbours along an axis the second one, p1, is the base: ``p1 + w0 (p0 - p1) + w2 (p2 - p1) + w3
(p3 - p1)``, so that the fourth weight, 1 - w0 - w2 - w3, is never rounded, and a constant image
stays constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.coordinates import (
    CONSTANT,
    CUBIC,
    LINE,
    MOST_TAPS,
    ORIGIN,
    PIECE,
    PITCH,
    PLANE,
    Map,
    Parts,
    Piece,
    Sampling,
    locate_piece,
)
from detaug.kernels.resampling import WHERE, write_ends

# With t from 0 to 1 the distance from p1: w0 = a t (1 - t)², w3 = a t² (1 - t), and w2 =
# b t + c t² + d t³ with b = -a, c = 2 a + 3 and d = -(a + 2).
_A = np.float32(-0.75)
_B = np.float32(0.75)
_C = np.float32(1.5)
_MINUS_D = np.float32(1.25)
_ONE = np.float32(1)


@inlined
def _weigh_piece(
    points: Any, count: Any, shape: Any, is_flat: Any, lowest: Any, weight: Any
) -> None:
    """Write the index of the lowest neighbour, and the weights w0, w2, w3 along each axis.

    All neighbours are inside the source.

    Args:
        points: float64, from `locate_piece`.
        count: of voxels.
        shape: from `layout`.
        is_flat: the source is a plane.
        lowest: (count,) int32.
        weight: float32. Weight n of axis a of voxel k is at ``(3 * a + n) * PITCH + k``.
    """
    for k in range(count):
        lowest[k] = -np.int32(shape[ORIGIN])
    for axis in range(1 if is_flat else 0, 3):
        step = np.int32(1)
        if axis == 0:
            step = np.int32(shape[PLANE])
        elif axis == 1:
            step = np.int32(shape[LINE])
        last = np.int32(shape[axis] - 3)
        along_axis = points[axis * PITCH :]
        axis_weight = weight[3 * axis * PITCH :]
        for k in range(count):
            # A point on the last inner voxel belongs to the cell before it.
            base = min(np.int32(along_axis[k]), last)
            t = np.float32(along_axis[k] - np.float64(base))
            s = _ONE - t
            axis_weight[k] = _A * t * s * s
            axis_weight[PITCH + k] = t * (_B + t * (_C - _MINUS_D * t))
            axis_weight[2 * PITCH + k] = _A * t * t * s
            steps = np.int32(np.int32(base - np.int32(1)) * step)
            lowest[k] = np.int32(lowest[k] + steps)


@inlined
def _join(parts: Any, count: Any, weight: Any, out: Any) -> None:
    """Interpolate between four voxels, lines or planes.

    Args:
        parts: their values, float32, `PITCH` apart.
        count: of voxels.
        weight: from `_weigh_piece`, of one axis.
        out: (count,) float32.
    """
    for k in range(count):
        base = parts[PITCH + k]
        share0 = weight[k] * (parts[k] - base)
        share2 = weight[PITCH + k] * (parts[2 * PITCH + k] - base)
        share3 = weight[2 * PITCH + k] * (parts[3 * PITCH + k] - base)
        out[k] = base + (share0 + (share2 + share3))


@kernel(f"void(float32[:, ::1], float32[:, :, :, ::1], {WHERE}, float64, boolean)")
def resample_cubic(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    outside: Any,
    is_flat: Any,
) -> None:
    """Resample all channels of a patch.

    Arguments are those of `detaug.kernels.resampling.resample_images`.
    """
    points = np.empty(3 * PITCH, np.float64)
    lowest = np.empty(PIECE, np.int32)
    # Three weights along each of three axes: the fourth follows from them.
    weight = np.empty(9 * PITCH, np.float32)
    neighbours = np.empty(4 * PITCH, np.float32)
    lines = np.empty(4 * PITCH, np.float32)
    planes = np.empty(4 * PITCH, np.float32)
    tap_indices = np.zeros(3 * MOST_TAPS * PITCH, np.int64)
    tap_weights = np.empty(3 * MOST_TAPS * PITCH, np.float64)
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, CUBIC, CONSTANT, is_flat)
    line_step = np.intp(shape[LINE])
    plane_step = np.intp(shape[PLANE])
    for row in range(out.shape[1] * out.shape[2]):
        i = row // out.shape[2]
        j = row % out.shape[2]
        for first in range(0, out.shape[3], PIECE):
            length = min(PIECE, out.shape[3] - first)
            piece = Piece(i, j, first, length)
            start, stop, low, high = locate_piece(
                points, patch_map, piece, sampling, source.shape[1]
            )
            count = stop - start
            if count > 0:
                _weigh_piece(points[start:], count, shape, is_flat, lowest, weight)
                for c in range(source.shape[0]):
                    voxels = source[c]
                    for a in range(1 if is_flat else 4):
                        # Along z in lines, then these along y in planes, then these along x.
                        for b in range(4):
                            step = a * plane_step + b * line_step
                            for k in range(count):
                                # Unsigned: a signed index would be tested for its sign.
                                base_index = np.uint64(np.intp(lowest[k]) + step)
                                for n in range(4):
                                    neighbours[n * PITCH + k] = voxels[base_index + np.uint64(n)]
                            _join(neighbours, count, weight[6 * PITCH :], lines[b * PITCH :])
                        _join(lines, count, weight[3 * PITCH :], planes[a * PITCH :])
                    line = out[c, i, j, first + start : first + stop]
                    if is_flat:
                        # Not ``line[:] = planes[:count]``, for which error messages are compiled
                        # that take 2 s.
                        for k in range(count):
                            line[k] = planes[k]
                    else:
                        _join(planes, count, weight, line)
            if count < length:
                parts = Parts(start, stop, low, high)
                write_ends(
                    source, out, points, sampling, outside, piece, parts, tap_indices, tap_weights
                )
