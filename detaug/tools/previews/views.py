"""Samples on their way through pipelines: planes and a fingerprint after each transform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detaug.errors import UnusableError
from detaug.objects.fingerprints import fingerprint
from detaug.tools.pictures.slices import Plane, planes_of
from detaug.transforms.building.stages import Applicable, observe_transforms, shown_params
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.compose import RandomApply
from detaug.transforms.foreign import ForeignTransform

#: Names under which batches of batchgenerators, nnU-Net, MONAI and others have their images; the
#: first counts.
_IMAGES = ("data", "image", "img")
#: Those of their labels.
_LABELS = ("target", "seg", "segmentation", "label", "mask")

#: Params that tell a reader nothing: 64-bit keys of noise and of callables.
_HIDDEN = ("key", "keys", "deferred_key", "apply_to_channel")


@dataclass(frozen=True)
class View:
    """A sample at one moment.

    Attributes:
        planes: three of a volume, or one of a 2-D sample.
        shape: the image's, with channels.
        fingerprint: of image and labels.
    """

    planes: tuple[Plane, ...]
    shape: tuple[int, ...]
    fingerprint: str

    @classmethod
    def of(cls, image: Any, labels: Any, **options: Any) -> View:
        """Return a sample as it is now, of which nothing but planes is kept.

        Options are those of `planes_of`.
        """
        if isinstance(labels, (list, tuple)):
            # Deep supervision's: the first has the image's resolution.
            labels = labels[0]
        # Both as float32, because a change of dtype alone cannot be seen in a picture.
        values = [np.asarray(image, np.float32)]
        if labels is not None:
            values.append(np.asarray(labels, np.float32))
        return cls(planes_of(image, labels, **options), tuple(image.shape), fingerprint(values))

    @property
    def size(self) -> str:
        """The size in words."""
        return " × ".join(map(str, self.shape[1:])) + " voxels"

    @property
    def height(self) -> float:
        """The height of its planes one below another, over the width of the widest."""
        heights = [plane.image.shape[0] * plane.aspect for plane in self.planes]
        return float(sum(heights) / max(plane.image.shape[1] for plane in self.planes))


def samples_of(batch: Any) -> list[tuple[Any, Any, str]]:
    """Return (image, labels or None, name) of each sample of a batch.

    Args:
        batch: a mapping with an array (B, C, X, Y[, Z]) under ``data`` or ``image``, and labels
            under ``seg``, ``target`` ...; a tuple of such arrays, the image first; or one array.

    Raises:
        UnusableError: there is no image.
    """
    entries = _entries(batch)
    images = _first(entries, _IMAGES)
    labels = _first(entries, _LABELS)
    if isinstance(labels, (list, tuple)) and labels:
        # Deep supervision's: the first has the image's resolution.
        labels = labels[0]
    shape = tuple(getattr(images, "shape", ()))
    if len(shape) not in (4, 5) or not len(images):
        shapes = {
            name: getattr(value, "shape", type(value).__name__) for name, value in entries.items()
        }
        raise UnusableError(
            "there is no image in a batch: an image is an array (samples, channels, X, Y[, Z])"
            f" under {', '.join(_IMAGES)}, or the first of a tuple; the batch is {shapes}"
        )
    labels_shape = tuple(getattr(labels, "shape", ()))
    if len(labels_shape) == len(shape) - 1 and labels_shape[1:] == shape[2:]:
        # Labels without a channel.
        labels = labels[:, None]
        labels_shape = shape
    # Labels of any other shape, such as one class for each image, cannot be drawn as masks.
    has_labels = len(labels_shape) == len(shape) and len(labels) == len(images)
    names = [*map(str, entries.get("keys", ())), *[""] * len(images)]
    samples = []
    for index in range(len(images)):
        samples.append((images[index], labels[index] if has_labels else None, names[index]))
    return samples


def _entries(batch: Any) -> dict[Any, Any]:
    """Return the entries of a batch that are not None, by name."""
    if isinstance(batch, (list, tuple)):
        batch = dict(zip(("data", "seg"), batch, strict=False))
    elif not isinstance(batch, Mapping):
        batch = {"data": batch}
    return {name: value for name, value in batch.items() if value is not None}


def _first(entries: Mapping[Any, Any], names: Sequence[str]) -> Any:
    """Return the first of these entries, or None."""
    for name in names:
        if name in entries:
            return entries[name]
    return None


@dataclass(frozen=True)
class Step:
    """A sample after one transform.

    Attributes:
        place: which pipeline, and where in it.
        name: of the transform.
        caption: its params.
        view: the sample.
        changed: False if the transform changed nothing.
    """

    place: tuple[int, ...]
    name: str
    caption: list[str]
    view: View
    changed: bool


@dataclass
class Sample:
    """A row of the sheet.

    Attributes:
        before: the sample as it was loaded.
        steps: the sample after each transform that was applied.
        title: its batch, number and name.
    """

    before: View
    steps: list[Step] = field(default_factory=list)
    title: str = ""

    @property
    def last(self) -> View:
        """The sample after the last step."""
        if not self.steps:
            return self.before
        return self.steps[-1].view

    def add(self, place: tuple[int, ...], name: str, params: list[str], view: View) -> None:
        """Add the step of a transform that was applied."""
        last = self.last
        caption = params
        if view.shape != last.shape:
            caption = [view.size, *params]
        changed = view.fingerprint != last.fingerprint
        self.steps.append(Step(place, name, caption, view, changed))


@contextmanager
def recorded(**options: Any) -> Iterator[dict[int, Sample]]:
    """Record the samples of a batch, by their number, inside the block.

    They are recorded on their way through detaug's pipelines that run in this thread. Options are
    those of `planes_of`.
    """
    #: The pipeline of each call.
    roots: list[Applicable] = []
    samples: dict[int, Sample] = {}

    def observe(root: Applicable, workspace: Workspace, params: dict[str, Any]) -> None:
        if "image" not in workspace:
            root.apply_in(workspace, params)
            return
        # A pipeline is called once for each sample.
        number = sum(earlier is root for earlier in roots)
        # Pipelines are counted by identity, because two may have equal transforms.
        roots.append(root)
        pipeline = list(dict.fromkeys(map(id, roots))).index(id(root))

        def view() -> View:
            return View.of(workspace["image"], workspace.get("segmentation"), **options)

        sample = samples.get(number)
        if sample is None:
            sample = Sample(view())
            samples[number] = sample
        for stage in root.stages(params):
            stage.transform.apply_in(workspace, stage.params)
            place = (pipeline, *stage.place)
            sample.add(place, name_of(stage.transform), caption(stage.params), view())

    with observe_transforms(observe):
        yield samples


def name_of(transform: Applicable) -> str:
    """Return the class of a transform, or of the one that is applied with a probability."""
    if isinstance(transform, (ForeignTransform, RandomApply)):
        return type(transform.transform).__name__
    return type(transform).__name__


def caption(params: Mapping[str, Any]) -> list[str]:
    """Return a line for each param that tells a reader something."""
    lines = []
    for name, value in params.items():
        if name not in _HIDDEN and value not in (None, [], (), {}):
            lines.append(shown_params({name: value}))
    return lines
