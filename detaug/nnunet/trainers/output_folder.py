"""The files in a training's output folder: checkpoints whose bytes depend on their values only, and ledgers.

`torch.save` of equal values gives other bytes when a file has another name (it is the archive's inner name), and when
objects are shared in another way: pickle writes an object that it has met before as a reference, and which strings, dtypes
and scalars are one object depends on whether they were computed or loaded. Here every container is rebuilt, equal strings
become one object, and every other leaf an object of its own.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.nnunet.compatibility import is_checkpoint
from detaug.reports.atomic_files import whole_file

#: torch's own, also while another stands in its place.
_save = torch.save


def canonical(value: Any) -> Any:
    """`value` rebuilt, so that equal values are pickled to equal bytes.

    Dictionaries keep their order. Tensors stay themselves (two that share memory still do). Objects that are neither
    containers, strings, NumPy's nor numbers are left as they are.
    """
    if isinstance(value, str):
        return sys.intern(str(value)) if type(value) is str else value
    if type(value) in (dict, OrderedDict):
        made = type(value)((canonical(key), canonical(each)) for key, each in value.items())
        # a state_dict's _metadata
        for name, attribute in getattr(value, "__dict__", {}).items():
            setattr(made, sys.intern(name), canonical(attribute))
        return made
    if type(value) in (list, tuple):
        return type(value)(canonical(each) for each in value)
    if isinstance(value, (np.generic, np.ndarray)) and not (value.dtype.hasobject or value.dtype.names):
        # a dtype that was unpickled is another object than NumPy's own of the same kind
        array = np.array(value, dtype=np.dtype(value.dtype.str), copy=True)
        return array[()] if isinstance(value, np.generic) else array
    if isinstance(value, torch.Size):
        return torch.Size(tuple(value))
    return value


def write_checkpoint(checkpoint: Any, file: Any) -> None:
    """`torch.save`, with bytes that follow from the values, and never half a file: an OSError leaves what was there before."""
    if not isinstance(file, (str, os.PathLike)):
        _save(canonical(checkpoint), file)
        return
    with whole_file(Path(file)) as stream:
        _save(canonical(checkpoint), stream)


#: nnU-Net's checkpoints in the order in which its ``--c`` takes the first that is there.
CHECKPOINTS = ("checkpoint_final.pth", "checkpoint_latest.pth", "checkpoint_best.pth")


def read_checkpoint(file: Path) -> dict[str, Any]:
    """A checkpoint on the CPU; where it is none or cut short, a ValueError that names one beside it that can be read."""
    try:
        # nnU-Net's own checkpoints hold NumPy's scalars, which want a full unpickling, as nnU-Net does itself
        stored = torch.load(file, map_location="cpu", weights_only=False, mmap=True)
        why = "it holds something else"
    except Exception as error:  # whatever damaged bytes lead to
        stored, why = None, f"{type(error).__name__}: {error}" if file.stat().st_size else "it is empty"
    if isinstance(stored, dict) and is_checkpoint(stored):
        return stored
    others = (file.with_name(each) for each in CHECKPOINTS if each != file.name)
    found = next((each.name for each in others if zipfile.is_zipfile(each)), None)  # a zip's directory is its end
    hint = f"move it away, and {found} beside it is taken" if found else "none beside it is whole"
    raise ValueError(f"{file} is no checkpoint of nnU-Net's, or not a whole one ({why}): {hint}")


def ledger_in(folder: Path, name: str) -> Path:
    """The ledger of the loader "train" or "val"."""
    return folder / f"ledger_{name}.jsonl"
