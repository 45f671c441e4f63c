"""Real MRI with labels: the MNI152 template (T1, 1 mm, average of 152 adults) and its tissue maps.

Source: ICBM 2009a nonlinear symmetric template (Fonov et al., NeuroImage 54, 2011), as it comes in
nilearn's wheel.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects

from detaug.errors import NotInstalled

#: Label values of the maps that this module makes.
BACKGROUND = 0
GREY_MATTER = 1
WHITE_MATTER = 2

#: Least probability of a tissue: a voxel belongs to the likelier of the two, or to neither.
TISSUE_THRESHOLD = 0.5


@dataclass(frozen=True)
class Case:
    """One labelled volume.

    Attributes:
        name: unique in its data set.
        image: T1 intensities, z-normalised over the brain, float32 (D, H, W), 1 mm voxels.
        labels: 0 background, 1 grey matter, 2 white matter, int16 (D, H, W).
    """

    name: str
    image: NDArray[np.float32]
    labels: NDArray[np.int16]


@lru_cache(maxsize=1)
def load_template() -> Case:
    """Return the whole head of the template, cut to the box of the brain.

    It has (145, 181, 155) of 197×233×189 voxels. Axes run to the right, to the front and upwards.
    The arrays are read-only, because every caller gets the same.

    Raises:
        NotInstalled: (a ModuleNotFoundError) nilearn is not.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from nilearn import datasets
    except ModuleNotFoundError as error:
        raise NotInstalled(
            f"the MRI data comes with nilearn, and {error.name} is not installed here: pip install "
            "'detaug[demo]'",
            name=error.name,
        ) from error
    t1 = _array_of(datasets.load_mni152_template)
    grey = _array_of(datasets.load_mni152_gm_template)
    white = _array_of(datasets.load_mni152_wm_template)
    likelier = np.where(grey >= white, GREY_MATTER, WHITE_MATTER)
    is_tissue = np.maximum(grey, white) >= TISSUE_THRESHOLD
    labels = np.where(is_tissue, likelier, BACKGROUND).astype(np.int16)

    brain = t1 > 0
    # In float64, because a float32 sum of millions of voxels loses digits.
    mean = t1[brain].mean(dtype=np.float64)
    deviation = t1[brain].std(dtype=np.float64)
    image = ((t1 - mean) / deviation).astype(np.float32)

    # The empty margin is cut off, so that randomly placed patches show the head.
    (box,) = find_objects(brain, max_label=1)
    image = np.ascontiguousarray(image[box])
    labels = np.ascontiguousarray(labels[box])
    image.flags.writeable = False
    labels.flags.writeable = False
    return Case("mni152", image, labels)


def _array_of(load: Callable[..., Any]) -> NDArray[np.float32]:
    """Return the (X, Y, Z) array of one of nilearn's images, with voxels of 1 mm."""
    return np.asarray(load(resolution=1).dataobj, np.float32)


def turned_template() -> Case:
    """Return the template with nnU-Net's axes: feet to head, front to back, right to left."""
    head = load_template()
    turn = (slice(None), slice(None, None, -1), slice(None, None, -1))
    return replace(head, image=head.image.T[turn], labels=head.labels.T[turn])
