"""The table of operations that PyTorch calls non-deterministic, against the PyTorch that is installed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from detaug.training.nondeterministic_operations import OPERATIONS, operation_called, operations_of_module


class Listing(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        row = operation_called(func, args, kwargs or {})
        if row is not None:
            self.found[row.name] = row.status
        return func(*args, **(kwargs or {}))


def statuses(step: Any) -> dict[str, str]:
    with Listing() as mode:
        step()
    return mode.found


def image(*shape: int) -> torch.Tensor:
    return torch.rand(shape, requires_grad=True)


def test_every_name_is_one_that_pytorch_has() -> None:
    assert not [name for row in OPERATIONS for name in row.aten if not hasattr(torch.ops.aten, name)]
    assert not [name for row in OPERATIONS for name in row.modules if not hasattr(nn, name)]
    names = [row.name for row in OPERATIONS]
    assert len(set(names)) == len(names)
    assert all(row.aten and row.advice and row.where for row in OPERATIONS)


def test_every_layer_that_is_recommended_exists() -> None:
    import re

    from detaug.training import layers

    named = {name for row in OPERATIONS for name in re.findall(r"detaug\.training\.layers\.(\w+)", row.advice)}
    assert named
    assert not [name for name in sorted(named) if not hasattr(layers, name)]


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.AvgPool3d(2), (1, 1, 4, 4, 4)),
        (nn.AdaptiveAvgPool2d(2), (1, 1, 5, 5)),
        (nn.AdaptiveAvgPool3d(2), (1, 1, 5, 5, 5)),
        (nn.AdaptiveMaxPool2d(2), (1, 1, 5, 5)),
        (nn.AdaptiveMaxPool3d(2), (1, 1, 5, 5, 5)),
        (nn.FractionalMaxPool2d(2, output_size=3), (1, 1, 6, 6)),
        (nn.FractionalMaxPool3d(2, output_size=3), (1, 1, 6, 6, 6)),
        (nn.Upsample(scale_factor=2, mode="linear"), (1, 1, 4)),
        (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 1, 4, 4)),
        (nn.Upsample(scale_factor=2, mode="bicubic"), (1, 1, 4, 4)),
        (nn.Upsample(scale_factor=2, mode="trilinear"), (1, 1, 4, 4, 4)),
        (nn.UpsamplingBilinear2d(scale_factor=2), (1, 1, 4, 4)),
        (nn.ReflectionPad1d(1), (1, 1, 4)),
        (nn.ReflectionPad2d(1), (1, 1, 4, 4)),
        (nn.ReflectionPad3d(1), (1, 1, 4, 4, 4)),
        (nn.ReplicationPad1d(1), (1, 1, 4)),
        (nn.ReplicationPad2d(1), (1, 1, 4, 4)),
        (nn.ReplicationPad3d(1), (1, 1, 4, 4, 4)),
        (nn.MaxPool3d(2), (1, 1, 4, 4, 4)),
        (nn.Conv3d(1, 1, 1), (1, 1, 4, 4, 4)),
        (nn.ConvTranspose2d(1, 1, 1), (1, 1, 4, 4)),
    ],
)
def test_a_module_implies_what_running_it_calls(module: nn.Module, shape: tuple[int, ...]) -> None:
    called = statuses(lambda: module(image(*shape)).sum().backward())
    implied = {row.name: row.status for row in operations_of_module(module)}
    assert implied
    assert called == implied


@pytest.mark.parametrize(
    "module",
    [
        nn.Upsample(scale_factor=2, mode="nearest"),
        nn.CrossEntropyLoss(reduction="none"),
        nn.EmbeddingBag(3, 2, mode="sum"),
        nn.AvgPool2d(2),
        nn.InstanceNorm3d(2),
        nn.BCEWithLogitsLoss(),
    ],
)
def test_modules_that_pytorch_calls_deterministic_imply_nothing(module: nn.Module) -> None:
    assert operations_of_module(module) == ()


def test_a_subclass_implies_what_its_base_does() -> None:
    class MyPool(nn.AvgPool3d):
        pass

    assert [row.name for row in operations_of_module(MyPool(2))] == ["torch.nn.AvgPool3d"]


def test_conditions_of_the_documentation_are_kept() -> None:
    target = torch.zeros(1, 4, 4, dtype=torch.long)
    cross_entropy, index = nn.functional.cross_entropy, torch.tensor([0, 0])
    logits, flat = image(1, 2, 4, 4), torch.rand(4)
    raising = [
        (lambda: cross_entropy(logits, target), "torch.nn.NLLLoss"),
        (lambda: torch.histc(flat), "torch.histc"),
        (lambda: torch.bincount(index, weights=torch.rand(2)), "torch.bincount"),
        (lambda: flat.median(dim=0), "torch.median"),
        (lambda: flat.clone().put_(index, torch.rand(2), accumulate=True), "torch.Tensor.put_"),
        (
            lambda: flat.scatter_reduce(0, index, torch.rand(2), "amax"),
            "torch.Tensor.scatter_reduce (prod, amin, amax)",
        ),
        (
            lambda: nn.functional.embedding_bag(index[None], image(3, 2), mode="max").sum().backward(),
            "torch.nn.EmbeddingBag",
        ),
    ]
    for step, name in raising:
        assert statuses(step).get(name) == "raises", name
    handled = [
        (lambda: torch.cumsum(flat, 0), "torch.cumsum"),
        (lambda: flat.scatter(0, index, torch.rand(2)), "torch.Tensor.scatter"),
        (lambda: flat.scatter_reduce(0, index, torch.rand(2), "sum"), "torch.Tensor.scatter_reduce (sum, mean)"),
        (
            lambda: image(4)[index].sum().backward(),
            "torch.Tensor.index_put (accumulate=True), and indexing with tensors, differentiated",
        ),
        (
            lambda: image(4).gather(0, index).sum().backward(),
            "torch.Tensor.scatter_add_, and torch.gather, differentiated",
        ),
        (
            lambda: image(4).index_select(0, index).sum().backward(),
            "torch.index_add, and torch.index_select or repeat_interleave, differentiated",
        ),
    ]
    for step, name in handled:
        assert statuses(step).get(name) == "handled in deterministic mode", name
    fine = [
        lambda: cross_entropy(logits, target, reduction="none"),
        lambda: torch.bincount(index),
        lambda: flat.median(),
        lambda: torch.cumsum(index, 0),
        lambda: flat.scatter(0, index, 1.0),
        lambda: torch.sort(flat, stable=True),
        lambda: flat.max(dim=0),
    ]
    assert [statuses(step) for step in fine] == [{}] * len(fine)
    assert statuses(lambda: torch.topk(flat, 2)) == {"torch.topk, torch.kthvalue and torch.mode": "silent"}


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device: only there PyTorch raises")
def test_what_is_said_to_raise_raises_on_a_gpu() -> None:
    modules = [(nn.AvgPool3d(2), (1, 1, 4, 4, 4)), (nn.Upsample(scale_factor=2, mode="trilinear"), (1, 1, 4, 4, 4))]
    torch.use_deterministic_algorithms(True)
    try:
        for module, shape in modules:
            with pytest.raises(RuntimeError, match="deterministic implementation"):
                module(torch.rand(shape, device="cuda", requires_grad=True)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
