"""State that a training keeps and its checkpoints lack, so that ``--c`` continues without it.

It is logged once.
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

from detaug.nnunet.run_record import fingerprint_or_class
from detaug.nnunet.schedules import state_that_is_not_recorded
from detaug.objects.walking import walk

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
#: A limit of the objects that are looked at: from a trainer a data set's lists may be reached.
_MOST = 100_000

logger = logging.getLogger("detaug")


class UnsavedState:
    """A look at a trainer when its training starts, at its first checkpoint, and when it resumes.

    It logs tensors and arrays that the trainer reaches, that have changed and that are in no file
    of the output folder: averaged weights, for one. A trainer may write its checkpoint once more,
    or files of its own, after nnU-Net's `save_checkpoint`; so files are looked at when training
    goes on. It also logs gradients to which the first step after the checkpoint adds: those that
    are left over, as nnU-Net's `train_step` leaves them, are set to zero before.

    Args:
        trainer: before its first epoch.
    """

    def __init__(self, trainer: Any) -> None:
        self._before = _fingerprints(trainer)
        self._changed: dict[str, str] | None = None

    def checkpoint_is_written(self, trainer: Any) -> None:
        """Note the changes until the first checkpoint."""
        # One look is enough: what a trainer forgets, it forgets in every checkpoint.
        if self._changed is not None:
            return
        changed = {}
        for name, fingerprint in _fingerprints(trainer).items():
            if self._before.get(name) != fingerprint:
                changed[name] = fingerprint
        self._changed = changed
        _warn_of_added_gradients(trainer.network)
        _warn_of_nested_schedules(trainer.lr_scheduler)

    def training_goes_on(self, folder: Path) -> None:
        """Warn once of tensors that the files in a folder lack."""
        if not self._changed:
            return
        saved: set[str] = set()
        for file in folder.iterdir():
            if file.suffix in (".pth", ".pt"):
                for _, tensor in _tensors({"": _content(file)}):
                    saved.add(fingerprint_or_class(tensor))
        # By value and not by name: a trainer may save its tensors under other names.
        lacking = [name for name, value in self._changed.items() if value not in saved]
        self._changed = {}
        if lacking:
            # Only the trainer's attributes are shown: a network may have hundreds of tensors.
            attributes = [re.split(r"\W", name)[0] for name in lacking]
            logger.warning(
                "the checkpoint lacks tensors of this trainer that training has changed (%s; %d in"
                " all, the first is %s): a training continued with --c loses their values. Save"
                " and load them in save_checkpoint and load_checkpoint",
                ", ".join(dict.fromkeys(attributes)),
                len(lacking),
                lacking[0],
            )


def _content(file: Path) -> Any:
    """Return the object in a file of the trainer's own; None: it cannot be read."""
    try:
        # NumPy's scalars want a full unpickling.
        return torch.load(file, map_location="cpu", weights_only=False, mmap=True)
    except Exception:
        # A file of another kind leads to errors of any kind.
        return None


def _fingerprints(trainer: Any) -> dict[str, str]:
    """Return the fingerprints of a trainer's unsaved tensors and arrays, by path."""
    return {name: fingerprint_or_class(tensor) for name, tensor in tensors_of(trainer)}


def tensors_of(trainer: Any) -> Iterator[tuple[str, Any]]:
    """Yield (path, tensor or array) of what a trainer holds and nnU-Net does not save."""
    saved = [getattr(trainer, name, None) for name in _SAVED]
    # The network's tensors may be reached in other ways, as through a list of layers.
    saved += [*trainer.network.parameters(), *trainer.network.buffers()]
    held = {name: value for name, value in vars(trainer).items() if name not in _SAVED}
    return _tensors(held, {id(value) for value in saved})


def _tensors(roots: Mapping[str, Any], known: Collection[int] = ()) -> Iterator[tuple[str, Any]]:
    """Yield (path, tensor or array of numbers) of all that can be reached.

    Args:
        roots: objects by name.
        known: ids of objects that are left out.
    """

    def into(value: Any) -> bool:
        return id(value) not in known and not isinstance(value, _NOT_LOOKED_INTO)

    for path, value in walk(roots.items(), _MOST, into):
        if not isinstance(value, _TENSORS) or id(value) in known:
            continue
        # The walk reaches the objects in such an array one by one.
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            continue
        yield path, value


def _warn_of_nested_schedules(schedule: Any) -> None:
    """Warn if a schedule has schedules in it whose state no record has."""
    names = state_that_is_not_recorded(schedule)
    if names:
        logger.warning(
            "the checkpoint lacks the state of %s of this trainer's schedule: a training continued"
            " with --c loses it. Save and load it in save_checkpoint and load_checkpoint",
            ", ".join(map(repr, names)),
        )


def _warn_of_added_gradients(network: torch.nn.Module) -> None:
    """Warn if the next step adds to gradients that are there now.

    That shows when the next gradient is about to be added.
    """
    for parameter in network.parameters():
        if parameter.grad is not None and parameter.grad.any():
            # One parameter tells: an optimiser sets all gradients to zero or none.
            _warn_when_added_to(parameter)
            return


def _warn_when_added_to(parameter: torch.Tensor) -> None:
    """Warn if a parameter's gradient is not zero when the next one is added to it."""

    def look(_: torch.Tensor) -> None:
        # Removed after one call: the hook keeps the parameter alive and takes time in every step.
        handle.remove()
        if parameter.grad is not None and parameter.grad.any():
            logger.warning(
                "the checkpoint lacks the gradients that this trainer was adding up over several"
                " steps when it was saved: a training continued with --c loses them. Take an"
                " optimiser step before checkpoints are saved"
            )

    handle = parameter.register_hook(look)  # type: ignore[no-untyped-call]
