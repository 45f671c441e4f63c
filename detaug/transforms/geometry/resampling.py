"""A patch's map into its source: where each of its voxels lies, and what is there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from detaug.kernels import coordinates
from detaug.kernels.compiling import Kernel
from detaug.kernels.label_resampling import TIE_HIGHEST, TIE_LOWEST, TIE_NEAREST, resample_labels
from detaug.kernels.resampling import resample_images
from detaug.transforms.building import buffers
from detaug.transforms.building.label_codes import as_int16
from detaug.transforms.geometry.affine import Matrix, applied, identity, inverse
from detaug.transforms.geometry.elastic import DisplacementField
from detaug.transforms.geometry.points import map_points

IMAGE_MODES = {"nearest": coordinates.NEAREST, "bilinear": coordinates.LINEAR, "bicubic": coordinates.CUBIC}
BORDER_MODES = {
    "zeros": coordinates.CONSTANT,
    "constant": coordinates.CONSTANT,
    "border": coordinates.BORDER,
    "reflection": coordinates.REFLECTION,
}
TIEBREAKS = {"nearest": TIE_NEAREST, "lowest": TIE_LOWEST, "highest": TIE_HIGHEST}

_NO_DISPLACEMENT = np.empty((3, 0, 0, 0), np.float32)
_FIXED_POINT_STEPS = 50
_REACH = 4


class PatchMap:
    """Patch voxel i lies at ``matrix (i + displacement(i)) + offset`` in voxels of the source.

    Args:
        space: the source's spatial shape, two or three numbers.
        patch_size: the patch's.
        affine: rotation and scaling about the middle, or None.
        elastic: arguments of a `DisplacementField` (``key``, ``sigmas``, ``magnitudes``), or None.
        center: where the patch's middle lies, in voxels from the source's first edge (n / 2 is the middle of n voxels).
        center_deformation: take the mean displacement out.
        align_corners: as torch's grid_sample has it.
    """

    KERNELS: tuple[Kernel, ...] = (resample_images, resample_labels)

    def __init__(
        self,
        space: Sequence[int],
        patch_size: Sequence[int],
        affine: Matrix | None,
        elastic: Mapping[str, Any] | None,
        center: Sequence[float],
        *,
        center_deformation: bool = True,
        align_corners: bool = False,
    ) -> None:
        self._space, self._patch, self._align_corners = tuple(space), tuple(patch_size), align_corners
        dims = len(self._space)
        matrix = affine if affine is not None else identity(dims)
        self._field = DisplacementField(patch_size, **elastic) if elastic is not None else None
        middle = [(n - 1) / 2 for n in self._patch]
        if self._field is not None and center_deformation:
            middle = [m + mean for m, mean in zip(middle, self._field.mean(), strict=True)]
        back = applied(matrix, middle)
        offset = [c - n / 2 - b for c, n, b in zip(center, self._space, back, strict=True)]
        if align_corners:
            # grid_sample then spreads the source's n voxel edges over its n - 1 steps between centres
            shrink = [(n - 1) / n for n in self._space]
            matrix = [[value * s for value in row] for row, s in zip(matrix, shrink, strict=True)]
            offset = [value * s for value, s in zip(offset, shrink, strict=True)]
        self._matrix = [list(map(float, row)) for row in matrix]
        self._offset = [value + (n - 1) / 2 for value, n in zip(offset, self._space, strict=True)]

    def whole_voxel_shift(self) -> list[int] | None:
        """The first voxel of the patch in the source, if the map is a crop that lies wholly within it; else None."""
        if self._field is not None or self._matrix != identity(len(self._space)):
            return None
        starts = [math.floor(value) for value in self._offset]
        if any(start != value for start, value in zip(starts, self._offset, strict=True)):
            return None
        inside = all(0 <= s <= n - p for s, n, p in zip(starts, self._space, self._patch, strict=True))
        return starts if inside else None

    def region(self, modes: Iterable[tuple[str, str]]) -> tuple[list[int], list[int]]:
        """The box ``starts``, ``stops`` (excluded) of the source outside of which no voxel is read.

        Args:
            modes: mode and border mode of everything that will be resampled.
        """
        space = self._space
        if any(border == "reflection" for _, border in modes):
            return [0] * len(space), list(space)
        # Two voxels more than the neighbours that a cubic kernel has: an integer's worth of room for rounding.
        reach = [_REACH] * len(space)
        if self._field is not None:
            largest = self._field.magnitudes
            for axis, row in enumerate(self._matrix):
                reach[axis] += math.ceil(sum(abs(a) * m for a, m in zip(row, largest, strict=True)))
        starts, stops = [], []
        for row, offset, n, more in zip(self._matrix, self._offset, space, reach, strict=True):
            ends = [a * (extent - 1) for a, extent in zip(row, self._patch, strict=True)]
            low = offset + sum(min(0.0, end) for end in ends)
            high = offset + sum(max(0.0, end) for end in ends)
            first = min(max(math.floor(low) - more, 0), n - 1)
            starts.append(first)
            stops.append(min(max(math.ceil(high) + more + 1, first + 1), n))
        return starts, stops

    def resample(
        self,
        images: Sequence[np.ndarray],
        image_mode: tuple[str, str, float],
        labels: np.ndarray | None,
        label_mode: tuple[str, str, float, str],
        window: tuple[Sequence[int], Sequence[int]] | None = None,
    ) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Everything of a sample in one go, so that a displacement field is evaluated once.

        Args:
            images: each (C, *space) float32. image_mode: mode, border mode, value outside.
            labels: (C, *space) of any dtype, or None. label_mode: mode, border mode, label outside, tiebreak.
            window: first voxel and extents, where the arrays are that part of the source only. It must hold `region`.
        """
        lift = 3 - len(self._space)
        starts, extents = window if window is not None else ([0] * len(self._space), self._space)
        shape = coordinates.layout((*(1,) * lift, *self._space), (*(0,) * lift, *starts), (*(1,) * lift, *extents))
        out_shape = (1,) * lift + self._patch
        matrix = np.eye(3)
        matrix[lift:, lift:] = self._matrix
        offset = np.array([0.0] * lift + self._offset)
        new_images = [buffers.empty((len(image), *out_shape), np.float32) for image in images]
        codes = new_codes = None
        if labels is not None:
            border = label_mode[1]
            codes, pad, decode = as_int16(
                labels, label_mode[2] if BORDER_MODES[border] == coordinates.CONSTANT else None
            )
            new_codes = buffers.empty((len(labels), *out_shape), np.int16)
        for first, last, displacement in self._parts(out_shape[0]):
            where = (shape, matrix, offset, displacement, first, last)
            for image, new in zip(images, new_images, strict=True):
                mode, border, value = image_mode
                resample_images(
                    image.reshape(len(image), -1), new, *where, IMAGE_MODES[mode], BORDER_MODES[border], float(value),
                    self._align_corners, lift == 1,
                )  # fmt: skip
            if codes is not None:
                mode, border, _, tiebreak = label_mode
                resample_labels(
                    codes.reshape(len(codes), -1), new_codes, *where, IMAGE_MODES[mode], BORDER_MODES[border], np.int16(pad),
                    TIEBREAKS[tiebreak], self._align_corners, lift == 1,
                )  # fmt: skip
        results = [new.reshape(len(new), *self._patch) for new in new_images]
        return results, None if new_codes is None else decode(new_codes.reshape(len(new_codes), *self._patch))

    def _parts(self, planes: int) -> Any:
        """The planes of the patch in parts, with the displacement of each."""
        if self._field is None:
            yield 0, planes, _NO_DISPLACEMENT
            return
        for first in range(planes):
            yield first, first + 1, self._field.planes(first, first + 1)

    def points_to_patch(self, points: np.ndarray) -> np.ndarray:
        """(N, dims) float64: where points of the source come to lie in the patch.

        With a displacement u this solves ``p + u(p) = q`` by iteration, which converges for any map that does not fold.
        """
        back = inverse(self._matrix)
        wanted = map_points(points, back, applied(back, [-value for value in self._offset]))
        if self._field is None:
            return wanted
        found = wanted
        for _ in range(_FIXED_POINT_STEPS):
            found, before = wanted - self._field.at(found), found
            if float(np.abs(found - before).max()) < 1e-9:
                break
        return found
