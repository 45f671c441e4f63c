"""`python -m docs.gallery`: draw docs/gallery.md, every transform at three strengths.

The pictures are made by the code that the page shows.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor
from scipy.ndimage import binary_erosion

from detaug.tools.pictures.slices import colour_of

Pixels = NDArray[np.uint8]

FOLDER = Path(__file__).parent
PAGE = FOLDER / "gallery.md"
PICTURES = FOLDER / "images" / "gallery"

#: Width of a panel, and of the gap between two panels, in pixels.
_PANEL_WIDTH = 164
_GAP = 6
#: Number of colours in a picture; few make a small file.
_NUM_COLOURS = 28

#: Intensities that are drawn black and white, in the units of the page's image.
_BLACK = 0.0
_WHITE = 3.2

PREPARATION = """\
import math

import numpy as np

from detaug import SeedTree
from detaug.demo import load_template
from detaug.transforms import *

case = load_template()  # an MRI of a head, which comes with nilearn
image = case.image[None, :, :, 78]  # an axial plane, (1, 145, 181)
image = (image - image.min()) / image.std()
labels = case.labels[None, :, :, 78]  # 1 grey matter, 2 white matter


def show(transform, number=0):
    rng = SeedTree(1).generator(epoch=0, step=0, sample=number)
    return transform(image=image, segmentation=labels, rng=rng)
"""


@dataclass(frozen=True)
class Entry:
    """A transform, or one of its effects, on the page.

    Attributes:
        title: the transform's name, followed by the effect.
        code: an expression for a list of three transforms, from weak to strong.
        looks: "image": draw the image alone; "labels": draw outlines of the labels too;
            "channels": draw outlines of the image's further channels too.
        words: a sentence about the three.
        first: number of the sample to which the first of the three is applied.
    """

    title: str
    code: str
    looks: str = "image"
    words: str = ""
    first: int = 0

    @property
    def name(self) -> str:
        """The name of the transform's class."""
        return self.title.partition(":")[0]

    @property
    def file(self) -> str:
        """The name of the picture's file."""
        return f"{re.sub('[^a-z0-9]+', '-', self.title.lower())}.png"


GROUPS: dict[str, list[Entry]] = {
    "Space": [
        Entry(
            "SpatialTransform: rotation",
            "[SpatialTransform((145, 181), 0, False, p_rotation=1, rotation=(a, a)) "
            "for a in (0.1, 0.3, 0.8)]",
            looks="labels",
        ),
        Entry(
            "SpatialTransform: scaling",
            "[SpatialTransform((145, 181), 0, False, p_scaling=1, scaling=(s, s)) "
            "for s in (0.9, 0.75, 0.5)]",
            looks="labels",
        ),
        Entry(
            "SpatialTransform: shear",
            "[SpatialTransform((145, 181), 0, False, p_shear=1, shear=(s, s)) "
            "for s in (0.1, 0.2, 0.4)]",
            looks="labels",
        ),
        Entry(
            "SpatialTransform: elastic deformation",
            "[\n"
            "    SpatialTransform(\n"
            "        (145, 181),\n"
            "        0,\n"
            "        False,\n"
            "        p_elastic_deform=1,\n"
            "        elastic_deform_scale=0.1,\n"
            "        elastic_deform_magnitude=m,\n"
            "    )\n"
            "    for m in (3, 7, 14)\n"
            "]",
            looks="labels",
        ),
        Entry(
            "Mirror",
            "[Mirror((0, 1))] * 3",
            looks="labels",
            words="Each axis is mirrored with a probability of one half.",
        ),
        Entry(
            "Rot90",
            "[Rot90(1, (quarters,), (0, 1)) for quarters in (1, 2, 3)]",
            looks="labels",
        ),
        Entry(
            "TransposeAxes",
            "[Compose([CenterCrop((145, 145)), TransposeAxes((0, 1))])] * 3",
            looks="labels",
            words="Axes of equal length are shuffled.",
            first=4,
        ),
        Entry(
            "CenterCrop",
            "[CenterCrop(size) for size in ((130, 160), (100, 120), (60, 70))]",
            looks="labels",
        ),
        Entry(
            "RandomCrop",
            "[RandomCrop(size) for size in ((130, 160), (100, 120), (60, 70))]",
            looks="labels",
        ),
    ],
    "Noise and resolution": [
        Entry(
            "GaussianNoise",
            "[GaussianNoise((variance, variance)) for variance in (0.03, 0.1, 0.3)]",
        ),
        Entry(
            "RicianNoise",
            "[RicianNoise((variance, variance)) for variance in (0.05, 0.2, 0.6)]",
        ),
        Entry(
            "GaussianBlur",
            "[GaussianBlur((sigma, sigma)) for sigma in (0.7, 1.5, 4)]",
        ),
        Entry(
            "MedianFilter",
            "[MedianFilter(size) for size in (3, 5, 9)]",
        ),
        Entry(
            "Sharpening",
            "[Sharpening(strength) for strength in (0.3, 0.8, 2)]",
        ),
        Entry(
            "SimulateLowResolution",
            "[SimulateLowResolution((s, s), False, True, None) for s in (0.5, 0.3, 0.15)]",
        ),
        Entry(
            "Anisotropy",
            "[Anisotropy((1,), (factor, factor)) for factor in (2, 4, 8)]",
            words="Thick slices along the second axis.",
        ),
    ],
    "Intensities": [
        Entry(
            "BrightnessAdditive",
            "[BrightnessAdditive(mu, 0, False) for mu in (0.2, 0.6, 1.5)]",
        ),
        Entry(
            "MultiplicativeBrightness",
            "[MultiplicativeBrightness((factor, factor), True) for factor in (0.85, 0.6, 1.6)]",
        ),
        Entry(
            "Contrast",
            "[Contrast((factor, factor), False, True) for factor in (0.8, 0.5, 1.6)]",
        ),
        Entry(
            "Gamma",
            "[Gamma((gamma, gamma), 0, True, 1, 0) for gamma in (0.7, 1.5, 3)]",
        ),
        Entry(
            "InvertImage",
            "[InvertImage(1)] * 3",
            words="There is one strength.",
        ),
        Entry(
            "CutOffOutliers",
            "[CutOffOutliers(0, p, p_retain_std=0) for p in (95, 80, 60)]",
        ),
        Entry(
            "BrightnessGradientAdditive",
            "[BrightnessGradientAdditive((60, 60), (0.2, 0.8), strength) "
            "for strength in (0.5, 1.5, 4)]",
        ),
        Entry(
            "LocalGamma",
            "[LocalGamma((40, 40), (0.3, 0.7), (gamma, gamma)) for gamma in (0.7, 0.4, 0.1)]",
        ),
        Entry(
            "LocalContrast",
            "[LocalContrast((40, 40), (0.3, 0.7), (contrast, contrast)) "
            "for contrast in (0.7, 0.3, 3)]",
        ),
        Entry(
            "LocalSmoothing",
            "[LocalSmoothing((40, 40), (0.3, 0.7), 1, (sigma, sigma)) for sigma in (1, 2.5, 6)]",
        ),
    ],
    "Artefacts of MRI": [
        Entry(
            "BiasField",
            "[BiasField((-c, c)) for c in (0.2, 0.5, 1)]",
        ),
        Entry(
            "Ghosting",
            "[Ghosting((4, 4), intensity=(i, i)) for i in (0.3, 0.7, 1.5)]",
        ),
        Entry(
            "GibbsNoise",
            "[GibbsNoise((alpha, alpha)) for alpha in (0.6, 0.75, 0.88)]",
            words=(
                "The plane is treated as a patch of a larger field of view: its border does not "
                "ring."
            ),
        ),
        Entry(
            "Spikes",
            "[Spikes(1, (i, i)) for i in (0.1, 0.3, 1)]",
        ),
        Entry(
            "Motion",
            "[Motion((a, a), (t, t), num_transforms=2) "
            "for a, t in ((0.04, 2), (0.1, 6), (0.2, 14))]",
            words=(
                "The plane is treated as a patch of a larger field of view: its border does not "
                "move with it."
            ),
        ),
    ],
    "Missing parts": [
        Entry(
            "BlankRectangle",
            "[BlankRectangle([[8, 30], [8, 30]], 0.0, number) for number in (2, 8, 25)]",
        ),
        Entry(
            "MaskImage",
            "[Compose([RemoveLabel(label, -1), MaskImage([0])]) for label in (1, 2, 0)]",
            words="The image becomes 0 where the label is below 0.",
        ),
    ],
    "Labels": [
        Entry(
            "RemoveLabel",
            "[RemoveLabel(label, 0) for label in (1, 2, 3)]",
            looks="labels",
            words="Label 1, label 2, and one that is not there.",
        ),
        Entry(
            "ConvertSegmentationToRegions",
            "[ConvertSegmentationToRegions(regions) for regions in ([1], [2], [(1, 2), 2])]",
            looks="labels",
        ),
        Entry(
            "DownsampleSegForDS",
            "[DownsampleSegForDS([scale]) for scale in (1, 0.5, 0.2)]",
            looks="labels",
            words="For deep supervision.",
        ),
        Entry(
            "MoveSegAsOneHotToData",
            "[MoveSegAsOneHotToData(0, which) for which in ((1,), (2,), (1, 2))]",
            looks="channels",
            words="For cascades: labels become channels of the image.",
        ),
        Entry(
            "ApplyRandomBinaryOperator",
            "[\n"
            "    Compose([MoveSegAsOneHotToData(0, (2,)), ApplyRandomBinaryOperator(1, "
            "strel_size=(n, n))])\n"
            "    for n in (1, 3, 6)\n"
            "]",
            looks="channels",
            words="As a cascade's first stage errs: dilated, eroded, closed or opened.",
        ),
        Entry(
            "RemoveRandomConnectedComponentFromOneHotEncoding",
            "[\n"
            "    Compose(\n"
            "        [\n"
            "            MoveSegAsOneHotToData(0, (1,)),\n"
            "            RemoveRandomConnectedComponentFromOneHotEncoding(1, 0, limit),\n"
            "        ]\n"
            "    )\n"
            "    for limit in (0.01, 0.1, 1)\n"
            "]",
            looks="channels",
            words="Components that cover more than the limit stay.",
            first=11,
        ),
    ],
}

#: Transforms without a visible effect, and what they do.
WITHOUT_PICTURES = {
    "Compose": "transforms one after another",
    "RandomApply": "a transform with a probability",
    "OneOf": "one of several transforms",
    "ForeignTransform": "a transform of another library",
    "Convert3DTo2D": "the first axis becomes channels",
    "Convert2DTo3D": "and back again",
}


def entries() -> Iterator[Entry]:
    """Yield all entries, in the page's order."""
    for group in GROUPS.values():
        yield from group


def preparation() -> dict[str, Any]:
    """Return the names that the page's first code block defines."""
    names: dict[str, Any] = {}
    exec(compile(PREPARATION, str(PAGE), "exec", dont_inherit=True), names)
    return names


def picture(entry: Entry, names: dict[str, Any]) -> Pixels:
    """Return the original and the three strengths side by side.

    Args:
        entry: the transform.
        names: the names that its code uses.

    Returns:
        (rows, columns, 3), uint8.

    Raises:
        ValueError: the code does not make three transforms.
    """
    transforms = eval(compile(entry.code, str(PAGE), "eval", dont_inherit=True), names)
    if len(transforms) != 3:
        raise ValueError(
            f"{entry.title}: three strengths are shown, and {entry.code} makes {len(transforms)}"
        )
    results = [{"image": names["image"], "segmentation": names["labels"]}]
    for sample, transform in enumerate(transforms, entry.first):
        results.append(names["show"](transform, sample))
    _, image_width, image_height = names["image"].shape
    height = round(_PANEL_WIDTH * image_height / image_width)
    sheet = np.full((height, 4 * _PANEL_WIDTH + 3 * _GAP, 3), 255, np.uint8)
    for index, result in enumerate(results):
        panel = _panel(result, entry.looks, height)
        rows, columns = panel.shape[:2]
        left = index * (_PANEL_WIDTH + _GAP) + (_PANEL_WIDTH - columns) // 2
        top = (height - rows) // 2
        sheet[top : top + rows, left : left + columns] = panel
    return sheet


def _panel(result: dict[str, Any], looks: str, height: int) -> Pixels:
    """Return a drawing of a result, in the radiological orientation.

    Anterior is at the top, and the patient's right side on the left.

    Args:
        result: a transform's result, or the original.
        looks: as in `Entry`.
        height: of the panel, in pixels. A narrow drawing has this height, a wide one the panel's
            width.
    """
    image = result["image"]
    labels = result["segmentation"]
    if isinstance(labels, list):
        labels = labels[0]
    masks = _masks(image, labels, looks)
    if masks and labels.shape[1:] != image.shape[1:]:
        # Labels on a coarser grid: each voxel of the image gets the label that it lies in.
        rows = _nearest(image.shape[1], labels.shape[1])
        columns = _nearest(image.shape[2], labels.shape[2])
        masks = {label: mask[rows[:, None], columns] for label, mask in masks.items()}
    # Axes are (left to right, posterior to anterior), rows of a picture go from top to bottom.
    turned = {label: mask.T[::-1] for label, mask in masks.items() if mask.any()}
    grey = image[0].T[::-1]
    width = int(height * grey.shape[1] / grey.shape[0])
    return _draw(grey, turned, min(_PANEL_WIDTH, width))


def _masks(image: Any, labels: Any, looks: str) -> dict[int, Any]:
    """Return the masks that are outlined, by the number of their colour."""
    if looks == "image":
        return {}
    if looks == "channels":
        return {index: channel > 0 for index, channel in enumerate(image[1:], 1)}
    if labels.dtype == bool:
        # Regions: one channel for each.
        return dict(enumerate(labels, 1))
    return {label: labels[0] == label for label in (1, 2)}


def _nearest(size: int, source_size: int) -> Any:
    """Return the indices (size,) that resample an axis of `source_size` entries."""
    return np.arange(size) * source_size // size


def _draw(image: Any, masks: dict[int, Any], width: int) -> Pixels:
    """Return intensities as grey values, with outlines on the inside of the masks.

    Args:
        image: (rows, columns).
        masks: of the same shape, by label.
        width: of the drawing, in pixels.
    """
    rows, columns = image.shape
    height = max(1, round(width * rows / columns))
    grey = np.clip((image - _BLACK) / (_WHITE - _BLACK), 0, 1).astype(np.float32)
    method = Image.Resampling.BICUBIC if width >= columns else Image.Resampling.BOX
    resized = np.asarray(Image.fromarray(grey).resize((width, height), method))
    levels = np.clip(resized * 255 + 0.5, 0, 255).astype(np.uint8)
    drawing = np.repeat(levels[..., None], 3, axis=-1)
    grid = np.ix_(_nearest(height, rows), _nearest(width, columns))
    for label, mask in masks.items():
        enlarged = mask[grid]
        # border_value: a mask that reaches the edge of the picture has no outline there.
        outline = enlarged & ~binary_erosion(enlarged, border_value=1)
        drawing[outline] = ImageColor.getrgb(colour_of(label))
    return drawing


def png(pixels: Pixels) -> bytes:
    """Return pixels as a small PNG file, with few colours and no metadata."""
    image = Image.fromarray(pixels).quantize(
        _NUM_COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
    )
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()


def page() -> str:
    """Return the page's text."""
    parts = [
        "# Gallery\n",
        (
            "This page shows every transform of detaug on one plane of the MNI152 MRI: the "
            "original, and a low, a middle and a high strength, with the code of the three. `show` "
            "of this block applies one of them:\n"
        ),
        f"```python\n{PREPARATION}```\n",
        (
            "```python\n"
            "weak = show(GaussianNoise((0.01, 0.01)))  # a dict with image and segmentation\n"
            "```\n"
        ),
        (
            "`detaug preview` draws a [whole pipeline of your own](commands.md#draw-a-pipeline). "
            "[transforms.md](transforms.md) describes inputs, params and guarantees. `python -m "
            "docs.gallery` draws this page.\n"
        ),
    ]
    for group, group_entries in GROUPS.items():
        parts.append(f"## {group}\n")
        for entry in group_entries:
            parts.append(f"### {entry.title}\n")
            if entry.words:
                parts.append(f"{entry.words}\n")
            parts.append(
                f"![{entry.title}: original, low, middle and high "
                f"strength](images/gallery/{entry.file})\n"
            )
            parts.append(f"```python\n{entry.code}\n```\n")
    parts.append("## Without a picture\n")
    rows = "\n".join(f"| `{name}` | {action} |" for name, action in WITHOUT_PICTURES.items())
    parts.append(f"| transform | what it does |\n|---|---|\n{rows}\n")
    parts.append(
        "Source: ICBM 2009a nonlinear symmetric template (Fonov et al., NeuroImage 54, 2011), as "
        "it comes in nilearn's wheel.\n"
    )
    return "\n".join(parts)


def main() -> None:
    """Write the page and its pictures, and remove pictures that are no longer on it."""
    names = preparation()
    PICTURES.mkdir(parents=True, exist_ok=True)
    num_bytes = 0
    for entry in entries():
        content = png(picture(entry, names))
        (PICTURES / entry.file).write_bytes(content)
        num_bytes += len(content)
    names_on_page = {entry.file for entry in entries()}
    for file in PICTURES.glob("*.png"):
        if file.name not in names_on_page:
            file.unlink()
    PAGE.write_text(page(), encoding="utf-8")
    print(f"{PAGE}: {len(names_on_page)} pictures, {num_bytes / 1e6:.2f} MB", file=sys.stderr)


if __name__ == "__main__":
    main()
