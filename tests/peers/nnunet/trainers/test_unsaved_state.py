"""State that a checkpoint lacks is told once, by name; what is saved, or zeroed before it is used,
is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.peers.nnunet.trainers.in_process import ShortDeterministic, new_trainer

LACKS = "the checkpoint lacks"


class Shadow:
    """Averages in an object of one's own, as several packages keep them."""

    def __init__(self, parameters: Any) -> None:
        self.parameters = list(parameters)
        self.values = {number: each.detach().clone() for number, each in enumerate(self.parameters)}

    def update(self) -> None:
        for number, each in enumerate(self.parameters):
            self.values[number] = self.values[number] * 0.5 + each.detach() * 0.5


class Average(ShortDeterministic):
    """Keeps averaged weights beside its network, of which no checkpoint knows."""

    def initialize(self) -> None:
        super().initialize()
        self.shadow = Shadow(self.network.parameters())

    def train_step(self, batch: Any) -> Any:
        outcome = super().train_step(batch)
        self.shadow.update()
        return outcome


class SavesItsAverage(Average):
    """Writes nnU-Net's checkpoint anew with what it keeps."""

    def save_checkpoint(self, filename: str) -> None:
        super().save_checkpoint(filename)
        stored = torch.load(filename, weights_only=False)
        torch.save({**stored, "average": self.shadow.values}, filename)


class SavesItBeside(Average):
    """Writes a file of its own."""

    def save_checkpoint(self, filename: str) -> None:
        super().save_checkpoint(filename)
        torch.save(self.shadow.values, f"{filename}.average.pt")


class Accumulates(ShortDeterministic):
    """Three batches to a step of the optimiser, two batches to an epoch."""

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
    """A step of its own that leaves gradients behind, and sets them to zero before the next."""

    def train_step(self, batch: Any) -> Any:
        self.optimizer.zero_grad(set_to_none=False)
        return super().train_step(batch)


class Nested(torch.optim.lr_scheduler.ExponentialLR):
    """A schedule that holds another one, as several packages have them, and a function."""

    def __init__(self, optimizer: Any) -> None:
        self.after = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        self.shape = round
        super().__init__(optimizer, 0.5)


class NestedSchedules(ShortDeterministic):
    def configure_optimizers(self) -> Any:
        optimizer, _ = super().configure_optimizers()
        return optimizer, Nested(optimizer)


def told(root: Path, trainer: type) -> list[str]:
    """The lines of a training's log on what a checkpoint lacks."""
    made = new_trainer(root, trainer)
    made.run_training()
    log = next(Path(made.output_folder).glob("training_log*.txt")).read_text()
    return [line for line in log.splitlines() if LACKS in line]


def test_what_no_file_holds_is_told_once_by_name(nnunet_environment: Path) -> None:
    (line,) = told(nnunet_environment, Average)
    assert "(shadow; 46 in all, the first is shadow.values[0])" in line


@pytest.mark.slow
@pytest.mark.parametrize("trainer", [SavesItsAverage, SavesItBeside])
def test_what_is_saved_is_not_told(nnunet_environment: Path, trainer: type) -> None:
    assert told(nnunet_environment, trainer) == []


def test_a_schedule_within_a_schedule_is_told_once_by_name(nnunet_environment: Path) -> None:
    (line,) = told(nnunet_environment, NestedSchedules)
    assert "lacks the state of 'after' of this trainer's schedule" in line


def test_gradients_that_the_next_step_adds_to_are_told(nnunet_environment: Path) -> None:
    (line,) = told(nnunet_environment, Accumulates)
    assert "lacks the gradients that this trainer was adding up" in line


def test_gradients_that_are_set_to_zero_are_not(nnunet_environment: Path) -> None:
    assert told(nnunet_environment, ZeroesFirst) == []
