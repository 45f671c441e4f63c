"""Interpolation: PyTorch's numbers in every mode, with a gradient that is added up in a fixed order."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from detaug.training import layers
from detaug.training.layers.upsampling import _by_kernel, _for_each
from tests.unit.training.layer_checks import assert_same_as, assert_same_bytes_on_cuda, needs_cuda, value_and_gradient

MODES = {
    1: ["nearest", "linear", "area"],
    2: ["bilinear", "bicubic", "area"],
    3: ["trilinear", "area"],
}
TARGETS: list[dict[str, Any]] = [
    {"size": (5, 11, 16)},
    {"size": 1},
    {"size": 40},
    {"size": (7, 8, 9)},
    {"scale_factor": 2},
    {"scale_factor": (1.5, 2.7, 0.4)},
    {"scale_factor": (1.5, 2.7, 0.4), "recompute_scale_factor": True},
    {"scale_factor": 1 / 3},
]


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def arguments_for(ndim: int, mode: str) -> list[dict[str, Any]]:
    corners = [None, True, False] if "linear" in mode or "cubic" in mode else [None]
    smoothing = [False, True] if mode in ("bilinear", "bicubic") else [False]
    cases = itertools.product(corners, smoothing, TARGETS)
    return [
        {"mode": mode, "align_corners": corner, "antialias": antialias}
        | {name: value[:ndim] if isinstance(value, tuple) else value for name, value in target.items()}
        for corner, antialias, target in cases
    ]


@pytest.mark.parametrize(("ndim", "mode"), [(ndim, mode) for ndim, modes in MODES.items() for mode in modes])
def test_interpolation_equals_pytorchs_for_all_arguments(ndim: int, mode: str) -> None:
    for keywords, shape in itertools.product(arguments_for(ndim, mode), [(7, 8, 9), (17, 5, 3)]):
        tensor = image(1, 2, *shape[:ndim])
        assert_same_as(
            lambda x, k=keywords: functional.interpolate(x, **k),
            lambda x, k=keywords: layers.interpolate(x, **k),
            tensor,
        )


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 30),
    scale=st.floats(0.25, 5),
    mode=st.sampled_from(["linear", "area"]),  # nearest is PyTorch's own, whose gradient is wrong at a scale of 1.25
    recompute=st.sampled_from([None, True]),
    corners=st.booleans(),
)
def test_any_scale_factor(size: int, scale: float, mode: str, recompute: bool | None, corners: bool) -> None:
    if int(size * scale) == 0:
        return
    keywords = {"scale_factor": scale, "mode": mode, "recompute_scale_factor": recompute}
    keywords["align_corners"] = corners if mode == "linear" else None
    tensor = image(2, 2, size)
    value, gradient = value_and_gradient(lambda x: layers.interpolate(x, **keywords), tensor)
    matrix = functional.interpolate(torch.eye(size, dtype=torch.float64)[None], **keywords)[0]
    cotangent = torch.randn(value.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    torch.testing.assert_close(gradient, cotangent @ matrix.T, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("ndim", "mode"), [(2, "bilinear"), (2, "bicubic"), (3, "trilinear")])
def test_the_kernel_that_deterministic_mode_replaces_can_be_called_by_itself(ndim: int, mode: str) -> None:
    tensor = image(1, 2, *(7, 8, 9)[:ndim]).float()
    for keywords in arguments_for(ndim, mode):
        if not keywords["antialias"]:
            expected = functional.interpolate(tensor, **keywords)
            size, scale = keywords.get("size"), keywords.get("scale_factor")
            if keywords.get("recompute_scale_factor"):
                size, scale = tuple(expected.shape[2:]), None
            sizes, scales = _for_each(size, tensor.ndim - 2), _for_each(scale, tensor.ndim - 2)
            assert torch.equal(_by_kernel(tensor, mode, sizes, bool(keywords["align_corners"]), scales), expected)


def test_the_modules_equal_pytorchs() -> None:
    for name, arguments in (
        ("Upsample", {"scale_factor": 2, "mode": "bilinear"}),
        ("Upsample", {"size": (5, 9), "mode": "bicubic", "align_corners": True}),
        ("UpsamplingBilinear2d", {"scale_factor": 2}),
    ):
        original = getattr(torch.nn, name)(**arguments)
        ours = layers.make_deterministic(copy.deepcopy(original))
        assert isinstance(ours, layers.Upsample)
        assert_same_as(original, ours, image(2, 2, 5, 6))


def test_the_forward_pass_is_pytorchs_to_the_byte() -> None:
    tensor = image(1, 2, 9, 9, 9).float().requires_grad_()
    keywords = {"scale_factor": 1.7, "mode": "trilinear"}
    assert torch.equal(layers.interpolate(tensor, **keywords), functional.interpolate(tensor, **keywords))


def test_a_long_signal_needs_no_square_of_its_length_in_memory() -> None:
    signal = image(1, 1, 400_000).float()
    value, gradient = value_and_gradient(lambda x: layers.interpolate(x, scale_factor=2, mode="linear"), signal)
    assert value.shape[-1] == 2 * gradient.shape[-1]
    torch.testing.assert_close(
        gradient, value_and_gradient(lambda x: functional.interpolate(x, scale_factor=2, mode="linear"), signal)[1]
    )


def test_bytes_are_images_too() -> None:
    picture = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    assert torch.equal(layers.interpolate(picture, scale_factor=2), functional.interpolate(picture, scale_factor=2))


@pytest.mark.parametrize(
    "keywords", [{}, {"size": 3, "scale_factor": 2}, {"size": 3, "mode": "bilinear"}, {"size": 3, "mode": "cubic"}]
)
def test_what_pytorch_refuses_is_refused_with_the_same_error(keywords: dict[str, Any]) -> None:
    tensor = image(1, 2, 5, 5, 5)
    with pytest.raises((ValueError, NotImplementedError)) as theirs:
        functional.interpolate(tensor, **keywords)
    with pytest.raises(theirs.type) as ours:
        layers.interpolate(tensor, **keywords)
    assert str(ours.value) == str(theirs.value)


@needs_cuda
def test_the_same_bytes_on_cuda() -> None:
    for ndim, modes in MODES.items():
        tensor = image(1, 2, *(19, 18, 17)[:ndim]).float()
        for mode in modes:
            for keywords in arguments_for(ndim, mode):
                assert_same_bytes_on_cuda(lambda x, k=keywords: layers.interpolate(x, **k), tensor)
