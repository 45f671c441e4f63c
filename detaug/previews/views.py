"""Samples looked at on their way through pipelines, one transform after the other: planes, and a fingerprint of all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from detaug.errors import UnusableError
from detaug.fingerprints import fingerprint
from detaug.pictures.planes import Plane, planes_of
from detaug.transforms.building.base import Transform
from detaug.transforms.building.stages import observed, shown_params
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.compose import RandomApply
from detaug.transforms.foreign import ForeignTransform

#: Names under which batches of batchgenerators, nnU-Net, MONAI and others have their images and labels; the first counts.
_IMAGES, _LABELS = ("data", "image", "img"), ("target", "seg", "segmentation", "label", "mask")

#: Keys from which noise is made, and where callables draw from: 64 bits that tell a reader nothing.
_HIDDEN = ("key", "keys", "deferred_key", "apply_to_channel")


@dataclass(frozen=True)
class View:
    """A sample at one moment: three planes of a volume or one of a 2-D sample, the image's shape with channels, and a fingerprint
    of image and labels."""

    planes: tuple[Plane, ...]
    shape: tuple[int, ...]
    print: str

    @classmethod
    def of(cls, image: Any, labels: Any, **options: Any) -> View:
        """A sample as it is now; nothing of it is kept but planes. Options are those of `planes_of`."""
        return cls(planes_of(image, labels, **options), tuple(image.shape), fingerprint([image, labels]))

    @property
    def size(self) -> str:
        """For the reader."""
        return " × ".join(map(str, self.shape[1:])) + " voxels"

    @property
    def height(self) -> float:
        """Of its planes one below another, over the width of the widest."""
        heights = [plane.image.shape[0] * plane.aspect for plane in self.planes]
        return float(sum(heights) / max(plane.image.shape[1] for plane in self.planes))

    def looks_as(self, other: View) -> bool:
        """Whether the planes show the same."""
        mine, theirs = ([(plane.image, dict(plane.masks)) for plane in each.planes] for each in (self, other))
        return fingerprint(mine) == fingerprint(theirs)


def samples_of(batch: Any) -> list[tuple[Any, Any, str]]:
    """(image, labels or None, name) of each sample of a batch: a mapping with an array (B, C, X, Y[, Z]) under ``data`` or
    ``image``, and labels under ``seg``, ``target`` ...; a tuple of such arrays, the image first; or one array.

    Raises:
        UnusableError: there is none.
    """
    names: Any = ()
    if isinstance(batch, Mapping):
        images, labels, names = _first(batch, _IMAGES), _first(batch, _LABELS), batch.get("keys", ())
    elif isinstance(batch, (list, tuple)):
        images, labels = (*batch, None, None)[:2]
    else:
        images, labels = batch, None
    if isinstance(labels, (list, tuple)) and labels:  # of deep supervision
        labels = labels[0]
    shape, of_labels = (tuple(getattr(each, "shape", ())) for each in (images, labels))
    if len(shape) not in (4, 5) or not len(images):
        raise UnusableError(
            "there is no image in a batch: an image is an array (samples, channels, X, Y[, Z]) under "
            f"{', '.join(_IMAGES)}, or the first of a tuple; the batch is {_described(batch)}"
        )
    if len(of_labels) == len(shape) - 1 and of_labels[1:] == shape[2:]:
        labels, of_labels = labels[:, None], shape
    fits = len(of_labels) == len(shape) and len(labels) == len(images)
    named = [str(name) for name in names] if isinstance(names, Sequence) else []
    named += [""] * (len(images) - len(named))
    return [(images[n], labels[n] if fits else None, named[n]) for n in range(len(images))]


def _first(batch: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((batch[name] for name in names if batch.get(name) is not None), None)


def _described(batch: Any) -> str:
    def one(value: Any) -> str:
        shape = getattr(value, "shape", None)
        return type(value).__name__ if shape is None else f"{type(value).__name__} {tuple(shape)}"

    if isinstance(batch, Mapping):
        return "{" + ", ".join(f"{name!r}: {one(value)}" for name, value in batch.items()) + "}"
    if isinstance(batch, (list, tuple)):
        return f"{type(batch).__name__} of ({', '.join(map(one, batch))})"
    return one(batch)


@dataclass(frozen=True)
class Step:
    """What one transform made of a sample; its place is which pipeline, and where in it, its caption the params."""

    place: tuple[int, ...]
    name: str
    caption: list[str]
    view: View
    changed: bool


@dataclass
class Course:
    """A sample's way through the pipelines, from what the first one got; None: it got through none that is known."""

    before: View | None = None
    steps: list[Step] = field(default_factory=list)

    @property
    def last(self) -> View | None:
        """The sample as it came out."""
        return self.steps[-1].view if self.steps else self.before


@contextmanager
def recorded(**look: Any) -> Iterator[dict[int, Course]]:
    """Inside, the courses of a batch's samples, by their number, through the pipelines of detaug's that run in this thread;
    options are those of `planes_of`."""
    roots: list[Transform] = []  # the pipeline of each call
    courses: dict[int, Course] = {}

    def observe(root: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        sample = sum(each is root for each in roots)  # it is called once for each
        roots.append(root)
        number = [*dict.fromkeys(map(id, roots))].index(id(root))
        course = courses.setdefault(sample, Course())

        def view() -> View | None:
            return View.of(workspace["image"], workspace.get("segmentation"), **look) if "image" in workspace else None

        course.before = course.before or view()
        for stage in root.stages(params):
            stage.transform.apply_in(workspace, stage.params)
            before, now = course.last, view()
            if before is not None and now is not None:
                said = ([] if now.shape == before.shape else [now.size]) + caption(stage.params)
                place = number, *stage.place
                course.steps.append(Step(place, name_of(stage.transform), said, now, now.print != before.print))

    with observed(observe):
        yield courses


def name_of(transform: Transform) -> str:
    """The class of a transform, or of the one within what applies it with a probability."""
    return type(transform.transform if isinstance(transform, (ForeignTransform, RandomApply)) else transform).__name__


def caption(params: Mapping[str, Any]) -> list[str]:
    """A line for each param that says something."""
    said = {name: value for name, value in params.items() if name not in _HIDDEN and value not in (None, [], (), {})}
    return [shown_params({name: value}) for name, value in said.items()]
