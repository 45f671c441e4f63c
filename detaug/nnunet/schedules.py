"""A trainer's schedule of learning rates in the record of its training: its settings, its position.

nnU-Net's checkpoints hold no schedule: its own follow from the epoch. One that counts its steps
(`SequentialLR`, warm restarts) would begin again after ``--c``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from detaug.nnunet.run_record import differences, plain

#: The entry of a recorded schedule with its position. The others are its settings.
STATE = "state"

_NUMBERS = (bool, int, float, np.generic, torch.Tensor, np.ndarray)
#: Objects with a state of their own that checkpoints hold by themselves.
_SAVED_ELSEWHERE = (torch.optim.Optimizer, torch.nn.Module)


def recorded_schedule(settings: Mapping[str, Any], schedule: Any) -> dict[str, Any]:
    """Return what a record holds of a schedule.

    Args:
        settings: at the training's start, as `detaug.nnunet.run_record.schedule_settings` has them.
        schedule: as it is now.
    """
    state = {"class": plain(type(schedule)), **_storable_state(schedule)}
    return {**settings, STATE: state}


def _storable_state(schedule: Any) -> dict[str, Any]:
    """Return the `state_dict` of a schedule without the objects in it, such as functions."""
    if not hasattr(schedule, "state_dict"):
        # A user's schedule without a state must follow from the epoch alone, as nnU-Net's does.
        return {}
    state = {name: value for name, value in schedule.state_dict().items() if _is_storable(value)}
    # A copy: the schedule goes on changing its lists.
    return copy.deepcopy(state)


def _is_storable(value: Any) -> bool:
    """Return True for numbers, texts, and containers of these."""
    if value is None or isinstance(value, (str, *_NUMBERS)):
        return True
    if isinstance(value, Mapping):
        return all(map(_is_storable, (*value.keys(), *value.values())))
    if isinstance(value, (list, tuple)):
        return all(map(_is_storable, value))
    return False


def state_that_is_not_recorded(schedule: Any) -> list[str]:
    """Return the names of a schedule's attributes whose state a record lacks: schedules in it."""
    if not hasattr(schedule, "state_dict"):
        return []
    names = []
    for name, value in schedule.state_dict().items():
        if hasattr(value, "state_dict") and not isinstance(value, _SAVED_ELSEWHERE):
            names.append(name)
    return names


def restore(schedule: Any, settings: Mapping[str, Any], recorded: Mapping[str, Any]) -> None:
    """Bring a schedule to its recorded position, where its trainer has not done so.

    Its settings stay as they are. So does a schedule of another class: trainers exchange theirs
    after a warm-up.

    Args:
        schedule: after the trainer's own `load_checkpoint`.
        settings: its own at the training's start.
        recorded: the checkpoint's, as `recorded_schedule` returns it.
    """
    stored = dict(recorded[STATE])
    if stored.pop("class") != plain(type(schedule)):
        return
    # Entries that a setting decides (another num_epochs, with DETAUG_ALLOW) stay as they are now.
    current_settings = {**settings, STATE: recorded[STATE]}
    for path, *_ in differences(recorded, current_settings):
        stored.pop(path.partition(".")[0], None)
    state = _storable_state(schedule)
    current_state = {name: state.get(name) for name in stored}
    # nnU-Net's own schedule, and any that its trainer has loaded, is there already.
    if any(differences(stored, current_state)):
        schedule.load_state_dict({**schedule.state_dict(), **copy.deepcopy(stored)})
