"""State that a training carries on and its checkpoints lack, so that ``--c`` goes on without it:
told, once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch

from detaug.nnunet.run_record import print_of
from detaug.nnunet.schedules import state_that_is_not_recorded
from detaug.walking import walk

#: Attributes of a trainer whose state is in nnU-Net's checkpoints, or follows from the epoch.
_SAVED = {
    "network",
    "optimizer",
    "grad_scaler",
    "lr_scheduler",
    "logger",
    "dataloader_train",
    "dataloader_val",
}
_TENSORS = (torch.Tensor, np.ndarray)
_NOT_LOOKED_INTO = (
    *_TENSORS,
    FunctionType,
    BuiltinFunctionType,
    MethodType,
    logging.Logger,
    logging.Handler,
)
#: So many objects are looked at.
_MOST = 100_000

logger = logging.getLogger("detaug")


class UnsavedState:
    """Looks at a trainer when its training starts, at its first checkpoint, and when it goes on.

    Tensors and arrays that the trainer reaches, have changed and are in no file of the output
    folder are told: averaged weights, for one. A trainer may write its checkpoint anew, or files of
    its own, after nnU-Net's `save_checkpoint`; so files are looked at when training goes on. And
    gradients are told to which the first step after the checkpoint adds: those that are left over,
    as nnU-Net's `train_step` leaves them, are set to zero before.

    Args:
        trainer: before its first epoch.
    """

    def __init__(self, trainer: Any) -> None:
        self._before = {name: print_of(each) for name, each in tensors_of(trainer)}
        self._changed: dict[str, str] | None = None

    def checkpoint_is_written(self, trainer: Any) -> None:
        """Note what has changed until the first one."""
        if self._changed is None:
            now = {name: print_of(each) for name, each in tensors_of(trainer)}
            self._changed = {
                name: each for name, each in now.items() if self._before.get(name) != each
            }
            _tell_added_gradients(trainer.network)
            _tell_nested_schedules(trainer.lr_scheduler)

    def training_goes_on(self, folder: Path) -> None:
        """Tell what the files in a folder lack, once."""
        if not self._changed:
            return
        files = [file for file in folder.iterdir() if file.suffix in (".pth", ".pt")]
        saved = {print_of(each) for file in files for _, each in _tensors({"": _content(file)})}
        lacking = [name for name, each in self._changed.items() if each not in saved]
        self._changed = {}
        if lacking:
            logger.warning(
                "the checkpoint lacks tensors of this trainer that training has changed (%s; %d in"
                " all, the first %s): a training that is continued with --c goes on without their"
                " values. Save and load them in save_checkpoint and load_checkpoint",
                ", ".join(dict.fromkeys(re.split(r"\W", name)[0] for name in lacking)),
                len(lacking),
                lacking[0],
            )


def _content(file: Path) -> Any:
    try:  # files of the trainer's own, of which NumPy's scalars want a full unpickling
        return torch.load(file, map_location="cpu", weights_only=False, mmap=True)
    except Exception:  # whatever a file of another kind leads to
        return None


def tensors_of(trainer: Any) -> Iterator[tuple[str, Any]]:
    """(path, tensor or array) of what a trainer holds besides what is saved, wherever else it is
    referred to.
    """
    saved = [getattr(trainer, name, None) for name in _SAVED]
    saved += [*trainer.network.parameters(), *trainer.network.buffers()]
    held = {name: each for name, each in vars(trainer).items() if name not in _SAVED}
    return _tensors(held, {id(each) for each in saved})


def _tensors(roots: Mapping[str, Any], known: Collection[int] = ()) -> Iterator[tuple[str, Any]]:
    """All tensors and arrays of numbers that can be reached, but for these."""

    def into(value: Any) -> bool:
        return id(value) not in known and not isinstance(value, _NOT_LOOKED_INTO)

    for path, value in walk(roots.items(), _MOST, into):
        numbers = isinstance(value, _TENSORS) and not (
            isinstance(value, np.ndarray) and value.dtype.hasobject
        )
        if numbers and id(value) not in known:
            yield path, value


def _tell_nested_schedules(schedule: Any) -> None:
    names = state_that_is_not_recorded(schedule)
    if names:
        logger.warning(
            "the checkpoint lacks the state of %s of this trainer's schedule: a training that is"
            " continued with --c goes on without it. Save and load it in save_checkpoint and"
            " load_checkpoint",
            ", ".join(map(repr, names)),
        )


def _tell_added_gradients(network: torch.nn.Module) -> None:
    """Look at a gradient that is there now once the next one is about to be added to it."""
    parameter = next(
        (each for each in network.parameters() if each.grad is not None and each.grad.any()), None
    )
    if parameter is None:
        return

    def look(_: torch.Tensor) -> None:
        handle.remove()
        if parameter.grad is not None and parameter.grad.any():
            logger.warning(
                "the checkpoint lacks the gradients that this trainer was adding up over several"
                " steps when it was saved: a training that is continued with --c goes on without"
                " them. Take an optimiser step before checkpoints are saved"
            )

    handle = parameter.register_hook(look)  # type: ignore[no-untyped-call]
