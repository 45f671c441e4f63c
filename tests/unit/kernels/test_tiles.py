"""Patches that are worked on in tiles have the bytes of those that are made row by row."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.kernels import coordinates
from detaug.kernels.label_resampling import TIE_HIGHEST, TIE_LOWEST, TIE_NEAREST, resample_labels
from detaug.kernels.nearest import resample_nearest
from detaug.kernels.resampling import resample_images
from detaug.transforms.geometry.affine import rotation

SPACE = (131, 127, 141)
#: Large enough for tiles, and no multiples of theirs.
PATCHES = [(104, 101, 103), (17, 250, 251), (300, 60, 59)]
STRAIGHT = np.empty((3, 0, 0, 0), np.float32)
#: From well within the source to far beyond its border.
SCALES = (0.3, 0.6, 1.3)


def where(patch: tuple[int, ...], scale: float, angle: float, bent: bool) -> tuple[object, ...]:
    """The kernels' arguments from the shape to the last plane. With a displacement of nothing a patch is made row by row."""
    turned = scale * np.array(rotation([angle, -0.7 * angle, 1.3 * angle]))
    middle = [(n - 1) / 2 for n in SPACE]
    offset = np.array(middle) - turned @ np.array([(n - 1) / 2 for n in patch])
    displacement = np.zeros((3, *patch), np.float32) if bent else STRAIGHT
    layout = coordinates.layout(SPACE, (0, 0, 0), SPACE)
    return layout, turned, offset, displacement, 0, patch[0]


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("border", [coordinates.CONSTANT, coordinates.BORDER])
def test_images_in_tiles(patch: tuple[int, ...], scale: float, border: int) -> None:
    source = np.random.default_rng(1).random((2, np.prod(SPACE)), np.float32)
    made = []
    for bent in (False, True):
        out = np.full((2, *patch), np.nan, np.float32)
        resample_images(source, out, *where(patch, scale, 0.4, bent), border, 7.0, False, False)
        made.append(out)
    assert not np.isnan(made[0]).any()
    assert made[0].tobytes() == made[1].tobytes()


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("tiebreak", [TIE_NEAREST, TIE_LOWEST, TIE_HIGHEST])
def test_labels_in_tiles(patch: tuple[int, ...], scale: float, tiebreak: int) -> None:
    rng = np.random.default_rng(2)
    coarse = rng.integers(-1, 5, (33, 32, 36), np.int16)
    labels = np.kron(coarse, np.ones((4, 4, 4), np.int16))[: SPACE[0], : SPACE[1], : SPACE[2]]
    source = np.stack([labels.ravel(), rng.integers(0, 9, labels.size, np.int16)])
    made = []
    for bent in (False, True):
        out = np.full((2, *patch), 99, np.int16)
        arguments = where(patch, scale, 0.5, bent)
        resample_labels(source, out, *arguments, coordinates.LINEAR, coordinates.CONSTANT, -3, tiebreak, False, False)
        made.append(out)
    assert (made[0] != 99).all()
    assert made[0].tobytes() == made[1].tobytes()


@pytest.mark.parametrize("patch", PATCHES)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("dtype", [np.int16, np.float32])
def test_nearest_voxels_in_tiles(patch: tuple[int, ...], scale: float, dtype: type) -> None:
    source = np.random.default_rng(3).integers(0, 1000, (2, np.prod(SPACE))).astype(dtype)
    made = []
    for bent in (False, True):
        out = np.full((2, *patch), -1, dtype)
        arguments = where(patch, scale, 0.3, bent)
        resample_nearest(source, out, *arguments, coordinates.CONSTANT, dtype(2000), False, False)
        made.append(out)
    assert (made[0] != -1).all()
    assert made[0].tobytes() == made[1].tobytes()
