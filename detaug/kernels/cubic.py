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
    ORIGIN,
    PIECE,
    PITCH,
    PLANE,
    Map,
    Sampling,
    place_piece,
    tap_piece,
)
from detaug.kernels.resampling import WHERE, sample_taps

_A = np.float32(-0.75)
_ONE = np.float32(1)
_B = np.float32(0.75)
_C = np.float32(1.5)
_D = np.float32(1.25)


@inlined
def _weigh_piece(rows: Any, count: Any, shape: Any, flat: Any, index: Any, weight: Any) -> None:
    """Write the index of the lowest neighbour, and the weights w0, w2, w3 along each axis.

    Weight n of axis a of voxel k is at ``(3 * a + n) * PITCH + k``. All neighbours of the voxels
    are inside.
    """
    for k in range(count):
        index[k] = -np.int32(shape[ORIGIN])
    for axis in range(1 if flat else 0, 3):
        step = np.int32(shape[PLANE] if axis == 0 else (shape[LINE] if axis == 1 else 1))
        last = np.int32(shape[axis] - 3)
        row = rows[axis * PITCH :]
        own = weight[3 * axis * PITCH :]
        for k in range(count):
            base = min(np.int32(row[k]), last)
            t = np.float32(row[k] - np.float64(base))
            s = _ONE - t
            own[k] = _A * t * s * s
            own[PITCH + k] = t * (_B + t * (_C - _D * t))
            own[2 * PITCH + k] = _A * t * t * s
            index[k] = np.int32(index[k] + np.int32(np.int32(base - np.int32(1)) * step))


@inlined
def _join(parts: Any, count: Any, weight: Any, out: Any) -> None:
    """Interpolate between four voxels, lines or planes, whose values are in ``parts``."""
    for k in range(count):
        base = parts[PITCH + k]
        out[k] = base + (
            weight[k] * (parts[k] - base)
            + (
                weight[PITCH + k] * (parts[2 * PITCH + k] - base)
                + weight[2 * PITCH + k] * (parts[3 * PITCH + k] - base)
            )
        )


@kernel(f"void(float32[:, ::1], float32[:, :, :, ::1], {WHERE}, float64, boolean)")
def resample_cubic(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    value: Any,
    flat: Any,
) -> None:
    """Resample all channels of a patch.

    Arguments are those of `detaug.kernels.resampling.resample_images`; ``value`` lies outside.
    """
    rows = np.empty(3 * PITCH, np.float64)
    index = np.empty(PIECE, np.int32)
    weight = np.empty(9 * PITCH, np.float32)
    neighbours = np.empty(4 * PITCH, np.float32)
    lines = np.empty(4 * PITCH, np.float32)
    planes = np.empty(4 * PITCH, np.float32)
    tap_index = np.zeros(12 * PITCH, np.int64)
    tap_weight = np.empty(12 * PITCH, np.float64)
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, CUBIC, CONSTANT, flat)
    line = np.intp(shape[LINE])
    plane = np.intp(shape[PLANE])
    for row in range(out.shape[1] * out.shape[2]):
        i = row // out.shape[2]
        j = row % out.shape[2]
        for begin in range(0, out.shape[3], PIECE):
            length = min(PIECE, out.shape[3] - begin)
            start, stop, low, high = place_piece(
                rows, patch_map, i, j, begin, length, sampling, source.shape[1]
            )
            count = stop - start
            if count > 0:
                _weigh_piece(rows[start:], count, shape, flat, index, weight)
                for c in range(source.shape[0]):
                    voxels = source[c]
                    for a in range(1 if flat else 4):
                        for b in range(4):
                            shift = a * plane + b * line
                            for k in range(count):
                                # Unsigned: a signed index would be tested for its sign.
                                base_index = np.uint64(np.intp(index[k]) + shift)
                                for n in range(4):
                                    neighbours[n * PITCH + k] = voxels[base_index + np.uint64(n)]
                            _join(neighbours, count, weight[6 * PITCH :], lines[b * PITCH :])
                        _join(lines, count, weight[3 * PITCH :], planes[a * PITCH :])
                    line_out = out[c, i, j, begin + start : begin + stop]
                    if flat:
                        for k in range(
                            count
                        ):  # one array assigned to another compiles error messages for 2 s
                            line_out[k] = planes[k]
                    else:
                        _join(planes, count, weight, line_out)
            if high - low < length:
                for c in range(source.shape[0]):
                    out[c, i, j, begin : begin + low] = np.float32(value)
                    out[c, i, j, begin + high : begin + length] = np.float32(value)
            for side in range(2):
                one, other = (low, start) if side == 0 else (stop, high)
                if one < other:
                    part = rows[one:]
                    taps = tap_piece(part, other - one, sampling, tap_index, tap_weight)
                    for c in range(source.shape[0]):
                        sample_taps(
                            source[c],
                            out[c, i, j, begin + one : begin + other],
                            part,
                            other - one,
                            sampling,
                            value,
                            taps,
                            tap_index,
                            tap_weight,
                        )
