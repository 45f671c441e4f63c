"""Intensity changes that are strongest in one place and fade away from it like a Gaussian."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy as np

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

_NOTHING = 2.0**-150  # rounds to 0 in float32
_ONE = np.float32(1)
#: What a window's params may be: where its middle is, in parts of the axes, and its standard
#: deviations in voxels.
WINDOW = {"loc": each_axis(number(-1e6, 1e6)), "scale": each_axis(number(1e-6, 1e9))}
WINDOWS = each_channel(gate.optional(gate.fields(**WINDOW)))
NUMBERS = where_not_none("kernels", number())


def _check_sigma(given: ParamContext, value: Any) -> None:
    if value is not None or any(window is not None for window in given.params["kernels"]):
        gate.SIGMA(given, value)


class LocalWindow:
    """A Gaussian's share of every voxel, shifted and scaled to 0 ... 1 over the image, held as one
    factor per axis.

    Far from the Gaussian's centre it saturates where batchgeneratorsv2's does: if the image's first
    face is more than 8.2 standard deviations above the centre along any axis, or the largest share
    is below float32's least number, 1.4e-45, then there is nothing
    (`detaug.kernels.windows.window_factors`).

    Args:
        shape: the image's spatial shape.
        loc: the Gaussian's centre along each axis, in parts of the axis' length.
        scale: its standard deviation along each axis, in voxels, > 0.

    Attributes:
        arguments: factors along X and Y, drop along Z, least product, as kernels take them.
        is_flat: whether all voxels have the same share, or none; then the window is 0 everywhere.
    """

    def __init__(self, shape: Sequence[int], loc: Sequence[float], scale: Sequence[float]) -> None:
        self._factors: list[np.ndarray] = []
        self._least = largest = 1.0
        for n, where, width in zip(shape, loc, scale, strict=True):
            factors = np.empty(n)
            largest *= window_factors(factors, float(where) * n, float(width))
            self._least *= float(factors.min())
            self._factors.append(factors)
        self.is_flat = self._least >= 1.0 or largest < _NOTHING
        if not self.is_flat:
            x, y, z = per_axis(self._factors, shape, np.ones(1))
            self.arguments = x, y, ((1.0 - z) / (1.0 - self._least)).astype(np.float32), self._least

    def mean(self) -> float:
        """The window's mean over all voxels."""
        if self.is_flat:
            return 0.0
        product = 1.0
        for factors in self._factors:
            # one after another: NumPy's order of additions depends on the CPU's vectors
            product *= reduce(add, factors.tolist()) / len(factors)
        return (product - self._least) / (1.0 - self._least)

    def values(self, mean_centered: bool = False) -> np.ndarray:
        """The window as a float32 array of the image's spatial shape, for callables that ask for
        it.
        """
        product = reduce(np.multiply.outer, self._factors)
        if self.is_flat:
            return np.zeros(product.shape, np.float32)
        window = (product - self._least) / (1.0 - self._least)
        return (window - (self.mean() if mean_centered else 0.0)).astype(np.float32)


class _LocalTransform(ImageTransform):
    """A transform with one window and one number for every channel that it changes."""

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

    def draw_applied(self, rng: np.random.Generator, shapes: Shapes) -> list[bool]:
        return [draws.happens(rng, self.p_per_channel) for _ in range(shapes["image"][0])]

    def draw_windows(
        self,
        rng: np.random.Generator,
        applied: Sequence[bool],
        shapes: Shapes,
        wanted: RandomScalar,
        context: Context,
    ) -> tuple[list[Any], list[Any]]:
        """Each channel's window and number, or None and None: one for all of them, or each its own."""
        shape = tuple(shapes["image"][1:])

        def drawn() -> tuple[dict[str, Any], float]:
            loc, scale = [], []
            for d in range(len(shape)):
                offered = {**context, "shape": shape, "dim": d}
                loc.append(draws.scalar(rng, self.loc, offered))
                scale.append(draws.scalar(rng, self.scale, offered))
                if scale[d] <= 0.0:
                    raise ValueError(f"scale must be greater than 0, got {scale[d]!r}")
            offered = dict(context)
            if asks_for(wanted, "kernel"):
                centred = bool(getattr(self, "mean_centered", False))
                offered["kernel"] = LocalWindow(shape, loc, scale).values(centred)
            return {"loc": loc, "scale": scale}, draws.scalar(rng, wanted, offered)

        common = drawn() if self.same_for_all_channels and any(applied) else None
        found = [(common or drawn()) if each else (None, None) for each in applied]
        return [window for window, _ in found], [number for _, number in found]


def _effective(
    workspace: Workspace, kernels: Sequence[Any], numbers: Sequence[Any], *, without_effect: float
) -> Iterator[tuple[np.ndarray, np.ndarray, LocalWindow, float]]:
    """Those channels that they change, before and after, as (X, Y * Z); and each one's window and
    number.
    """
    found = {}
    for c, (wanted, strength) in enumerate(zip(kernels, numbers, strict=True)):
        if wanted is not None and strength != without_effect:
            window = LocalWindow(workspace["image"].shape[1:], wanted["loc"], wanted["scale"])
            if not window.is_flat:
                found[c] = window, float(strength)
    for c, before, after in workspace.chosen_channels(found, flat_planes):
        yield before, after, *found[c]


class BrightnessGradientAdditive(_LocalTransform):
    """Adds a Gaussian window, scaled so that its largest absolute value is ``max_strength``.

    Args:
        scale: the Gaussian's standard deviation in voxels, > 0, drawn per axis. A callable may ask
            for ``shape``, the spatial shape, and ``dim``; one with other argument names gets these
            two by position.
        loc: where its centre is along each axis, in parts of the axis' length (0 is the first
            voxel).
        max_strength: the largest change, in intensity units. A callable may ask for ``image`` and
            ``kernel``, the window as float32 array; one with other argument names gets these two by
            position.
        same_for_all_channels: one window and strength for all channels that are changed.
        mean_centered: subtract the window's mean first, so that the image's mean stays.
        clip_intensities: limit the result to the least and largest value of the whole image before.
        p_per_channel: the probability of each channel.

    NaN stays where it is. Params: ``{"kernels": [one per channel: None or {"loc": [...], "scale":
        [...], "strength":
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

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        windows, strengths = self.draw_windows(
            rng, self.draw_applied(rng, shapes), shapes, self.max_strength, context
        )
        pairs = zip(windows, strengths, strict=True)
        return {"kernels": [None if w is None else {**w, "strength": s} for w, s in pairs]}

    @takes(kernels=each_channel(gate.optional(gate.fields(**WINDOW, strength=number()))))
    def change(self, workspace: Workspace, params: Params) -> None:
        strengths = [each and each["strength"] for each in params["kernels"]]
        if self.clip_intensities:
            every = np.ascontiguousarray(workspace["image"], np.float32)
            limits = [least_and_largest(flat_planes(channel)) for channel in every]
            low, high = min(each[0] for each in limits), max(each[1] for each in limits)
        for before, after, window, strength in _effective(
            workspace, params["kernels"], strengths, without_effect=0.0
        ):
            whole = np.ones((1, before.shape[1]), np.float32)
            mean = window.mean() if self.mean_centered else 0.0
            peak = max(abs(1.0 - mean), abs(mean))
            offset, slope = -mean * strength / peak, strength / peak
            add_windowed(before, after, whole, *window.arguments, offset, slope, _ONE)
            if self.clip_intensities:
                clamp(after.reshape(-1), np.float32(low), np.float32(high))

    kernels = (window_factors, add_windowed, least_and_largest, clamp)


class LocalContrast(_LocalTransform):
    """Scales the distance from the mean by ``new_contrast``, as much as a Gaussian window says.

    The mean is the one weighted by the window, so that a voxel becomes ``x + w (new_contrast - 1)
    (x - mean)``.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `BrightnessGradientAdditive`.
        new_contrast: the factor where the window is 1.

    A NaN makes its whole channel NaN. Params: ``{"kernels": [one per channel: None or {"loc":
        [...], "scale": [...]}],
    "contrasts": [one per channel: None or the factor]}``.
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

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        windows, contrasts = self.draw_windows(
            rng, self.draw_applied(rng, shapes), shapes, self.new_contrast, context
        )
        return {"kernels": windows, "contrasts": contrasts}

    @takes(kernels=WINDOWS, contrasts=NUMBERS)
    def change(self, workspace: Workspace, params: Params) -> None:
        chosen = _effective(workspace, params["kernels"], params["contrasts"], without_effect=1.0)
        for before, after, window, contrast in chosen:
            mean = windowed_sum(before, *window.arguments) / (window.mean() * before.size + 1e-8)
            add_windowed(
                before,
                after,
                _less(before, np.float32(mean)),
                *window.arguments,
                0.0,
                contrast - 1.0,
                _ONE,
            )

    kernels = (window_factors, windowed_sum, add_windowed)


class LocalGamma(_LocalTransform):
    """Raises intensities, scaled to 0 ... 1 per channel, to the power ``gamma``, as much as a
    Gaussian window says.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `BrightnessGradientAdditive`.
        gamma: the exponent where the window is 1; above 0 and at most 64; beyond, a ValueError.

    NaN stays where it is; an infinity makes its whole channel NaN. Params: ``{"kernels": [one per
    channel: None or {"loc": [...], "scale": [...]}], "gammas": [one per channel: None or the
        exponent]}``.
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

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        windows, gammas = self.draw_windows(
            rng, self.draw_applied(rng, shapes), shapes, self.gamma, context
        )
        return {"kernels": windows, "gammas": gammas}

    @takes(kernels=WINDOWS, gammas=where_not_none("kernels", gate.EXPONENT))
    def change(self, workspace: Workspace, params: Params) -> None:
        chosen = _effective(workspace, params["kernels"], params["gammas"], without_effect=1.0)
        for before, after, window, gamma in chosen:
            low, high = (np.float32(limit) for limit in least_and_largest(before))
            extent = max(np.float32(high - low), np.float32(1e-8))
            change = np.empty_like(before)
            change_by_power(before, change, low, extent, np.float32(gamma))
            add_windowed(before, after, change, *window.arguments, 0.0, 1.0, extent)

    kernels = (window_factors, least_and_largest, change_by_power, add_windowed)


class LocalSmoothing(_LocalTransform):
    """Blurs with a Gaussian, as much as ``smoothing_strength`` times a Gaussian window says.

    The blur is SciPy's ``gaussian_filter``: cut off at 4 sigma, mirrored at the outermost voxels'
    outer faces.

    Args:
        scale, loc, same_for_all_channels, p_per_channel: see `BrightnessGradientAdditive`.
        smoothing_strength: the blurred image's weight where the window is 1.
        kernel_size: the blur's sigma in voxels, >= 0, the same in all channels and along all axes.

    NaN and infinity spread as far as the blur reaches. Params: ``{"kernels": [one per channel: None
        or {"loc": [...],
    "scale": [...]}], "sigma": the blur's or None, "strengths": [one per channel: None or the
    weight]}``.
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

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        applied = self.draw_applied(rng, shapes)
        sigma = draws.scalar(rng, self.kernel_size, context) if any(applied) else None
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
        weights = gaussian_weights(sigma, radius)
        each = per_axis([weights] * len(shape), shape, np.ones(1, np.float32))
        volume = per_axis(shape, shape, 1)
        chosen = _effective(workspace, params["kernels"], params["strengths"], without_effect=0.0)
        for before, after, window, strength in chosen:
            middle = np.float32(moments(before.reshape(-1))[2])
            if not np.isfinite(middle):
                middle = np.float32(0)
            around = _less(
                before, middle
            )  # so that a large offset of all values costs sums no bits
            blurred = np.empty(volume, np.float32)
            convolve(around.reshape(volume), each, "symmetric", blurred)
            blurred = blurred.reshape(before.shape)
            add_windowed(
                before, after, _less(blurred, around), *window.arguments, 0.0, strength, _ONE
            )

    kernels = (window_factors, moments, pick, convolve_padded, add_windowed)


@np.errstate(invalid="ignore", over="ignore")
def _less(values: np.ndarray, middle: Any) -> np.ndarray:
    changed: np.ndarray = values - middle
    return changed
