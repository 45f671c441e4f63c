"""Artefacts of MRI that arise in k-space: ghosts, spikes, Gibbs ringing.

Frequency 0 is shifted to the middle, as in TorchIO and MONAI: of n, number s there is frequency s - n // 2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from detaug.kernels.fourier import plan_of, roots_of_unity
from detaug.kernels.spectrum import KSpace, filter_lines
from detaug.transforms.building import checks, draws, gate
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.gate import channels_with, fields, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, as_volume, by_channel, per_axis
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


_GHOSTS = fields(
    num_ghosts=gate.integer(),
    axis=gate.axis,
    intensity=number(0),
    restore=gate.optional(number(0, 1)),
)
_SPIKES = fields(positions=gate.many(gate.each_axis(number(0, 1))), intensity=number())


class Ghosting(ChannelTransform):
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
        super().__init__(p_per_channel, synchronize_channels)
        self.num_ghosts = checks.integer_range("num_ghosts", num_ghosts, minimum=0)
        self.axes = None if axes is None else checks.axes("axes", axes)
        self.intensity = checks.random_scalar("intensity", intensity, minimum=0)
        self.restore = (
            None
            if restore is None
            else checks.random_scalar("restore", restore, minimum=0, maximum=1)
        )

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        dims = len(shapes["image"]) - 1
        axes = range(dims) if self.axes is None else checks.axes("axes", self.axes, dims)

        def ghosts(_: int | None) -> Params:
            return {
                "num_ghosts": draws.integer_between(rng, *self.num_ghosts),
                "axis": draws.choice(rng, axes),
                "intensity": draws.scalar(rng, self.intensity, context),
                "restore": None
                if self.restore is None
                else draws.scalar(rng, self.restore, context),
            }

        return self.draw_channels(rng, shapes, "ghosts", ghosts)

    @takes(**channels_with(ghosts=_GHOSTS))
    def change(self, workspace: Workspace, params: Params) -> None:
        space = workspace["image"].shape[1:]
        made = by_channel(params, "ghosts")
        gains = {
            c: (ghosts["axis"], _ghost_gains(space[ghosts["axis"]], ghosts)) for c, ghosts in made
        }
        changed = {c for c, (_, gain) in gains.items() if (gain != 1).any()}
        for c, source, destination in workspace.chosen_channels(changed):
            filter_axis(source[None], destination, gains[c][0], gains[c][1][None])

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


class Spikes(ChannelTransform):
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
        super().__init__(p_per_channel, synchronize_channels)
        self.num_spikes = checks.integer_range("num_spikes", num_spikes, minimum=0)
        self.intensity = checks.random_scalar("intensity", intensity)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        axes = shapes["image"][1:]

        def spikes(_: int | None) -> Params:
            number = draws.integer_between(rng, *self.num_spikes)
            return {
                "positions": [[draws.uniform(rng) for _ in axes] for _ in range(number)],
                "intensity": draws.scalar(rng, self.intensity, context),
            }

        return self.draw_channels(rng, shapes, "spikes", spikes)

    @takes(**channels_with(spikes=_SPIKES))
    def change(self, workspace: Workspace, params: Params) -> None:
        made = by_channel(params, "spikes")
        spikes = {c: each for c, each in made if each["intensity"] != 0 and each["positions"]}
        for c, source, destination in workspace.chosen_channels(spikes):
            amplitude = spikes[c]["intensity"] * _largest_in_k_space(source) / source.size
            if not math.isfinite(amplitude):
                destination.fill(np.nan)
                continue
            positions = spikes[c]["positions"]
            waves = [_waves(n, [at[d] for at in positions]) for d, n in enumerate(source.shape)]
            x, y, z = per_axis(waves, source.shape, np.repeat(_NO_WAVE[None], len(positions), 0))
            _add_waves(
                as_volume(source), as_volume(destination), x * amplitude, y, z.astype(np.float32)
            )

    kernels = KSpace.kernels[:2]


def _waves(n: int, positions: Sequence[float]) -> np.ndarray:
    """(spikes, 2, n): exp(2 pi i f k / n), real and imaginary parts, of the frequency at each position."""
    frequencies = np.array([math.floor(position * n) - n // 2 for position in positions])
    waves: np.ndarray = roots_of_unity(n)[np.outer(frequencies, np.arange(n)) % n]
    return np.ascontiguousarray(waves.swapaxes(1, 2))


@np.errstate(over="ignore", invalid="ignore")
def _add_waves(
    source: np.ndarray, destination: np.ndarray, x: np.ndarray, y: np.ndarray, z: np.ndarray
) -> None:
    """A volume plus the sum over s of the real part of ``x[s, i] y[s, j] z[s, k]``; both may be one array."""
    outer = np.multiply.outer
    for part in _parts(source.shape):
        made = destination[part]
        made[...] = source[part]
        for (x_re, x_im), (y_re, y_im), (cosines, sines) in zip(x[..., part], y, z, strict=True):
            re, im = outer(x_re, y_re) - outer(x_im, y_im), outer(x_re, y_im) + outer(x_im, y_re)
            made += outer(re.astype(np.float32), cosines) - outer(im.astype(np.float32), sines)


def _parts(shape: Sequence[int]) -> list[slice]:
    """Planes that are worked on together: as many voxels as stay in the cache."""
    step = max(1, 2**15 // math.prod(shape[1:]))
    return [slice(first, first + step) for first in range(0, shape[0], step)]


class GibbsNoise(ChannelTransform):
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
        super().__init__(p_per_channel, synchronize_channels)
        self.alpha = checks.random_scalar("alpha", alpha, minimum=0, maximum=1)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        return self.draw_channels(
            rng, shapes, "alphas", lambda _: draws.scalar(rng, self.alpha, context)
        )

    @takes(**channels_with(alphas=number(0, 1)))
    def change(self, workspace: Workspace, params: Params) -> None:
        space = workspace["image"].shape[1:]
        farthest = sum((n - 1) ** 2 for n in space)
        limits = {c: _limit(space, alpha) for c, alpha in by_channel(params, "alphas")}
        limits = {c: limit for c, limit in limits.items() if limit < farthest}
        for c, source, destination in workspace.chosen_channels(limits):
            _cut_off(source, destination, limits[c])

    kernels = KSpace.kernels


def _limit(space: Sequence[int], alpha: float) -> int:
    """The square of twice the radius, rounded down: squares of twice a distance are integers."""
    radius = (1 - alpha) * max(space) * math.sqrt(2.0) / 2.0
    limit = math.floor(4.0 * radius * radius) + 1
    while limit >= 0 and math.sqrt(limit / 4.0) > radius:  # MONAI compares roots
        limit -= 1
    return limit


def _largest_in_k_space(channel: np.ndarray) -> float:
    """The largest absolute value in k-space; not finite if one of the voxels is not."""
    volume = as_volume(channel)
    k_space = KSpace(volume, len(volume) // 2 + 1)
    k_space.along_y()
    k_space.along_z(np.ones((len(k_space.lines), volume.shape[1]), bool))
    return math.sqrt(
        max(float(np.square(plane, dtype=np.float64).sum(0).max()) for plane in k_space.lines)
    )


@np.errstate(over="ignore", invalid="ignore")
def _cut_off(source: np.ndarray, destination: np.ndarray, limit: int) -> None:
    """Keep of a channel's k-space what is in a ball; both may be one array.

    The ball's middle need not be frequency 0, so that a frequency may be in it and its negative not. The real part of what
    such a filter gives is what the mean of its gains for the two gives.
    """
    volume = as_volume(source)
    x, y, z = (_squares(n, axis == 0) for axis, n in enumerate(volume.shape))
    kept = int((x.min(0) + y.min() + z.min() <= limit).sum())
    room = limit - x[:, :kept, None] - y[:, None]
    within = room.max(0) >= z.min()
    k_space = KSpace(volume, kept)
    k_space.along_y()
    k_space.lines.swapaxes(1, 2)[~within] = 0
    k_space.along_z(within)
    half = np.float32(0.5) * np.float32(1.0 / volume.size)
    for part in _parts((kept, *volume.shape[1:])):
        here, there = room[:, part, :, None]
        gains = ((z[0] <= here).astype(np.float32) + (z[1] <= there)) * half
        k_space.lines[part] *= gains[:, None]
    k_space.along_z(within, back=True)
    k_space.along_y(back=True)
    destination[...] = k_space.image().reshape(destination.shape)


@lru_cache(maxsize=64)
def _squares(n: int, in_order: bool) -> np.ndarray:
    """(2, frequencies): of twice the distance from the middle of n coefficients, for each frequency and for its negative; those
    from 0 to n // 2, or all in the plan's order."""
    frequencies = np.arange(n // 2 + 1) if in_order else plan_of(n).frequency
    both = [(2 * shifted(n, each) - (n - 1)) ** 2 for each in (frequencies, -frequencies)]
    return np.stack(both).astype(np.int32)
