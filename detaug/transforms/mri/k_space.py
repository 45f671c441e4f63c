"""Artefacts of MRI that arise in k-space: ghosts, spikes, Gibbs ringing.

Images are real, so the coefficients of a frequency and of its negative are conjugates, and one half
of k-space is enough. A gain for one frequency acts as the mean of its own and its negative's gain,
because the result is the real part of the image.

Frequency 0 is shifted to the middle, as in TorchIO and MONAI: of n coefficients, number s is
frequency s - n // 2.

A Fourier transform treats a volume as one period, so its last voxel borders on its first one. A
patch is cut out of a larger image, and there these two differ: an edge, which rings or is doubled
along the patch's border. So `Motion` and `GibbsNoise` extend a volume beyond its ends (`extended`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

import numpy as np
from numpy.random import Generator

from detaug.kernels.scalars import cosine, sine
from detaug.transforms.building import checks, draws, gate
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.gate import channels_with, fields, number, takes
from detaug.transforms.building.per_channel import ChannelTransform, as_volume, by_channel, per_axis
from detaug.transforms.building.workspace import Workspace

_NO_WAVE = np.array([[1.0], [0.0]])
_ALL_AXES = (0, 1, 2)
# The least part of an axis that is added to it, so that its two ends can fade into each other.
# More of it takes longer, and changes nothing that can be seen.
_ADDED = 1 / 8


def _to_k_space(volume: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Return the coefficients along some axes, of the last one at frequencies 0 to n // 2 only.

    Args:
        volume: (X, Y, Z) or (X, Y), float32.
        axes: axes of the volume.

    Returns:
        complex64, C-contiguous.
    """
    # Imported here: other transforms do without SciPy, which takes a while to import.
    from scipy import fft

    # SciPy's own code whatever backend a program has chosen for its other transforms, because
    # another one gives other bytes.
    with fft.set_backend("scipy", only=True):
        k_space: np.ndarray = fft.rfftn(volume, axes=axes, workers=1)
    return k_space


def _from_k_space(k_space: np.ndarray, lengths: Sequence[int], axes: Sequence[int]) -> np.ndarray:
    """Return the volume, of these lengths along the axes, whose coefficients `_to_k_space` gives.

    The coefficients' memory is used for other things.
    """
    from scipy import fft

    with fft.set_backend("scipy", only=True):
        volume: np.ndarray = fft.irfftn(k_space, lengths, axes=axes, overwrite_x=True, workers=1)
    return volume


def _real_and_imaginary(k_space: np.ndarray) -> np.ndarray:
    """Return a (*shape, 2) float32 view of complex64 coefficients.

    Gains multiply real numbers, each of which is rounded once on every CPU.
    """
    return k_space.view(np.float32).reshape(*k_space.shape, 2)


def _shifted(n: int, frequencies: np.ndarray) -> np.ndarray:
    """Return the numbers that frequencies have, 0 to n - 1, where frequency 0 is in the middle."""
    return (frequencies + n // 2) % n


def extended_length(n: int) -> int:
    """Return how many voxels an axis of n has once it is `extended`: a product of 2s, 3s and 5s.

    Fourier transforms of other lengths take longer. An axis of one voxel stays as it is.
    """
    if n == 1:
        return 1
    length = n + math.ceil(n * _ADDED)
    while _without_small_factors(length) > 1:
        length += 1
    return length


def _without_small_factors(n: int) -> int:
    """Return n divided by 2, 3 and 5 as often as these divide it."""
    for factor in (2, 3, 5):
        while n % factor == 0:
            n //= factor
    return n


@np.errstate(over="ignore", invalid="ignore")
def extended(volume: np.ndarray, axis: int) -> np.ndarray:
    """Return a volume with more voxels after its last one, which lead back to its first one.

    They are its end, mirrored, which fades into its beginning, mirrored.

    Args:
        volume: float32.
        axis: the axis that becomes `extended_length` voxels long.
    """
    n = volume.shape[axis]
    added = extended_length(n) - n
    if added == 0:
        return volume
    steps = np.arange(added)
    part = (steps + 1.0) / (added + 1.0)
    along_axis = [1] * volume.ndim
    along_axis[axis] = -1
    # A cubic with slope 0 at both ends: the fade begins and ends without a kink, which would ring.
    fade = part * part * (3.0 - 2.0 * part)
    share = fade.astype(np.float32).reshape(along_axis)
    bridge = volume.take(n - 1 - steps, axis)
    beginning = volume.take(added - 1 - steps, axis)
    bridge += share * (beginning - bridge)
    return np.concatenate((volume, bridge), axis)


@np.errstate(over="ignore", invalid="ignore")
def filter_axis(volumes: Iterable[np.ndarray], axis: int, gains: np.ndarray) -> np.ndarray:
    """Multiply volumes' k-space by gains along one axis, and return the sum of their images.

    Fourier transforms along the other axes would cancel.

    Args:
        volumes: S arrays of one shape, (X, Y[, Z]), float32.
        axis: the spatial axis.
        gains: (S, n) for the n planes along it, real, frequency 0 in the middle.
    """
    n = gains.shape[1]
    frequencies = np.arange(n // 2 + 1)
    gains_of_frequencies = gains[:, _shifted(n, frequencies)]
    gains_of_negatives = gains[:, _shifted(n, -frequencies)]
    # The image is the real part, in which a frequency and its negative get their mean gain.
    means = (gains_of_frequencies + gains_of_negatives) / 2
    summands = map(partial(_weighted_k_space, axis), volumes, means)
    # The sum is built in the first summand's memory.
    total = next(summands)
    for summand in summands:
        total += summand
        # Free its memory before the next volume is made.
        del summand
    return _from_k_space(total, [n], (axis,))


def _weighted_k_space(axis: int, volume: np.ndarray, gains: np.ndarray) -> np.ndarray:
    """Return k-space along an axis, each frequency from 0 to n // 2 multiplied by its gain."""
    # The gains depend on one axis only: transforms along the others would cancel.
    k_space = _to_k_space(volume, (axis,))
    along_axis = [1] * (volume.ndim + 1)
    along_axis[axis] = -1
    numbers = _real_and_imaginary(k_space)
    # In place: k-space takes twice the volume's memory.
    numbers *= gains.astype(np.float32).reshape(along_axis)
    return k_space


_GHOSTS = fields(
    num_ghosts=gate.integer(),
    axis=gate.axis,
    intensity=number(0),
    restore=gate.optional(number(0, 1)),
)
_SPIKES = fields(positions=gate.many(gate.each_axis(number(0, 1))), intensity=number())


class Ghosting(ChannelTransform):
    """Ghosts along an axis, as periodic motion (breath, pulse) makes them in the phase direction.

    Each ``num_ghosts``-th plane of k-space along the axis, from the first one on, is multiplied by
    ``1 - intensity``; then planes around the middle, at least the central one, are as they were.
    TorchIO's formula and defaults (`RandomGhosting` 1.2).

    Args:
        num_ghosts: a number, or a range (low, high), both included; 0: no effect.
        axes: the spatial axes to draw one from; None for all.
        intensity: >= 0; 1 removes the planes.
        restore: how much of the axis is restored around the middle, 0 to 1; None: the central
            plane.
        p_per_channel: the probability of each channel.
        synchronize_channels: the same ghosts in all channels; else each has its own.

    NaN and infinity spread along the axis. Params: ``{"apply_to_channel": [channels], "ghosts":
    [{"num_ghosts": n, "axis": a, "intensity": s, "restore": r or None} for each of them]}``.
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
        self.axes = checks.optional_axes("axes", axes)
        self.intensity = checks.random_scalar("intensity", intensity, minimum=0)
        self.restore = restore
        if restore is not None:
            self.restore = checks.random_scalar("restore", restore, minimum=0, maximum=1)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        axes = checks.axes_of_sample("axes", self.axes, len(shapes["image"]) - 1)

        def ghosts(_: int | None) -> Params:
            drawn: Params = {
                "num_ghosts": draws.integer_between(rng, *self.num_ghosts),
                "axis": draws.choice(rng, axes),
                "intensity": draws.scalar(rng, self.intensity, context),
                "restore": None,
            }
            if self.restore is not None:
                drawn["restore"] = draws.scalar(rng, self.restore, context)
            return drawn

        return self.draw_channels(rng, shapes, "ghosts", ghosts)

    @takes(**channels_with(ghosts=_GHOSTS))
    def change(self, workspace: Workspace, params: Params) -> None:
        space = workspace["image"].shape[1:]
        changes = {}
        for channel, ghosts in by_channel(params, "ghosts"):
            axis = ghosts["axis"]
            gains = _ghost_gains(space[axis], ghosts)
            # Gains of 1 change nothing: the channel need not be copied.
            if (gains != 1).any():
                changes[channel] = (axis, gains)
        for change, source, destination in workspace.chosen_channels(changes):
            axis, gains = change
            destination[...] = filter_axis([source], axis, gains[None])


def _ghost_gains(n: int, ghosts: Params) -> np.ndarray:
    """Return the gain of each plane along an axis of n voxels, frequency 0 in the middle."""
    gains = np.ones(n)
    if not ghosts["num_ghosts"]:
        return gains
    # Planes at regular distances in k-space make copies at regular distances in the image.
    gains[:: ghosts["num_ghosts"]] = 1.0 - ghosts["intensity"]
    # Lower gains at frequency 0 and around it would change the image's brightness.
    if ghosts["restore"] is None:
        gains[n // 2] = 1.0
    else:
        half = round(ghosts["restore"] * n) // 2
        gains[n // 2 - half : n // 2 + half] = 1.0
    return gains


class Spikes(ChannelTransform):
    """Single coefficients of k-space that are too large: a plane wave for each (herringbone).

    A spike adds ``intensity`` times the largest magnitude in the channel's k-space to one
    coefficient; the image is the real part. TorchIO's formula and defaults (`RandomSpike` 1.2), but
    that each of several spikes is measured by the image as it was given; there, by the image with
    the spikes before it.

    Args:
        num_spikes: a number, or a range (low, high), both included.
        intensity: in parts of the largest magnitude; may be negative.
        p_per_channel: the probability of each channel.
        synchronize_channels: the same spikes in all channels; else each has its own.

    A NaN or an infinity makes its channel NaN. Params: ``{"apply_to_channel": [channels], "spikes":
    [{"positions": [one per axis, 0 to 1, for each spike], "intensity": r} for each of them]}``:
    with frequency 0 in the middle, a spike is at coefficient floor(position * n) of the n along an
    axis.
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

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        axes = shapes["image"][1:]

        def spikes(_: int | None) -> Params:
            positions = []
            for _ in range(draws.integer_between(rng, *self.num_spikes)):
                positions.append([draws.uniform(rng) for _ in axes])
            intensity = draws.scalar(rng, self.intensity, context)
            return {"positions": positions, "intensity": intensity}

        return self.draw_channels(rng, shapes, "spikes", spikes)

    @takes(**channels_with(spikes=_SPIKES))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        spikes_by_channel = {}
        for channel, spikes in by_channel(params, "spikes"):
            # Without a spike the channel stays as it is, and need not be copied.
            if spikes["intensity"] != 0 and spikes["positions"]:
                spikes_by_channel[channel] = spikes
        for spikes, source, destination in workspace.chosen_channels(spikes_by_channel, as_volume):
            # The inverse transform divides by the number of voxels.
            amplitude = spikes["intensity"] * _largest_in_k_space(source) / source.size
            if not math.isfinite(amplitude):
                destination.fill(np.nan)
                continue
            positions = np.array(spikes["positions"])
            waves = list(map(_waves, shape, positions.T))
            no_waves = np.repeat(_NO_WAVE[None], len(positions), 0)
            x, y, z = per_axis(waves, shape, no_waves)
            _add_waves(source, destination, x * amplitude, y, z.astype(np.float32))


def _largest_in_k_space(volume: np.ndarray) -> float:
    """Return the largest absolute value in k-space; not finite where one of the voxels is not."""
    numbers = _real_and_imaginary(_to_k_space(volume, _ALL_AXES))
    # In parts: float64 squares of all of k-space at once would take twice its memory.
    largest_of_parts = []
    for part in _parts(numbers.shape):
        squares = np.square(numbers[part], dtype=np.float64).sum(-1)
        largest_of_parts.append(squares.max())
    # NumPy's maximum, unlike Python's, is NaN if one of the numbers is.
    return math.sqrt(np.max(largest_of_parts))


def _waves(n: int, positions: np.ndarray) -> np.ndarray:
    """Return exp(2 pi i f k / n) of the frequency f at each position.

    Returns:
        (spikes, 2, n): real and imaginary parts.
    """
    # Positions from 0 to 1 count from the lowest frequency, -(n // 2).
    frequencies = np.floor(positions * n).astype(np.int64) - n // 2
    waves: np.ndarray = _roots_of_unity(n)[np.outer(frequencies, np.arange(n)) % n]
    return np.ascontiguousarray(waves.swapaxes(1, 2))


@lru_cache(maxsize=64)
def _roots_of_unity(n: int) -> np.ndarray:
    """Return exp(2 pi i k / n) for k < n as (n, 2) float64: cosine and sine."""
    # Not NumPy's cosines, which differ between CPUs.
    angles = [2.0 * math.pi * k / n for k in range(n)]
    return np.array([(cosine(angle), sine(angle)) for angle in angles])


@np.errstate(over="ignore", invalid="ignore")
def _add_waves(
    source: np.ndarray, destination: np.ndarray, x: np.ndarray, y: np.ndarray, z: np.ndarray
) -> None:
    """Add the sum over s of the real part of ``x[s, i] y[s, j] z[s, k]``; both may be one array."""
    outer = np.multiply.outer
    for part in _parts(source.shape):
        # A part at a time: its waves stay in the cache while all spikes are added.
        changed = destination[part]
        changed[...] = source[part]
        # Complex numbers are multiplied by hand, since NumPy may contract their products.
        for (x_re, x_im), (y_re, y_im), (cosines, sines) in zip(x[..., part], y, z, strict=True):
            re = outer(x_re, y_re) - outer(x_im, y_im)
            im = outer(x_re, y_im) + outer(x_im, y_re)
            real_part = outer(re.astype(np.float32), cosines)
            changed += real_part - outer(im.astype(np.float32), sines)


def _parts(shape: Sequence[int]) -> list[slice]:
    """Return stacks of planes with as many voxels as stay in the cache."""
    step = max(1, 2**15 // math.prod(shape[1:]))
    return [slice(first, first + step) for first in range(0, shape[0], step)]


class GibbsNoise(ChannelTransform):
    """Gibbs ringing: k-space is cut off outside of a ball, so that edges ring.

    MONAI's formula and default (`RandGibbsNoise` 1.6), but the image may be a patch of a larger
    field of view: it is extended beyond its border, mirrored, so that the border does not ring. An
    axis of n voxels has N >= 9 n / 8 coefficients then. The ball's middle is that of the extended
    k-space, (N - 1) / 2; with an even N that is half a coefficient from frequency 0. The ball's
    radius is ``(1 - alpha) * max(shape) / √2`` coefficients of the image itself, each of which is
    N / n coefficients of the extended one. The result is the real part of the image.

    Args:
        alpha: 0 to 1; near 1 the mean alone is left, and at 1 nothing where an N is even.
        p_per_channel: the probability of each channel.
        synchronize_channels: the same alpha for all channels; else each has its own.

    A NaN or an infinity spreads over its channel. Params: ``{"apply_to_channel": [channels],
    "alphas": [one for each]}``.
    """

    def __init__(
        self,
        alpha: RandomScalar = (0, 1),
        p_per_channel: float = 1.0,
        synchronize_channels: bool = True,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.alpha = checks.random_scalar("alpha", alpha, minimum=0, maximum=1)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        return self.draw_scalars(rng, shapes, context, "alphas", self.alpha)

    @takes(**channels_with(alphas=number(0, 1)))
    def change(self, workspace: Workspace, params: Params) -> None:
        space = workspace["image"].shape[1:]
        squares_of_frequencies, _ = _squares_from_middle(space)
        farthest = sum(float(squares.max()) for squares in squares_of_frequencies)
        limits = {}
        for channel, alpha in by_channel(params, "alphas"):
            radius = (1.0 - alpha) * max(space) * math.sqrt(0.5)
            # A ball that contains all of k-space cuts nothing off.
            if radius * radius < farthest:
                limits[channel] = radius * radius
        for limit, source, destination in workspace.chosen_channels(limits, as_volume):
            _cut_off(source, destination, limit)


@np.errstate(over="ignore", invalid="ignore")
def _cut_off(source: np.ndarray, destination: np.ndarray, limit: float) -> None:
    """Keep of a volume's k-space what is in a ball; both may be one array.

    The ball's middle need not be frequency 0, so a frequency may be in it and its negative not.

    Args:
        limit: the square of the ball's radius.
    """
    k_space = _to_k_space(_extended_along_all(source), _ALL_AXES)
    numbers = _real_and_imaginary(k_space)
    sides = _squares_from_middle(source.shape)
    for part in _parts(numbers.shape):
        gains = np.zeros(k_space[part].shape, np.float32)
        for x, y, z in sides:
            gains += x[part, None, None] + y[:, None] + z <= limit
        # The mean of the gains of a frequency and its negative, each of which is 0 or 1.
        numbers[part] *= np.float32(0.5) * gains[..., None]
    # From half of k-space SciPy cannot tell whether the last axis is even or odd.
    lengths = [extended_length(n) for n in source.shape]
    image = _from_k_space(k_space, lengths, _ALL_AXES)
    destination[...] = image[tuple(map(slice, source.shape))]


def _extended_along_all(volume: np.ndarray) -> np.ndarray:
    """Return a volume `extended` along each of its axes."""
    for axis in _ALL_AXES:
        volume = extended(volume, axis)
    return volume


def _squares_from_middle(space: Sequence[int]) -> list[list[np.ndarray]]:
    """Return squares of distances from the middle of half of an extended image's k-space.

    Returns:
        Of each frequency, and of its negative: an array per axis, in coefficients of the image.
    """
    lengths = [extended_length(n) for n in space]
    sides = []
    for sign in (1, -1):
        squares = []
        for axis, (n, length) in enumerate(zip(space, lengths, strict=True)):
            num_frequencies = length
            # `_to_k_space` returns only one half of the last axis.
            if axis == len(space) - 1:
                num_frequencies = length // 2 + 1
            numbers = _shifted(length, sign * np.arange(num_frequencies))
            distances = (numbers - (length - 1) / 2) * (n / length)
            squares.append(distances * distances)
        sides.append(squares)
    return sides
