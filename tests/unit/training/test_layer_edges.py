"""What a layer is given in practice: NumPy's integers, half precision, channels last, errors, torch.func, compilers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from detaug.training import layers
from tests.unit.training.layer_checks import assert_same_as, assert_same_bytes_on_cuda, needs_cuda

Call = Callable[[Any, torch.Tensor], torch.Tensor]

#: name → a call of one module's functions (PyTorch's or detaug's), and the shape of what it takes
CALLS: dict[str, tuple[Call, tuple[int, ...]]] = {
    "cross_entropy": (
        lambda f, x: f.cross_entropy(x, torch.arange(16, device=x.device).view(1, 4, 4) % 3),
        (1, 3, 4, 4),
    ),
    "avg_pool3d": (lambda f, x: f.avg_pool3d(x, 3, 2, 1), (1, 2, 5, 4, 6)),
    "avg_pool3d_with_lists": (lambda f, x: f.avg_pool3d(x, [1, 2, 2], [1, 2, 2]), (1, 2, 5, 4, 6)),
    "adaptive_avg_pool3d": (lambda f, x: f.adaptive_avg_pool3d(x, (2, 3, 1)), (1, 2, 5, 4, 6)),
    "bilinear": (lambda f, x: f.interpolate(x, scale_factor=1.5, mode="bilinear"), (1, 2, 4, 6)),
    "bicubic": (lambda f, x: f.interpolate(x, size=(5, 9), mode="bicubic"), (1, 2, 4, 6)),
    "reflect": (lambda f, x: f.pad(x, (1, 2, 0, 1), mode="reflect"), (1, 2, 4, 6)),
}


def noise(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "cross_entropy"])
def test_the_forward_pass_is_pytorchs_to_the_byte(name: str) -> None:
    call, shape = CALLS[name]
    x = noise(shape, torch.float32).requires_grad_()
    assert torch.equal(call(layers, x), call(functional, x))


@needs_cuda
@pytest.mark.parametrize("name", CALLS)
def test_the_same_bytes_on_cuda(name: str) -> None:
    call, shape = CALLS[name]
    larger = shape if name == "cross_entropy" else (2, 8, *(7 * size for size in shape[2:]))
    assert_same_bytes_on_cuda(lambda x: call(layers, x), noise(larger, torch.float32))


_LABELS = torch.zeros(2, 4, dtype=torch.int64)


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "keywords"),
    [
        ("cross_entropy", (2, 3, 4), (_LABELS + 3,), {}),
        ("cross_entropy", (2, 3, 4), (_LABELS - 1,), {}),
        ("cross_entropy", (2, 3, 4), (torch.zeros(2, 5, dtype=torch.int64),), {}),
        ("cross_entropy", (2, 3, 4), (torch.zeros(2, 4),), {}),
        ("cross_entropy", (2, 3, 4), (_LABELS,), {"reduction": "average"}),
        ("cross_entropy", (2, 3, 4), (_LABELS,), {"weight": torch.ones(4, dtype=torch.float64)}),
        ("cross_entropy", (2, 3, 4), (_LABELS,), {"label_smoothing": 1.5}),
        ("avg_pool3d", (2, 4, 4, 4), (0,), {}),
        ("avg_pool3d", (2, 4, 4, 4), (2, 0), {}),
        ("avg_pool3d", (2, 4, 4, 4), (2, 1, 2), {}),
        ("avg_pool3d", (2, 4, 4, 4), ((2, 2),), {}),
        ("avg_pool3d", (2, 4, 4, 4), (9,), {}),
        ("interpolate", (1, 2, 5, 5, 5), (), {}),
        ("interpolate", (1, 2, 5, 5, 5), (3, 2), {}),
        ("interpolate", (1, 2, 5, 5, 5), (3,), {"mode": "bilinear"}),
        ("interpolate", (1, 2, 5, 5, 5), (3,), {"mode": "cubic"}),
    ],
)
def test_what_pytorch_refuses_is_refused_with_the_same_error(
    name: str, shape: tuple[int, ...], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    tensor = torch.zeros(shape, dtype=torch.float64, requires_grad=True)
    with pytest.raises((IndexError, RuntimeError, TypeError, ValueError)) as theirs:
        getattr(functional, name)(tensor, *arguments, **keywords)
    with pytest.raises(theirs.type) as ours:
        getattr(layers, name)(tensor, *arguments, **keywords)
    assert str(ours.value).startswith(str(theirs.value).rstrip("."))


def test_no_class_of_a_uint8_target_is_taken_for_ignore_index() -> None:
    logits = noise((2, 160, 3))
    target = torch.tensor([[156, 1, 2], [3, 156, 159]], dtype=torch.uint8)
    assert_same_as(
        lambda x: functional.cross_entropy(x, target.long()), lambda x: layers.cross_entropy(x, target), logits
    )


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_under_autocast_the_loss_is_computed_in_float32(smoothing: float) -> None:
    logits, target = noise((2, 5, 16, 16), torch.bfloat16), torch.arange(512).view(2, 16, 16) % 5
    exact = functional.cross_entropy(logits.double(), target, label_smoothing=smoothing)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = layers.cross_entropy(logits, target, label_smoothing=smoothing)
        likelihood = layers.nll_loss(logits, target)
    assert loss.dtype == likelihood.dtype == torch.float32
    assert abs(float(loss) / float(exact) - 1) < 1e-6


@pytest.mark.parametrize("name", CALLS)
def test_gradients_keep_channels_last(name: str) -> None:
    call, shape = CALLS[name]
    wanted = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    shape = (2, 5, *shape[2:]) if name != "cross_entropy" else (2, 3, *shape[2:])
    leaf = noise(shape).contiguous(memory_format=wanted).requires_grad_()
    target = torch.zeros((2, 4, 4), dtype=torch.int64)
    strides = []
    for module in (functional, layers):
        value = module.cross_entropy(leaf, target) if name == "cross_entropy" else call(module, leaf)
        # the gradient as it is handed on to the layer before
        strides.append(torch.autograd.grad(value.square().sum(), leaf)[0].stride())
    assert strides[1] == (strides[0] if name == "cross_entropy" else leaf.stride())


@pytest.mark.parametrize("name", CALLS)
def test_first_and_second_derivatives_are_pytorchs(name: str) -> None:
    call, shape = CALLS[name]
    assert_same_as(lambda x: call(functional, x), lambda x: call(layers, x), noise(shape))
    small = noise(shape).requires_grad_()
    torch.autograd.gradgradcheck(lambda x: call(layers, x), small, fast_mode=True)


@pytest.mark.parametrize("name", CALLS)
def test_functional_transforms_and_forward_differentiation(name: str) -> None:
    call, shape = CALLS[name]
    x, tangent = noise(shape), noise(shape).flip(-1)
    for transform in (
        lambda f: torch.func.grad(lambda y: call(f, y).square().sum())(x),
        lambda f: torch.func.jvp(lambda y: call(f, y), (x,), (tangent,))[1],
        lambda f: torch.func.vmap(torch.func.grad(lambda y: call(f, y).square().sum()))(torch.stack([x, tangent])),
    ):
        torch.testing.assert_close(transform(layers), transform(functional), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "cross_entropy"])
def test_values_and_dtypes_under_autocast_are_pytorchs(name: str) -> None:
    call, shape = CALLS[name]
    given = [noise(shape, torch.bfloat16).requires_grad_() for _ in range(2)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values = [call(module, x) for module, x in zip((functional, layers), given, strict=True)]
    assert values[0].dtype == values[1].dtype
    assert torch.equal(*values)
    gradients = [torch.autograd.grad(value.float().sum(), x)[0] for value, x in zip(values, given, strict=True)]
    assert gradients[0].dtype == gradients[1].dtype == torch.bfloat16
    torch.testing.assert_close(*gradients, rtol=0.02, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("name", CALLS)
def test_they_compile_as_one_graph(name: str) -> None:
    call, shape = CALLS[name]
    expected, got = noise(shape).requires_grad_(), noise(shape).requires_grad_()
    call(functional, expected).square().sum().backward()
    compiled = torch.compile(lambda x: call(layers, x), fullgraph=True, backend="aot_eager")
    compiled(got).square().sum().backward()
    torch.testing.assert_close(got.grad, expected.grad, rtol=1e-10, atol=1e-10)


@pytest.mark.slow
def test_a_swapped_model_compiles_as_one_graph_and_exports() -> None:
    model = layers.make_deterministic(
        nn.Sequential(
            nn.Conv3d(1, 2, 3, padding=1, padding_mode="reflect"),
            nn.AvgPool3d(2),
            nn.Upsample(scale_factor=2, mode="trilinear"),
            nn.ReflectionPad3d(1),
            nn.AdaptiveAvgPool3d(3),
        )
    )
    x, y = (noise((1, 1, 6, 6, 6), torch.float32).requires_grad_() for _ in range(2))
    model(x).square().sum().backward()
    torch.compile(model, fullgraph=True, backend="aot_eager")(y).square().sum().backward()
    torch.testing.assert_close(y.grad, x.grad)
    for strict in (False, True):
        exported = torch.export.export(model, (x.detach(),), strict=strict)
        assert torch.equal(exported.module()(x.detach()), model(x))
