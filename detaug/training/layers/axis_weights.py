"""Separable linear maps of images: one sparse matrix of weights for each axis, and its transpose in a fixed order.

Pooling and interpolation compute ``output[o] = sum over i of weight[i, o] * input[i]`` along one axis after the other.
The transpose, ``input_gradient[i] = sum over o of weight[i, o] * output_gradient[o]``, is computed without any
scattered addition, in one of two ways:

* by strided slices: where the weights repeat with a period of p inputs and s outputs (a pooling's stride, a scale of
  2 or 1.5), all inputs i = p q + r take the output s q + offset at once. No tensor is copied.
* by gathers: the first, second, third … output of every input in turn.

Both add in the same order every time, use no atomic operation and no matrix product (hence no cuBLAS workspace and no
TF32), and cost about as many operations as there are weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Indices = npt.NDArray[np.int64]

#: Above this many strided additions along one axis, kernel launches cost more than the gathers they avoid.
_MOST_SLICES = 64


class AxisWeights:
    """The non-zero weights of one axis.

    Args:
        inputs, outputs: the axis' sizes.
        input_index, output_index, weight: (number of weights,) arrays.
        periods: guesses ``(p, s)`` at the weights' period; only speed depends on them.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        input_index: Indices,
        output_index: Indices,
        weight: npt.NDArray[np.float64],
        periods: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.inputs = inputs
        self.outputs = outputs
        kept = weight != 0
        order = np.lexsort((output_index[kept], input_index[kept]))
        self._entries = _Entries(input_index[kept][order], output_index[kept][order], weight[kept][order])
        self._slices = self._plan_slices(periods)
        self._gathers = _plan_gathers(self._entries, inputs) if self._slices is None else None
        self._on_device: dict[tuple[torch.device, torch.dtype], Any] = {}

    def transposed(self, gradient: torch.Tensor, axis: int) -> torch.Tensor:
        """The gradient of the input; `gradient` has `outputs` elements along `axis`, the result has `inputs`."""
        shape = list(gradient.shape)
        shape[axis] = self.inputs
        key = (gradient.device, gradient.dtype)
        if key not in self._on_device:
            self._on_device[key] = self._prepared(*key)
        if self._slices is not None:
            return self._by_slices(gradient, axis, shape, self._on_device[key])
        return _by_gathers(gradient, axis, shape, self._on_device[key])

    def _prepared(self, device: torch.device, dtype: torch.dtype) -> Any:
        if self._slices is not None:
            return [_factor(step.weight, device, dtype) for step in self._slices]
        assert self._gathers is not None
        return [
            (torch.from_numpy(index).to(device), torch.from_numpy(weight).to(device, dtype))
            for index, weight in self._gathers
        ]

    def _by_slices(self, gradient: torch.Tensor, axis: int, shape: list[int], factors: list[Any]) -> torch.Tensor:
        assert self._slices is not None
        result = gradient.new_empty(shape) if self._covered(self._slices) else gradient.new_zeros(shape)
        for step, factor in zip(self._slices, factors, strict=True):
            target = result[(slice(None),) * axis + (step.target,)]
            source = gradient[(slice(None),) * axis + (step.source,)]
            if isinstance(factor, torch.Tensor):
                factor = factor.view([-1] + [1] * (gradient.ndim - axis - 1))
                if step.covers:
                    torch.mul(source, factor, out=target)
                else:
                    target.addcmul_(source, factor)
            elif step.covers:
                torch.mul(source, factor, out=target)
            else:
                target.add_(source, alpha=factor)
        return result

    def _covered(self, steps: list[_Slices]) -> bool:
        """Whether the first additions to every input write it, so that nothing need be cleared beforehand."""
        return sum(len(range(*step.target.indices(self.inputs))) for step in steps if step.covers) == self.inputs

    def _plan_slices(self, guesses: Sequence[tuple[int, int]]) -> list[_Slices] | None:
        """The cheapest plan by strided slices, or None where gathers are cheaper."""
        entries = self._entries
        if not len(entries.weight):
            return []
        most = np.bincount(entries.input_index).max()
        best, best_work = None, 2 * int(most) * self.inputs  # a gather writes a copy, which is then added
        for p, s in sorted({_reduced(*guess) for guess in guesses}):
            if 1 <= p <= _MOST_SLICES and s >= 1:
                if _count_of_slices(entries, p, s) > _MOST_SLICES:
                    continue
                steps = _slices_of_period(entries, self.inputs, p, s)
                work = sum(len(step.weight) for step in steps)
                if work <= best_work:
                    best, best_work = steps, work
        return best


@dataclass(frozen=True, eq=False)
class _Entries:
    """The weights, sorted by input and then by output."""

    input_index: Indices
    output_index: Indices
    weight: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class _Slices:
    """``result[target] (+)= gradient[source] * weight``; `covers`: it is the first to write there."""

    target: slice
    source: slice
    weight: npt.NDArray[np.float64]
    covers: bool


def _count_of_slices(entries: _Entries, p: int, s: int) -> int:
    quotient, phase = np.divmod(entries.input_index, p)
    offset = entries.output_index - s * quotient
    return len(np.unique(offset * p + phase))


def _slices_of_period(entries: _Entries, inputs: int, p: int, s: int) -> list[_Slices]:
    quotient, phase = np.divmod(entries.input_index, p)
    offset = entries.output_index - s * quotient
    steps = []
    for r in range(min(p, inputs)):
        whole = len(range(r, inputs, p))
        of_phase = []
        in_phase = phase == r
        for start in np.unique(offset[in_phase]):
            here = in_phase & (offset == start)
            q = quotient[here]
            weight = np.zeros(q[-1] - q[0] + 1)
            weight[q - q[0]] = entries.weight[here]
            first_output = int(start + s * q[0])
            of_phase.append(
                _Slices(
                    slice(int(r + p * q[0]), int(r + p * q[-1]) + 1, p),
                    slice(first_output, first_output + s * (len(weight) - 1) + 1, s),
                    weight,
                    covers=False,
                )
            )
        of_phase.sort(key=lambda step: len(step.weight) != whole)
        if of_phase and len(of_phase[0].weight) == whole:
            of_phase[0] = _Slices(of_phase[0].target, of_phase[0].source, of_phase[0].weight, covers=True)
        steps.extend(of_phase)
    # Inputs of other phases must have been cleared or written before anything is added to them: phases do not overlap,
    # so writing within a phase first is enough.
    return steps


def _plan_gathers(entries: _Entries, inputs: int) -> list[tuple[Indices, npt.NDArray[np.float64]]]:
    """For j = 0, 1, …: the j-th output of every input and its weight (zero where an input has fewer)."""
    count = np.bincount(entries.input_index, minlength=inputs)
    first = np.concatenate([[0], np.cumsum(count)[:-1]])
    steps = []
    for j in range(int(count.max(initial=0))):
        there = count > j
        position = np.where(there, first + np.minimum(j, np.maximum(count - 1, 0)), 0)
        weight = np.where(there, entries.weight[position], 0.0)
        steps.append((entries.output_index[position], weight))
    return steps


def _by_gathers(
    gradient: torch.Tensor, axis: int, shape: list[int], steps: list[tuple[torch.Tensor, torch.Tensor]]
) -> torch.Tensor:
    result = None
    for index, weight in steps:
        factor = weight.view([-1] + [1] * (gradient.ndim - axis - 1))
        source = gradient.index_select(axis, index)
        result = source.mul_(factor) if result is None else result.addcmul_(source, factor)
    return gradient.new_zeros(shape) if result is None else result


def _factor(weight: npt.NDArray[np.float64], device: torch.device, dtype: torch.dtype) -> float | torch.Tensor:
    if (weight == weight[0]).all():
        return float(weight[0])
    return torch.from_numpy(weight).to(device, dtype)


def _reduced(p: int, s: int) -> tuple[int, int]:
    divisor = gcd(p, s) or 1
    return p // divisor, s // divisor


def transposed_along_axes(
    gradient: torch.Tensor, axes: Sequence[AxisWeights], dtype: torch.dtype, scale: float = 1.0
) -> torch.Tensor:
    """The transpose of the maps along the last ``len(axes)`` axes, one after the other.

    Sums in half precision are taken in float32 and rounded once at the end, to `dtype`.
    """
    first = gradient.ndim - len(axes)
    result = gradient.float() if gradient.dtype in (torch.float16, torch.bfloat16) else gradient
    # Where the tensor shrinks, the outer axes come first, and where it grows the inner ones: the strided inner
    # additions then meet the smallest tensor.
    order = range(len(axes))
    shrinking = [number for number in order if axes[number].inputs <= axes[number].outputs]
    growing = [number for number in reversed(order) if axes[number].inputs > axes[number].outputs]
    for number in shrinking + growing:
        result = axes[number].transposed(result, first + number)
    if scale != 1.0:
        result = result * scale
    return result.to(dtype)
