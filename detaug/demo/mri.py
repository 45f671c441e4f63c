"""Real MRI with labels: the MNI152 template (T1, 1 mm, average of 152 adults) and its tissue maps.

Source: ICBM 2009a nonlinear symmetric template (Fonov et al., NeuroImage 54, 2011), as it comes in
nilearn's wheel.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import find_objects

from detaug.errors import NotInstalled

#: Label values of the maps that this module makes.
BACKGROUND, GREY_MATTER, WHITE_MATTER = 0, 1, 2

#: A voxel belongs to the likelier of the two tissues where that one is at least as likely as not.
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
    """The whole head of the template, cut to the box of the brain: (145, 181, 155) voxels from
    197×233×189.

    Axes run to the right, to the front and upwards. The arrays are read-only, because every caller
    gets the same.

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
    t1, grey, white = (
        np.asarray(
            getattr(datasets, f"load_mni152_{which}template")(resolution=1).dataobj, np.float32
        )
        for which in ("", "gm_", "wm_")
    )
    likelier = np.where(grey >= white, GREY_MATTER, WHITE_MATTER)
    labels = np.where(np.maximum(grey, white) >= TISSUE_THRESHOLD, likelier, BACKGROUND).astype(
        np.int16
    )

    brain = t1 > 0
    image = ((t1 - t1[brain].mean(dtype=np.float64)) / t1[brain].std(dtype=np.float64)).astype(
        np.float32
    )

    box = find_objects(brain, max_label=1)[0]
    image, labels = np.ascontiguousarray(image[box]), np.ascontiguousarray(labels[box])
    image.flags.writeable = labels.flags.writeable = False
    return Case("mni152", image, labels)


def turned_template() -> Case:
    """With nnU-Net's axes: from the feet to the head, to the back, to the left."""
    head, turned = load_template(), (slice(None), slice(None, None, -1), slice(None, None, -1))
    return replace(head, image=head.image.T[turned], labels=head.labels.T[turned])
