"""Ledgers of nnU-Net's trainings: one for each loader, beside the checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

from detaug.nnunet.compatibility import TrainerAttributes

#: Set to 1, every loader keeps one.
VARIABLE = "DETAUG_LEDGER"


def ledger_file(trainer: TrainerAttributes, name: str) -> Path | None:
    """The ledger of the loader "train" or "val"; None: there is none.

    Raises:
        ValueError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return None
    if value != "1":
        raise ValueError(f"{VARIABLE}={value!r} in the environment must be 1 or 0")
    return ledger_in(Path(trainer.output_folder), name)


def ledger_in(folder: Path, name: str) -> Path:
    """Its place in the folder of the checkpoints."""
    return folder / f"ledger_{name}.jsonl"
