"""Patches that are scaled but not turned are made in an easier way, and have the bytes that any other map's kernel gives."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from detaug.transforms.geometry.axis_places import AxisPlaces
from detaug.transforms.geometry.resampling import PatchMap

MODES = ("bilinear", "nearest")
SPACES = {"3-D": ((37, 30, 41), (20, 17, 23)), "2-D": ((50, 61), (33, 29))}
FACTORS = (0.4, 0.83, 1.0, 1.37)


def arrays(space: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Two channels of an image with a NaN and an infinity, and of four labels in small pieces."""
    rng = np.random.Generator(np.random.PCG64(3))
    image = rng.random((2, *space), np.float32)
    image.reshape(-1)[[11, 977]] = np.nan, np.inf
    labels = np.repeat(rng.integers(-1, 3, (2, *space[:-1], (space[-1] + 3) // 4)), 4, -1)[..., : space[-1]]
    return image, np.ascontiguousarray(labels, np.int16)


def resampled(patch: PatchMap, space: tuple[int, ...], mode: str, windowed: bool) -> list[np.ndarray]:
    image, labels = arrays(space)
    window = None
    if windowed:
        region = patch.region([(mode, "zeros")])
        inside = (slice(None), *(slice(a, b) for a, b in zip(region.starts, region.stops, strict=True)))
        window = region.starts, [b - a for a, b in zip(region.starts, region.stops, strict=True)]
        image, labels = (np.ascontiguousarray(each[inside]) for each in (image, labels))
    images, made = patch.resample([image], (mode, "zeros", 0.0), labels, (mode, "zeros", 0, "nearest"), window)
    assert made is not None
    return [*images, made]


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dims", SPACES)
def test_the_bytes_are_those_of_the_kernel_for_any_map(
    dims: str, mode: str, windowed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, size = SPACES[dims]
    easier: list[Any] = []
    find = AxisPlaces.of.__func__  # type: ignore[attr-defined]

    def noted(cls: type[AxisPlaces], *arguments: Any) -> AxisPlaces | None:
        easier.append(find(cls, *arguments))
        return easier[-1]

    for factors, shift in product(zip(FACTORS, FACTORS[1:], FACTORS[2:], strict=False), (0.0, 0.31)):
        affine = [[factors[a] if a == b else 0.0 for b in range(len(size))] for a in range(len(size))]
        patch = PatchMap(space, size, affine, None, [n / 2 + shift for n in space])
        monkeypatch.setattr(AxisPlaces, "of", classmethod(noted))
        ours = resampled(patch, space, mode, windowed)
        monkeypatch.setattr(AxisPlaces, "of", classmethod(lambda *_: None))
        theirs = resampled(patch, space, mode, windowed)
        for one, other in zip(ours, theirs, strict=True):
            assert one.tobytes() == other.tobytes()
    assert all(each is not None for each in easier)


def test_a_map_that_turns_or_leads_out_of_the_source_has_none() -> None:
    space, size = (20, 20, 20), (10, 10, 10)
    straight, offset = np.eye(3), np.array([2.0, 3.5, 0.0])
    assert AxisPlaces.of(straight, offset, space, size) is not None
    assert AxisPlaces.of(straight, offset - 1.0, space, size) is None
    turned = straight.copy()
    turned[0, 1] = 1e-9
    assert AxisPlaces.of(turned, offset, space, size) is None
