"""Cross-entropy, pooling and interpolation give PyTorch's numbers for all arguments.

On CUDA their gradients are the same in every run.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional

from detaug.training import deterministic_mode
from detaug.training.layers import functions as ours

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available(),
    reason="needs a CUDA device: the CPU's own kernels do not vary from run to run",
)

Function = Callable[[torch.Tensor], torch.Tensor]
Shape = tuple[int, ...]


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(shape: Shape, dtype: torch.dtype = torch.float64, seed: int = 5) -> torch.Tensor:
    return torch.randn(shape, generator=seeded(seed), dtype=torch.float64).to(dtype)


def value_and_gradient(
    function: Function, tensor: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the value, and the gradient of the value's product with fixed random numbers."""
    leaf = tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    value = function(leaf)
    cotangent = noise(value.shape, seed=7)
    (gradient,) = torch.autograd.grad(value, leaf, cotangent.to(value.device, value.dtype))
    return value.detach(), gradient


def assert_same_as(original: Function, replacement: Function, tensor: torch.Tensor) -> None:
    """Assert that a replacement's value and gradient are the original's within float64 rounding."""
    expected = value_and_gradient(original, tensor)
    actual = value_and_gradient(replacement, tensor)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10, equal_nan=True)


def assert_pytorchs(name: str, tensor: torch.Tensor, *arguments: Any, **keywords: Any) -> None:
    """Assert that detaug's function of this name gives PyTorch's value and gradient."""

    def original(x: torch.Tensor) -> torch.Tensor:
        return getattr(functional, name)(x, *arguments, **keywords)

    def replacement(x: torch.Tensor) -> torch.Tensor:
        return getattr(ours, name)(x, *arguments, **keywords)

    assert_same_as(original, replacement, tensor)


def assert_equal_bytes(first: tuple[torch.Tensor, ...], second: tuple[torch.Tensor, ...]) -> None:
    for expected, actual in zip(first, second, strict=True):
        assert torch.equal(expected, actual)


def assert_same_bytes_on_cuda(function: Function, tensor: torch.Tensor) -> None:
    """Assert that eleven runs give the same bytes, and so does one in deterministic mode."""
    tensor = tensor.cuda()
    first = value_and_gradient(function, tensor)
    for _ in range(10):
        assert_equal_bytes(first, value_and_gradient(function, tensor))
    with deterministic_mode():
        within = value_and_gradient(function, tensor)
    assert_equal_bytes(first, within)


# --- losses


def logits_and_target(
    shape: Shape, classes: int, ignored: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return logits (N, classes, *space) and a target of a shape (N, *space).

    Args:
        shape: of the target.
        classes: number of classes.
        ignored: share of the target's voxels that are 255.
    """
    random = seeded(len(shape) + classes)
    batch = shape[:1]
    space = shape[1:]
    logits = torch.randn((*batch, classes, *space), dtype=torch.float64, generator=random)
    target = torch.randint(0, classes, shape, generator=random)
    is_ignored = torch.rand(shape, generator=random) < ignored
    return logits, torch.where(is_ignored, 255, target)


@settings(max_examples=30, deadline=None)
@given(
    shape=st.lists(st.integers(0, 4), max_size=5).map(tuple),
    classes=st.integers(1, 6),
    weighted=st.booleans(),
    ignored=st.floats(0, 1),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
)
def test_cross_entropy_equals_pytorchs(
    shape: Shape,
    classes: int,
    weighted: bool,
    ignored: float,
    smoothing: float,
    reduction: str,
) -> None:
    logits, target = logits_and_target(shape, classes, ignored)
    weight = None
    if weighted:
        weight = torch.linspace(0.2, 1, classes, dtype=torch.float64)
    if weighted and smoothing and target.ndim == 0 and target == 255:
        # PyTorch itself raises an error here.
        return
    assert_pytorchs(
        "cross_entropy",
        logits,
        target,
        weight=weight,
        ignore_index=255,
        reduction=reduction,
        label_smoothing=smoothing,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_probabilities_are_targets_too(reduction: str) -> None:
    logits = noise((2, 3, 4, 5))
    target = torch.softmax(noise((2, 3, 4, 5), seed=6), 1)
    weight = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    assert_pytorchs(
        "cross_entropy",
        logits,
        target,
        weight=weight,
        reduction=reduction,
        label_smoothing=0.1,
    )


def test_a_mean_over_ignored_voxels_only_is_nan_and_their_gradient_zero() -> None:
    logits = noise((2, 3, 4)).requires_grad_()
    target = torch.full((2, 4), -100)
    loss = ours.cross_entropy(logits, target)
    assert torch.isnan(loss)
    ours.cross_entropy(logits, target, reduction="sum").backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_an_impossible_class_costs_an_ignored_voxel_nothing() -> None:
    logits = torch.zeros(1, 2, 3, dtype=torch.float64)
    logits[0, 0] = -torch.inf
    assert_pytorchs("cross_entropy", logits, torch.tensor([[1, -100, 1]]))


def test_with_deprecated_arguments_the_loss_is_pytorchs_own() -> None:
    logits, target = logits_and_target((2, 4), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ours.cross_entropy(logits, target, reduce=False).shape == (2, 4)


def test_a_half_precision_mean_over_many_voxels_does_not_overflow() -> None:
    logits = torch.zeros(1, 2, 400, 400, dtype=torch.float16)
    target = torch.zeros(1, 400, 400, dtype=torch.int64)
    loss = ours.cross_entropy(logits, target)
    assert loss.dtype == torch.float16
    assert loss.item() == pytest.approx(0.693, abs=2e-3)


class Record(torch.utils._python_dispatch.TorchDispatchMode):
    """A mode that records the operations that run in it, with their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.called: list[tuple[str, Any]] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.called.append((func._schema.name, args))
        return func(*args, **(kwargs or {}))

    def reductions(self) -> set[int]:
        """Return the reductions with which the loss and its gradient were computed."""
        position = {"aten::nll_loss2d_forward": 3, "aten::nll_loss2d_backward": 4}
        return {args[position[name]] for name, args in self.called if name in position}


#: Parts of the names of operations that add atomically on CUDA.
ATOMIC = ("scatter_add", "index_add", "index_put")


def test_the_operation_that_varies_is_called_without_its_reduction_only() -> None:
    # PyTorch's reductions add atomically on CUDA. ``Reduction.NONE`` (0) does not, and PyTorch
    # raises no error for it in deterministic mode.
    logits, target = logits_and_target((2, 4, 4), 3)
    logits.requires_grad_()
    with Record() as record:
        ours.cross_entropy(logits, target, label_smoothing=0.1).backward()
    assert record.reductions() == {0}
    for name, _ in record.called:
        assert not any(part in name for part in ATOMIC), name
    with Record() as record:
        functional.cross_entropy(logits, target).backward()
    assert record.reductions() == {1}


# --- pooling


def three(elements: st.SearchStrategy[int]) -> st.SearchStrategy[Shape]:
    return st.tuples(elements, elements, elements)


@settings(max_examples=60, deadline=None)
@given(
    kernel=three(st.integers(1, 4)),
    other_stride=st.none() | three(st.integers(1, 5)),
    shape=three(st.integers(1, 9)),
    ceil_mode=st.booleans(),
    count_include_pad=st.booleans(),
    divisor=st.sampled_from([None, 5]),
    data=st.data(),
)
def test_average_pooling_equals_pytorchs_for_all_arguments(
    kernel: Shape,
    other_stride: Shape | None,
    shape: Shape,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
    data: st.DataObject,
) -> None:
    padding = tuple(data.draw(st.integers(0, size // 2)) for size in kernel)
    assume(all(size >= length for size, length in zip(shape, kernel, strict=True)))
    assert_pytorchs(
        "avg_pool3d",
        noise((2, *shape)),
        kernel,
        other_stride or kernel,
        padding,
        ceil_mode=ceil_mode,
        count_include_pad=count_include_pad,
        divisor_override=divisor,
    )


@pytest.mark.parametrize("integer", [np.int64, np.uint8, torch.tensor])
def test_average_pooling_takes_every_kind_of_integer(integer: Callable[[int], Any]) -> None:
    one = integer(1)
    two = integer(2)
    tensor = noise((2, 5, 4, 6))
    assert_pytorchs("avg_pool3d", tensor, two)
    assert_pytorchs("avg_pool3d", tensor, two, one)
    assert_pytorchs("avg_pool3d", tensor, two, one, one)
    assert_pytorchs("avg_pool3d", tensor, (two, one, two), None, (one, 0, one))


@pytest.mark.parametrize("integer", [np.int64, np.uint8])
def test_interpolation_takes_numpys_numbers(integer: Callable[[int], Any]) -> None:
    linear = partial(assert_pytorchs, "interpolate", noise((1, 2, 5, 4, 6)), mode="trilinear")
    linear(size=integer(7))
    linear(size=(integer(7), integer(4), integer(9)))
    linear(scale_factor=integer(2))
    linear(scale_factor=np.float32(1.5))
    linear(scale_factor=(integer(2), np.float64(1.5), integer(1)))


def test_cross_entropy_takes_numpys_numbers() -> None:
    logits, target = logits_and_target((2, 4, 5), 3, ignored=0.2)
    assert_pytorchs(
        "cross_entropy",
        logits,
        target,
        ignore_index=np.int64(255),
        label_smoothing=np.float32(0.25),
    )


# --- interpolation


MODES = [
    (1, "nearest"),
    (1, "linear"),
    (2, "bilinear"),
    (2, "bicubic"),
    (3, "trilinear"),
    (3, "area"),
]
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


def for_axes(ndim: int, target: dict[str, Any]) -> dict[str, Any]:
    """Return arguments in which tuples of sizes or factors have one value per axis."""
    result = {}
    for name, value in target.items():
        result[name] = value[:ndim] if isinstance(value, tuple) else value
    return result


def arguments_for(ndim: int, mode: str) -> list[dict[str, Any]]:
    """Return all combinations of arguments that PyTorch allows for a mode."""
    corners: list[bool | None] = [None]
    if "linear" in mode or "cubic" in mode:
        corners = [None, True, False]
    smoothing = [False]
    if mode in ("bilinear", "bicubic"):
        smoothing = [False, True]
    arguments = []
    for corner, antialias, target in itertools.product(corners, smoothing, TARGETS):
        keywords = {"mode": mode, "align_corners": corner, "antialias": antialias}
        arguments.append({**keywords, **for_axes(ndim, target)})
    return arguments


@pytest.mark.parametrize("shape", [(7, 8, 9), (17, 5, 3)])
@pytest.mark.parametrize(("ndim", "mode"), MODES)
def test_interpolation_equals_pytorchs_for_all_arguments(
    ndim: int, mode: str, shape: Shape
) -> None:
    tensor = noise((1, 2, *shape[:ndim]))
    for keywords in arguments_for(ndim, mode):
        assert_pytorchs("interpolate", tensor, **keywords)


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 30),
    scale=st.floats(0.25, 5),
    recompute=st.sampled_from([None, True]),
    corners=st.booleans(),
)
def test_any_scale_factor(size: int, scale: float, recompute: bool | None, corners: bool) -> None:
    if int(size * scale) == 0:
        return
    keywords: dict[str, Any] = {
        "scale_factor": scale,
        "mode": "linear",
        "recompute_scale_factor": recompute,
        "align_corners": corners,
    }
    resized = partial(ours.interpolate, **keywords)
    value, gradient = value_and_gradient(resized, noise((2, 2, size)))
    identity = torch.eye(size, dtype=torch.float64)[None]
    (matrix,) = functional.interpolate(identity, **keywords)
    expected = noise(value.shape, seed=7) @ matrix.T
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-10)


def test_bytes_are_images_too() -> None:
    picture = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    expected = functional.interpolate(picture, scale_factor=2)
    assert torch.equal(ours.interpolate(picture, scale_factor=2), expected)


# --- typical calls

Call = Callable[[Any, torch.Tensor], torch.Tensor]


def entropy_of_image(module: Any, x: torch.Tensor) -> torch.Tensor:
    target = torch.arange(16, device=x.device).view(1, 4, 4) % 3
    return module.cross_entropy(x, target)


def pooled(module: Any, x: torch.Tensor) -> torch.Tensor:
    return module.avg_pool3d(x, 3, 2, 1)


def pooled_by_lists(module: Any, x: torch.Tensor) -> torch.Tensor:
    return module.avg_pool3d(x, [1, 2, 2], [1, 2, 2])


def pooled_by_lists_of_one(module: Any, x: torch.Tensor) -> torch.Tensor:
    return module.avg_pool3d(x, (2,), [2], (1,))


def enlarged(module: Any, x: torch.Tensor) -> torch.Tensor:
    return module.interpolate(x, scale_factor=1.5, mode="bilinear")


VOLUME = (1, 2, 5, 4, 6)
#: Name -> a call of one module's function (PyTorch's or detaug's), and the shape of its argument.
IMAGE_CALLS: dict[str, tuple[Call, Shape]] = {
    "avg_pool3d": (pooled, VOLUME),
    "avg_pool3d_with_lists": (pooled_by_lists, VOLUME),
    "avg_pool3d_with_lists_of_one": (pooled_by_lists_of_one, VOLUME),
    "bilinear": (enlarged, (1, 2, 4, 6)),
}
CALLS = {"cross_entropy": (entropy_of_image, (1, 3, 4, 4)), **IMAGE_CALLS}


@pytest.mark.parametrize("name", IMAGE_CALLS)
def test_the_forward_pass_is_pytorchs_to_the_byte(name: str) -> None:
    call, shape = CALLS[name]
    x = noise(shape, torch.float32).requires_grad_()
    value = call(ours, x)
    expected = call(functional, x)
    assert torch.equal(value, expected)
    gradient = torch.autograd.grad(value.square().sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.square().sum(), x))


@needs_cuda
@pytest.mark.parametrize("name", CALLS)
def test_the_same_bytes_on_cuda(name: str) -> None:
    call, shape = CALLS[name]
    if name != "cross_entropy":
        shape = (2, 8, *(7 * size for size in shape[2:]))
    assert_same_bytes_on_cuda(partial(call, ours), noise(shape, torch.float32))


LABELS = torch.zeros(2, 4, dtype=torch.int64)
TOO_MANY_WEIGHTS = torch.ones(4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "keywords"),
    [
        ("cross_entropy", (2, 3, 4), (LABELS + 3,), {}),
        ("cross_entropy", (2, 3, 4), (torch.zeros(2, 5, dtype=torch.int64),), {}),
        ("cross_entropy", (2, 3, 4), (LABELS,), {"reduction": "average"}),
        ("cross_entropy", (2, 3, 4), (LABELS,), {"weight": TOO_MANY_WEIGHTS}),
        ("avg_pool3d", (2, 4, 4, 4), (0,), {}),
        ("avg_pool3d", (2, 4, 4, 4), (2, 0), {}),
        ("avg_pool3d", (2, 4, 4, 4), (9,), {}),
        ("interpolate", (1, 2, 5, 5, 5), (), {}),
        ("interpolate", (1, 2, 5, 5, 5), (3,), {"mode": "bilinear"}),
    ],
)
def test_what_pytorch_refuses_is_refused_with_the_same_error(
    name: str, shape: Shape, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    tensor = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    with pytest.raises((IndexError, RuntimeError, TypeError, ValueError)) as expected:
        getattr(functional, name)(tensor, *arguments, **keywords)
    with pytest.raises(expected.type) as raised:
        getattr(ours, name)(tensor, *arguments, **keywords)
    assert str(raised.value).startswith(str(expected.value).rstrip("."))


def test_no_class_of_a_uint8_target_is_taken_for_ignore_index() -> None:
    target = torch.tensor([[156, 1, 2], [3, 156, 159]], dtype=torch.uint8)
    of_integers = partial(functional.cross_entropy, target=target.long())
    of_bytes = partial(ours.cross_entropy, target=target)
    assert_same_as(of_integers, of_bytes, noise((2, 160, 3)))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_under_autocast_the_loss_is_computed_in_float32(smoothing: float) -> None:
    logits = noise((2, 5, 16, 16), torch.bfloat16)
    target = torch.arange(512).view(2, 16, 16) % 5
    exact = functional.cross_entropy(logits.double(), target, label_smoothing=smoothing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ours.cross_entropy(logits, target, label_smoothing=smoothing)
    assert loss.dtype == torch.float32
    assert float(loss) == pytest.approx(float(exact), rel=1e-6)


def gradient_strides(value: torch.Tensor, leaf: torch.Tensor) -> Shape:
    """Return the strides of the gradient that a leaf gets."""
    (gradient,) = torch.autograd.grad(value.square().sum(), leaf)
    return gradient.stride()


def test_the_gradient_of_a_loss_has_pytorchs_strides() -> None:
    leaf = noise((2, 3, 4, 4)).contiguous(memory_format=torch.channels_last).requires_grad_()
    target = torch.zeros((2, 4, 4), dtype=torch.int64)
    expected = gradient_strides(functional.cross_entropy(leaf, target), leaf)
    assert gradient_strides(ours.cross_entropy(leaf, target), leaf) == expected


@pytest.mark.parametrize("name", IMAGE_CALLS)
def test_gradients_keep_channels_last(name: str) -> None:
    call, shape = CALLS[name]
    order = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    leaf = noise((2, 5, *shape[2:])).contiguous(memory_format=order).requires_grad_()
    assert gradient_strides(call(ours, leaf), leaf) == leaf.stride()


@pytest.mark.parametrize("name", CALLS)
def test_first_and_second_derivatives_are_pytorchs(name: str) -> None:
    call, shape = CALLS[name]
    replacement = partial(call, ours)
    assert_same_as(partial(call, functional), replacement, noise(shape))
    small = noise(shape).requires_grad_()
    assert torch.autograd.gradgradcheck(replacement, small, fast_mode=True)


def under_autocast(call: Call, module: Any, shape: Shape) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a call's value under autocast, and the gradient of its sum."""
    x = noise(shape, torch.bfloat16).requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = call(module, x)
    (gradient,) = torch.autograd.grad(value.float().sum(), x)
    return value, gradient


@pytest.mark.parametrize("name", IMAGE_CALLS)
def test_values_and_dtypes_under_autocast_are_pytorchs(name: str) -> None:
    call, shape = CALLS[name]
    expected, expected_gradient = under_autocast(call, functional, shape)
    value, gradient = under_autocast(call, ours, shape)
    assert value.dtype == expected.dtype
    assert torch.equal(value, expected)
    assert gradient.dtype == expected_gradient.dtype == torch.bfloat16
    torch.testing.assert_close(gradient, expected_gradient, rtol=0.02, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_they_compile_as_one_graph(name: str) -> None:
    call, shape = CALLS[name]
    expected = noise(shape).requires_grad_()
    actual = noise(shape).requires_grad_()
    call(functional, expected).square().sum().backward()
    compiled = torch.compile(partial(call, ours), fullgraph=True, backend="aot_eager")
    compiled(actual).square().sum().backward()
    torch.testing.assert_close(actual.grad, expected.grad, rtol=1e-10, atol=1e-10)
