"""Average pooling and edge padding: PyTorch's numbers, with a gradient that is added up in a fixed order."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from detaug.training import layers
from tests.unit.training.layer_checks import assert_same_as, assert_same_bytes_on_cuda, needs_cuda


def image(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("ceil_mode", [False, True])
def test_average_pooling_equals_pytorchs_for_all_arguments(ceil_mode: bool) -> None:
    tensor = image(1, 2, 5, 6, 7)
    for kernel, stride, padding, include, divisor in itertools.product(
        (1, 2, 3), (None, 1, 2, 3), (0, 1), (False, True), (None, 5)
    ):
        if padding <= kernel // 2:
            arguments: tuple[Any, ...] = (kernel, stride, padding, ceil_mode, include, divisor)
            assert_same_as(
                lambda x, a=arguments: functional.avg_pool3d(x, *a),
                lambda x, a=arguments: layers.avg_pool3d(x, *a),
                tensor,
            )


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_kernels_and_strides_may_differ_between_axes(data: st.DataObject) -> None:
    kernel = tuple(data.draw(st.integers(1, 4)) for _ in range(3))
    stride = tuple(data.draw(st.integers(1, 5)) for _ in range(3))
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(3))
    assume(all(size >= k for size, k in zip(shape, kernel, strict=True)))
    arguments = {"ceil_mode": data.draw(st.booleans()), "count_include_pad": data.draw(st.booleans())}
    original = torch.nn.AvgPool3d(kernel, stride, padding, **arguments)
    assert_same_as(original, layers.AvgPool3d(kernel, stride, padding, **arguments), image(2, *shape))


@pytest.mark.parametrize("size", [1, 2, 3, (3, None, 5), (7, 8, 9), (14, 3, 20)])
def test_adaptive_pooling_equals_pytorchs(size: Any) -> None:
    assert_same_as(torch.nn.AdaptiveAvgPool3d(size), layers.AdaptiveAvgPool3d(size), image(2, 2, 7, 8, 9))
    flat = size if isinstance(size, int) else size[1:]
    assert_same_as(torch.nn.AdaptiveAvgPool2d(flat), layers.AdaptiveAvgPool2d(flat), image(2, 8, 9))
    line = size if isinstance(size, int) else size[2]
    assert_same_as(torch.nn.AdaptiveAvgPool1d(line), layers.AdaptiveAvgPool1d(line), image(2, 9))


@pytest.mark.parametrize("amounts", [(1, 2, 0, 3, 2, 1), (1, -1, 0, 0, -2, 3), (0, 0, 0, 0, 0, 0)])
def test_reflection_equals_pytorchs(amounts: tuple[int, ...]) -> None:
    for ndim in (1, 2, 3):
        amount = amounts[: 2 * ndim]
        tensor = image(2, 2, *(7, 8, 9)[:ndim])
        assert_same_as(
            lambda x, a=amount: functional.pad(x, a, "reflect"), lambda x, a=amount: layers.pad(x, a, "reflect"), tensor
        )
        name = f"ReflectionPad{ndim}d"
        assert_same_as(getattr(torch.nn, name)(2), getattr(layers, name)(2), tensor)


def test_the_other_modes_of_padding_are_pytorchs() -> None:
    assert_same_as(
        lambda x: functional.pad(x, (1, 2), value=3.0), lambda x: layers.pad(x, (1, 2), value=3.0), image(2, 3)
    )
    assert_same_as(
        lambda x: functional.pad(x, (1, 2), "circular"), lambda x: layers.pad(x, (1, 2), "circular"), image(2, 2, 3)
    )


def test_the_forward_pass_is_pytorchs_to_the_byte() -> None:
    tensor = image(2, 3, 9, 9, 9, dtype=torch.float32).requires_grad_()
    assert torch.equal(layers.avg_pool3d(tensor, 3, 2, 1), functional.avg_pool3d(tensor, 3, 2, 1))


def test_channels_last_strided_and_empty_tensors_are_taken() -> None:
    for tensor in (
        image(2, 3, 6, 6, 6).contiguous(memory_format=torch.channels_last_3d),
        image(2, 3, 6, 6, 12)[..., ::2],
        image(0, 3, 6, 6, 6),
    ):
        assert_same_as(lambda x: functional.avg_pool3d(x, 2), lambda x: layers.avg_pool3d(x, 2), tensor)


@pytest.mark.parametrize("arguments", [(0,), (2, 0), (2, 1, 2), ((2, 2),), (9,)])
def test_what_pytorch_refuses_is_refused_with_the_same_error(arguments: tuple[Any, ...]) -> None:
    tensor = image(2, 4, 4, 4).requires_grad_()
    with pytest.raises((RuntimeError, TypeError, ValueError)) as theirs:
        functional.avg_pool3d(tensor, *arguments)
    with pytest.raises(theirs.type) as ours:
        layers.avg_pool3d(tensor, *arguments)
    assert str(ours.value) == str(theirs.value)


@needs_cuda
def test_the_same_bytes_on_cuda() -> None:
    tensor = image(2, 8, 33, 32, 31, dtype=torch.float32)
    for function in (
        lambda x: layers.avg_pool3d(x, 2),
        lambda x: layers.avg_pool3d(x, 3, 2, 1),
        lambda x: layers.adaptive_avg_pool3d(x, (7, 1, 5)),
        lambda x: layers.adaptive_avg_pool2d(x[0], 3),
        lambda x: layers.pad(x, (3, 1, 2, 2, 0, 5), "reflect"),
    ):
        assert_same_bytes_on_cuda(function, tensor)
