"""What transforms of single channels share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from detaug.kernels.intensity import scale_around
from detaug.kernels.volumes import axes_of_volume
from detaug.transforms.building import draws
from detaug.transforms.building.draws import RandomScalar
from detaug.transforms.building.workspace import Workspace

T = TypeVar("T")


def flat_channels(workspace: Workspace, chosen: Collection[int]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """`Workspace.chosen_channels` of the image, flat."""
    for c, source, destination in workspace.chosen_channels(chosen):
        yield c, source.reshape(-1), destination.reshape(-1)


def plane_channels(workspace: Workspace, chosen: Collection[int]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """`Workspace.chosen_channels` of the image as (X, Y * Z) of its volume."""
    for c, source, destination in workspace.chosen_channels(chosen):
        yield c, flat_planes(source), flat_planes(destination)


def flat_planes(channel: np.ndarray) -> np.ndarray:
    """A channel of an image as (X, Y * Z) of its volume."""
    first = axes_of_volume(channel.shape)[0]
    return channel.reshape(1 if first is None else channel.shape[first], -1)


def length_of_lines(shape: Sequence[int]) -> int:
    """Z of the image's volume."""
    last = axes_of_volume(shape)[2]
    return 1 if last is None else shape[last]


def scalars(
    rng: np.random.Generator,
    wanted: RandomScalar,
    channels: list[int],
    context: Mapping[str, Any],
    *,
    synchronized: bool,
) -> list[float]:
    """One number per channel: drawn once for all of them if synchronized, else for each.

    A callable may ask for ``channel``, which is None in the first case.
    """
    return for_channels(
        lambda c: draws.scalar(rng, wanted, {**context, "channel": c}), channels, synchronized=synchronized
    )


def for_channels(drawn: Callable[[int | None], T], channels: list[int], *, synchronized: bool) -> list[T]:
    """What is drawn for each channel, or drawn once, for None, and shared by all of them."""
    if not synchronized:
        return [drawn(c) for c in channels]
    return [drawn(None)] * len(channels) if channels else []


def rescale(values: np.ndarray, center: float, factor: float, offset: float) -> None:
    """``(values - center) · factor + offset`` in place; what the center loses in float32, the offset makes up for."""
    rounded = np.float32(center)
    scale_around(values, values, rounded, np.float32(factor), np.float32(offset + (float(rounded) - center) * factor))
