"""Separable convolution along all three axes in one pass, and sharpening.

Kernels of the convolution are symmetric.

Volumes come with what lies beyond their ends. Plane after plane is convolved along its own two axes
into a ring of planes; where the ring holds all that a plane of the output needs, it is summed along
the first axis.

The two voxels at equal distance are added first, then multiplied by their common weight. Sums are
in float32; of each three pairs the outer, smaller ones are added first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel, shared
from detaug.kernels.voxels import padded

# Voxels that are swept together, so that their sum stays in the first-level cache from sweep to
# sweep.
_CHUNK = 2048
# Not plain integers, for each of which Numba would compile `weighted_lines` once more.
_ZERO = np.int64(0)
_ONE = np.int64(1)


def convolve(volume: np.ndarray, weights: Sequence[np.ndarray], mode: str, out: np.ndarray) -> None:
    """Convolve a float32 volume (X, Y, Z) along its axes into another one, or itself.

    Args:
        volume: the volume.
        weights: for each axis the weight at its centre, at distance 1, 2, ..., float32.
        mode: what lies beyond the ends, see `padded`.
        out: (X, Y, Z) float32; it may be the volume.
    """
    radii = [len(axis_weights) - 1 for axis_weights in weights]
    convolve_padded(padded(volume, [(radius, radius) for radius in radii], mode), out, *weights)


@inlined
def _pair(indices: Any, weights: Any, t: Any, shift: Any) -> Any:
    """Return the weight of two voxels at distance t, and their indices.

    Indices are unsigned: a signed one would be tested for its sign.
    """
    return weights[t], np.uint64(indices[0, t] + shift), np.uint64(indices[1, t] + shift)


@shared
def weighted_lines(
    rows: Any,
    centre: Any,
    pitch: Any,
    indices: Any,
    weights: Any,
    out: Any,
    start: Any,
    out_pitch: Any,
    num_lines: Any,
    length: Any,
) -> None:
    """Write lines of sums of weighted voxels.

    For k < length, ``out[start + k]`` becomes

    ``weights[0] rows[centre + k] + sum over t > 0 of weights[t] (rows[indices[0, t] + k] +
    rows[indices[1, t] + k])``,

    and each further line is made of voxels ``pitch`` elements further on.

    Args:
        rows: float32, flat.
        centre: index of the first line's first voxel.
        pitch: elements from one line to the next.
        indices: (2, radius + 1) int64, of the voxels before and after the centre.
        weights: (radius + 1,) float32.
        out: float32, flat.
        start: index of the first line's first sum.
        out_pitch: elements from one line of sums to the next.
        num_lines: how many lines.
        length: voxels of a line.
    """
    radius = weights.shape[0] - 1
    # Three pairs at a time: a sweep for each pair would read and write the sums three times as
    # often.
    whole = radius - radius % 3
    num_voxels = np.uint64(length)
    for line in range(num_lines):
        shift = line * pitch
        first_out = np.uint64(start + line * out_pitch)
        middle = np.uint64(centre + shift)
        for k in range(num_voxels):
            out[first_out + k] = weights[0] * rows[middle + k]
        for t in range(1, whole, 3):
            w1, before1, after1 = _pair(indices, weights, t, shift)
            w2, before2, after2 = _pair(indices, weights, t + 1, shift)
            w3, before3, after3 = _pair(indices, weights, t + 2, shift)
            for k in range(num_voxels):
                share1 = w1 * (rows[before1 + k] + rows[after1 + k])
                share2 = w2 * (rows[before2 + k] + rows[after2 + k])
                share3 = w3 * (rows[before3 + k] + rows[after3 + k])
                out[first_out + k] += share1 + (share2 + share3)
        if radius - whole == 1:
            w1, before1, after1 = _pair(indices, weights, radius, shift)
            for k in range(num_voxels):
                out[first_out + k] += w1 * (rows[before1 + k] + rows[after1 + k])
        elif radius - whole == 2:
            w1, before1, after1 = _pair(indices, weights, radius - 1, shift)
            w2, before2, after2 = _pair(indices, weights, radius, shift)
            for k in range(num_voxels):
                share1 = w1 * (rows[before1 + k] + rows[after1 + k])
                share2 = w2 * (rows[before2 + k] + rows[after2 + k])
                out[first_out + k] += share1 + share2


@inlined
def _index_symmetrically(indices: Any, centre: Any, step: Any, radius: Any) -> None:
    """Write the indices at distances 1, 2 ... ``radius`` on both sides of the centre."""
    for t in range(1, radius + 1):
        indices[0, t] = centre - t * step
        indices[1, t] = centre + t * step


@kernel("void(float32[:,:,::1], float32[:,:,::1], float32[::1], float32[::1], float32[::1])")
def convolve_padded(
    source: Any, destination: Any, weights0: Any, weights1: Any, weights2: Any
) -> None:
    """Convolve a volume that is longer than ``destination`` by the weights' reach.

    Args:
        source: (X + 2 r0, Y + 2 r1, Z + 2 r2), with r0, r1 and r2 the radii of the weights.
        destination: (X, Y, Z).
        weights0, weights1, weights2: along the axes, from the centre outwards.
    """
    n0, n1, n2 = destination.shape
    r0 = weights0.shape[0] - 1
    r1 = weights1.shape[0] - 1
    r2 = weights2.shape[0] - 1
    padded_lines = n1 + 2 * r1
    pitch = n2 + 2 * r2
    plane_size = n1 * n2
    # Planes that one plane of the result is summed of; each new one replaces the oldest.
    num_slots = 2 * r0 + 1
    ring = np.empty(num_slots * plane_size, np.float32)
    rows = np.empty(padded_lines * n2, np.float32)
    indices = np.zeros((2, max(r0, r1, r2) + 1), np.int64)
    voxels = source.reshape(-1)
    result = destination.reshape(-1)
    block = max(1, _CHUNK // n2)
    for i in range(n0 + 2 * r0):
        # Filtered along Z into rows, then along Y into a plane of the ring.
        for j in range(0, padded_lines, block):
            centre = (i * padded_lines + j) * pitch + r2
            num_lines = min(block, padded_lines - j)
            _index_symmetrically(indices, centre, 1, r2)
            weighted_lines(
                voxels, centre, pitch, indices, weights2, rows, j * n2, n2, num_lines, n2
            )
        for first in range(0, plane_size, _CHUNK):
            centre = r1 * n2 + first
            slot_start = (i % num_slots) * plane_size + first
            length = min(_CHUNK, plane_size - first)
            _index_symmetrically(indices, centre, n2, r1)
            weighted_lines(
                rows, centre, _ZERO, indices, weights1, ring, slot_start, _ZERO, _ONE, length
            )
        plane = i - 2 * r0
        if plane < 0:
            # The ring does not hold all planes yet that the first one is summed of.
            continue
        # Filtered along X, over the planes of the ring.
        for first in range(0, plane_size, _CHUNK):
            for t in range(1, r0 + 1):
                indices[0, t] = ((plane + r0 - t) % num_slots) * plane_size + first
                indices[1, t] = ((plane + r0 + t) % num_slots) * plane_size + first
            centre = ((plane + r0) % num_slots) * plane_size + first
            result_start = plane * plane_size + first
            length = min(_CHUNK, plane_size - first)
            weighted_lines(
                ring, centre, _ZERO, indices, weights0, result, result_start, _ZERO, _ONE, length
            )


@kernel("void(float32[:,:,::1], float32[:,:,::1], float64)")
def sharpen_padded(source: Any, destination: Any, strength: Any) -> None:
    """Add ``strength * sum of (x - neighbour)`` over the nearest neighbours to each voxel x.

    They are those along X and Z, and along Y if the image has several voxels there. In float64,
    because the differences are small where an image is smooth.

    Args:
        source: (X + 2, Y + 2, Z + 2): one voxel more at both ends of each axis.
        destination: (X, Y, Z).
        strength: the factor.
    """
    one = np.uint64(1)
    is_volume = destination.shape[1] > 1
    num_neighbours = 6.0 if is_volume else 4.0
    for i in range(destination.shape[0]):
        for j in range(destination.shape[1]):
            # Views are made outside the loop over voxels: each one counts a reference.
            line = source[i + 1, j + 1]
            before_x = source[i, j + 1]
            after_x = source[i + 2, j + 1]
            before_y = source[i + 1, j]
            after_y = source[i + 1, j + 2]
            out = destination[i, j]
            for k in range(np.uint64(destination.shape[2])):
                middle = k + one
                x = np.float64(line[middle])
                along_z = np.float64(line[k]) + np.float64(line[middle + one])
                along_x = np.float64(before_x[middle]) + np.float64(after_x[middle])
                neighbours = along_z + along_x
                if is_volume:
                    along_y = np.float64(before_y[middle]) + np.float64(after_y[middle])
                    neighbours = neighbours + along_y
                out[k] = np.float32(x + strength * (num_neighbours * x - neighbours))
