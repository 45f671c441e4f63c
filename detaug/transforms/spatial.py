"""`SpatialTransform`: one resampling for all spatial changes of a sample.

These are crop, rotation, scaling, shear, translation and elastic deformation.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import permutations
from typing import Any

import numpy as np
from numpy.random import Generator

from detaug.kernels.compiling import Kernel
from detaug.transforms.building import checks, draws, gate
from detaug.transforms.building.affine import Matrix, applied, identity, product, rotation, scaled
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes, Transform
from detaug.transforms.building.checks import (
    finite,
    one_of,
    probability,
    radians,
    random_scalar,
    spatial_size,
)
from detaug.transforms.building.gate import (
    KEY,
    MATRIX,
    PLACE,
    VOXEL_KEYS,
    each_axis,
    fields,
    number,
    optional,
    takes,
)
from detaug.transforms.building.grids import GRID, grid_among
from detaug.transforms.building.stages import DEFERRED
from detaug.transforms.building.workspace import Workspace, in_space, spatial_shape
from detaug.transforms.cropping import check_padding, crop_sample
from detaug.transforms.geometry import elastic
from detaug.transforms.geometry.label_dtypes import resampling_dtype
from detaug.transforms.geometry.resampling import (
    IMAGE_KERNELS,
    LABEL_KERNELS,
    PatchMap,
    Window,
)

# From params to a patch:
#
#   no affine, no elastic -> `crop_sample`, which copies voxels and nothing else
#   else -> `PatchMap`: matrix and offset, field of displacements -> one kernel per array

_BORDER_MODES = ("zeros", "constant")
_ELASTIC = fields(key=KEY, sigmas=each_axis(number(0, 1e6)), magnitudes=each_axis(number(0, 1e6)))


class SpatialTransform(Transform):
    """A patch of a sample, with rotation, scaling, shear, translation and elastic deformation.

    Each of them has its own probability. If none is drawn, voxels are only copied (a centre crop
    without padding copies nothing). Else each output voxel i of the patch takes the value at ``A (i
    - m + u(i)) - mean + c`` of the source, with m the patch's middle, A rotation, shear and
    scaling, u the displacement, c the crop's centre and mean the average of ``A u`` (if
    ``center_deformation``). Coordinates are computed in float64 row by row; but for a deformation's
    displacements no grid is made.

    Args:
        patch_size: voxels of the output along each of the two or three axes.
        patch_center_dist_from_border: with ``random_crop``, how near the patch's centre may come to
            the source's border, in voxels; one number, or one per axis.
        random_crop: a random centre; else the middle.
        p_elastic_deform, elastic_deform_scale, elastic_deform_magnitude: the probability of a
            deformation; the standard deviation of its Gaussian filter as a part of the patch's
            edge; its largest displacement in voxels, 0 or more.
        p_synchronize_def_scale_across_axes: the probability of one scale for all axes.
        p_rotation, rotation, p_rot_per_axis: the probability of a rotation; angles in radians, one
            drawn per axis; the probability that an axis keeps its angle. In 2-D the last angle
            counts. Angles beyond a full turn are refused.
        p_scaling, scaling, p_synchronize_scaling_across_axes: the probability of scaling; the
            factor (larger than 1 makes objects smaller); the probability of one factor for all
            axes.
        bg_style_seg_sampling: accepted for compatibility; it changes nothing, as in
            batchgeneratorsv2, where both ways give the same labels.
        mode_seg: ``nearest`` or ``bilinear`` (trilinear in 3-D): the argmax over the interpolated
            one-hot channels, and of labels with equal weights that of the nearest voxel where it is
            one of them, else the lowest.
        mode_image: ``nearest``, ``bilinear`` (trilinear in 3-D) or ``bicubic`` (Keys' kernel with a
            = -0.75).
        border_mode_seg, padding_mode_image: ``zeros`` or ``constant``: what lies outside is an
            image or a label of that value, and takes part in the interpolation.
        padding_value_seg, padding_value_image: for ``constant``; that of labels is one that int32
            holds. A segmentation whose dtype cannot hold it (uint8 and -1) is a ValueError, whether
            or not a sample needs it.
        center_deformation: see above.
        align_corners: as grid_sample has it.
        p_shear, shear: the probability of shearing; the factors (displacement along one axis for
            each voxel along another), one drawn for each pair of axes (0, 1), (0, 2), (1, 0) ...,
            and applied one after the other, as MONAI's `RandAffine` has them: shear keeps volumes.
            A is rotation @ shear @ scaling.
        p_translation, translation: the probability of a shift; voxels, one drawn per axis, in the
            sheared and rotated frame, as MONAI's ``translate_range``: the patch shows what is that
            far from the crop's centre. (TorchIO's `RandomAffine` has no shear, and translates by
            millimetres of the source's frame.)
        seg_tiebreak: ``nearest``, as ``mode_seg`` says.

    Callables for the scalars may ask for ``image``, ``dim``, ``patch_size``, ``deformation_scale``
    (magnitude only) and ``rng``; those of ``shear`` and ``translation`` for ``image``, ``dim`` (for
    a shear: the row) and ``rng``. With a probability of 0 neither draws.

    Where the sample has a spacing (`detaug.torchio.Wrap`; `detaug.monai.Wrap` and MetaTensors),
    rotation, shear and scaling act in millimetres along the array's axes, translations are
    millimetres, and an axis of one voxel stays as it is: a plane stays in its plane. Deformations
    are in voxels.

    Params: ``center_location_in_pixels`` (one float per axis), ``affine`` (rows of the matrix, or
    None), ``elastic`` (None, or ``key``, ``sigmas`` and ``magnitudes`` of
    `detaug.transforms.geometry.elastic.displacement`).

    Raises:
        TypeError, ValueError: arguments of a wrong kind or out of range. ValueError: from `apply`,
            labels that are not whole numbers (soft labels, NaN) or that int32 does not hold,
            whatever was drawn.
    """

    def __init__(
        self,
        patch_size: Sequence[int],
        patch_center_dist_from_border: float | Sequence[float],
        random_crop: bool,
        p_elastic_deform: float = 0,
        elastic_deform_scale: RandomScalar = (0, 0.2),
        elastic_deform_magnitude: RandomScalar = (0, 0.2),
        p_synchronize_def_scale_across_axes: float = 0,
        p_rotation: float = 0,
        rotation: RandomScalar = (0, 2 * math.pi),
        p_rot_per_axis: float = 1,
        p_scaling: float = 0,
        scaling: RandomScalar = (0.7, 1.3),
        p_synchronize_scaling_across_axes: float = 0,
        bg_style_seg_sampling: bool = False,
        mode_seg: str = "bilinear",
        border_mode_seg: str = "zeros",
        center_deformation: bool = True,
        mode_image: str = "bilinear",
        padding_mode_image: str = "zeros",
        padding_value_seg: float = 0,
        padding_value_image: float = 0,
        align_corners: bool = False,
        *,
        seg_tiebreak: str = "nearest",
        p_shear: float = 0,
        shear: RandomScalar = (-0.1, 0.1),
        p_translation: float = 0,
        translation: RandomScalar = (-10, 10),
    ) -> None:
        self.patch_size = spatial_size("patch_size", patch_size)
        # Samples of other dimensions are refused before anything is drawn.
        self.spatial_dims = len(self.patch_size)
        self.patch_center_dist_from_border = _distances(
            patch_center_dist_from_border, len(self.patch_size)
        )
        self.random_crop = bool(random_crop)
        self.p_elastic_deform = probability("p_elastic_deform", p_elastic_deform)
        self.elastic_deform_scale = random_scalar(
            "elastic_deform_scale", elastic_deform_scale, minimum=0
        )
        self.elastic_deform_magnitude = random_scalar(
            "elastic_deform_magnitude", elastic_deform_magnitude, minimum=0
        )
        self.p_synchronize_def_scale_across_axes = probability(
            "p_synchronize_def_scale_across_axes", p_synchronize_def_scale_across_axes
        )
        self.p_rotation = probability("p_rotation", p_rotation)
        self.rotation = radians("rotation", random_scalar("rotation", rotation))
        self.p_rot_per_axis = probability("p_rot_per_axis", p_rot_per_axis)
        self.p_scaling = probability("p_scaling", p_scaling)
        self.scaling = random_scalar("scaling", scaling, above=0)
        self.p_synchronize_scaling_across_axes = probability(
            "p_synchronize_scaling_across_axes", p_synchronize_scaling_across_axes
        )
        self.bg_style_seg_sampling = bg_style_seg_sampling
        self.mode_seg = one_of("mode_seg", mode_seg, LABEL_KERNELS)
        self.border_mode_seg = one_of("border_mode_seg", border_mode_seg, _BORDER_MODES)
        self.center_deformation = bool(center_deformation)
        self.mode_image = one_of("mode_image", mode_image, IMAGE_KERNELS)
        self.padding_mode_image = one_of("padding_mode_image", padding_mode_image, _BORDER_MODES)
        self.padding_value_seg = finite("padding_value_seg", padding_value_seg)
        if self.border_mode_seg == "constant":
            checks.argument(
                "padding_value_seg", padding_value_seg, gate.whole_number(-(2**31), 2**31 - 1)
            )
        self.padding_value_image = finite("padding_value_image", padding_value_image)
        self.align_corners = bool(align_corners)
        self.seg_tiebreak = one_of("seg_tiebreak", seg_tiebreak, ("nearest",))
        self.p_shear = probability("p_shear", p_shear)
        self.shear = random_scalar("shear", shear)
        self.p_translation = probability("p_translation", p_translation)
        self.translation = random_scalar("translation", translation)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        # Each draw moves the Generator, so that their order is a part of the bytes: first whether
        # anything happens at all, then by how much.
        space = spatial_shape(shapes, patch_size=self.patch_size)
        axes = range(len(space))
        rotates = draws.happens(rng, self.p_rotation)
        scales = draws.happens(rng, self.p_scaling)
        deforms = draws.happens(rng, self.p_elastic_deform)
        # With a probability of 0 these draw nothing: pipelines without them keep their draws.
        shears = self.p_shear > 0 and draws.happens(rng, self.p_shear)
        shifts = self.p_translation > 0 and draws.happens(rng, self.p_translation)
        has_affine = rotates or scales or shears or shifts
        spacing, fixed = _spacing_and_fixed_axes(shapes, space)
        angles = [0.0] * len(space)
        if rotates:
            angles = _in_plane(self._draw_angles(rng, context), fixed)
        factors = [1.0] * len(space)
        if scales:
            factors = self._draw_factors(rng, context, fixed)
        turned: Matrix = []
        if has_affine:
            turned = rotation(angles)
        if shears:
            turned = product(turned, self._draw_shear(rng, context, fixed))
        elastic = None
        if deforms:
            elastic = self._draw_elastic(rng, context, fixed)
        center = self._draw_center(rng, space)
        if shifts:
            shift = draws.for_axes(rng, self.translation, context, axes, together=False)
            for axis in fixed:
                shift[axis] = 0.0
            # The shift is in millimetres, the centre in voxels.
            moves = zip(center, applied(turned, shift), spacing, strict=True)
            center = [position + distance / length for position, distance, length in moves]
        affine = None
        if has_affine:
            affine = _in_voxels(scaled(turned, factors), spacing)
        return {"affine": affine, "elastic": elastic, "center_location_in_pixels": center}

    def _draw_factors(
        self, rng: Generator, context: Context, fixed: Collection[int]
    ) -> list[float]:
        together = draws.happens(rng, self.p_synchronize_scaling_across_axes)
        axes = range(len(self.patch_size))
        factors = draws.for_axes(rng, self.scaling, context, axes, together)
        for axis in fixed:
            factors[axis] = 1.0
        return factors

    def _draw_shear(self, rng: Generator, context: Context, fixed: Collection[int]) -> Matrix:
        dims = len(self.patch_size)
        # A product of matrices with one entry besides the diagonal: each keeps volumes.
        sheared = identity(dims)
        for row, column in permutations(range(dims), 2):
            # Drawn for a fixed axis as well: the draws after it must not depend on the shape.
            factor = draws.scalar(rng, self.shear, {**context, "dim": row})
            if row in fixed or column in fixed:
                continue
            along_row = identity(dims)
            along_row[row][column] = factor
            sheared = product(along_row, sheared)
        return sheared

    def _draw_angles(self, rng: Generator, context: Context) -> list[float]:
        axes = range(len(self.patch_size))
        angles = draws.for_axes(rng, self.rotation, context, axes, together=False)
        # A callable's angles are known only now; the constructor has checked numbers.
        if callable(self.rotation):
            for angle in angles:
                radians("rotation", angle)
        # If every axis keeps its angle, nothing is drawn.
        if self.p_rot_per_axis < 1:
            for axis in axes:
                if not draws.happens(rng, self.p_rot_per_axis):
                    angles[axis] = 0.0
        return angles

    def _draw_elastic(
        self, rng: Generator, context: Context, fixed: Collection[int]
    ) -> dict[str, Any]:
        known = {**context, "patch_size": self.patch_size}
        together = draws.happens(rng, self.p_synchronize_def_scale_across_axes)
        axes = range(len(self.patch_size))
        scales = draws.for_axes(rng, self.elastic_deform_scale, known, axes, together)
        magnitudes = []
        for axis, scale in enumerate(scales):
            offered = {**known, "dim": axis, "deformation_scale": scale}
            # Drawn for a fixed axis as well: the draws after it must not depend on the shape.
            magnitude = draws.scalar(rng, self.elastic_deform_magnitude, offered)
            magnitudes.append(0.0 if axis in fixed else magnitude)
        sigmas = [scale * size for scale, size in zip(scales, self.patch_size, strict=True)]
        return {"key": draws.key(rng), "sigmas": sigmas, "magnitudes": magnitudes}

    def _draw_center(self, rng: Generator, space: Sequence[int]) -> list[float]:
        if not self.random_crop:
            return [n / 2 for n in space]
        center = []
        for length, distance in zip(space, self.patch_center_dist_from_border, strict=True):
            # A source too short for the distances is centred.
            if length - 2 * distance >= 0:
                center.append(draws.uniform(rng, distance, length - distance))
            else:
                center.append(length / 2)
        return center

    @takes(
        center_location_in_pixels=each_axis(PLACE),
        affine=optional(MATRIX),
        elastic=optional(_ELASTIC),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        space = spatial_shape(workspace.shapes(), patch_size=self.patch_size)
        value = 0.0
        if self.padding_mode_image == "constant":
            value = self.padding_value_image
        label = 0.0
        if self.border_mode_seg == "constant":
            label = self.padding_value_seg
            check_padding(workspace, label)
        # Whatever was drawn: a sample whose labels cannot be resampled is an error also where it is
        # only cropped.
        label_dtype = resampling_dtype(workspace, label)
        center = [float(c) for c in params["center_location_in_pixels"]]
        if params["affine"] is None and params["elastic"] is None:
            # Without a map the patch consists of the source's voxels: nothing is interpolated.
            crop_sample(workspace, [math.floor(c) for c in center], self.patch_size, value, label)
            return
        patch = PatchMap(
            space,
            self.patch_size,
            params["affine"],
            params["elastic"],
            center,
            center_deformation=self.center_deformation,
            align_corners=self.align_corners,
        )
        for key in VOXEL_KEYS:
            if key not in workspace:
                continue
            # Array by array: of lazy ones, only one box is in memory at a time.
            window = _read_window(workspace, key, patch)
            array = workspace.contiguous(key)
            if key == "segmentation":
                result = patch.labels(array, self.mode_seg, label, label_dtype, window)
            else:
                result = patch.image(array, self.mode_image, value, window)
            workspace.put(key, result)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        # The patch has one size, whatever is drawn.
        announced = in_space(shapes, self.patch_size)
        grid = grid_among(shapes)
        if grid is None or DEFERRED in params:
            return announced
        # The grid is not turned: the transform turns, scales or bends the body, and the patch lies
        # straight around the crop's centre.
        is_crop = params["affine"] is None and params["elastic"] is None
        first: list[float] = []
        for c, n in zip(params["center_location_in_pixels"], self.patch_size, strict=True):
            first.append(math.floor(c) - n // 2 if is_crop else c - n / 2)
        announced[GRID] = grid.cropped(first)
        return announced

    @property
    def kernels(self) -> Iterable[Kernel]:
        resampling = (IMAGE_KERNELS[self.mode_image], *LABEL_KERNELS[self.mode_seg])
        if self.p_elastic_deform == 0:
            return resampling
        return (*resampling, *elastic.KERNELS)


def _spacing_and_fixed_axes(
    shapes: Shapes, space: Sequence[int]
) -> tuple[Sequence[float], Collection[int]]:
    """Return the axes' spacing in millimetres, and those of one voxel, which stay as they are.

    Without a grid the spacing is 1 along every axis, and no axis is fixed.
    """
    grid = grid_among(shapes)
    if grid is None:
        return [1.0] * len(space), ()
    return grid.axis_spacing(len(space)), [axis for axis, n in enumerate(space) if n == 1]


def _in_plane(angles: list[float], fixed: Collection[int]) -> list[float]:
    """Return angles, with 0 for those that would turn an axis of one voxel.

    In 2-D the last angle counts.
    """
    if not fixed:
        return angles
    in_plane = [0.0] * len(angles)
    if len(angles) == 3 and len(fixed) == 1:
        # Only a turn about the axis itself keeps that axis in its place.
        (axis,) = fixed
        in_plane[axis] = angles[axis]
    return in_plane


def _read_window(workspace: Workspace, key: str, patch: PatchMap) -> Window | None:
    """Read the part of a lazy volume that the patch needs; return None for any other array.

    Returns:
        The part's first voxel and its extents.
    """
    volume = workspace.lazy(key)
    if volume is None:
        return None
    starts, stops = patch.region()
    workspace.put(key, volume.lend(starts, stops, patch.between))
    extents = [stop - start for start, stop in zip(starts, stops, strict=True)]
    return starts, extents


def _in_voxels(matrix: Matrix, spacing: Sequence[float]) -> Matrix:
    """Return a matrix of millimetres as one of voxels."""
    rows = []
    for row, row_spacing in zip(matrix, spacing, strict=True):
        pairs = zip(row, spacing, strict=True)
        rows.append([value * column_spacing / row_spacing for value, column_spacing in pairs])
    return rows


def _distances(wanted: float | Sequence[float], dims: int) -> list[float]:
    """Return one distance per axis, in voxels, of one number or of one per axis."""
    # One number is the distance for all axes.
    values = checks.as_list(wanted)
    if not isinstance(wanted, (list, tuple, np.ndarray)):
        values = values * dims
    if len(values) != dims:
        raise ValueError(
            f"patch_center_dist_from_border must have one number per axis ({dims}), got {wanted!r}"
        )
    return [finite("patch_center_dist_from_border", value) for value in values]
