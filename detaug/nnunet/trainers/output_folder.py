"""The files in a training's output folder: checkpoints whose bytes depend on their values only, epochs' times, ledgers.

`torch.save` of equal values gives other bytes when a file has another name (it is the archive's inner name), and when
objects are shared in another way: pickle writes an object that it has met before as a reference, and which strings, dtypes
and scalars are one object depends on whether they were computed or loaded. Here every container is rebuilt, equal strings
become one object, and every other leaf an object of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.nnunet.compatibility import EPOCH_TIMES
from detaug.reports.atomic_files import whole_file, write_text


def canonical(value: Any) -> Any:
    """`value` rebuilt, so that equal values are pickled to equal bytes.

    Dictionaries keep their order. Tensors stay themselves (two that share memory still do). Objects that are neither
    containers, strings, NumPy's nor numbers are left as they are.
    """
    if isinstance(value, str):
        return sys.intern(str(value)) if type(value) is str else value
    if type(value) in (dict, OrderedDict):
        return _canonical_dict(value)
    if type(value) in (list, tuple):
        return type(value)(canonical(each) for each in value)
    if isinstance(value, (np.generic, np.ndarray)):
        return _canonical_numpy(value)
    if isinstance(value, torch.Size):
        return torch.Size(tuple(value))
    return value


def _canonical_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    made = type(value)((canonical(key), canonical(each)) for key, each in value.items())
    # a state_dict's _metadata
    for name, attribute in getattr(value, "__dict__", {}).items():
        setattr(made, sys.intern(name), canonical(attribute))
    return made


def _canonical_numpy(value: Any) -> Any:
    if value.dtype.hasobject or value.dtype.names:
        return value
    # a dtype that was unpickled is another object than NumPy's own of the same kind
    plain = np.dtype(value.dtype.str)
    array = np.array(value, dtype=plain, copy=True)
    return array[()] if isinstance(value, np.generic) else array


def write_checkpoint(checkpoint: Any, file: str | os.PathLike[str]) -> None:
    """`torch.save`, with bytes that follow from the values, and so that there is never half a file.

    Args:
        checkpoint: what `torch.save` takes.
        file: replaced if it exists.

    Raises:
        OSError: it cannot be written; a file that was there before is still there.
    """
    with whole_file(Path(file)) as stream:
        torch.save(canonical(checkpoint), stream)


@contextlib.contextmanager
def saves_through(write: Callable[[Any, Any], None]) -> Iterator[None]:
    """Inside, what this thread hands to `torch.save` goes to ``write(object, file)``.

    nnU-Net's `save_checkpoint` decides what goes into a checkpoint, and subclasses of its trainer add to that: so their
    method runs, and only the writing is ours.
    """
    original, thread = torch.save, threading.get_ident()

    def save(obj: Any, f: Any, *arguments: Any, **options: Any) -> None:
        if threading.get_ident() != thread:
            original(obj, f, *arguments, **options)
            return
        torch.save = original
        try:
            write(obj, f)
        finally:
            torch.save = save

    torch.save = save
    try:
        yield
    finally:
        torch.save = original


@contextlib.contextmanager
def loads_everything() -> Iterator[None]:
    """Inside, this thread's `torch.load` takes any pickle unless it is told otherwise.

    nnU-Net's checkpoints hold NumPy's scalars. Its own `load_checkpoint` asks for ``weights_only=False``;
    ``nnUNetTrainer_warmup`` and those that inherit from it have forgotten to, and cannot be continued.
    """
    original, thread = torch.load, threading.get_ident()

    def load(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() == thread:
            options.setdefault("weights_only", False)
        return original(*arguments, **options)

    torch.load = load
    try:
        yield
    finally:
        torch.load = original


#: nnU-Net's checkpoints in the order in which its ``--c`` takes the first that is there.
CHECKPOINTS = ("checkpoint_final.pth", "checkpoint_latest.pth", "checkpoint_best.pth")


def read_checkpoint(file: Path) -> Any:
    """A checkpoint on the CPU.

    Raises:
        ValueError: the file is empty, cut short or no checkpoint; the message names those beside it that can be read.
    """
    try:
        return _loaded(file)
    except Exception as error:
        why = f"{type(error).__name__}: {error}" if file.stat().st_size else "it is empty"
        found = [each for each in CHECKPOINTS if each != file.name and _can_be_read(file.with_name(each))]
        hint = (
            f"move it away, and {found[0]} beside it, which can be read, is taken"
            if found
            else "none beside it can be read"
        )
        raise ValueError(f"{file} is no checkpoint of nnU-Net's, or not a whole one ({why}): {hint}") from error


def _loaded(file: Path) -> Any:
    # nnU-Net's own checkpoints hold NumPy's scalars, which want a full unpickling, as nnU-Net does itself
    return torch.load(file, map_location="cpu", weights_only=False, mmap=True)


def _can_be_read(file: Path) -> bool:
    try:
        _loaded(file)
    except Exception:
        return False
    return True


# --- what differs between equal trainings lies beside the checkpoints -------------------------------------------------------

TIMES = "epoch_times.json"


def without_times(logged: Mapping[str, Any]) -> dict[str, Any]:
    """What nnU-Net's logger holds, with zeros for the times when epochs began and ended."""
    return {name: [0.0] * len(values) if name in EPOCH_TIMES else values for name, values in logged.items()}


def keep_times(logged: Mapping[str, Any], folder: str | Path) -> None:
    """Write these times, in seconds since 1970, to a file in a training's output folder."""
    times = {name: [float(time) for time in logged.get(name, [])] for name in EPOCH_TIMES}
    write_text(Path(folder) / TIMES, json.dumps(times))


def restore_times(logged: dict[str, Any], folder: str | Path) -> None:
    """Put the times back in place of the zeros, as far as the file has them; nnU-Net's plot of epochs goes on from them."""
    try:
        known = json.loads((Path(folder) / TIMES).read_text())
    except (OSError, ValueError):
        return
    for name in EPOCH_TIMES:
        times = known.get(name) if isinstance(known, dict) else None
        if name in logged and isinstance(times, list) and len(times) >= len(logged[name]):
            logged[name] = [float(time) for time in times[: len(logged[name])]]


def ledger_in(folder: Path, name: str) -> Path:
    """The ledger of the loader "train" or "val"."""
    return folder / f"ledger_{name}.jsonl"
