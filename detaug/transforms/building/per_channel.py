"""What transforms of single channels share."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

import numpy as np

from detaug.kernels.intensity import scale_around
from detaug.transforms.building import draws
from detaug.transforms.building.draws import RandomScalar
from detaug.transforms.building.workspace import Workspace


def flat_channels(workspace: Workspace, chosen: Container[int]) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The chosen channels of the image as (channel, source, destination), both flat; they are one array where it is
    owned.

    The caller fills each destination. Other channels are copied where they must be. Without any, nothing is touched.
    """
    count = workspace["image"].shape[0]
    if not any(c in chosen for c in range(count)):
        return
    source, destination = workspace.source_and_destination("image")
    for c in range(count):
        if c in chosen:
            yield c, source[c].reshape(-1), destination[c].reshape(-1)
        elif destination is not source:
            destination[c] = source[c]


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
    if not synchronized:
        return [draws.scalar(rng, wanted, {**context, "channel": c}) for c in channels]
    return [draws.scalar(rng, wanted, {**context, "channel": None})] * len(channels) if channels else []


def rescale(values: np.ndarray, center: float, factor: float, offset: float) -> None:
    """``(values - center) · factor + offset`` in place; what the center loses in float32, the offset makes up for."""
    rounded = np.float32(center)
    scale_around(values, rounded, np.float32(factor), np.float32(offset + (float(rounded) - center) * factor))
