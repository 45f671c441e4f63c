"""Sums into places given by an index: PyTorch's numbers, added up in a fixed order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug.training import layers
from tests.training.layer_checks import assert_same_as, assert_same_bytes_on_cuda, needs_cuda

DTYPES = [torch.float64, torch.complex128, torch.int64]


def values(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    random = torch.Generator().manual_seed(sum(shape) + 3)
    if dtype == torch.int64:
        return torch.randint(-9, 9, shape, generator=random)
    return torch.randn(shape, dtype=dtype, generator=random)


def places(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
def test_every_function_equals_pytorchs(dtype: torch.dtype, dim: int) -> None:
    tensor = values(5, 6, 7, dtype=dtype)
    shape = list(tensor.shape)
    shape[dim] = 20
    index, source = places(tensor.shape[dim], 20), values(*shape, dtype=dtype)
    torch.testing.assert_close(
        layers.index_add(tensor, dim, index, source, alpha=2), torch.index_add(tensor, dim, index, source, alpha=2)
    )
    index, source = places(tensor.shape[dim], 4, 3, 7), values(4, 5, 8, dtype=dtype)
    torch.testing.assert_close(
        layers.scatter_add(tensor, dim, index, source), torch.scatter_add(tensor, dim, index, source)
    )
    if dtype != torch.complex128:
        for reduce in ("sum", "mean", "amax"):
            for include_self in (True, False):
                arguments: tuple[Any, ...] = (tensor, dim, index, source, reduce)
                torch.testing.assert_close(
                    layers.scatter_reduce(*arguments, include_self=include_self),
                    torch.scatter_reduce(*arguments, include_self=include_self),
                )
    pairs: Any = (places(5, 4, 1), places(12, 3) - 6), (tensor.abs() > 1,)
    for indices, source in ((pairs[0], values(7, dtype=dtype)), (pairs[1], values(1, dtype=dtype))):
        torch.testing.assert_close(
            layers.index_put(tensor, indices, source, accumulate=True),
            torch.index_put(tensor, indices, source, accumulate=True),
        )


@settings(max_examples=50, deadline=None)
@given(size=st.integers(1, 6), index=st.lists(st.integers(0, 5), max_size=40))
def test_any_number_of_elements_may_share_a_place(size: int, index: list[int]) -> None:
    place = torch.tensor([number % size for number in index], dtype=torch.int64)
    source = values(len(index), 2)
    torch.testing.assert_close(
        layers.index_add(values(size, 2), 0, place, source), torch.index_add(values(size, 2), 0, place, source)
    )


def test_gradients_are_pytorchs() -> None:
    tensor, index, source = values(5, 6), places(5, 9), values(9, 6)
    assert_same_as(
        lambda x: torch.index_add(tensor, 0, index, x, alpha=3),
        lambda x: layers.index_add(tensor, 0, index, x, alpha=3),
        source,
    )
    assert_same_as(
        lambda x: torch.index_add(x, 0, index, source), lambda x: layers.index_add(x, 0, index, source), tensor
    )
    index = places(5, 9, 6)
    for reduce in ("sum", "mean"):
        assert_same_as(
            lambda x, r=reduce: torch.scatter_reduce(tensor, 0, index, x, r),
            lambda x, r=reduce: layers.scatter_reduce(tensor, 0, index, x, r),
            source,
        )
        assert_same_as(
            lambda x, r=reduce: torch.scatter_reduce(x, 0, index, source, r, include_self=False),
            lambda x, r=reduce: layers.scatter_reduce(x, 0, index, source, r, include_self=False),
            tensor,
        )


def test_second_derivatives_are_there() -> None:
    index, source = places(4, 9), values(9, 2).requires_grad_()

    def function(x: torch.Tensor) -> torch.Tensor:
        return (layers.index_add(torch.zeros(4, 2, dtype=torch.float64), 0, index, x) ** 2).sum()

    assert torch.autograd.gradcheck(function, source)
    assert torch.autograd.gradgradcheck(function, source)


def test_deterministic_mode_changes_no_byte() -> None:
    index, source = places(3, 5000), values(5000, 4).float()
    plain = layers.index_add(torch.zeros(3, 4), 0, index, source)
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.equal(layers.index_add(torch.zeros(3, 4), 0, index, source), plain)
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_half_precision_sum_is_rounded_once() -> None:
    index, source = torch.zeros(4096, dtype=torch.int64), torch.ones(4096, dtype=torch.float16)
    assert layers.index_add(torch.zeros(1, dtype=torch.float16), 0, index, source).item() == 4096


def test_scalars_and_empty_tensors_are_taken() -> None:
    scalar, zero = torch.tensor(2.0), torch.tensor(0)
    assert layers.index_add(scalar, 0, zero, torch.tensor(3.0)).item() == 5
    assert layers.scatter_add(scalar, 0, zero, torch.tensor(3.0)).item() == 5
    nothing = torch.zeros(0, dtype=torch.int64)
    assert torch.equal(layers.index_add(values(3, 2), 0, nothing, values(0, 2)), values(3, 2))
    assert torch.equal(layers.scatter_add(values(3), 0, nothing, values(4)), values(3))


@pytest.mark.parametrize(
    "arguments",
    [
        (0, torch.tensor([0, 5]), torch.zeros(2, 2)),
        (0, torch.tensor([0, -1]), torch.zeros(2, 2)),
        (0, torch.tensor([0, 1]), torch.zeros(3, 2)),
        (2, torch.tensor([0, 1]), torch.zeros(2, 2)),
        (0, torch.tensor([0, 1]), torch.zeros(2, 2, dtype=torch.float64)),
        (0, torch.tensor([0.0, 1.0]), torch.zeros(2, 2)),
        (0, torch.tensor([[0], [1]]), torch.zeros(2, 2)),
    ],
)
def test_what_pytorch_refuses_is_refused_with_the_same_error(arguments: tuple[Any, ...]) -> None:
    for name in ("index_add", "scatter_add"):
        outcomes = []
        for function in (getattr(torch, name), getattr(layers, name)):
            try:
                outcomes.append(str(function(torch.zeros(3, 2), *arguments).shape))
            except (RuntimeError, IndexError) as error:
                outcomes.append(f"{type(error)}: {error}")
        assert outcomes[0] == outcomes[1]
        assert name == "scatter_add" or "Error" in outcomes[0]


@needs_cuda
def test_the_same_bytes_on_cuda() -> None:
    index, source = places(7, 100_000).cuda(), values(100_000, 3).float()
    tensor = torch.zeros(7, 3, device="cuda")
    spread = index[:, None].expand(-1, 3)
    for function in (
        lambda x: layers.index_add(tensor, 0, index, x),
        lambda x: layers.scatter_add(tensor, 0, spread, x),
        lambda x: layers.scatter_reduce(tensor, 0, spread, x, "mean"),
        lambda x: layers.index_put(tensor, (index,), x, accumulate=True),
    ):
        assert_same_bytes_on_cuda(function, source)
