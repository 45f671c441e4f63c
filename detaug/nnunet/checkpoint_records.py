"""What a checkpoint says of its own training, compared with a ledger that is said to be of that training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.ledger.header import digest
from detaug.ledger.reading import Sum
from detaug.nnunet.compatibility import LOGGED
from detaug.nnunet.run_record import KEY

#: What the record of a training and the header of its ledger both have.
_SHARED = ("seed", "seed_scheme", "numerics", "world_size", "data")
#: A loader's name -> that of its batches' number in the record.
_LOADERS = {"train": "training", "val": "validation"}
#: nnU-Net's checkpoints hold scalars of NumPy's, which are made of these.
_SCALARS: list[Any] = [np.dtype, np.float64(0).__reduce__()[0], *{type(np.dtype(kind)) for kind in "?ilfd"}]


def recorded_in(checkpoint: Path) -> tuple[Mapping[str, Any], int] | None:
    """A checkpoint's record (see `detaug.nnunet.run_record`), and how many epochs had ended when it was saved: by its
    count, or by what was logged in each of them; None: there is none that can be read without running code of the file.

    Raises:
        OSError: it cannot be read.
    """
    try:
        with torch.serialization.safe_globals(_SCALARS):
            stored = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
        record = stored[KEY]
        epochs = max(stored["current_epoch"], *(len(each) for each in stored[LOGGED].values()))
    except OSError:
        raise
    except Exception:  # whatever a foreign file's bytes lead to
        return None
    return (record, epochs) if isinstance(record, Mapping) and type(epochs) is int else None


def disagreements(checkpoint: Path, ledger: Sum) -> list[str]:
    """In what a checkpoint is not of a ledger's training. A ledger may go on behind its checkpoint; a checkpoint without a record
    is of no training of nnU-Net's that kept a ledger, and disagrees with no other."""
    found = recorded_in(checkpoint)
    header = ledger.header
    if found is None:
        if "data" not in header:  # the fingerprint of the cases, which detaug's trainers write into both
            return []
        foreign = "(or it holds objects that are neither torch's nor NumPy's)"
        return [f"{checkpoint.name} has no record of its training, which the ledger's has {foreign}"]
    record, epochs = found
    different = [
        f"{name}: {record.get(name)!r} in {checkpoint.name}, {header.get(name)!r} in the ledger"
        for name in _SHARED
        if record.get(name) != header.get(name)
    ]
    try:
        batches = int(record["iterations"][_LOADERS[header["name"]]])
        if digest(record["pipeline"][header["name"]]) != header["pipeline"]:
            different.append(f"pipeline: that of {checkpoint.name} is another than the ledger's")
    except (LookupError, TypeError, ValueError):
        why = f"the record in {checkpoint.name} has no loader {header['name']!r}, is damaged, or of another version of detaug"
        return [*different, why]
    lacking = next((epoch for epoch in range(epochs) if ledger.by_epoch.get(epoch, 0) < batches), None)
    if lacking is not None:
        different.append(
            f"{checkpoint.name} was saved after {epochs} epochs of {batches} batches, of which the ledger lacks some in "
            f"epoch {lacking}"
        )
    return different
