"""The base of transforms that work on single channels, and the volumes that kernels see of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.random import Generator

from detaug.kernels.intensity import scale_around
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes

T = TypeVar("T")


def per_axis(values: Sequence[T], shape: Sequence[int], otherwise: T) -> tuple[T, T, T]:
    """Return one value for each axis of the volume (X, Y, Z) that kernels see in an image.

    Axes of a single voxel are left out. Of the others, the last one becomes Z and the first one X,
    so that kernels work on an image of one plane line by line.

    Args:
        values: one for each axis of the image.
        shape: the image's spatial shape, (X, Y[, Z]).
        otherwise: the value of an axis of the volume that the image does not have.
    """
    # Nothing is filtered along an axis of one voxel.
    long = [value for value, length in zip(values, shape, strict=True) if length > 1]
    if len(long) == 3:
        return long[0], long[1], long[2]
    if len(long) == 2:
        return long[0], otherwise, long[1]
    if len(long) == 1:
        return otherwise, otherwise, long[0]
    return otherwise, otherwise, otherwise


def as_volume(channel: np.ndarray) -> np.ndarray:
    """Return a channel (X, Y[, Z]) as the volume (X, Y, Z) that kernels see."""
    return channel.reshape(per_axis(channel.shape, channel.shape, 1))


def flat_planes(channel: np.ndarray) -> np.ndarray:
    """Return a channel (X, Y[, Z]) as (X, Y * Z) of the volume that kernels see."""
    volume = as_volume(channel)
    return volume.reshape(len(volume), -1)


class ChannelTransform(ImageTransform):
    """A transform that draws one value for each channel that it changes, or one for all of them.

    Args:
        p_per_channel: the probability of each channel.
        synchronize_channels: True: one draw for all channels. False: one for each.
    """

    def __init__(self, p_per_channel: float, synchronize_channels: bool) -> None:
        self.p_per_channel = checks.probability("p_per_channel", p_per_channel)
        self.synchronize_channels = synchronize_channels

    def draw_channels(
        self,
        rng: Generator,
        shapes: Shapes,
        name: str,
        drawn: Callable[[int | None], Any],
        allowed: Sequence[int] | None = None,
    ) -> Params:
        """Draw params ``{"apply_to_channel": [channels], name: [a value for each of them]}``.

        Args:
            rng: the Generator to draw the channels from.
            shapes: the arrays' shapes by role, (C, X, Y[, Z]).
            name: the param's name.
            drawn: draws the value of a channel, or of all channels for None.
            allowed: the channels to choose from. None: all.
        """
        if allowed is None:
            allowed = range(shapes["image"][0])
        # The channels are drawn before their values: a seed's params depend on the order.
        channels = draws.channels_drawn(rng, allowed, self.p_per_channel)
        # Channels that are not changed draw nothing, so that rare changes cost little.
        return {"apply_to_channel": channels, name: self.for_channels(channels, drawn)}

    def draw_scalars(
        self, rng: Generator, shapes: Shapes, context: Context, name: str, wanted: RandomScalar
    ) -> Params:
        """Draw params like `draw_channels`, each value a scalar; callables may take ``channel``."""

        def drawn(channel: int | None) -> float:
            return draws.scalar(rng, wanted, {**context, "channel": channel})

        return self.draw_channels(rng, shapes, name, drawn)

    def for_channels(self, channels: list[int], drawn: Callable[[int | None], T]) -> list[T]:
        """Draw a value for each channel; synchronized channels share one, drawn for None."""
        # A callable is told the channel: it may return another value for each.
        if not self.synchronize_channels:
            return [drawn(channel) for channel in channels]
        if not channels:
            return []
        return [drawn(None)] * len(channels)


def by_channel(params: Params, *names: str) -> Iterator[tuple[Any, ...]]:
    """Yield each channel of ``apply_to_channel`` with its values of the named params.

    Without channels, a param may be None.
    """
    values = [params[name] or () for name in names]
    return zip(params["apply_to_channel"], *values, strict=True)


def rescale(values: np.ndarray, center: float, factor: float, offset: float) -> None:
    """Compute ``(values - center) · factor + offset`` in place, of float32 values."""
    # Kernels work in float32, in which a center far from 0 loses much.
    rounded = np.float32(center)
    # What the center loses when it is rounded to float32, the offset makes up for.
    exact_offset = offset + (float(rounded) - center) * factor
    scale_around(values, values, rounded, np.float32(factor), np.float32(exact_offset))
