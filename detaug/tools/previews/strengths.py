"""One transform on one image, at three strengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.augmenter.warm_up import warm_up
from detaug.demo.mri import turned_template
from detaug.errors import UnusableError
from detaug.seeding.tree import Seed, SeedTree
from detaug.tools.pictures.charts import require_matplotlib
from detaug.tools.previews.result import Preview
from detaug.tools.previews.views import Sample, Step, View, name_of, recorded
from detaug.transforms.building.base import Transform

#: Draws of the transform's params, of which three are shown.
_DRAWS = 16

_STRENGTHS = ("weakest", "median", "strongest")


def preview_strengths(
    transform: Transform, seed: Seed, epoch: int, step: int, is_compact: bool
) -> Preview:
    """Draw the demo's MRI, and what the weakest, median and strongest draw of a transform gives.

    Args:
        transform: one of detaug's.
        seed, epoch, step: of the draws.
        is_compact: draw one plane of each.

    Raises:
        UnusableError: the transform fails, or no draw changes the image or its labels.
        NotInstalled: matplotlib is not, or the demo's MRI.
    """
    require_matplotlib()
    case = turned_template()
    name = name_of(transform)
    warm_up(transform, None)
    tree = SeedTree(seed)
    before = View.of(case.image[None], case.labels[None])
    results: list[Sample] = []
    for number in range(_DRAWS):
        # Each draw is another sample of the batch, so that it has a seed of its own.
        rng = tree.generator(epoch, step, sample=number)
        try:
            with recorded() as samples:
                transform(image=case.image[None], segmentation=case.labels[None], rng=rng)
        except Exception as error:
            raise UnusableError(f"{name} fails: {type(error).__name__}: {error}") from error
        if samples[0].last.fingerprint != before.fingerprint:
            results.append(samples[0])
    if not results:
        raise UnusableError(f"none of {_DRAWS} draws of {name} changes the image or its labels")

    def strength(result: Sample) -> float:
        return _change(before, result.last)

    # Sorted by the change of this image, because params of several kinds have no order.
    results.sort(key=strength)
    shown = Sample(before, title=case.name)
    chosen = (results[0], results[len(results) // 2], results[-1])
    for number, (word, result) in enumerate(zip(_STRENGTHS, chosen, strict=True)):
        caption = [line for stage in result.steps for line in stage.caption]
        shown.steps.append(Step((number,), word, caption, result.last, changed=True))
    return Preview(
        f"{name} on the MNI152 MRI",
        f"seed {tree.seed} · three of {_DRAWS} draws",
        [shown],
        is_compact=is_compact,
        columns="strength",
    )


def _change(before: View, after: View) -> float:
    """Return how much an image has changed: by its grey values, and by its size."""
    change = 0.0
    for old, new in zip(before.planes, after.planes, strict=True):
        if old.image.shape == new.image.shape:
            difference: Any = np.nan_to_num(new.image - old.image)
            change += float(np.abs(difference).mean())
        else:
            change += abs(1 - new.image.size / old.image.size)
    return change
