"""The slow change of brightness over an MR image that an uneven field of the receiving coil makes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from detaug.kernels.intensity import multiply_by_field
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, RandomScalar, Shapes
from detaug.transforms.building.checks import integer, one_of, random_scalar
from detaug.transforms.building.gate import ParamContext, channels_with, many, number, takes
from detaug.transforms.building.per_channel import (
    ChannelTransform,
    by_channel,
    flat_planes,
    per_axis,
)
from detaug.transforms.building.workspace import Workspace

_CENTRE = np.zeros(1)


def _terms(given: ParamContext) -> int:
    return len(_degrees(given.transform.order, given.dims()))


class BiasField(ChannelTransform):
    """Multiplies channels by ``exp(Σ c_ijk P_i(x) P_j(y) P_k(z))``, the sum over all i + j + k <=
    order.

    x, y and z run from -1 at an axis' first voxel to 1 at its last one; an axis of one voxel is at
    0. P_n is the n-th power, or Legendre's polynomial of degree n. The model is that of Van Leemput
       et al., "Automated model-based bias field
    correction of MR images of the brain" (IEEE TMI 18, 1999). Defaults are those of TorchIO's
    ``RandomBiasField``; MONAI's ``RandBiasField`` is ``BiasField((0, 0.1), basis="legendre")``.

    Args:
        coefficients: each of them. A callable may ask for ``channel``, which is None where channels
            are synchronised.
        order: the highest degree, 0 to 10.
        basis: "powers" or "legendre".
        synchronize_channels: one field for all channels; else one for each.
        p_per_channel: the probability of each channel.

    NaN and infinity stay what they are. Params: ``{"apply_to_channel": [channels], "coefficients":
        [[...] for each of
    them]}``; coefficients are in the order of ``(i, j, k)``, the last index changing fastest (20
    for order 3 in 3-D, 10 in 2-D).

    Raises:
        ValueError: an order or basis that there is not; from `apply`, a wrong number of
            coefficients.
    """

    def __init__(
        self,
        coefficients: RandomScalar = (-0.5, 0.5),
        order: int = 3,
        basis: str = "powers",
        synchronize_channels: bool = True,
        p_per_channel: float = 1.0,
    ) -> None:
        super().__init__(p_per_channel, synchronize_channels)
        self.coefficients = random_scalar("coefficients", coefficients)
        self.order = integer("order", order, 0, 10)
        self.basis = one_of("basis", basis, ("powers", "legendre"))

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        degrees = _degrees(self.order, len(shapes["image"]) - 1)

        def drawn(channel: int | None) -> list[float]:
            return [
                draws.scalar(rng, self.coefficients, {**context, "channel": channel})
                for _ in degrees
            ]

        return self.draw_channels(rng, shapes, "coefficients", drawn)

    @takes(**channels_with(coefficients=many(number(-1e3, 1e3), _terms)))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        fields = {
            c: coefficients
            for c, coefficients in by_channel(params, "coefficients")
            if any(coefficients)
        }
        places = per_axis([_places(n) for n in shape], shape, _CENTRE)
        for c, before, after in workspace.chosen_channels(fields, flat_planes):
            multiply_by_field(before, after, self._powers(fields[c], shape), *places)

    def _powers(self, coefficients: Sequence[float], shape: Sequence[int]) -> np.ndarray:
        """The coefficients of powers of the volume's places."""
        degrees = _degrees(self.order, len(shape))
        terms = (
            _legendre(self.order)
            if self.basis == "legendre"
            else [[(n, 1.0)] for n in range(self.order + 1)]
        )
        powers = np.zeros((self.order + 1,) * len(shape))
        for own, coefficient in zip(degrees, coefficients, strict=True):
            for combined in product(*(terms[degree] for degree in own)):
                share = float(coefficient)
                for _, factor in combined:
                    share *= factor
                powers[tuple(power for power, _ in combined)] += share
        # an axis of one voxel is at 0, where all powers but the 0th vanish
        long = powers[tuple(slice(None) if n > 1 else 0 for n in shape)]
        along = {3: (0, 1, 2), 2: (0, 2), 1: (2,), 0: ()}[long.ndim]
        return np.ascontiguousarray(long).reshape(
            [self.order + 1 if axis in along else 1 for axis in range(3)]
        )

    kernels = (multiply_by_field,)


def _degrees(order: int, dims: int) -> list[tuple[int, ...]]:
    """All tuples of degrees, one per axis, that add up to at most the order."""
    return [degrees for degrees in product(range(order + 1), repeat=dims) if sum(degrees) <= order]


def _places(n: int) -> np.ndarray:
    return (2.0 * np.arange(n) - (n - 1)) / (n - 1) if n > 1 else _CENTRE


def _legendre(order: int) -> list[list[tuple[int, float]]]:
    """Legendre's polynomials up to a degree, each as (power, coefficient): (n + 1) P_(n+1) = (2 n +
    1) x P_n - n P_(n-1).
    """
    found = [[1.0], [0.0, 1.0]]
    for n in range(1, order):
        raised, before = [0.0, *found[n]], [*found[n - 1], 0.0, 0.0]
        found.append(
            [((2 * n + 1) * a - n * b) / (n + 1) for a, b in zip(raised, before, strict=True)]
        )
    return [[(power, c) for power, c in enumerate(each) if c] for each in found[: order + 1]]
