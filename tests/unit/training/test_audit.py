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
    """A layer that creates an unseeded generator in every call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_numpy(np.random.default_rng().normal(size=x.shape)).to(x)


class Counting(nn.Module):
    """A layer whose output depends on the number of its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.log.append(len(self.log))
        return x * len(self.log)


class Overwriting(nn.Module):
    """A layer that writes into its input."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(1, 2, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x.mul_(2))


class _NoisyGradient(torch.autograd.Function):
    """The identity with a random gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
        return gradients[0] + float(np.random.default_rng().normal())


class NoisyBackward(nn.Module):
    """A layer with a random gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _NoisyGradient.apply(x)  # type: ignore[no-any-return]


def network(*added: nn.Module) -> nn.Sequential:
    torch.manual_seed(1)
    layers = [nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5)]
    return nn.Sequential(*layers, *added, nn.Conv2d(4, 2, 1))


def total(output: torch.Tensor, target: Any) -> torch.Tensor:
    return output.sum()


def of_chance(output: torch.Tensor, target: Any) -> torch.Tensor:
    return output.sum() * random.SystemRandom().random()


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


def test_a_model_that_writes_into_its_input_gets_the_same_one_every_time() -> None:
    images, labels = BATCH
    batch = images.clone(), labels
    report = audit(Overwriting(), nn.CrossEntropyLoss(), batch)
    assert report.deterministic, str(report)
    assert torch.equal(batch[0], images)


@pytest.mark.parametrize(
    ("added", "loss", "where"),
    [
        (
            [Noise()],
            nn.CrossEntropyLoss(),
            ["output of 3 (Noise)"],
        ),
        (
            [],
            of_chance,
            ["the loss"],
        ),
        # In the order of the backward pass: gradients of later layers do not differ.
        (
            [NoisyBackward()],
            nn.CrossEntropyLoss(),
            ["gradient of 1.weight", "gradient of 1.bias"],
        ),
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
    report = audit(model, total, batch, "cuda")
    (advice,) = [text for name, text in report.operations.items() if "avg_pool3d" in name]
    assert "make_deterministic" in advice
    assert audit(make_deterministic(model), total, batch, "cuda").operations == {}


class Putting(nn.Module):
    """A layer with an operation that raises in deterministic mode on every device."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        indices = torch.tensor([0, 0])
        return torch.zeros(3).put_(indices, self.weight[:2]) + x


def test_an_operation_that_alerts_on_a_cpu_is_named() -> None:
    report = audit(Putting(), total, (torch.ones(3), 0))
    assert list(report.operations) == ["put_"]
    assert "raises in deterministic mode: put_: " in str(report)


def test_model_gradients_and_switches_are_left_as_they_are() -> None:
    model = network(Counting())
    model(BATCH[0]).sum().backward()
    weights = fingerprint(model.state_dict())
    gradients = [parameter.grad for parameter in model.parameters()]
    with deterministic_mode(False):
        audit(model, nn.CrossEntropyLoss(), BATCH)
        assert not torch.are_deterministic_algorithms_enabled()
    assert fingerprint(model.state_dict()) == weights
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is gradient
    assert model[3].log == [0]
    for module in model.modules():
        assert not module._forward_hooks


@pytest.mark.parametrize(
    ("model", "batch", "message"),
    [
        (print, BATCH, "model must be a torch.nn.Module"),
        (network(), BATCH[0], r"sample_batch must be \(input, target\), got Tensor"),
        (network(), (1, 2, 3), "sample_batch must be"),
    ],
)
def test_wrong_arguments_are_refused(model: Any, batch: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        audit(model, nn.CrossEntropyLoss(), batch)
