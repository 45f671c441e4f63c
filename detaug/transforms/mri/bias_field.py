"""The slow change of brightness over an MR image that a coil's uneven field makes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
from numpy.random import Generator

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


def _num_coefficients(context: ParamContext) -> int:
    # The sample's number of axes is known only now.
    return len(_degrees(context.transform.order, context.dims()))


class BiasField(ChannelTransform):
    """A smooth field that multiplies channels: the exponential of a polynomial of the position.

    The field is ``exp(Σ c_ijk P_i(x) P_j(y) P_k(z))``, the sum over all i + j + k <= order. x, y
    and z run from -1 at an axis' first voxel to 1 at its last one; an axis of one voxel is at 0.
    P_n is the n-th power, or Legendre's polynomial of degree n. The model is that of Van Leemput et
    al., "Automated model-based bias field correction of MR images of the brain" (IEEE TMI 18,
    1999). Defaults are those of TorchIO's ``RandomBiasField``; MONAI's ``RandBiasField`` is
    ``BiasField((0, 0.1), basis="legendre")``.

    Args:
        coefficients: each of the c_ijk. A callable may ask for ``channel``, which is None where
            channels are synchronised.
        order: the highest degree, 0 to 10.
        basis: "powers" or "legendre".
        synchronize_channels: True: one field for all channels. False: one for each.
        p_per_channel: the probability of each channel.

    NaN and infinity stay what they are.

    Params: ``{"apply_to_channel": [channels], "coefficients": [[...] for each of them]}``;
    coefficients are in the order of ``(i, j, k)``, the last index changing fastest (20 for order 3
    in 3-D, 10 in 2-D).

    Raises:
        ValueError: an order or basis that does not exist; from `apply`, a wrong number of
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

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        degrees = _degrees(self.order, len(shapes["image"]) - 1)

        def coefficients(channel: int | None) -> list[float]:
            offered = {**context, "channel": channel}
            return [draws.scalar(rng, self.coefficients, offered) for _ in degrees]

        return self.draw_channels(rng, shapes, "coefficients", coefficients)

    @takes(**channels_with(coefficients=many(number(-1e3, 1e3), _num_coefficients)))
    def change(self, workspace: Workspace, params: Params) -> None:
        shape = workspace["image"].shape[1:]
        fields = {}
        for channel, coefficients in by_channel(params, "coefficients"):
            # If all coefficients are 0, the field is 1 everywhere.
            if any(coefficients):
                fields[channel] = coefficients
        # The fields of several channels differ only in their coefficients.
        positions = per_axis([_positions(n) for n in shape], shape, _CENTRE)
        for coefficients, source, destination in workspace.chosen_channels(fields, flat_planes):
            powers = self._powers(coefficients, shape)
            multiply_by_field(source, destination, powers, *positions)

    def _powers(self, coefficients: Sequence[float], shape: Sequence[int]) -> np.ndarray:
        """Return the coefficients of the powers of x, y and z in the exponent.

        Args:
            coefficients: of the basis, in the order of `_degrees`.
            shape: the image's spatial shape, (X, Y[, Z]).

        Returns:
            One axis for each of the volume that kernels see; float64.
        """
        # The kernel evaluates powers by Horner's scheme: other bases are multiplied out here.
        polynomials = _polynomials(self.order, self.basis)
        all_degrees = _degrees(self.order, len(shape))
        powers = np.zeros((self.order + 1,) * len(shape))
        for degrees, coefficient in zip(all_degrees, coefficients, strict=True):
            for terms in product(*[polynomials[degree] for degree in degrees]):
                # Multiplied from left to right: the last bit depends on the order.
                share = float(coefficient)
                for _, factor in terms:
                    share *= factor
                powers[tuple(power for power, _ in terms)] += share
        for axis, n in enumerate(shape):
            if n == 1:
                # The voxel is at 0, where all powers but the 0th vanish.
                powers = powers.take([0], axis)
        return np.ascontiguousarray(powers.reshape(per_axis(powers.shape, shape, 1)))

    kernels = (multiply_by_field,)


def _degrees(order: int, dims: int) -> list[tuple[int, ...]]:
    """Return all tuples of degrees, one per axis, whose sum is at most the order."""
    all_degrees = product(range(order + 1), repeat=dims)
    return [degrees for degrees in all_degrees if sum(degrees) <= order]


def _positions(n: int) -> np.ndarray:
    """Return where the n voxels of an axis are, from -1 to 1."""
    if n == 1:
        return _CENTRE
    positions: np.ndarray = (2.0 * np.arange(n) - (n - 1)) / (n - 1)
    return positions


def _polynomials(order: int, basis: str) -> list[list[tuple[int, float]]]:
    """Return the basis' polynomials of degree 0 to order, each as its (power, coefficient)s."""
    # Each power is a single term: nothing is multiplied out, and nothing is rounded.
    if basis == "powers":
        return [[(power, 1.0)] for power in range(order + 1)]
    polynomials = []
    for coefficients in _legendre(order):
        polynomials.append([(power, c) for power, c in enumerate(coefficients) if c])
    return polynomials


def _legendre(order: int) -> list[list[float]]:
    """Return Legendre's polynomials of degree 0 to order, by their coefficients from power 0 on.

    The recurrence is ``(n + 1) P_(n+1) = (2 n + 1) x P_n - n P_(n-1)``.
    """
    polynomials = [[1.0], [0.0, 1.0]]
    for n in range(1, order):
        # Multiplied by x, every coefficient moves to the next power.
        raised = [0.0, *polynomials[n]]
        before = [*polynomials[n - 1], 0.0, 0.0]
        following = []
        for a, b in zip(raised, before, strict=True):
            following.append(((2 * n + 1) * a - n * b) / (n + 1))
        polynomials.append(following)
    return polynomials[: order + 1]
