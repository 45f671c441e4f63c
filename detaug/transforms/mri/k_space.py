"""Artefacts of MRI that arise in k-space: ghosts, spikes, Gibbs ringing.

Frequency 0 is shifted to the middle, as in TorchIO and MONAI: of n, number s there is frequency s - n // 2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from detaug.kernels.fourier import plan_of, roots_of_unity
from detaug.kernels.line_filter import filter_lines
from detaug.kernels.spectrum import add_waves, from_k_space, keep_ball, largest_magnitude, plane_columns, to_k_space
from detaug.transforms.building import checks, draws
from detaug.transforms.building.base import ImageTransform, Params, Shapes
from detaug.transforms.building.draws import RandomScalar
from detaug.transforms.building.gate import (
    CHANNELS,
    axis,
    each_axis,
    fields,
    for_each,
    integer,
    many,
    number,
    optional,
    takes,
)
from detaug.transforms.building.per_channel import flat_planes, for_channels, per_axis
from detaug.transforms.building.workspace import Workspace

_NO_WAVE = np.array([[1.0], [0.0]])


def shifted(n: int, frequencies: np.ndarray) -> np.ndarray:
    """The place of frequencies, 0 to n - 1, in the shifted order."""
    return (frequencies + n // 2) % n


def filter_axis(volumes: np.ndarray, destination: np.ndarray, axis: int, gains: np.ndarray) -> None:
    """Multiply volumes' k-space by gains along one axis, add them up, and take the real part of the image.

    A real image's coefficients at a frequency and its negative are conjugates, so that the real part is what the mean of
    the two gains gives.

    Args:
        volumes: (S, *space) float32. destination: (*space); may be the memory of the only volume.
        axis: spatial axis.
        gains: (S, n), real, in the shifted order.
    """
    n = destination.shape[axis]
    plan = plan_of(n)
    real = 0.5 * (gains[:, shifted(n, plan.frequency)] + gains[:, shifted(n, -plan.frequency)]) / n
    inner = math.prod(destination.shape[axis + 1 :])
    filter_lines(
        volumes.reshape(len(volumes), -1), destination.reshape(-1), inner, plan.radices, plan.twiddles,
        np.ascontiguousarray(real, np.float32),
    )  # fmt: skip


class Ghosting(ImageTransform):
    """Ghosts along an axis, as periodic motion (breath, pulse) makes them along the phase-encoding direction.

    Each ``num_ghosts``-th plane of k-space along the axis, from the first one on, is multiplied by ``1 - intensity``; then
    planes around the middle, at least the central one, are as they were. TorchIO's formula and defaults
    (`RandomGhosting` 1.2).

    Args:
        num_ghosts: a number, or a range (low, high), both included; 0: no effect.
        axes: the spatial axes of which one is drawn; None for all.
        intensity: >= 0; 1 removes the planes.
        restore: how much of the axis is restored around the middle, 0 to 1; None: the central plane.
        p_per_channel: the probability of each channel.
        synchronize_channels: the same ghosts in all channels; else each has its own.

    NaN and infinity spread along the axis. Params: ``{"apply_to_channel": [channels], "ghosts": [{"num_ghosts": n, "axis": a,
    "intensity": s, "restore": r or None} for each of them]}``.
    """

    def __init__(
        self,
        num_ghosts: int | tuple[int, int] = (4, 10),
        axes: Sequence[int] | None = None,
        intensity: RandomScalar = (0.5, 1),
        restore: RandomScalar | None = None,
        p_per_channel: float = 1.0,
        synchronize_channels: bool = True,
    ) -> None:
        self.num_ghosts = checks.integer_range("num_ghosts", num_ghosts, minimum=0)
        self.axes = None if axes is None else checks.axes("axes", axes)
        self.intensity = checks.random_scalar("intensity", intensity, minimum=0)
        self.restore = None if restore is None else checks.random_scalar("restore", restore, minimum=0, maximum=1)
        self.p_per_channel = checks.probability("p_per_channel", p_per_channel)
        self.synchronize_channels = synchronize_channels

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        count, *space = shapes["image"]
        axes = tuple(range(len(space))) if self.axes is None else checks.axes("axes", self.axes, len(space))

        def ghosts() -> Params:
            return {
                "num_ghosts": draws.integer_between(rng, *self.num_ghosts),
                "axis": draws.choice(rng, axes),
                "intensity": draws.scalar(rng, self.intensity, context),
                "restore": None if self.restore is None else draws.scalar(rng, self.restore, context),
            }

        channels = draws.channels_drawn(rng, range(count), self.p_per_channel)
        return {
            "apply_to_channel": channels,
            "ghosts": for_channels(lambda _: ghosts(), channels, synchronized=self.synchronize_channels),
        }

    @takes(
        apply_to_channel=CHANNELS,
        ghosts=for_each(
            "apply_to_channel",
            fields(num_ghosts=integer(), axis=axis, intensity=number(0), restore=optional(number(0, 1))),
        ),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        space = workspace["image"].shape[1:]
        made = zip(params["apply_to_channel"], params["ghosts"], strict=True)
        gains = {c: (ghosts["axis"], _ghost_gains(space[ghosts["axis"]], ghosts)) for c, ghosts in made}
        gains = {c: (axis, gain) for c, (axis, gain) in gains.items() if (gain != 1).any()}
        for c, source, destination in workspace.chosen_channels(gains):
            axis, gain = gains[c]
            filter_axis(source[None], destination, axis, gain[None])

    kernels = (filter_lines,)


def _ghost_gains(n: int, ghosts: Params) -> np.ndarray:
    """Of each plane along an axis of n voxels, frequency 0 in the middle."""
    gains = np.ones(n)
    if not ghosts["num_ghosts"]:
        return gains
    gains[:: ghosts["num_ghosts"]] = 1.0 - ghosts["intensity"]
    if ghosts["restore"] is None:
        gains[n // 2] = 1.0
    else:
        half = round(ghosts["restore"] * n) // 2
        gains[n // 2 - half : n // 2 + half] = 1.0
    return gains


class Spikes(ImageTransform):
    """Single coefficients of k-space that are too large: a plane wave over the image for each (herringbone artefact).

    A spike adds ``intensity`` times the largest magnitude in the channel's k-space to one coefficient; the image is the
    real part. TorchIO's formula and defaults (`RandomSpike` 1.2), but that each of several spikes is measured by the image
    as it was given; there, by the image with the spikes before it.

    Args:
        num_spikes: a number, or a range (low, high), both included.
        intensity: in parts of the largest magnitude; may be negative.
        p_per_channel: the probability of each channel.
        synchronize_channels: the same spikes in all channels; else each has its own.

    A NaN or an infinity makes its channel NaN. Params: ``{"apply_to_channel": [channels], "spikes": [{"positions": [one per
    axis, 0 to 1, for each spike], "intensity": r} for each of them]}``: with frequency 0 in the middle, a spike is at
    coefficient floor(position * n) of the n along an axis.
    """

    def __init__(
        self,
        num_spikes: int | tuple[int, int] = 1,
        intensity: RandomScalar = (1, 3),
        p_per_channel: float = 1.0,
        synchronize_channels: bool = True,
    ) -> None:
        self.num_spikes = checks.integer_range("num_spikes", num_spikes, minimum=0)
        self.intensity = checks.random_scalar("intensity", intensity)
        self.p_per_channel = checks.probability("p_per_channel", p_per_channel)
        self.synchronize_channels = synchronize_channels

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        count, *space = shapes["image"]

        def spikes() -> Params:
            number = draws.integer_between(rng, *self.num_spikes)
            return {
                "positions": [[draws.uniform(rng) for _ in space] for _ in range(number)],
                "intensity": draws.scalar(rng, self.intensity, context),
            }

        channels = draws.channels_drawn(rng, range(count), self.p_per_channel)
        return {
            "apply_to_channel": channels,
            "spikes": for_channels(lambda _: spikes(), channels, synchronized=self.synchronize_channels),
        }

    @takes(
        apply_to_channel=CHANNELS,
        spikes=for_each("apply_to_channel", fields(positions=many(each_axis(number(0, 1))), intensity=number())),
    )
    def change(self, workspace: Workspace, params: Params) -> None:
        made = zip(params["apply_to_channel"], params["spikes"], strict=True)
        spikes = {c: each for c, each in made if each["intensity"] != 0 and each["positions"]}
        for c, source, destination in workspace.chosen_channels(spikes):
            amplitude = spikes[c]["intensity"] * _largest_in_k_space(source) / source.size
            if not math.isfinite(amplitude):
                destination.fill(np.nan)
                continue
            waves = per_axis(
                [_waves(n, [at[d] for at in spikes[c]["positions"]]) for d, n in enumerate(source.shape)],
                source.shape,
                np.repeat(_NO_WAVE[None], len(spikes[c]["positions"]), 0),
            )
            add_waves(
                flat_planes(source),
                flat_planes(destination),
                waves[0] * amplitude,
                waves[1],
                np.ascontiguousarray(waves[2], np.float32),
            )

    kernels = (to_k_space, largest_magnitude, add_waves)


def _waves(n: int, positions: Sequence[float]) -> np.ndarray:
    """(spikes, 2, n): exp(2 pi i f k / n), real and imaginary parts, of the frequency at each position."""
    frequencies = np.array([math.floor(position * n) - n // 2 for position in positions])
    waves: np.ndarray = roots_of_unity(n)[np.outer(frequencies, np.arange(n)) % n]
    return np.ascontiguousarray(waves.swapaxes(1, 2))


class GibbsNoise(ImageTransform):
    """Gibbs ringing: k-space is cut off outside of a ball, so that edges ring.

    The ball's radius is ``(1 - alpha) * max(shape) / √2`` coefficients, and its middle that of the array, (n - 1) / 2 along each
    axis; with an even n that is half a coefficient beside frequency 0. Of what is kept, the image is the real part. MONAI's
    formula and default (`RandGibbsNoise` 1.6). At 0, a 2-D image of equal sides is unchanged; of a volume, k-space loses
    its corners.

    Args:
        alpha: 0 to 1; 1 leaves nothing but the mean (if all axes are odd).
        p_per_channel: the probability of each channel.
        synchronize_channels: the same alpha for all channels; else each has its own.

    A NaN or an infinity spreads over its channel. Params: ``{"apply_to_channel": [channels], "alphas": [one for each]}``.
    """

    def __init__(
        self,
        alpha: RandomScalar = (0, 1),
        p_per_channel: float = 1.0,
        synchronize_channels: bool = True,
    ) -> None:
        self.alpha = checks.random_scalar("alpha", alpha, minimum=0, maximum=1)
        self.p_per_channel = checks.probability("p_per_channel", p_per_channel)
        self.synchronize_channels = synchronize_channels

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        channels = draws.channels_drawn(rng, range(shapes["image"][0]), self.p_per_channel)
        alphas = for_channels(
            lambda _: draws.scalar(rng, self.alpha, context), channels, synchronized=self.synchronize_channels
        )
        return {"apply_to_channel": channels, "alphas": alphas}

    @takes(apply_to_channel=CHANNELS, alphas=for_each("apply_to_channel", number(0, 1)))
    def change(self, workspace: Workspace, params: Params) -> None:
        space = workspace["image"].shape[1:]
        farthest = sum((n - 1) ** 2 for n in space)
        made = zip(params["apply_to_channel"], params["alphas"], strict=True)
        limits = {c: _limit(space, alpha) for c, alpha in made}
        limits = {c: limit for c, limit in limits.items() if limit < farthest}
        for c, source, destination in workspace.chosen_channels(limits):
            _cut_off(source, destination, limits[c])

    kernels = (to_k_space, keep_ball, from_k_space)


def _limit(space: Sequence[int], alpha: float) -> int:
    """The square of twice the radius, rounded down: squares of twice a distance are integers."""
    radius = (1 - alpha) * max(space) * math.sqrt(2.0) / 2.0
    limit = math.floor(4.0 * radius * radius) + 1
    while limit >= 0 and math.sqrt(limit / 4.0) > radius:  # MONAI compares roots
        limit -= 1
    return limit


def _extents(space: Sequence[int]) -> tuple[int, int, int]:
    return per_axis(space, space, 1)


def _largest_in_k_space(channel: np.ndarray) -> float:
    n0, n1, n2 = _extents(channel.shape)
    first, second, third = (plan_of(n) for n in (n0, n1, n2))
    spectrum = np.empty((n0 // 2 + 1, 2, plane_columns(n1, n2)), np.float32)
    to_k_space(flat_planes(channel), n2, first.radices, first.twiddles, first.row, spectrum)
    found: float = largest_magnitude(spectrum, n1, n2, second.radices, second.twiddles, third.radices, third.twiddles)
    return found


def _cut_off(source: np.ndarray, destination: np.ndarray, limit: int) -> None:
    """Keep of a channel's k-space what is in a ball; both may be one array."""
    n0, n1, n2 = _extents(source.shape)
    first, second, third = (plan_of(n) for n in (n0, n1, n2))
    squares0, squares1, squares2 = _squares(n0, True), _squares(n1, False), _squares(n2, False)
    kept = int((squares0.min(0) + squares1.min() + squares2.min() <= limit).sum())
    spectrum = np.empty((kept, 2, plane_columns(n1, n2)), np.float32)
    along_x = first.radices, first.twiddles, first.row
    to_k_space(flat_planes(source), n2, *along_x, spectrum)
    keep_ball(
        spectrum, second.radices, second.twiddles, third.radices, third.twiddles, squares0, squares1, squares2, limit,
        np.float32(1.0 / (n0 * n1 * n2)),
    )  # fmt: skip
    from_k_space(spectrum, n2, *along_x, flat_planes(destination))


@lru_cache(maxsize=64)
def _squares(n: int, in_order: bool) -> np.ndarray:
    """(2, frequencies): of twice the distance from the middle of n coefficients, for each frequency and for its negative; those
    from 0 to n // 2, or all in the plan's order."""
    frequencies = np.arange(n // 2 + 1) if in_order else plan_of(n).frequency
    both = [(2 * shifted(n, each) - (n - 1)) ** 2 for each in (frequencies, -frequencies)]
    return np.stack(both).astype(np.int32)
