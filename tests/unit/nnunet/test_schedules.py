"""The record of a schedule of learning rates, and a schedule that continues from it."""

from __future__ import annotations

import pytest
import torch
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR, StepLR

from detaug.nnunet.run_record import schedule_settings
from detaug.nnunet.schedules import STATE, recorded_schedule, restore


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)


def stepped(schedule: LRScheduler, times: int) -> LRScheduler:
    for _ in range(times):
        schedule.optimizer.step()
        schedule.step()
    return schedule


def test_a_record_stays_as_it_is_while_the_schedule_goes_on() -> None:
    schedule = stepped(StepLR(optimizer(), 2), 3)
    recorded = recorded_schedule(schedule_settings(schedule), schedule)
    assert recorded[STATE]["base_lrs"] == [1.0]
    schedule.base_lrs[0] = 7.0
    assert recorded[STATE]["base_lrs"] == [1.0]


def test_a_schedule_goes_on_from_its_record() -> None:
    schedule = stepped(StepLR(optimizer(), 2), 3)
    settings = schedule_settings(schedule)
    recorded = recorded_schedule(settings, schedule)
    resumed = StepLR(optimizer(), 2)
    restore(resumed, settings, recorded)
    assert resumed.last_epoch == 3
    assert resumed.get_last_lr() == schedule.get_last_lr()
    resumed.base_lrs[0] = 7.0
    assert recorded[STATE]["base_lrs"] == [1.0], "the checkpoint is not the schedule's"


def test_a_schedule_of_another_class_stays_as_it_is() -> None:
    schedule = stepped(StepLR(optimizer(), 2), 3)
    settings = schedule_settings(schedule)
    other = MultiStepLR(optimizer(), [2])
    restore(other, schedule_settings(other), recorded_schedule(settings, schedule))
    assert other.last_epoch == 0


@pytest.mark.parametrize("step_size", [2, 5])
def test_settings_of_the_new_trainer_stay(step_size: int) -> None:
    schedule = stepped(StepLR(optimizer(), 2), 3)
    recorded = recorded_schedule(schedule_settings(schedule), schedule)
    other = StepLR(optimizer(), step_size)
    restore(other, schedule_settings(other), recorded)
    assert other.step_size == step_size
    assert other.last_epoch == 3
