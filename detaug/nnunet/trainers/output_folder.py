"""A training's output folder: checkpoints with reproducible bytes, ledgers, and nnU-Net's log.

The bytes of checkpoints depend on their values only.

`torch.save` of equal values gives other bytes when a file has another name (it is the archive's
inner name), and when objects are shared in another way: pickle writes an object that it has met
before as a reference, and which strings, dtypes and scalars are one object depends on whether they
were computed or loaded. Here every container is rebuilt, equal strings become one object, and every
other leaf an object of its own.
"""

from __future__ import annotations

import logging
import os
import pickle
import re
import sys
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.errors import UnusableError
from detaug.nnunet.compatibility import is_checkpoint, is_nnunets_own
from detaug.nnunet.run_record import KEY
from detaug.seeding.tree import Seed
from detaug.system.atomic_files import whole_file
from detaug.system.untrusted import is_small

#: torch's own function, also while another one is in its place.
_save = torch.save


def canonical(value: Any) -> Any:
    """Return `value` rebuilt, so that equal values are pickled to equal bytes.

    Dictionaries keep their order. Tensors stay themselves (two that share memory still do). Objects
    that are neither containers, strings, NumPy's nor numbers are left as they are.
    """
    if type(value) is str:
        return sys.intern(value)
    if isinstance(value, str):
        # A subclass, such as NumPy's.
        return value
    if type(value) in (dict, OrderedDict):
        return _canonical_dict(value)
    if type(value) in (list, tuple):
        return type(value)(canonical(item) for item in value)
    if isinstance(value, (np.generic, np.ndarray)):
        return _canonical_array(value)
    if isinstance(value, torch.Size):
        return torch.Size(tuple(value))
    return value


def _canonical_dict(value: dict[Any, Any]) -> dict[Any, Any]:
    result = type(value)((canonical(key), canonical(item)) for key, item in value.items())
    # A state_dict has an attribute _metadata.
    for name, attribute in getattr(value, "__dict__", {}).items():
        setattr(result, sys.intern(name), canonical(attribute))
    return result


def _canonical_array(value: Any) -> Any:
    if value.dtype.hasobject or value.dtype.names:
        return value
    # A dtype that was unpickled is another object than NumPy's own of the same kind.
    array = np.array(value, dtype=np.dtype(value.dtype.str), copy=True)
    if isinstance(value, np.generic):
        return array[()]
    return array


def write_checkpoint(checkpoint: Any, file: Any) -> None:
    """Write a checkpoint as `torch.save` does, with bytes that follow from the values.

    It is never half a file.

    Raises:
        OSError: it cannot be written; the file of before is still there.
    """
    if isinstance(file, (str, os.PathLike)):
        with whole_file(Path(file)) as stream:
            _save(canonical(checkpoint), stream)
    else:
        _save(canonical(checkpoint), file)


#: nnU-Net's checkpoints in the order in which its ``--c`` takes the first that is there.
CHECKPOINTS = ("checkpoint_final.pth", "checkpoint_latest.pth", "checkpoint_best.pth")


def checkpoints_in(fold: Path) -> list[Path]:
    """Return the checkpoints in a folder ``fold_X``, the most informative first.

    Raises:
        UnusableError: there is none.
    """
    files = _present_checkpoints(fold)
    if not files:
        hint = ""
        folds = sorted(str(folder) for folder in fold.glob("fold_*"))
        if folds:
            hint = f"; pass the folder of a fold: {', '.join(folds)}"
        raise UnusableError(f"{fold} has no checkpoint ({', '.join(CHECKPOINTS)}){hint}")
    return files


def _present_checkpoints(fold: Path) -> list[Path]:
    return [fold / name for name in CHECKPOINTS if (fold / name).is_file()]


def _numpys() -> list[Any]:
    """Return the parts of pickled scalars and arrays of NumPy's, for `torch.load` to know."""
    known: list[Any] = [np.dtype, np.ndarray]
    known += {type(np.dtype(kind)) for kind in "?bBhHiIlLqQefd"}
    for value in (np.float64(0), np.zeros(0)):
        function: Any = value.__reduce__()[0]
        # NumPy 1 and 2 have it in modules of different names.
        for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            known.append((function, f"{module}.{function.__name__}"))
    return known


def read_checkpoint(file: Path) -> dict[str, Any]:
    """Return a checkpoint of an own training, on the CPU.

    Reading it can run code of the file, as in nnU-Net.

    Raises:
        UnusableError: it is none, or cut short; the message names another that can be read.
    """
    return _read(file, weights_only=False)


def read_foreign_checkpoint(file: Path) -> dict[str, Any]:
    """Return a checkpoint that somebody else may have written, on the CPU.

    No code of the file is run.

    Raises:
        UnusableError: as `read_checkpoint`; or it holds objects of other classes than torch's and
            NumPy's, or is nested too deeply.
    """
    with torch.serialization.safe_globals(_numpys()):
        stored = _read(file, weights_only=True)
    if not is_small(stored):
        raise UnusableError(f"{file} is no checkpoint of nnU-Net's: it is nested too deeply")
    return stored


def _read(file: Path, weights_only: bool) -> dict[str, Any]:
    """Return a checkpoint, or raise as `read_checkpoint` and `read_foreign_checkpoint` do."""
    reason = "it holds something else"
    try:
        # Mapped into memory, so that weights are read only when they are used.
        stored = torch.load(file, map_location="cpu", weights_only=weights_only, mmap=True)
        if is_checkpoint(stored):
            return stored
    except Exception as error:
        # Damaged bytes lead to errors of any kind.
        foreign = re.search(r"GLOBAL ([\w.]+)", str(error))
        if isinstance(error, pickle.UnpicklingError) and foreign:
            raise UnusableError(
                f"{file} holds a {foreign[1]}, which is neither torch's nor NumPy's: reading it"
                " would run code from the file"
            ) from None
        reason = "it is empty"
        if file.stat().st_size:
            first_line = str(error).partition("\n")[0]
            reason = f"{type(error).__name__}: {first_line}"
    hint = "none beside it is whole"
    for name in CHECKPOINTS:
        # A zip file's directory is at its end, so that a file that was cut short has none.
        if name != file.name and zipfile.is_zipfile(file.with_name(name)):
            hint = f"move it away, and {name} beside it is used"
            break
    raise UnusableError(
        f"{file} is no checkpoint of nnU-Net's, or not a whole one ({reason}): {hint}"
    )


def recorded_seed(fold: Path) -> Seed | None:
    """Return the seed in the checkpoint that ``--c`` would take.

    None where it has none, or cannot be read.
    """
    files = _present_checkpoints(fold)
    if not files:
        return None
    try:
        record = read_checkpoint(files[0]).get(KEY)
    except UnusableError:
        # The error is raised again where the checkpoint is loaded.
        return None
    if not isinstance(record, Mapping):
        return None
    return record.get("seed")


def ledger_in(folder: Path, name: str) -> Path:
    """Return the path of the ledger of the loader "train" or "val"."""
    return folder / f"ledger_{name}.jsonl"


# --- log ------------------------------------------------------------------------------------------


class _Handler(logging.Handler):
    """A log handler that writes records by nnU-Net's `print_to_log_file`."""

    def __init__(self, write: Callable[..., None]) -> None:
        super().__init__(logging.INFO)
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        level = ""
        if record.levelno >= logging.WARNING:
            level = f"{record.levelname}: "
        self._write(f"detaug: {level}{self.format(record)}")


@contextmanager
def detaugs_log_to(write: Callable[..., None]) -> Iterator[None]:
    """Have all that detaug logs from INFO on go to nnU-Net's log, inside the block.

    Args:
        write: `print_to_log_file`; called with one text a record.
    """
    handler = _Handler(write)
    logger = logging.getLogger("detaug")
    before = logger.level
    logger.addHandler(handler)
    # A level above INFO would keep the lines from nnU-Net's log file as well.
    if logger.getEffectiveLevel() > logging.INFO:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def checks_line(loaders: Iterable[DeterministicAugmenter]) -> str:
    """Return a line for the log at the training's end: the extent of the run-time check."""
    checked = sum(loader.stats()["checked"] for loader in loaders)
    return f"detaug: {checked} batches were made twice and compared"


def opening_line(loaders: Mapping[str, Any], compiles: bool, threads: int) -> str:
    """Return the line that describes a training in nnU-Net's log.

    Args:
        loaders: by name.
        compiles: torch.compile is on.
        threads: torch's, on a CPU; 0: a GPU computes.
    """
    parts = [f"{name} from {_described(loader)}" for name, loader in loaders.items()]
    parts.append("torch.compile on" if compiles else "torch.compile off")
    if threads == 1:
        parts.append("1 CPU thread")
    elif threads:
        parts.append(f"{threads} CPU threads")
    return f"detaug: {'; '.join(parts)}"


def _described(loader: Any) -> str:
    """Return the words for a loader in nnU-Net's log."""
    if not isinstance(loader, DeterministicAugmenter):
        return f"a {named(loader)}, whose batches detaug does not seed"
    source = loader.generator
    transforms = getattr(source, "transforms", loader.transform)
    executor = type(loader.executor).__name__
    return (
        f"{named(source)} and {named(transforms)} ({executor}, {loader.num_processes} processes,"
        " guard and check on)"
    )


def named(value: Any) -> str:
    """Return the name of the class of a loader, or of transforms."""
    kind = type(value)
    if kind.__module__.startswith("detaug.") or is_nnunets_own(kind):
        return kind.__name__
    return f"{kind.__module__}.{kind.__name__}"
