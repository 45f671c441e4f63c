"""What local transforms share: where their windows are, and which channels they change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detaug.transforms.building import draws
from detaug.transforms.building.base import ImageTransform
from detaug.transforms.building.checks import finite, probability, random_scalar
from detaug.transforms.building.draws import RandomScalar, asked_by_name, asks_for
from detaug.transforms.building.gate import each_axis, number
from detaug.transforms.local_window import LocalWindow

_LEAST_SCALE, _LARGEST_SCALE = 1e-6, 1e9
#: What a window's params may be: where its middle is, in parts of the axes, and its standard deviations in voxels.
WINDOW = {"loc": each_axis(number(-1e6, 1e6)), "scale": each_axis(number(_LEAST_SCALE, _LARGEST_SCALE))}


class LocalTransform(ImageTransform):
    """A transform with one window and one number for every channel that it changes."""

    def __init__(
        self, scale: RandomScalar, loc: RandomScalar, same_for_all_channels: bool, p_per_channel: float
    ) -> None:
        self.scale = asked_by_name(random_scalar("scale", scale, above=0), ("shape", "dim"))
        self.loc = asked_by_name(random_scalar("loc", loc), ("shape", "dim"))
        self.same_for_all_channels = same_for_all_channels
        self.p_per_channel = probability("p_per_channel", p_per_channel)

    def _window(self, rng: np.random.Generator, shape: Sequence[int], context: Mapping[str, Any]) -> dict[str, Any]:
        loc, scale = [], []
        for d in range(len(shape)):
            offered = {**context, "shape": tuple(shape), "dim": d}
            loc.append(draws.scalar(rng, self.loc, offered))
            scale.append(positive("scale", draws.scalar(rng, self.scale, offered)))
        return {"loc": loc, "scale": scale}

    def _drawn(
        self, rng: np.random.Generator, shape: Sequence[int], wanted: RandomScalar, context: Mapping[str, Any]
    ) -> tuple[dict[str, Any], float]:
        window = self._window(rng, shape, context)
        if asks_for(wanted, "kernel"):
            centred = bool(getattr(self, "mean_centered", False))
            context = {**context, "kernel": LocalWindow(shape, window["loc"], window["scale"]).values(centred)}
        return window, draws.scalar(rng, wanted, context)

    def draw_channels(
        self,
        rng: np.random.Generator,
        applied: Sequence[bool],
        shape: Sequence[int],
        wanted: RandomScalar,
        context: Mapping[str, Any],
    ) -> tuple[list[Any], list[Any]]:
        """Each channel's window and number, or None and None: one for all of them, or each its own."""
        common = self._drawn(rng, shape, wanted, context) if self.same_for_all_channels and any(applied) else None
        found = [(common or self._drawn(rng, shape, wanted, context)) if each else (None, None) for each in applied]
        return [window for window, _ in found], [number for _, number in found]

    def channels_applied(self, rng: np.random.Generator, channels: int) -> list[bool]:
        return [draws.happens(rng, self.p_per_channel) for _ in range(channels)]


def effective_windows(
    shape: Sequence[int], kernels: Sequence[Any], numbers: Sequence[Any], *, without_effect: float
) -> dict[int, tuple[LocalWindow, float]]:
    """Window and number of those channels that they change."""
    found = {}
    for c, (wanted, strength) in enumerate(zip(kernels, numbers, strict=True)):
        if wanted is not None and strength != without_effect:
            window = LocalWindow(shape, wanted["loc"], wanted["scale"])
            if not window.is_flat:
                found[c] = window, float(strength)
    return found


def positive(name: str, value: float) -> float:
    if finite(name, value) <= 0.0:
        raise ValueError(f"{name} must be greater than 0, got {value!r}")
    return value
