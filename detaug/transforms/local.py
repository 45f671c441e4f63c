"""Intensity changes that are strongest at one point and fade away from it like a Gaussian."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.random import Generator

from detaug.kernels.convolution import convolve, convolve_padded
from detaug.kernels.intensity import clamp
from detaug.kernels.statistics import least_and_largest, moments
from detaug.kernels.voxels import pick
from detaug.kernels.windows import add_windowed, change_by_power, window_factors, windowed_sum
from detaug.transforms.blur import gaussian_weights
from detaug.transforms.building import draws, gate
from detaug.transforms.building.base import Context, ImageTransform, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import probability, random_scalar
from detaug.transforms.building.draws import asked_by_name, asks_for
from detaug.transforms.building.gate import (
    ParamContext,
    each_axis,
    each_channel,
    number,
    takes,
    where_not_none,
)
from detaug.transforms.building.per_channel import flat_planes, per_axis
from detaug.transforms.building.workspace import Workspace

#: Half of the least float32: it rounds to 0 in float32.
_ZERO_IN_FLOAT32 = 2.0**-150
#: So that nothing is divided by 0; batchgeneratorsv2's.
_LEAST_DIVISOR = 1e-8
_ONE = np.float32(1)
#: A window's params: its centre, in fractions of the axes, and its standard deviations in voxels.
WINDOW = {"loc": each_axis(number(-1e6, 1e6)), "scale": each_axis(number(1e-6, 1e9))}
WINDOWS = each_channel(gate.optional(gate.fields(**WINDOW)))
NUMBERS = where_not_none("kernels", number())


def _check_sigma(context: ParamContext, value: Any) -> None:
    """Accept None if no channel has a window."""
    # Without a window nothing is blurred, so that no sigma was drawn.
    has_window = any(window is not None for window in context.params["kernels"])
    if value is not None or has_window:
        gate.SIGMA(context, value)


class LocalWindow:
    """A Gaussian, shifted and scaled to 0 ... 1 over the image, kept as one factor per axis.

    Far from the Gaussian's centre it saturates where batchgeneratorsv2's does: it is 0 everywhere
    if the image's first face is more than 8.2 standard deviations above the centre along any axis,
    or if the largest value is below float32's least number, 1.4e-45
    (`detaug.kernels.windows.window_factors`).

    Args:
        shape: the image's spatial shape.
        loc: the Gaussian's centre along each axis, as a fraction of the axis' length.
        scale: its standard deviation along each axis, in voxels, > 0.

    Attributes:
        arguments: factors along X and Y, drop along Z, least product, as kernels take them.
        is_flat: the window is 0 everywhere: the Gaussian is the same for all voxels, or 0.
    """

    def __init__(self, shape: Sequence[int], loc: Sequence[float], scale: Sequence[float]) -> None:
        self._factors: list[np.ndarray] = []
        self._least = 1.0
        largest = 1.0
        for length, center, deviation in zip(shape, loc, scale, strict=True):
            # One factor per axis instead of a volume: kernels multiply them voxel by voxel.
            factors = np.empty(length)
            largest *= window_factors(factors, float(center) * length, float(deviation))
            self._least *= float(factors.min())
            self._factors.append(factors)
        self.is_flat = self._least >= 1.0 or largest < _ZERO_IN_FLOAT32
        if self.is_flat:
            return
        x, y, z = per_axis(self._factors, shape, np.ones(1))
        drop = ((1.0 - z) / (1.0 - self._least)).astype(np.float32)
        self.arguments = (x, y, drop, self._least)

    def mean(self) -> float:
        """Return the window's mean over all voxels."""
        if self.is_flat:
            return 0.0
        product = 1.0
        for factors in self._factors:
            # One after another: the order of NumPy's additions depends on the CPU's vectors.
            product *= reduce(add, factors.tolist()) / len(factors)
        return (product - self._least) / (1.0 - self._least)

    def values(self, mean_centered: bool) -> np.ndarray:
        """Return the window as float32 (X, Y[, Z]), for callables that take it.

        Args:
            mean_centered: subtract the window's mean.
        """
        # Only users' callables need the whole volume; kernels multiply the factors themselves.
        product = reduce(np.multiply.outer, self._factors)
        if self.is_flat:
            # Such a window has no effect, and cannot be scaled to 0 ... 1.
            return np.zeros(product.shape, np.float32)
        window = (product - self._least) / (1.0 - self._least)
        if mean_centered:
            window = window - self.mean()
        return window.astype(np.float32)


class _LocalTransform(ImageTransform):
    """A transform with one window and one number for every channel that it changes.

    Attributes:
        mean_centered: the window's mean is subtracted from it.
    """

    mean_centered = False

    def __init__(
        self,
        scale: RandomScalar,
        loc: RandomScalar,
        same_for_all_channels: bool,
        p_per_channel: float,
    ) -> None:
        self.scale = asked_by_name(random_scalar("scale", scale, above=0), ("shape", "dim"))
        self.loc = asked_by_name(random_scalar("loc", loc), ("shape", "dim"))
        self.same_for_all_channels = same_for_all_channels
        self.p_per_channel = probability("p_per_channel", p_per_channel)

    def draw_windows(
        self,
        rng: Generator,
        applied: Sequence[bool],
        shapes: Shapes,
        wanted: RandomScalar,
        context: Context,
    ) -> tuple[list[Any], list[Any]]:
        """Draw a window and a number for each channel, or one of both for all channels.

        Args:
            rng: the Generator to draw from.
            applied: the channels that are changed; the others get None and None.
            shapes: the arrays' shapes by role, (C, X, Y[, Z]).
            wanted: the number; a callable may take ``kernel``, the window.
            context: as for `Transform.draw`.

        Returns:
            The windows' params, and the numbers.
        """
        shape = tuple(shapes["image"][1:])
        windows: list[Any] = []
        numbers: list[Any] = []
        window = None
        value = None
        for is_applied in applied:
            if not is_applied:
                windows.append(None)
                numbers.append(None)
                continue
            if window is None or not self.same_for_all_channels:
                window, value = self._draw_window(rng, shape, wanted, context)
            windows.append(window)
            numbers.append(value)
        return windows, numbers

    def _draw_window(
        self,
        rng: Generator,
        shape: tuple[int, ...],
        wanted: RandomScalar,
        context: Context,
    ) -> tuple[dict[str, Any], float]:
        """Draw the params of one window, and its number."""
        loc = []
        scale = []
        for axis in range(len(shape)):
            offered = {**context, "shape": shape, "dim": axis}
            # Both are drawn for one axis, then for the next: a seed's params depend on the order.
            loc.append(draws.scalar(rng, self.loc, offered))
            scale.append(draws.scalar(rng, self.scale, offered))
            # Only a callable can return this: the constructor has checked numbers.
            if scale[axis] <= 0.0:
                raise ValueError(f"scale must be greater than 0, got {scale[axis]!r}")
        offered = dict(context)
        if asks_for(wanted, "kernel"):
            window = LocalWindow(shape, loc, scale)
            offered["kernel"] = window.values(bool(self.mean_centered))
        return {"loc": loc, "scale": scale}, draws.scalar(rng, wanted, offered)


def _effective(
    workspace: Workspace, kernels: Sequence[Any], numbers: Sequence[Any], *, without_effect: float
) -> Iterator[tuple[np.ndarray, np.ndarray, LocalWindow, float]]:
    """Yield the channels that change, with their window and number.

    Args:
        workspace: the sample.
        kernels: each channel's window params, or None.
        numbers: each channel's number, or None.
        without_effect: the number that changes nothing.

    Yields:
        source (X, Y * Z), destination (X, Y * Z), window, number.
    """
    changes = {}
    # Read from the shapes, so that a lazy image is not read unless a channel changes.
    shape = workspace.shapes()["image"][1:]
    for channel, (params, value) in enumerate(zip(kernels, numbers, strict=True)):
        # Making a window takes time, and this channel does not change.
        if params is None or value == without_effect:
            continue
        window = LocalWindow(shape, params["loc"], params["scale"])
        if not window.is_flat:
            changes[channel] = (window, float(value))
    for change, before, after in workspace.chosen_channels(changes, flat_planes):
        yield (before, after, *change)


class BrightnessGradientAdditive(_LocalTransform):
    """The image plus a Gaussian window, scaled to a largest absolute value of ``max_strength``.

    Args:
        scale: the Gaussian's standard deviation in voxels, > 0, drawn per axis. A callable may take
            ``shape``, the spatial shape, and ``dim``; one with other argument names gets these two
            by position.
        loc: its centre along each axis, as a fraction of the axis' length (0 is the first voxel).
        max_strength: the largest change, in intensity units. A callable may take ``image`` and
            ``kernel``, the window as float32 array; one with other argument names gets these two by
            position.
        same_for_all_channels: one window and strength for all channels that are changed.
        mean_centered: subtract the window's mean first, so that the image's mean stays.
        clip_intensities: limit the result to the range that the whole image had before.
        p_per_channel: the probability of each channel.

    NaN stays where it is.

    Params: ``{"kernels": [one per channel: None or {"loc": [...], "scale": [...], "strength":
    s}]}``.
    """

    def __init__(
        self,
        scale: RandomScalar,
        loc: RandomScalar = (-1, 2),
        max_strength: RandomScalar = 1.0,
        same_for_all_channels: bool = True,
        mean_centered: bool = True,
        clip_intensities: bool = False,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(scale, loc, same_for_all_channels, p_per_channel)
        self.max_strength = asked_by_name(
            random_scalar("max_strength", max_strength), ("image", "kernel")
        )
        self.mean_centered = mean_centered
        self.clip_intensities = clip_intensities

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        applied = draws.flags(rng, self.p_per_channel, shapes["image"][0])
        windows, strengths = self.draw_windows(rng, applied, shapes, self.max_strength, context)
        kernels: list[Params | None] = []
        for window, strength in zip(windows, strengths, strict=True):
            if window is None:
                kernels.append(None)
            else:
                kernels.append({**window, "strength": strength})
        return {"kernels": kernels}

    @takes(kernels=each_channel(gate.optional(gate.fields(**WINDOW, strength=number()))))
    def change(self, workspace: Workspace, params: Params) -> None:
        strengths: list[float | None] = []
        for kernel in params["kernels"]:
            strengths.append(None if kernel is None else kernel["strength"])
        low = math.inf
        high = -math.inf
        if self.clip_intensities:
            # The range is that of the whole image, before any of its channels changes.
            for channel in workspace.contiguous("image"):
                channel_low, channel_high = least_and_largest(flat_planes(channel))
                low = min(low, channel_low)
                high = max(high, channel_high)
        chosen = _effective(workspace, params["kernels"], strengths, without_effect=0.0)
        for before, after, window, strength in chosen:
            # The change is the same for all intensities, so that the factor of each voxel is 1. One
            # plane serves all.
            ones = np.ones((1, before.shape[1]), np.float32)
            mean = 0.0
            if self.mean_centered:
                mean = window.mean()
            # The centred window runs from -mean to 1 - mean: this is its largest absolute value.
            peak = max(abs(1.0 - mean), abs(mean))
            offset = -mean * strength / peak
            slope = strength / peak
            add_windowed(before, after, ones, *window.arguments, offset, slope, _ONE)
            if self.clip_intensities:
                clamp(after.reshape(-1), np.float32(low), np.float32(high))

    kernels = (window_factors, add_windowed, least_and_largest, clamp)


class LocalContrast(_LocalTransform):
    """The distance from the mean times ``new_contrast``, weighted by a Gaussian window.

    The mean is weighted by the window, too: a voxel becomes ``x + w (new_contrast - 1) (x -
    mean)``.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `BrightnessGradientAdditive`.
        new_contrast: the factor where the window is 1.

    A NaN makes its whole channel NaN.

    Params: ``{"kernels": [one per channel: None or {"loc": [...], "scale": [...]}], "contrasts":
    [one per channel: None or the factor]}``.
    """

    def __init__(
        self,
        scale: RandomScalar,
        loc: RandomScalar = (-1, 2),
        new_contrast: RandomScalar = (0.5, 1.5),
        same_for_all_channels: bool = True,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(scale, loc, same_for_all_channels, p_per_channel)
        self.new_contrast = random_scalar("new_contrast", new_contrast)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        applied = draws.flags(rng, self.p_per_channel, shapes["image"][0])
        windows, contrasts = self.draw_windows(rng, applied, shapes, self.new_contrast, context)
        return {"kernels": windows, "contrasts": contrasts}

    @takes(kernels=WINDOWS, contrasts=NUMBERS)
    def change(self, workspace: Workspace, params: Params) -> None:
        chosen = _effective(workspace, params["kernels"], params["contrasts"], without_effect=1.0)
        for before, after, window, contrast in chosen:
            sum_of_weights = window.mean() * before.size + _LEAST_DIVISOR
            mean = windowed_sum(before, *window.arguments) / sum_of_weights
            # Computed before the kernel writes, since before and after may be one array.
            distance = _difference(before, np.float32(mean))
            add_windowed(before, after, distance, *window.arguments, 0.0, contrast - 1.0, _ONE)

    kernels = (window_factors, windowed_sum, add_windowed)


class LocalGamma(_LocalTransform):
    """Intensities, scaled to 0 ... 1, to the power ``gamma``, weighted by a Gaussian window.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `BrightnessGradientAdditive`.
        gamma: the exponent where the window is 1; above 0 and at most 64; beyond, a ValueError.

    NaN stays where it is; an infinity makes its whole channel NaN.

    Params: ``{"kernels": [one per channel: None or {"loc": [...], "scale": [...]}], "gammas": [one
    per channel: None or the exponent]}``.
    """

    def __init__(
        self,
        scale: RandomScalar,
        loc: RandomScalar = (-1, 2),
        gamma: RandomScalar = (0.5, 1),
        same_for_all_channels: bool = True,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(scale, loc, same_for_all_channels, p_per_channel)
        self.gamma = random_scalar("gamma", gamma, above=0, maximum=gate.LARGEST_EXPONENT)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        applied = draws.flags(rng, self.p_per_channel, shapes["image"][0])
        windows, gammas = self.draw_windows(rng, applied, shapes, self.gamma, context)
        return {"kernels": windows, "gammas": gammas}

    @takes(kernels=WINDOWS, gammas=where_not_none("kernels", gate.EXPONENT))
    def change(self, workspace: Workspace, params: Params) -> None:
        chosen = _effective(workspace, params["kernels"], params["gammas"], without_effect=1.0)
        for before, after, window, gamma in chosen:
            least, largest = least_and_largest(before)
            low = np.float32(least)
            high = np.float32(largest)
            extent = max(np.float32(high - low), np.float32(_LEAST_DIVISOR))
            change = np.empty_like(before)
            change_by_power(before, change, low, extent, np.float32(gamma))
            # The change is for intensities from 0 to 1: the factor `extent` scales it back.
            add_windowed(before, after, change, *window.arguments, 0.0, 1.0, extent)

    kernels = (window_factors, least_and_largest, change_by_power, add_windowed)


class LocalSmoothing(_LocalTransform):
    """A blur with a Gaussian, weighted by ``smoothing_strength`` times a Gaussian window.

    The blur is SciPy's ``gaussian_filter``: cut off at 4 sigma, mirrored at the outermost voxels'
    outer faces.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `BrightnessGradientAdditive`.
        smoothing_strength: the blurred image's weight where the window is 1.
        kernel_size: the blur's sigma in voxels, >= 0, the same in all channels and along all axes.

    NaN and infinity spread as far as the blur reaches.

    Params: ``{"kernels": [one per channel: None or {"loc": [...], "scale": [...]}], "sigma": the
    blur's or None, "strengths": [one per channel: None or the weight]}``.
    """

    def __init__(
        self,
        scale: RandomScalar,
        loc: RandomScalar = (-1, 2),
        smoothing_strength: RandomScalar = (0.5, 1.0),
        kernel_size: RandomScalar = (0.5, 1.5),
        same_for_all_channels: bool = True,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(scale, loc, same_for_all_channels, p_per_channel)
        self.smoothing_strength = random_scalar("smoothing_strength", smoothing_strength)
        self.kernel_size = random_scalar(
            "kernel_size", kernel_size, minimum=0, maximum=gate.LARGEST_SIGMA
        )

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        applied = draws.flags(rng, self.p_per_channel, shapes["image"][0])
        sigma = None
        if any(applied):
            sigma = draws.scalar(rng, self.kernel_size, context)
        windows, strengths = self.draw_windows(
            rng, applied, shapes, self.smoothing_strength, context
        )
        return {"kernels": windows, "sigma": sigma, "strengths": strengths}

    @takes(kernels=WINDOWS, sigma=_check_sigma, strengths=NUMBERS)
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        sigma = float(params["sigma"] or 0.0)
        radius = int(4.0 * sigma + 0.5)
        if radius == 0:
            return
        # The weights are the same along every axis and for every channel.
        weights = gaussian_weights(sigma, radius)
        axis_weights = per_axis([weights] * len(shape), shape, np.ones(1, np.float32))
        volume = per_axis(shape, shape, 1)
        chosen = _effective(workspace, params["kernels"], params["strengths"], without_effect=0.0)
        for before, after, window, strength in chosen:
            # The mean is subtracted, because a large offset would cost the sums precision.
            _, _, mean, _ = moments(before.reshape(-1))
            middle = np.float32(mean)
            if not np.isfinite(middle):
                middle = np.float32(0)
            centered = _difference(before, middle)
            blurred = np.empty(volume, np.float32)
            convolve(centered.reshape(volume), axis_weights, "symmetric", blurred)
            blurred = blurred.reshape(before.shape)
            # The change has no name: a name would keep it in memory beside the next channel's.
            add_windowed(
                before,
                after,
                _difference(blurred, centered),
                *window.arguments,
                0.0,
                strength,
                _ONE,
            )

    kernels = (window_factors, moments, pick, convolve_padded, add_windowed)


@np.errstate(invalid="ignore", over="ignore")
def _difference(values: np.ndarray, other: Any) -> np.ndarray:
    """Return values - other, without a warning for infinities."""
    difference: np.ndarray = values - other
    return difference
