"""Pipelines of Albumentations, or of AlbumentationsX, in closures and in modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.peers.conformance import Conformance
from tests.peers.items import Example, of_images

albumentations = pytest.importorskip(
    "albumentations", reason="Albumentations is not installed (the extra `peers`)"
)

SHAPE = (20, 24, 3)


def composition(seed: int | None = None) -> Any:
    """Return a pipeline of Albumentations."""
    return albumentations.Compose(
        [
            albumentations.HorizontalFlip(p=0.5),
            albumentations.OneOf(
                [
                    albumentations.Affine(rotate=(-40, 40), p=1.0),
                    albumentations.Affine(scale=(0.6, 1.4), p=1.0),
                ],
                p=1.0,
            ),
            albumentations.GaussNoise(std_range=(0.05, 0.3), p=1.0),
        ],
        seed=seed,
    )


OF_THE_MODULE = composition()


def through_the_module(image: Any) -> Any:
    """Apply the pipeline that this module holds."""
    return OF_THE_MODULE(image=image)["image"]


def in_the_module() -> Callable[[Any], Any]:
    """Return a function that uses a pipeline of its module."""
    return through_the_module


def in_a_closure() -> Callable[[Any], Any]:
    """Return a function that holds a pipeline with a seed in its closure."""
    pipeline = composition(11)

    def transform(image: Any) -> Any:
        return pipeline(image=image)["image"]

    return transform


class TestAlbumentations(Conformance):
    EXAMPLES = (
        Example(
            "closure around a composition with a seed",
            of_images(SHAPE, in_a_closure),
            checked=True,
        ),
        Example("module global", of_images(SHAPE, in_the_module)),
    )
