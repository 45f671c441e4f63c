"""Albumentations wherever people keep it: attribute, closure, partial, method, module global, whole batches."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import albumentations
import numpy as np

from detaug import DeterministicAugmenter
from tests.peers.items import Example, from_blank, from_images

SHAPE = (20, 24, 3)


def composition(seed: int | None = None) -> Any:
    return albumentations.Compose(
        [
            albumentations.HorizontalFlip(p=0.5),
            albumentations.OneOf(
                [albumentations.Affine(rotate=(-40, 40), p=1.0), albumentations.Affine(scale=(0.6, 1.4), p=1.0)], p=1.0
            ),
            albumentations.GaussNoise(std_range=(0.05, 0.3), p=1.0),
        ],
        seed=seed,
    )


OF_THE_MODULE = composition()


def apply(image: Any, pipeline: Any) -> Any:
    return pipeline(image=image)["image"]


def through_the_module(image: Any) -> Any:
    return OF_THE_MODULE(image=image)["image"]


def in_a_closure() -> Callable[[Any], Any]:
    pipeline = composition()

    def transform(image: Any) -> Any:
        return pipeline(image=image)["image"]

    return transform


class Augmentation:
    """A user's class around a composition."""

    def __init__(self, seed: int | None = None) -> None:
        self.pipeline = composition(seed)

    def __call__(self, image: Any) -> Any:
        return self.pipeline(image=image)["image"]

    def run(self, image: Any) -> Any:
        return self.pipeline(image=image)["image"]


class OfBatches:
    """Two samples of a batch, one after another."""

    def __init__(self) -> None:
        self.pipeline = composition()

    def __call__(self, image: Any, **others: Any) -> dict[str, Any]:
        return {"image": np.stack([self.pipeline(image=each)["image"] for each in image]), **others}


def dataset(make: Callable[[], Callable[[Any], Any]]) -> Callable[..., DeterministicAugmenter]:
    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        return from_images(folder, SHAPE, make(), **options)

    return build


def whole_batches(folder: Path, **options: Any) -> DeterministicAugmenter:
    return from_blank(folder, (2, *SHAPE), OfBatches(), **options)


EXAMPLES = [
    Example("attribute", dataset(Augmentation)),
    Example("composition with a seed", dataset(lambda: Augmentation(11))),
    Example("closure", dataset(in_a_closure), often=True),
    Example("partial", dataset(lambda: functools.partial(apply, pipeline=composition()))),
    Example("bound method", dataset(lambda: Augmentation().run)),
    Example("module global", dataset(lambda: through_the_module), often=True),
    Example("whole batches", whole_batches, indices=False, often=True),
]
