"""What transforms of single channels share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from detaug.kernels.intensity import scale_around
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import ImageTransform, Params, Shapes

T = TypeVar("T")


def per_axis(values: Sequence[T], shape: Sequence[int], otherwise: T) -> tuple[T, T, T]:
    """One value for each axis of the volume (X, Y, Z) that kernels see in a 2-D or 3-D image.

    Axes of a single voxel are left out and the last one that is longer becomes Z, X the one before
    it, so that an image of one plane is worked on line by line.

    Args:
        values: one for each axis of the image.
        otherwise: for an axis of the volume that the image does not have.
    """
    long = [value for value, n in zip(values, shape, strict=True) if n > 1]
    if len(long) == 3:
        return long[0], long[1], long[2]
    if len(long) == 2:
        return long[0], otherwise, long[1]
    return otherwise, otherwise, long[0] if long else otherwise


def as_volume(channel: np.ndarray) -> np.ndarray:
    """A channel of an image as the volume (X, Y, Z) that kernels see."""
    return channel.reshape(per_axis(channel.shape, channel.shape, 1))


def flat_planes(channel: np.ndarray) -> np.ndarray:
    """A channel of an image as (X, Y * Z) of its volume."""
    return channel.reshape(per_axis(channel.shape, channel.shape, 1)[0], -1)


class ChannelTransform(ImageTransform):
    """A transform that draws one thing for each channel that it changes, or one for all of them.

    Args:
        p_per_channel: the probability of each channel.
        synchronize_channels: the same for all channels; else each has its own.
    """

    def __init__(self, p_per_channel: float, synchronize_channels: bool) -> None:
        self.p_per_channel = checks.probability("p_per_channel", p_per_channel)
        self.synchronize_channels = synchronize_channels

    def draw_channels(
        self,
        rng: np.random.Generator,
        shapes: Shapes,
        name: str,
        drawn: Callable[[int | None], Any],
        allowed: Sequence[int] | None = None,
    ) -> Params:
        """``{"apply_to_channel": [channels], name: [what is drawn for each of them]}``, of all
        channels or those allowed.
        """
        every = range(shapes["image"][0]) if allowed is None else allowed
        channels = draws.channels_drawn(rng, every, self.p_per_channel)
        return {"apply_to_channel": channels, name: self.for_channels(channels, drawn)}

    def for_channels(self, channels: list[int], drawn: Callable[[int | None], T]) -> list[T]:
        """What is drawn for each channel, or drawn once, for None, and shared by all of them."""
        if not self.synchronize_channels:
            return [drawn(c) for c in channels]
        return [drawn(None)] * len(channels) if channels else []


def by_channel(params: Params, *names: str) -> Iterator[tuple[Any, ...]]:
    """Each channel of ``apply_to_channel``, and what was drawn for it under these names; None may
    stand there without any.
    """
    return zip(params["apply_to_channel"], *(params[name] or () for name in names), strict=True)


def rescale(values: np.ndarray, center: float, factor: float, offset: float) -> None:
    """``(values - center) · factor + offset`` in place; what the center loses in float32, the
    offset makes up for.
    """
    rounded = np.float32(center)
    scale_around(
        values,
        values,
        rounded,
        np.float32(factor),
        np.float32(offset + (float(rounded) - center) * factor),
    )
