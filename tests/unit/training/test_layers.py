"""Cross-entropy, pooling and interpolation: PyTorch's numbers for all arguments, with gradients
that do not vary.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
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


def value_and_gradient(
    function: Function, tensor: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The value, and the gradient of the value's product with fixed random numbers."""
    leaf = tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    value = function(leaf)
    cotangent = torch.randn(
        value.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )
    (gradient,) = torch.autograd.grad(value, leaf, cotangent.to(value.device, value.dtype))
    return value.detach(), gradient


def assert_same_as(
    original: Function, ours: Function, tensor: torch.Tensor, rtol: float = 1e-10
) -> None:
    """Value and gradient are the original's, in float64 to within rounding."""
    expected, got = value_and_gradient(original, tensor), value_and_gradient(ours, tensor)
    for wanted, found in zip(expected, got, strict=True):
        torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol, equal_nan=True)


def assert_same_bytes_on_cuda(function: Function, tensor: torch.Tensor) -> None:
    """Ten times the same bytes without deterministic mode, and no error and the same bytes within
    it.
    """
    tensor = tensor.cuda()
    first = value_and_gradient(function, tensor)
    for _ in range(10):
        for wanted, found in zip(first, value_and_gradient(function, tensor), strict=True):
            assert torch.equal(wanted, found)
    with deterministic_mode():
        within = value_and_gradient(function, tensor)
    for wanted, found in zip(first, within, strict=True):
        assert torch.equal(wanted, found)


def noise(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(
        dtype
    )


# --- losses


def logits_and_target(
    shape: tuple[int, ...], classes: int, ignored: float = 0.0
) -> tuple[torch.Tensor, torch.Tensor]:
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
def test_cross_entropy_equals_pytorchs(
    shape: tuple[int, ...],
    classes: int,
    weighted: bool,
    ignored: float,
    smoothing: float,
    reduction: str,
) -> None:
    logits, target = logits_and_target(shape, classes, ignored)
    weight = torch.linspace(0.2, 1, classes, dtype=torch.float64) if weighted else None
    if weighted and smoothing and target.ndim == 0 and target == 255:
        return  # PyTorch itself refuses this one
    keywords: dict[str, Any] = {"weight": weight, "ignore_index": 255, "reduction": reduction}
    keywords["label_smoothing"] = smoothing
    assert_same_as(
        lambda x: functional.cross_entropy(x, target, **keywords),
        lambda x: ours.cross_entropy(x, target, **keywords),
        logits,
    )


def test_class_probabilities_are_targets_too() -> None:
    logits = torch.randn(2, 3, 4, 5, dtype=torch.float64)
    target = torch.softmax(torch.randn_like(logits), 1)
    weight = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    for reduction in ("mean", "sum", "none"):
        keywords = {"weight": weight, "reduction": reduction, "label_smoothing": 0.1}
        assert_same_as(
            lambda x, k=keywords: functional.cross_entropy(x, target, **k),
            lambda x, k=keywords: ours.cross_entropy(x, target, **k),
            logits,
        )


def test_a_mean_over_ignored_voxels_only_is_nan_and_their_gradient_zero() -> None:
    logits = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    target = torch.full((2, 4), -100)
    loss = ours.cross_entropy(logits, target)
    assert torch.isnan(loss)
    ours.cross_entropy(logits, target, reduction="sum").backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_an_impossible_class_costs_an_ignored_voxel_nothing() -> None:
    logits = torch.zeros(1, 2, 3, dtype=torch.float64)
    logits[0, 0] = -torch.inf
    target = torch.tensor([[1, -100, 1]])
    assert_same_as(
        lambda x: functional.cross_entropy(x, target),
        lambda x: ours.cross_entropy(x, target),
        logits,
    )


def test_with_deprecated_arguments_the_loss_is_pytorchs_own() -> None:
    logits, target = logits_and_target((2, 4), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ours.cross_entropy(logits, target, reduce=False).shape == (2, 4)


def test_a_half_precision_mean_over_many_voxels_does_not_overflow() -> None:
    logits = torch.zeros(1, 2, 400, 400, dtype=torch.float16)
    loss = ours.cross_entropy(logits, torch.zeros(1, 400, 400, dtype=torch.int64))
    assert loss.dtype == torch.float16
    assert loss.item() == pytest.approx(0.693, abs=2e-3)


def test_the_operation_that_varies_is_called_without_its_reduction_only() -> None:
    """PyTorch's reductions add atomically on CUDA; ``Reduction.NONE`` (0) does not, and PyTorch
    does not alert on it.
    """
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
        ours.cross_entropy(logits.requires_grad_(), target, label_smoothing=0.1).backward()
    assert reductions() == {0}
    assert not [
        name
        for name, _ in called
        if "scatter_add" in name or "index_add" in name or "index_put" in name
    ]
    called.clear()
    with Record():
        functional.cross_entropy(logits, target).backward()
    assert reductions() == {1}


# --- pooling


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_average_pooling_equals_pytorchs_for_all_arguments(data: st.DataObject) -> None:
    kernel = tuple(data.draw(st.integers(1, 4)) for _ in range(3))
    stride = data.draw(
        st.sampled_from([kernel, tuple(data.draw(st.integers(1, 5)) for _ in range(3))])
    )
    padding = tuple(data.draw(st.integers(0, k // 2)) for k in kernel)
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(3))
    assume(all(size >= k for size, k in zip(shape, kernel, strict=True)))
    arguments = {
        "ceil_mode": data.draw(st.booleans()),
        "count_include_pad": data.draw(st.booleans()),
    }
    arguments |= {"divisor_override": data.draw(st.sampled_from([None, 5]))}
    assert_same_as(
        lambda x: functional.avg_pool3d(x, kernel, stride, padding, **arguments),
        lambda x: ours.avg_pool3d(x, kernel, stride, padding, **arguments),
        noise((2, *shape)),
    )


@pytest.mark.parametrize("integer", [np.int64, np.uint8, torch.tensor])
def test_average_pooling_takes_every_kind_of_integer(integer: Callable[[int], Any]) -> None:
    two, one = integer(2), integer(1)
    for arguments in ((two,), (two, one), (two, one, one), ((two, one, two), None, (one, 0, one))):
        assert_same_as(
            lambda x, arguments=arguments: functional.avg_pool3d(x, *arguments),
            lambda x, arguments=arguments: ours.avg_pool3d(x, *arguments),
            noise((2, 5, 4, 6)),
        )


@pytest.mark.parametrize("integer", [np.int64, np.uint8])
def test_interpolation_takes_numpys_numbers(integer: Callable[[int], Any]) -> None:
    sizes = (integer(7), (integer(7), integer(4), integer(9)))
    scales = (integer(2), np.float32(1.5), (integer(2), np.float64(1.5), integer(1)))
    choices = [{"size": size} for size in sizes] + [{"scale_factor": scale} for scale in scales]
    for arguments in choices:
        assert_same_as(
            lambda x, arguments=arguments: functional.interpolate(x, mode="trilinear", **arguments),
            lambda x, arguments=arguments: ours.interpolate(x, mode="trilinear", **arguments),
            noise((1, 2, 5, 4, 6)),
        )


def test_cross_entropy_takes_numpys_numbers() -> None:
    logits, target = logits_and_target((2, 4, 5), 3, ignored=0.2)
    keywords = {"ignore_index": np.int64(255), "label_smoothing": np.float32(0.25)}
    assert_same_as(
        lambda x: functional.cross_entropy(x, target, **keywords),
        lambda x: ours.cross_entropy(x, target, **keywords),
        logits,
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


def arguments_for(ndim: int, mode: str) -> list[dict[str, Any]]:
    corners = [None, True, False] if "linear" in mode or "cubic" in mode else [None]
    smoothing = [False, True] if mode in ("bilinear", "bicubic") else [False]
    cases = itertools.product(corners, smoothing, TARGETS)
    return [
        {"mode": mode, "align_corners": corner, "antialias": antialias}
        | {
            name: value[:ndim] if isinstance(value, tuple) else value
            for name, value in target.items()
        }
        for corner, antialias, target in cases
    ]


@pytest.mark.parametrize(("ndim", "mode"), MODES)
def test_interpolation_equals_pytorchs_for_all_arguments(ndim: int, mode: str) -> None:
    for keywords, shape in itertools.product(arguments_for(ndim, mode), [(7, 8, 9), (17, 5, 3)]):
        tensor = noise((1, 2, *shape[:ndim]))
        assert_same_as(
            lambda x, k=keywords: functional.interpolate(x, **k),
            lambda x, k=keywords: ours.interpolate(x, **k),
            tensor,
        )


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
    keywords = {
        "scale_factor": scale,
        "mode": "linear",
        "recompute_scale_factor": recompute,
        "align_corners": corners,
    }
    tensor = noise((2, 2, size))
    value, gradient = value_and_gradient(lambda x: ours.interpolate(x, **keywords), tensor)
    matrix = functional.interpolate(torch.eye(size, dtype=torch.float64)[None], **keywords)[0]
    cotangent = torch.randn(
        value.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64
    )
    torch.testing.assert_close(gradient, cotangent @ matrix.T, rtol=1e-10, atol=1e-10)


def test_bytes_are_images_too() -> None:
    picture = torch.arange(64, dtype=torch.uint8).view(1, 1, 8, 8)
    assert torch.equal(
        ours.interpolate(picture, scale_factor=2), functional.interpolate(picture, scale_factor=2)
    )


# --- what they are given in practice

Call = Callable[[Any, torch.Tensor], torch.Tensor]

#: name → a call of one module's functions (PyTorch's or detaug's), and the shape of what it takes
CALLS: dict[str, tuple[Call, tuple[int, ...]]] = {
    "cross_entropy": (
        lambda f, x: f.cross_entropy(x, torch.arange(16, device=x.device).view(1, 4, 4) % 3),
        (1, 3, 4, 4),
    ),
    "avg_pool3d": (lambda f, x: f.avg_pool3d(x, 3, 2, 1), (1, 2, 5, 4, 6)),
    "avg_pool3d_with_lists": (lambda f, x: f.avg_pool3d(x, [1, 2, 2], [1, 2, 2]), (1, 2, 5, 4, 6)),
    "avg_pool3d_with_lists_of_one": (
        lambda f, x: f.avg_pool3d(x, (2,), [2], (1,)),
        (1, 2, 5, 4, 6),
    ),
    "bilinear": (lambda f, x: f.interpolate(x, scale_factor=1.5, mode="bilinear"), (1, 2, 4, 6)),
}


@pytest.mark.parametrize("name", [name for name in CALLS if name != "cross_entropy"])
def test_the_forward_pass_is_pytorchs_to_the_byte(name: str) -> None:
    call, shape = CALLS[name]
    x = noise(shape, torch.float32).requires_grad_()
    made, expected = call(ours, x), call(functional, x)
    assert torch.equal(made, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(each.square().sum(), x) for each in (made, expected))
    )


@needs_cuda
@pytest.mark.parametrize("name", CALLS)
def test_the_same_bytes_on_cuda(name: str) -> None:
    call, shape = CALLS[name]
    larger = shape if name == "cross_entropy" else (2, 8, *(7 * size for size in shape[2:]))
    assert_same_bytes_on_cuda(lambda x: call(ours, x), noise(larger, torch.float32))


_LABELS = torch.zeros(2, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "keywords"),
    [
        ("cross_entropy", (2, 3, 4), (_LABELS + 3,), {}),
        ("cross_entropy", (2, 3, 4), (torch.zeros(2, 5, dtype=torch.int64),), {}),
        ("cross_entropy", (2, 3, 4), (_LABELS,), {"reduction": "average"}),
        ("cross_entropy", (2, 3, 4), (_LABELS,), {"weight": torch.ones(4, dtype=torch.float64)}),
        ("avg_pool3d", (2, 4, 4, 4), (0,), {}),
        ("avg_pool3d", (2, 4, 4, 4), (2, 0), {}),
        ("avg_pool3d", (2, 4, 4, 4), (9,), {}),
        ("interpolate", (1, 2, 5, 5, 5), (), {}),
        ("interpolate", (1, 2, 5, 5, 5), (3,), {"mode": "bilinear"}),
    ],
)
def test_what_pytorch_refuses_is_refused_with_the_same_error(
    name: str, shape: tuple[int, ...], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    tensor = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    with pytest.raises((IndexError, RuntimeError, TypeError, ValueError)) as theirs:
        getattr(functional, name)(tensor, *arguments, **keywords)
    with pytest.raises(theirs.type) as raised:
        getattr(ours, name)(tensor, *arguments, **keywords)
    assert str(raised.value).startswith(str(theirs.value).rstrip("."))


def test_no_class_of_a_uint8_target_is_taken_for_ignore_index() -> None:
    logits = noise((2, 160, 3))
    target = torch.tensor([[156, 1, 2], [3, 156, 159]], dtype=torch.uint8)
    assert_same_as(
        lambda x: functional.cross_entropy(x, target.long()),
        lambda x: ours.cross_entropy(x, target),
        logits,
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_under_autocast_the_loss_is_computed_in_float32(smoothing: float) -> None:
    logits, target = noise((2, 5, 16, 16), torch.bfloat16), torch.arange(512).view(2, 16, 16) % 5
    exact = functional.cross_entropy(logits.double(), target, label_smoothing=smoothing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ours.cross_entropy(logits, target, label_smoothing=smoothing)
    assert loss.dtype == torch.float32
    assert abs(float(loss) / float(exact) - 1) < 1e-6


@pytest.mark.parametrize("name", CALLS)
def test_gradients_keep_channels_last(name: str) -> None:
    call, shape = CALLS[name]
    wanted = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    shape = (2, 5, *shape[2:]) if name != "cross_entropy" else (2, 3, *shape[2:])
    leaf = noise(shape).contiguous(memory_format=wanted).requires_grad_()
    target = torch.zeros((2, 4, 4), dtype=torch.int64)
    strides = []
    for module in (functional, ours):
        value = (
            module.cross_entropy(leaf, target) if name == "cross_entropy" else call(module, leaf)
        )
        # the gradient as it is handed on to the layer before
        strides.append(torch.autograd.grad(value.square().sum(), leaf)[0].stride())
    assert strides[1] == (strides[0] if name == "cross_entropy" else leaf.stride())


@pytest.mark.parametrize("name", CALLS)
def test_first_and_second_derivatives_are_pytorchs(name: str) -> None:
    call, shape = CALLS[name]
    assert_same_as(lambda x: call(functional, x), lambda x: call(ours, x), noise(shape))
    small = noise(shape).requires_grad_()
    torch.autograd.gradgradcheck(lambda x: call(ours, x), small, fast_mode=True)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "cross_entropy"])
def test_values_and_dtypes_under_autocast_are_pytorchs(name: str) -> None:
    call, shape = CALLS[name]
    given = [noise(shape, torch.bfloat16).requires_grad_() for _ in range(2)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = [call(module, x) for module, x in zip((functional, ours), given, strict=True)]
    assert values[0].dtype == values[1].dtype
    assert torch.equal(*values)
    gradients = [
        torch.autograd.grad(value.float().sum(), x)[0]
        for value, x in zip(values, given, strict=True)
    ]
    assert gradients[0].dtype == gradients[1].dtype == torch.bfloat16
    torch.testing.assert_close(*gradients, rtol=0.02, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_they_compile_as_one_graph(name: str) -> None:
    call, shape = CALLS[name]
    expected, got = noise(shape).requires_grad_(), noise(shape).requires_grad_()
    call(functional, expected).square().sum().backward()
    compiled = torch.compile(lambda x: call(ours, x), fullgraph=True, backend="aot_eager")
    compiled(got).square().sum().backward()
    torch.testing.assert_close(got.grad, expected.grad, rtol=1e-10, atol=1e-10)
