"""`audit`: what it finds, what it names, and that it leaves everything as it was."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from detaug import fingerprint
from detaug.training import audit, deterministic_mode, make_deterministic


class Noise(nn.Module):
    """Makes a generator that no one seeds in every call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_numpy(np.random.default_rng().normal(size=x.shape)).to(x)


class Counting(nn.Module):
    """Depends on how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(len(self.log))
        return x * len(self.log)


class _NoisyGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] + float(np.random.default_rng().normal())


class NoisyBackward(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _NoisyGradient.apply(x)  # type: ignore[no-any-return]


def network(*added: nn.Module) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5), *added, nn.Conv2d(4, 2, 1)
    )


BATCH = torch.ones(2, 1, 6, 6), np.zeros((2, 4, 4), dtype=np.int64)


@pytest.mark.parametrize("added", [[], [Counting()], [nn.MaxPool2d(1)]])
def test_dropout_and_what_counts_its_calls_are_the_same_in_every_run(
    added: list[nn.Module],
) -> None:
    report = audit(network(*added), nn.CrossEntropyLoss(), BATCH)
    assert report.deterministic, str(report)
    assert str(report).startswith(
        "Deterministic: the same bytes in all outputs and gradients on cpu"
    )


@pytest.mark.parametrize(
    ("added", "loss", "where"),
    [
        ([Noise()], nn.CrossEntropyLoss(), ["output of 3 (Noise)"]),
        ([], lambda output, _: (output * random.SystemRandom().random()).sum(), ["the loss"]),
        # in the order of the backward pass: the layers behind the noisy one are right
        ([NoisyBackward()], nn.CrossEntropyLoss(), ["gradient of 1.weight", "gradient of 1.bias"]),
    ],
)
def test_the_first_output_loss_or_gradient_that_differs_is_named(
    added: list[nn.Module], loss: Any, where: list[str]
) -> None:
    report = audit(network(*added), loss, BATCH)
    assert report.difference in where
    assert f"the first difference is in {report.difference}" in str(report)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch alerts where an operation runs")
def test_operations_that_pytorch_alerts_on_are_named_with_what_to_use_instead() -> None:
    model = nn.Sequential(nn.Conv3d(1, 2, 3), nn.AvgPool3d(2))
    batch = torch.ones(1, 1, 6, 6, 6), torch.zeros(1, 2, 2, 2)
    report = audit(model, lambda output, _: output.sum(), batch, "cuda")
    assert any(
        "avg_pool3d" in name and "make_deterministic" in text
        for name, text in report.operations.items()
    )
    assert (
        audit(make_deterministic(model), lambda output, _: output.sum(), batch, "cuda").operations
        == {}
    )


def test_an_operation_that_alerts_on_a_cpu_is_named() -> None:
    class Putting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(3).put_(torch.tensor([0, 0]), self.weight[:2]) + x

    report = audit(Putting(), lambda output, _: output.sum(), (torch.ones(3), 0))
    assert list(report.operations) == ["put_"]
    assert "raises in deterministic mode: put_: " in str(report)


def test_model_gradients_and_switches_are_left_as_they_are() -> None:
    model = network(Counting())
    model(BATCH[0]).sum().backward()
    weights, gradients = fingerprint(model.state_dict()), [each.grad for each in model.parameters()]
    with deterministic_mode(False):
        audit(model, nn.CrossEntropyLoss(), BATCH)
        assert not torch.are_deterministic_algorithms_enabled()
    assert fingerprint(model.state_dict()) == weights
    assert all(each.grad is was for each, was in zip(model.parameters(), gradients, strict=True))
    assert model[3].log == [0]
    assert not any(each._forward_hooks for each in model.modules())


@pytest.mark.parametrize(
    ("model", "batch", "says"),
    [
        (print, BATCH, "model must be a torch.nn.Module"),
        (network(), BATCH[0], r"sample_batch must be \(input, target\), got Tensor"),
        (network(), (1, 2, 3), "sample_batch must be"),
    ],
)
def test_wrong_arguments_are_refused(model: Any, batch: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        audit(model, nn.CrossEntropyLoss(), batch)
