"""Real images with labels, as they come in packages from PyPI; nothing is downloaded.

- T1 template and tissue maps, in nilearn: ICBM 2009a nonlinear symmetric (Fonov et al., NeuroImage
  54, 2011).
- nuclei, in stardist: one image, fluorescence, of the Data Science Bowl 2018 (Caicedo et al.,
  Nature Methods 16, 2019).
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Case:
    """One case of a task.

    Attributes:
        name: unique in its task.
        image: float32 (D, H, W); planes have D = 1.
        labels: uint8, of the same shape.
        validates: whether it is for validation; else for training. No voxel is in both.
    """

    name: str
    image: np.ndarray
    labels: np.ndarray
    validates: bool


def tissue_blocks() -> Iterator[Case]:
    """Yield grey (1) and white (2) matter in six blocks of about 73×60×77 mm; two validate.

    One hemisphere, because the template is symmetric: the other one holds the same voxels.
    """
    image, labels = _hemisphere()
    for part, upper in product(range(3), range(2)):
        box = (slice(None), slice(60 * part, 60 * (part + 1)), slice(77 * upper, 77 * (upper + 1)))
        yield Case(
            f"block_{part}{upper}", image[box], labels[box], (part, upper) in ((0, 1), (1, 0))
        )


def tissue_planes() -> Iterator[Case]:
    """Yield grey (1) and white (2) matter in coronal planes of one hemisphere, 73×155 mm.

    11 planes of its back half train, 6 of its front half validate.
    """
    image, labels = _hemisphere()
    back = range(20, 84, 6)
    front = range(100, 165, 12)
    for plane in (*back, *front):
        box = (slice(None), slice(plane, plane + 1), slice(None))
        yield Case(
            f"plane_{plane:03d}",
            image[box].transpose(1, 0, 2),
            labels[box].transpose(1, 0, 2),
            plane in front,
        )


def nuclei() -> Iterator[Case]:
    """Yield nuclei (1) in 16 tiles of 128² pixels; four of them validate."""
    from tifffile import imread

    folder = _folder("stardist") / "data" / "images"
    image = imread(folder / "img2d.tif").astype(np.float32)
    labels = (imread(folder / "mask2d.tif") > 0).astype(np.uint8)
    for row, column in product(range(4), range(4)):
        box = (slice(128 * row, 128 * (row + 1)), slice(128 * column, 128 * (column + 1)))
        yield Case(
            f"tile_{row}{column}", image[box][None], labels[box][None], (row + 2 * column) % 4 == 1
        )


def _hemisphere() -> tuple[np.ndarray, np.ndarray]:
    from detaug.demo.mri import load_template

    template = load_template()
    middle = template.image.shape[0] // 2
    return template.image[middle:], template.labels[middle:].astype(np.uint8)


def _folder(package: str) -> Path:
    """Return the folder of an installed package without importing it or what it depends on."""
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])
