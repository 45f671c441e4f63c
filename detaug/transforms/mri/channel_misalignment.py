"""Channels out of register with the others."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np

from detaug.kernels.coordinates import CONSTANT
from detaug.kernels.resampling import resample_images
from detaug.transforms.building import draws, gate
from detaug.transforms.building.affine import (
    Matrix,
    applied,
    identity,
    resample_channel,
    rotation,
    scaled,
)
from detaug.transforms.building.base import Context, ImageTransform, Params, Shapes
from detaug.transforms.building.checks import argument, as_list, channels, probability
from detaug.transforms.building.gate import MATRIX, PLACE, each_axis, one_of, optional, takes
from detaug.transforms.building.workspace import Workspace


class ChannelMisalignment(ImageTransform):
    """Squeezes, turns and shifts some channels of the image, all alike, as registration errors do.

    The channels are squeezed and turned about their middle by trilinear interpolation (bilinear in 2-D), and then shifted
    by whole voxels; what comes from outside is 0. Described by Kovacs et al., "Addressing image misalignments in
    multi-parametric prostate MRI for enhanced computer-aided diagnosis of prostate cancer", Scientific Reports 2023
    (https://www.nature.com/articles/s41598-023-46747-z).

    Args:
        im_channels_2_misalign: channels of the image.
        squeezing_zyx: for each axis the largest deviation of its scale from 1.
        p_squeeze: the probability of squeezing.
        rotation_ax_cor_sag: for each axis the largest angle; in 2-D the second one counts.
        rad_or_deg: the unit of the angles, ``rad`` or ``deg``; must be given.
        p_rotation: the probability of turning.
        shift_zyx: for each axis the largest shift, whole voxels.
        p_shift: the probability of shifting.

    Params: ``{"affine": rows of a matrix or None, "elastic_offsets": None, "center_location_in_pixels": [one per axis]}``.
    The voxel at offset o from the middle shows what was at ``affine @ o``; then that which was at the center location comes
    to the middle (half the length of each axis).

    Raises:
        IndexError: a channel that the image does not have.
        ValueError: fewer squeezings, angles or shifts than the image has axes.
    """

    rad_or_deg = "rad"  # what angles are kept in

    def __init__(
        self,
        im_channels_2_misalign: Sequence[int] = (0,),
        squeezing_zyx: Sequence[float] = (0.1, 0, 0),
        p_squeeze: float = 0.0,
        rotation_ax_cor_sag: Sequence[float] = (math.pi, math.pi, math.pi),
        rad_or_deg: str | None = None,
        p_rotation: float = 0.0,
        shift_zyx: Sequence[int] = (2, 32, 32),
        p_shift: float = 0.0,
    ) -> None:
        self.im_channels_2_misalign = as_list(im_channels_2_misalign)
        self.squeezing_zyx = _deviations("squeezing_zyx", squeezing_zyx)
        if any(deviation >= 1 for deviation in self.squeezing_zyx):
            raise ValueError(
                f"squeezing_zyx must be below 1, or an axis could vanish, got {squeezing_zyx!r}"
            )
        self.p_squeeze = probability("p_squeeze", p_squeeze)
        self.rotation_ax_cor_sag = _radians(
            _deviations("rotation_ax_cor_sag", rotation_ax_cor_sag), rad_or_deg
        )
        self.p_rotation = probability("p_rotation", p_rotation)
        whole = gate.whole_number(0, gate.LARGEST_INTEGER)
        self.shift_zyx = [
            int(shift) for shift in argument("shift_zyx", list(shift_zyx), gate.many(whole))
        ]
        self.p_shift = probability("p_shift", p_shift)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        count, *space = shapes["image"]
        self._channels(count)
        dims = len(space)
        for name in ("squeezing_zyx", "rotation_ax_cor_sag", "shift_zyx"):
            if len(getattr(self, name)) < dims:
                raise ValueError(
                    f"{name} has {len(getattr(self, name))} number(s), the image has {dims} spatial axes"
                )
        squeezes, turns, shifts = (
            draws.happens(rng, p) for p in (self.p_squeeze, self.p_rotation, self.p_shift)
        )
        scales, angles = [1.0] * dims, [0.0] * dims
        if squeezes:
            scales = [
                draws.uniform(rng, 1 - largest, 1 + largest)
                for largest in self.squeezing_zyx[:dims]
            ]
        if turns:
            angles = [
                draws.uniform(rng, -largest, largest) for largest in self.rotation_ax_cor_sag[:dims]
            ]
        center = [n / 2 for n in space]
        if shifts:
            center = [
                c + draws.integer(rng, 2 * largest + 1) - largest
                for c, largest in zip(center, self.shift_zyx, strict=False)
            ]
        return {
            "affine": scaled(rotation(angles), scales) if squeezes or turns else None,
            "elastic_offsets": None,
            "center_location_in_pixels": center,
        }

    @takes(
        affine=optional(MATRIX),
        elastic_offsets=one_of(None),
        center_location_in_pixels=each_axis(PLACE),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        space = workspace["image"].shape[1:]
        affine = params["affine"] and [list(map(float, row)) for row in params["affine"]]
        if affine == identity(len(space)):
            affine = None
        shift = [
            math.floor(c) - n // 2
            for c, n in zip(params["center_location_in_pixels"], space, strict=True)
        ]
        if affine is None and not any(shift):
            return
        for _, source, destination in workspace.chosen_channels(
            self._channels(len(workspace["image"]))
        ):
            _misalign(source, destination, affine, shift)

    kernels = (resample_images,)

    def _channels(self, count: int) -> list[int]:
        wanted = channels("im_channels_2_misalign", self.im_channels_2_misalign, count)
        if len(set(wanted)) != len(wanted):
            raise ValueError(
                f"im_channels_2_misalign names a channel twice: {self.im_channels_2_misalign}"
            )
        return wanted


def _misalign(
    source: np.ndarray, destination: np.ndarray, affine: Matrix | None, shift: Sequence[int]
) -> None:
    """One channel; voxel i shows what the squeezed and turned channel has at i + shift. Both may be one array."""
    space = source.shape
    lows = [min(max(0, -s), n) for n, s in zip(space, shift, strict=True)]
    highs = [max(low, min(n, n - s)) for low, n, s in zip(lows, space, shift, strict=True)]
    if affine is None:
        seen = source[
            tuple(slice(low + s, high + s) for low, high, s in zip(lows, highs, shift, strict=True))
        ].copy()
    else:
        seen = np.empty([high - low for low, high in zip(lows, highs, strict=True)], np.float32)
        middle = [(n - 1) / 2 for n in space]
        back = applied(affine, [low + s - m for low, s, m in zip(lows, shift, middle, strict=True)])
        resample_channel(
            source, seen, affine, [b + m for b, m in zip(back, middle, strict=True)], CONSTANT, 0.0
        )
    destination[...] = 0
    destination[tuple(slice(low, high) for low, high in zip(lows, highs, strict=True))] = seen


def _deviations(name: str, wanted: Sequence[float]) -> list[float]:
    return [float(number) for number in argument(name, list(wanted), gate.many(gate.number(0)))]


def _radians(angles: list[float], unit: str | None) -> list[float]:
    if unit == "deg":
        return [angle / 360 * (2 * math.pi) for angle in angles]
    if unit != "rad":
        raise ValueError(f'rad_or_deg must be "rad" or "deg", got {unit!r}')
    if any(angle > math.pi for angle in angles):
        raise ValueError(
            f"rotation_ax_cor_sag must be at most pi radians, got {angles}: are these degrees?"
        )
    if any(angle > math.pi / 12 for angle in angles):
        warnings.warn(
            f"rotation_ax_cor_sag is {angles} radians, more than 15°, which is much", stacklevel=3
        )
    return angles
