"""Sums into places given by an index (index_add, scatter_add, index_put) that do not vary from run to run.

On CUDA devices PyTorch adds the elements that share a place atomically, in whatever order they arrive. Here they are
sorted by place (a stable sort, so elements of one place keep their order) and summed as a tree over that order: the
result is the same bytes whether or not `torch.use_deterministic_algorithms` is set. A tree's rounding error grows with
the logarithm of the number of elements, that of PyTorch's sum with the number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from detaug.training.layers import linear_maps

_HALF = (torch.float16, torch.bfloat16)


def index_add(
    input: torch.Tensor,  # noqa: A002
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    *,
    alpha: complex = 1,
) -> torch.Tensor:
    """As `torch.index_add`: ``result[index[i]] += alpha * source[i]`` along `dim`, deterministic.

    Integer and boolean tensors are PyTorch's own: their sums do not depend on an order.
    """
    if not _rounds(input) or not _index_add_takes(input, dim, index, source):
        return torch.index_add(input, dim, index, source, alpha=alpha)
    if input.ndim == 0:
        return (input.view(1) + alpha * source.sum().view(1)).view(())
    dim %= input.ndim
    moved = source.reshape(1) if source.ndim == 0 else source.movedim(dim, 0)
    place = index.reshape(-1).long()
    summed = linear_maps.apply(_SegmentSum(place, input.shape[dim]), moved)
    summed = summed.view(input.shape) if source.ndim == 0 else summed.movedim(0, dim)
    return input + (summed if alpha == 1 else alpha * summed)


def scatter_add(input: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """As `torch.scatter_add`: every ``src`` element is added at the position that `index` has along `dim`,
    deterministic. Integer and boolean tensors are PyTorch's own."""
    if not _rounds(input) or not _scatter_takes(input, dim, index, src):
        return torch.scatter_add(input, dim, index, src)
    if input.ndim == 0:
        return input + src.reshape(())
    source = src[tuple(slice(size) for size in index.shape)]
    place = _flat_positions(input.shape, dim % input.ndim, index)
    summed = linear_maps.apply(_SegmentSum(place.reshape(-1), input.numel()), source.reshape(-1))
    return input + summed.view(input.shape)


def scatter_reduce(
    input: torch.Tensor,  # noqa: A002
    dim: int,
    index: torch.Tensor,
    src: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """As `torch.scatter_reduce`, deterministic for the reductions ``"sum"`` and ``"mean"``.

    The others (``"prod"``, ``"amax"``, ``"amin"``), integers and booleans are PyTorch's own.
    """
    taken = reduce in ("sum", "mean") and _rounds(input) and _scatter_takes(input, dim, index, src)
    if not taken or input.ndim == 0:
        return torch.scatter_reduce(input, dim, index, src, reduce, include_self=include_self)
    own = input if include_self else torch.scatter(input, dim, index, 0)
    result = scatter_add(own, dim, index, src)
    if reduce == "mean":
        start = torch.full(input.shape, int(include_self), dtype=torch.int64, device=input.device)
        count = torch.scatter_add(start, dim, index, torch.ones_like(index))
        result = result / count.clamp(min=1)
    return result


def index_put(
    input: torch.Tensor,  # noqa: A002
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> torch.Tensor:
    """As `torch.index_put`; with ``accumulate=True`` the sums are deterministic.

    Without `accumulate`, and for integers and booleans, this is PyTorch's own. (Where an index then occurs twice, which
    value stays is undefined; `torch.use_deterministic_algorithms` makes it the same one every time.)
    """
    if not accumulate or not _rounds(input) or values.dtype != input.dtype:
        return torch.index_put(input, tuple(indices), values, accumulate)
    position = torch.arange(input.numel(), device=input.device).view(input.shape)
    place = position[tuple(slice(None) if index is None else index for index in indices)]
    summed = linear_maps.apply(_SegmentSum(place.reshape(-1), input.numel()), values.expand(place.shape).reshape(-1))
    return input + summed.view(input.shape)


@dataclass(frozen=True, eq=False)
class _SegmentSum:
    """``result[p] = sum of source[i] over all i with place[i] == p``: ``(n, ...)`` to ``(places, ...)``."""

    place: torch.Tensor
    places: int

    @property
    def constants(self) -> tuple[torch.Tensor, ...]:
        return (self.place,)

    def forward(self, tensor: torch.Tensor) -> torch.Tensor:
        result = tensor.new_zeros([self.places, *tensor.shape[1:]])
        if tensor.numel() == 0:
            return result
        place, order = torch.sort(self.place, stable=True)
        value = tensor.index_select(0, order)
        value = value.float() if tensor.dtype in _HALF else value
        starts = torch.ones_like(place, dtype=torch.bool)
        starts[1:] = place[1:] != place[:-1]
        first = starts.nonzero().view(-1)
        _sum_segments(value, place, _longest(first, len(place)))
        # Each place is written once: there is nothing whose order could matter.
        result[place[first]] = value[first].to(tensor.dtype)
        return result

    def transposed(self, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.index_select(0, self.place)


def _sum_segments(value: torch.Tensor, place: torch.Tensor, longest: int) -> None:
    """Add up every run of equal places in `value`, in place, so that the first element of each run holds its sum.

    After the round with stride s, element i holds the sum of the elements i … i + 2 s - 1 of its run.
    """
    column = [-1] + [1] * (value.ndim - 1)
    stride = 1
    while stride < longest:
        same = (place[stride:] == place[:-stride]).view(column)
        value[:-stride] += torch.where(same, value[stride:], 0)
        stride *= 2


def _longest(first: torch.Tensor, total: int) -> int:
    """The length of the longest run, of runs that begin at `first`."""
    end = torch.cat([first[1:], first.new_tensor([total])])
    return int((end - first).max())


def _flat_positions(shape: torch.Size, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Positions in a flattened tensor of that shape: the element's own coordinates, but `index` along `dim`."""
    position = torch.zeros_like(index)
    stride = 1
    for axis in reversed(range(len(shape))):
        if axis == dim:
            coordinate = index
        else:
            steps = torch.arange(index.shape[axis], device=index.device)
            coordinate = steps.view([-1] + [1] * (index.ndim - 1 - axis))
        position = position + coordinate * stride
        stride *= shape[axis]
    return position


def _rounds(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _in_range(index: torch.Tensor, size: int) -> bool:
    """Whether every index is allowed; on a CUDA device, where asking would wait for it, left to its own assertions."""
    if index.numel() == 0 or index.device.type != "cpu":
        return True
    low, high = torch.aminmax(index)
    return int(low) >= 0 and int(high) < size


def _index_add_takes(input: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> bool:  # noqa: A002
    """Whether PyTorch's index_add would take these arguments (what it refuses, it is left to refuse)."""
    if index.dtype not in (torch.int64, torch.int32) or index.ndim > 1 or source.dtype != input.dtype:
        return False
    if not isinstance(dim, int) or source.ndim != input.ndim or not -max(input.ndim, 1) <= dim < max(input.ndim, 1):
        return False
    if input.ndim == 0:
        return index.numel() == 1 and _in_range(index, 1)
    dim %= input.ndim
    others = [size for axis, size in enumerate(input.shape) if axis != dim]
    same = others == [size for axis, size in enumerate(source.shape) if axis != dim]
    return same and index.numel() == source.shape[dim] and _in_range(index, input.shape[dim])


def _scatter_takes(input: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> bool:  # noqa: A002
    """Whether PyTorch's scatter_add would take these arguments."""
    if index.dtype != torch.int64 or src.dtype != input.dtype or not index.ndim == input.ndim == src.ndim:
        return False
    if not isinstance(dim, int) or not -max(input.ndim, 1) <= dim < max(input.ndim, 1):
        return False
    if input.ndim == 0:
        return _in_range(index, 1)
    dim %= input.ndim
    within_source = all(a <= b for a, b in zip(index.shape, src.shape, strict=True))
    within_input = all(a <= b for axis, (a, b) in enumerate(zip(index.shape, input.shape, strict=True)) if axis != dim)
    return within_source and within_input and _in_range(index, input.shape[dim])
