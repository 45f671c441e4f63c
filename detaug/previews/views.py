"""What is kept of a sample at one moment: its planes, and a fingerprint of all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detaug.fingerprints import fingerprint
from detaug.pictures.planes import Plane, planes_of

#: Names under which batches of batchgenerators, nnU-Net, MONAI and others have their images and labels; the first counts.
_IMAGES, _LABELS = ("data", "image", "img"), ("target", "seg", "segmentation", "label", "mask")


class NoImage(ValueError):
    """There is nothing to be shown; the message says what there is."""


@dataclass(frozen=True)
class View:
    """A sample at one moment.

    Attributes:
        planes: three of a volume, one of a 2-D sample.
        shape: of the image, with channels.
        print: of the image and the labels.
        dtype: of the image.
    """

    planes: tuple[Plane, ...]
    shape: tuple[int, ...]
    print: str
    dtype: str

    @classmethod
    def of(cls, image: Any, labels: Any, **options: Any) -> View:
        """A sample as it is now; nothing of it is kept but planes. Options are those of `planes_of`."""
        dtype = str(image.dtype).removeprefix("torch.")
        return cls(planes_of(image, labels, **options), tuple(image.shape), fingerprint([image, labels]), dtype)

    def looks_as(self, other: View) -> bool:
        """Whether the planes show the same."""
        mine, theirs = ([(plane.image, dict(plane.masks)) for plane in each.planes] for each in (self, other))
        return fingerprint(mine) == fingerprint(theirs)


def samples_of(batch: Any) -> list[tuple[Any, Any, str]]:
    """(image, labels or None, name) of each sample of a batch.

    Args:
        batch: a mapping with an array (B, C, X, Y[, Z]) under ``data`` or ``image``, and labels under ``seg``, ``target`` ...;
            a tuple of such arrays, the image first; or one array.

    Raises:
        NoImage: there is none.
    """
    names: Any = ()
    if isinstance(batch, Mapping):
        images = _first(batch, _IMAGES)
        labels = _first(batch, _LABELS)
        names = batch.get("keys", ())
    elif isinstance(batch, (list, tuple)):
        images, labels = (batch[0] if batch else None), (batch[1] if len(batch) > 1 else None)
    else:
        images, labels = batch, None
    levels = labels[0] if isinstance(labels, (list, tuple)) and labels else labels  # of deep supervision
    shape, of_labels = (tuple(getattr(each, "shape", ())) for each in (images, levels))
    if len(shape) not in (4, 5) or not len(images):
        raise NoImage(
            "there is no image in a batch: an image is an array (samples, channels, X, Y[, Z]) under "
            f"{', '.join(_IMAGES)}, or the first of a tuple; the batch is {_described(batch)}"
        )
    if len(of_labels) == len(shape) - 1 and of_labels[1:] == shape[2:]:
        levels, of_labels = levels[:, None], shape
    fits = len(of_labels) == len(shape) and len(levels) == len(images)
    named = [str(name) for name in names] if isinstance(names, Sequence) else []
    named += [""] * (len(images) - len(named))
    return [(images[n], levels[n] if fits else None, named[n]) for n in range(len(images))]


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
