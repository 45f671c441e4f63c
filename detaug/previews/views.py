"""Samples looked at on their way through pipelines, one transform after the other: planes, and a
fingerprint of all of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detaug.errors import UnusableError
from detaug.fingerprints import fingerprint
from detaug.pictures.planes import Plane, planes_of
from detaug.transforms.building.stages import Applicable, observed, shown_params
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.compose import RandomApply
from detaug.transforms.foreign import ForeignTransform

#: Names under which batches of batchgenerators, nnU-Net, MONAI and others have their images and
#: labels; the first counts.
_IMAGES, _LABELS = ("data", "image", "img"), ("target", "seg", "segmentation", "label", "mask")

#: Keys from which noise is made, and where callables draw from: 64 bits that tell a reader nothing.
_HIDDEN = ("key", "keys", "deferred_key", "apply_to_channel")


@dataclass(frozen=True)
class View:
    """A sample at one moment: three planes of a volume or one of a 2-D sample, the image's shape
    with channels, and a fingerprint of image and labels.
    """

    planes: tuple[Plane, ...]
    shape: tuple[int, ...]
    print: str

    @classmethod
    def of(cls, image: Any, labels: Any, **options: Any) -> View:
        """A sample as it is now; nothing of it is kept but planes. Options are those of
        `planes_of`.
        """
        if isinstance(labels, (list, tuple)):  # of deep supervision
            labels = labels[0]
        values = [np.asarray(each, np.float32) for each in (image, labels) if each is not None]
        return cls(planes_of(image, labels, **options), tuple(image.shape), fingerprint(values))

    @property
    def size(self) -> str:
        """For the reader."""
        return " × ".join(map(str, self.shape[1:])) + " voxels"

    @property
    def height(self) -> float:
        """Of its planes one below another, over the width of the widest."""
        heights = [plane.image.shape[0] * plane.aspect for plane in self.planes]
        return float(sum(heights) / max(plane.image.shape[1] for plane in self.planes))


def samples_of(batch: Any) -> list[tuple[Any, Any, str]]:
    """(image, labels or None, name) of each sample of a batch: a mapping with an array (B, C, X,
    Y[, Z]) under ``data`` or ``image``, and labels under ``seg``, ``target`` ...; a tuple of such
    arrays, the image first; or one array.

    Raises:
        UnusableError: there is none.
    """
    if isinstance(batch, (list, tuple)):
        batch = dict(zip(("data", "seg"), batch, strict=False))
    elif not isinstance(batch, Mapping):
        batch = {"data": batch}
    given = {name: value for name, value in batch.items() if value is not None}
    images: Any = next((given[name] for name in _IMAGES if name in given), None)
    labels: Any = next((given[name] for name in _LABELS if name in given), None)
    if isinstance(labels, (list, tuple)) and labels:  # of deep supervision
        labels = labels[0]
    shape, of_labels = (tuple(getattr(each, "shape", ())) for each in (images, labels))
    if len(shape) not in (4, 5) or not len(images):
        found = {
            name: getattr(value, "shape", type(value).__name__) for name, value in given.items()
        }
        raise UnusableError(
            "there is no image in a batch: an image is an array (samples, channels, X, Y[, Z])"
            f" under {', '.join(_IMAGES)}, or the first of a tuple; the batch is {found}"
        )
    if len(of_labels) == len(shape) - 1 and of_labels[1:] == shape[2:]:
        labels, of_labels = labels[:, None], shape
    fits = len(of_labels) == len(shape) and len(labels) == len(images)
    names = [*map(str, given.get("keys", ())), *[""] * len(images)]
    return [(images[n], labels[n] if fits else None, names[n]) for n in range(len(images))]


@dataclass(frozen=True)
class Step:
    """What one transform made of a sample; its place is which pipeline, and where in it, its
    caption the params.
    """

    place: tuple[int, ...]
    name: str
    caption: list[str]
    view: View
    changed: bool


@dataclass
class Sample:
    """A row of the sheet: a sample as it was loaded, and what each transform that was applied made
    of it.
    """

    before: View
    steps: list[Step] = field(default_factory=list)
    title: str = ""

    @property
    def last(self) -> View:
        """As it came out of the last step."""
        return self.steps[-1].view if self.steps else self.before

    def add(self, place: tuple[int, ...], name: str, said: list[str], view: View) -> None:
        """A transform was applied; `said` are its params."""
        size = [] if view.shape == self.last.shape else [view.size]
        self.steps.append(Step(place, name, size + said, view, view.print != self.last.print))


@contextmanager
def recorded(**look: Any) -> Iterator[dict[int, Sample]]:
    """Inside, a batch's samples, by their number, on their way through the pipelines of detaug's
    that run in this thread; options are those of `planes_of`.
    """
    roots: list[Applicable] = []  # the pipeline of each call
    samples: dict[int, Sample] = {}

    def observe(root: Applicable, workspace: Workspace, params: dict[str, Any]) -> None:
        if "image" not in workspace:
            root.apply_in(workspace, params)
            return
        number = sum(each is root for each in roots)  # it is called once for each
        roots.append(root)
        which = [*dict.fromkeys(map(id, roots))].index(id(root))

        def view() -> View:
            return View.of(workspace["image"], workspace.get("segmentation"), **look)

        sample = samples.get(number) or samples.setdefault(number, Sample(view()))
        for stage in root.stages(params):
            stage.transform.apply_in(workspace, stage.params)
            sample.add(
                (which, *stage.place), name_of(stage.transform), caption(stage.params), view()
            )

    with observed(observe):
        yield samples


def name_of(transform: Applicable) -> str:
    """The class of a transform, or of the one within what applies it with a probability."""
    return type(
        transform.transform if isinstance(transform, (ForeignTransform, RandomApply)) else transform
    ).__name__


def caption(params: Mapping[str, Any]) -> list[str]:
    """A line for each param that says something."""
    said = {
        name: value
        for name, value in params.items()
        if name not in _HIDDEN and value not in (None, [], (), {})
    }
    return [shown_params({name: value}) for name, value in said.items()]
