"""A warning names once the state that a checkpoint lacks.

There is none for what is saved, or set to zero before it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.nnunet.trainers.in_process import ShortDeterministic, new_trainer

LACKS = "the checkpoint lacks"


class Shadow:
    """Averages of weights in an object of the user's, as several packages keep them."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)
        self.values: dict[int, torch.Tensor] = {}
        for index, parameter in enumerate(self.parameters):
            self.values[index] = parameter.detach().clone()

    def update(self) -> None:
        """Move the averages halfway to the weights."""
        for index, parameter in enumerate(self.parameters):
            self.values[index] = self.values[index] * 0.5 + parameter.detach() * 0.5


class Average(ShortDeterministic):
    """A trainer that averages its weights and saves no average."""

    def initialize(self) -> None:
        super().initialize()
        self.shadow = Shadow(self.network.parameters())

    def train_step(self, batch: Any) -> Any:
        outcome = super().train_step(batch)
        self.shadow.update()
        return outcome


class SavesItsAverage(Average):
    """A trainer that adds the averages to nnU-Net's checkpoint."""

    def save_checkpoint(self, filename: str) -> None:
        super().save_checkpoint(filename)
        content = torch.load(filename, weights_only=False)
        torch.save({**content, "average": self.shadow.values}, filename)


class SavesItBeside(Average):
    """A trainer that saves the averages in a file of their own."""

    def save_checkpoint(self, filename: str) -> None:
        super().save_checkpoint(filename)
        torch.save(self.shadow.values, f"{filename}.average.pt")


class Accumulates(ShortDeterministic):
    """A trainer whose optimiser steps after every three batches; an epoch has two."""

    batches = 0

    def train_step(self, batch: Any) -> Any:
        output = self.network(batch["data"])
        loss = self.loss(output, batch["target"])
        loss.backward()
        self.batches += 1
        if self.batches % 3 == 0:
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)
        return {"loss": loss.detach().numpy()}


class ZeroesFirst(Accumulates):
    """A trainer that sets gradients to zero at the start of each step, not at its end."""

    def train_step(self, batch: Any) -> Any:
        self.optimizer.zero_grad(set_to_none=False)
        return super().train_step(batch)


class Nested(torch.optim.lr_scheduler.ExponentialLR):
    """A schedule that holds another one, as those of several packages do, and a function."""

    def __init__(self, optimizer: Any) -> None:
        self.after = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        self.shape = round
        super().__init__(optimizer, 0.5)


class NestedSchedules(ShortDeterministic):
    """A trainer with a schedule that holds another one."""

    def configure_optimizers(self) -> Any:
        optimizer, _ = super().configure_optimizers()
        return optimizer, Nested(optimizer)


def lacking_lines(root: Path, trainer: type) -> list[str]:
    """Train, and return the lines of the log that say what a checkpoint lacks."""
    training = new_trainer(root, trainer)
    training.run_training()
    (log,) = Path(training.output_folder).glob("training_log*.txt")
    return [line for line in log.read_text().splitlines() if LACKS in line]


def test_what_no_file_holds_is_told_once_by_name(nnunet_environment: Path) -> None:
    (line,) = lacking_lines(nnunet_environment, Average)
    assert "(shadow; 46 in all, the first is shadow.values[0])" in line


@pytest.mark.slow
@pytest.mark.parametrize("trainer", [SavesItsAverage, SavesItBeside])
def test_what_is_saved_is_not_lacking_lines(nnunet_environment: Path, trainer: type) -> None:
    assert lacking_lines(nnunet_environment, trainer) == []


def test_a_schedule_within_a_schedule_is_told_once_by_name(nnunet_environment: Path) -> None:
    (line,) = lacking_lines(nnunet_environment, NestedSchedules)
    assert "lacks the state of 'after' of this trainer's schedule" in line


def test_gradients_that_the_next_step_adds_to_are_lacking_lines(nnunet_environment: Path) -> None:
    (line,) = lacking_lines(nnunet_environment, Accumulates)
    assert "lacks the gradients that this trainer was adding up" in line


def test_gradients_that_are_set_to_zero_are_not(nnunet_environment: Path) -> None:
    assert lacking_lines(nnunet_environment, ZeroesFirst) == []
