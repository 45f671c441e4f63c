"""Cross-entropy: PyTorch's numbers, without the operation that varies."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from detaug.training import layers
from tests.unit.training.layer_checks import assert_same_as, assert_same_bytes_on_cuda, needs_cuda

SHAPES = [(), (4,), (3, 5), (2, 4, 5), (2, 3, 4, 5), (2, 2, 2, 2, 3), (0, 3, 3)]


def logits_and_target(shape: tuple[int, ...], classes: int, ignored: float = 0.0) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(len(shape) + classes)
    logits = torch.randn((*shape[:1], classes, *shape[1:]), dtype=torch.float64, generator=random)
    target = torch.randint(0, classes, shape, generator=random)
    return logits, torch.where(torch.rand(shape, generator=random) < ignored, 255, target)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_cross_entropy_and_nll_loss_equal_pytorchs_for_all_arguments(shape: tuple[int, ...], reduction: str) -> None:
    for classes, weighted, ignore_index, smoothing in itertools.product((4,), (False, True), (-100, 255), (0, 0.2)):
        logits, target = logits_and_target(shape, classes, ignored=0.4 if ignore_index == 255 else 0)
        weight = torch.linspace(0.2, 1, classes, dtype=torch.float64) if weighted else None
        keywords = {"weight": weight, "ignore_index": ignore_index, "reduction": reduction}
        if weighted and smoothing and target.ndim == 0 and (target == ignore_index).all():
            continue  # PyTorch itself refuses this one
        assert_same_as(
            lambda x, t=target, k=keywords, s=smoothing: functional.cross_entropy(x, t, label_smoothing=s, **k),
            lambda x, t=target, k=keywords, s=smoothing: layers.cross_entropy(x, t, label_smoothing=s, **k),
            logits,
        )
        assert_same_as(
            lambda x, t=target, k=keywords: functional.nll_loss(x, t, **k),
            lambda x, t=target, k=keywords: layers.nll_loss(x, t, **k),
            logits,
        )


@settings(max_examples=15, deadline=None)
@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple),
    classes=st.integers(1, 6),
    ignored=st.floats(0, 1),
    smoothing=st.sampled_from([0.0, 0.1, 1.0]),
    reduction=st.sampled_from(["mean", "sum", "none"]),
)
def test_the_modules_equal_pytorchs(
    shape: tuple[int, ...], classes: int, ignored: float, smoothing: float, reduction: str
) -> None:
    logits, target = logits_and_target(shape, classes, ignored)
    arguments = {"ignore_index": 255, "reduction": reduction, "label_smoothing": smoothing}
    original, ours = torch.nn.CrossEntropyLoss(**arguments), layers.CrossEntropyLoss(**arguments)
    assert_same_as(lambda x: original(x, target), lambda x: ours(x, target), logits)


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


def test_legacy_reduction_arguments_are_understood() -> None:
    logits, target = logits_and_target((2, 4), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for size_average, reduce in itertools.product((None, True, False), (None, True, False)):
            keywords = {"size_average": size_average, "reduce": reduce}
            assert_same_as(
                lambda x, k=keywords: functional.cross_entropy(x, target, **k),
                lambda x, k=keywords: layers.cross_entropy(x, target, **k),
                logits,
            )
        assert layers.CrossEntropyLoss(reduce=False)(logits, target).shape == (2, 4)


@pytest.mark.parametrize(
    ("target", "keywords"),
    [
        (torch.full((2, 4), 3), {}),
        (torch.full((2, 4), -1), {}),
        (torch.zeros(2, 5, dtype=torch.int64), {}),
        (torch.zeros(2, 4), {}),
        (torch.zeros(2, 4, dtype=torch.int64), {"reduction": "average"}),
        (torch.zeros(2, 4, dtype=torch.int64), {"weight": torch.ones(4, dtype=torch.float64)}),
        (torch.zeros(2, 4, dtype=torch.int64), {"weight": torch.ones(3)}),
        (torch.zeros(2, 4, dtype=torch.int64), {"label_smoothing": 1.5}),
    ],
)
def test_what_pytorch_refuses_is_refused_with_the_same_error(target: torch.Tensor, keywords: dict) -> None:
    logits = torch.zeros(2, 3, 4, dtype=torch.float64)
    with pytest.raises((IndexError, RuntimeError, ValueError)) as theirs:
        functional.cross_entropy(logits, target, **keywords)
    with pytest.raises(theirs.type) as ours:
        layers.cross_entropy(logits, target, **keywords)
    assert str(ours.value).startswith(str(theirs.value).rstrip("."))


def test_a_target_changed_after_the_loss_does_not_change_its_gradient() -> None:
    logits, target = logits_and_target((2, 3), 4)
    expected = torch.autograd.grad(layers.cross_entropy(logits.requires_grad_(), target), logits)[0]
    loss = layers.cross_entropy(logits, target)
    target.zero_()
    assert torch.equal(torch.autograd.grad(loss, logits)[0], expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_dtypes_are_pytorchs_with_autocast_and_without(dtype: torch.dtype) -> None:
    logits, target = torch.randn(2, 3, 4, 4).to(dtype), torch.zeros(2, 4, 4, dtype=torch.int64)
    for enabled in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            for reduction in ("mean", "none"):
                theirs = functional.cross_entropy(logits, target, reduction=reduction)
                ours = layers.cross_entropy(logits, target, reduction=reduction)
                assert ours.dtype == theirs.dtype
                torch.testing.assert_close(ours, theirs, rtol=0.02, atol=0.02)


def test_a_half_precision_mean_over_many_voxels_does_not_overflow() -> None:
    logits = torch.zeros(1, 2, 400, 400, dtype=torch.float16)
    loss = layers.cross_entropy(logits, torch.zeros(1, 400, 400, dtype=torch.int64))
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


@needs_cuda
@pytest.mark.parametrize("shape", [(512,), (2, 64, 64), (2, 32, 32, 32)])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_the_same_bytes_on_cuda(shape: tuple[int, ...], reduction: str) -> None:
    logits, target = logits_and_target(shape, 5, ignored=0.2)
    target = target.cuda()
    assert_same_bytes_on_cuda(
        lambda x: layers.cross_entropy(x, target, ignore_index=255, reduction=reduction, label_smoothing=0.1),
        logits.float(),
    )
