"""Losses, pooling, padding and interpolation: PyTorch's numbers for all arguments, with gradients that do not vary."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from detaug.training import layers
from tests.unit.training.layer_checks import assert_same_as, value_and_gradient


def image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


# --- losses


def logits_and_target(shape: tuple[int, ...], classes: int, ignored: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(len(shape) + classes)
    logits = torch.randn((*shape[:1], classes, *shape[1:]), dtype=torch.float64, generator=random)
    target = torch.randint(0, classes, shape, generator=random)
    return logits, torch.where(torch.rand(shape, generator=random) < ignored, 255, target)


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=5).map(tuple),
    classes=st.integers(1, 6),
    weighted=st.booleans(),
    ignored=st.floats(0, 1),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
)
def test_cross_entropy_and_nll_loss_equal_pytorchs(
    shape: tuple[int, ...], classes: int, weighted: bool, ignored: float, smoothing: float, reduction: str
) -> None:
    logits, target = logits_and_target(shape, classes, ignored)
    weight = torch.linspace(0.2, 1, classes, dtype=torch.float64) if weighted else None
    if weighted and smoothing and target.ndim == 0 and target == 255:
        return  # PyTorch itself refuses this one
    keywords: dict[str, Any] = {"weight": weight, "ignore_index": 255, "reduction": reduction}
    for name, more in (("CrossEntropyLoss", {"label_smoothing": smoothing}), ("NLLLoss", {})):
        original, ours = getattr(torch.nn, name)(**keywords, **more), getattr(layers, name)(**keywords, **more)
        assert_same_as(lambda x, loss=original: loss(x, target), lambda x, loss=ours: loss(x, target), logits)


def test_class_probabilities_are_targets_too() -> None:
    logits = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    target = torch.softmax(torch.randn_like(logits), 1)
    weight = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        keywords = {"weight": weight, "reduction": reduction, "label_smoothing": 0.1}
        assert_same_as(
            lambda x, k=keywords: functional.cross_entropy(x, target, **k),
            lambda x, k=keywords: layers.cross_entropy(x, target, **k),
            logits,
        )


def test_a_mean_over_ignored_voxels_only_is_nan_and_their_gradient_zero() -> None:
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    target = torch.full((2, 4), -100)
    loss = layers.cross_entropy(logits, target)
    assert torch.isnan(loss)
    layers.cross_entropy(logits, target, reduction="sum").backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_an_impossible_class_costs_an_ignored_voxel_nothing() -> None:
    log_probability = torch.zeros(1, 2, 3, dtype=torch.float64)
    log_probability[0, 0] = -torch.inf
    target = torch.tensor([[1, -100, 1]])
    assert_same_as(lambda x: functional.nll_loss(x, target), lambda x: layers.nll_loss(x, target), log_probability)


def test_with_deprecated_arguments_the_loss_is_pytorchs_own() -> None:
    logits, target = logits_and_target((2, 4), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert layers.cross_entropy(logits, target, reduce=False).shape == (2, 4)
        assert layers.CrossEntropyLoss(reduce=False)(logits, target).shape == (2, 4)


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_a_target_changed_before_the_gradient_gives_an_error_or_the_right_gradient(
    name: str, dtype: torch.dtype
) -> None:
    logits, target = logits_and_target((2, 3), 4)
    for weight, smoothing in itertools.product((None, torch.rand(4).double()), (0.0, 0.1)):
        keywords: dict[str, Any] = {"weight": weight} | (
            {"label_smoothing": smoothing} if name == "cross_entropy" else {}
        )
        for reduction in ("mean", "sum"):
            leaf, changed = logits.clone().requires_grad_(), target.to(dtype, copy=True)
            original, ours = (getattr(module, name) for module in (functional, layers))
            expected = torch.autograd.grad(original(leaf, target, reduction=reduction, **keywords), leaf)
            loss = ours(leaf, changed, reduction=reduction, **keywords)
            changed.zero_()
            try:
                found = torch.autograd.grad(loss, leaf)
            except RuntimeError as error:
                if "modified by an inplace operation" not in str(error):
                    raise
            else:
                torch.testing.assert_close(found, expected)


def test_a_half_precision_mean_over_many_voxels_does_not_overflow() -> None:
    logits = torch.zeros(1, 2, 400, 400, dtype=torch.float16)
    loss = layers.cross_entropy(logits, torch.zeros(1, 400, 400, dtype=torch.int64))
    assert loss.dtype == torch.float16
    assert loss.item() == pytest.approx(0.693, abs=2e-3)


def test_the_operation_that_varies_is_called_without_its_reduction_only() -> None:
    """PyTorch's reductions add atomically on CUDA; ``Reduction.NONE`` (0) does not, and PyTorch does not alert on it."""
    called = []

    class Record(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            called.append((func._schema.name, args))
            return func(*args, **(kwargs or {}))

    def reductions() -> set[int]:
        where = {"aten::nll_loss2d_forward": 3, "aten::nll_loss2d_backward": 4}
        return {args[where[name]] for name, args in called if name in where}

    logits, target = logits_and_target((2, 4, 4), 3)
    with Record():
        layers.cross_entropy(logits.requires_grad_(), target, label_smoothing=0.1).backward()
    assert reductions() == {0}
    assert not [name for name, _ in called if "scatter_add" in name or "index_add" in name or "index_put" in name]
    called.clear()
    with Record():
        functional.cross_entropy(logits, target).backward()
    assert reductions() == {1}


# --- pooling and padding


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_average_pooling_equals_pytorchs_for_all_arguments(data: st.DataObject) -> None:
    kernel = tuple(data.draw(st.integers(1, 4)) for _ in range(3))
    stride = data.draw(st.sampled_from([kernel, tuple(data.draw(st.integers(1, 5)) for _ in range(3))]))
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(3))
    assume(all(size >= k for size, k in zip(shape, kernel, strict=True)))
    arguments = {"ceil_mode": data.draw(st.booleans()), "count_include_pad": data.draw(st.booleans())}
    arguments |= {"divisor_override": data.draw(st.sampled_from([None, 5]))}
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


# --- interpolation


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


def test_bytes_are_images_too() -> None:
    picture = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    assert torch.equal(layers.interpolate(picture, scale_factor=2), functional.interpolate(picture, scale_factor=2))
