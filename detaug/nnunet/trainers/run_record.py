"""What a training was made of, kept in its checkpoints, so that it is only ever continued as itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from detaug.errors import StateMismatch
from detaug.seeding.tree import Seed
from detaug.versions import NUMERICS, SEED_SCHEME

#: The record's place in a checkpoint.
KEY = "detaug"

#: Set to 1, a training is continued although something about it has changed.
CHANGED_VARIABLE = "DETAUG_RESUME_CHANGED"


@dataclass(frozen=True)
class RunRecord:
    """Everything that decides a training's bytes and that nnU-Net's checkpoint does not hold.

    Attributes:
        seed: of the run.
        seed_scheme, numerics: the versions of `detaug.versions`.
        loading: "nnU-Net" or "detaug": whose loader and transforms.
        data: fingerprint of the training and validation cases.
        world_size: number of ranks.
        cpu_threads: that torch computes with, on a CPU; 0 on a GPU.
        iterations: training and validation batches of an epoch.
    """

    seed: Seed
    loading: str
    data: str
    world_size: int
    cpu_threads: int
    iterations: tuple[int, int]
    seed_scheme: int = SEED_SCHEME
    numerics: int = NUMERICS

    def as_dict(self) -> dict[str, Any]:
        """Plain integers, strings and lists."""
        return {**asdict(self), "iterations": list(self.iterations)}

    @classmethod
    def from_checkpoint(cls, checkpoint: Mapping[str, Any]) -> RunRecord | None:
        """The record in a checkpoint; None: the checkpoint has none.

        Raises:
            StateMismatch: the record is damaged, or of another version of detaug.
        """
        stored = checkpoint.get(KEY)
        if stored is None:
            return None
        names = {each.name for each in fields(cls)}
        if not isinstance(stored, Mapping) or set(stored) != names:
            found = sorted(map(str, stored)) if isinstance(stored, Mapping) else type(stored).__name__
            raise StateMismatch(
                f"the checkpoint's record of its training has {found}, and this detaug reads {sorted(names)}: continue "
                "with the version of detaug that wrote it"
            )
        return cls(**{**stored, "iterations": tuple(stored["iterations"])})

    def check_continues(self, earlier: RunRecord) -> list[str]:
        """What differs from the training that is to be continued.

        Returns:
            The differences, if the environment's ``DETAUG_RESUME_CHANGED`` is 1; else an empty list.

        Raises:
            StateMismatch: something differs; the message says what, and what to do.
        """
        mine, theirs = asdict(self), asdict(earlier)
        differences = [
            f"{_NAMES[name]}: {theirs[name]} in the checkpoint, {mine[name]} now{_ADVICE.get(name, '')}"
            for name in mine
            if mine[name] != theirs[name]
        ]
        if differences and os.environ.get(CHANGED_VARIABLE) != "1":
            raise StateMismatch(
                "this checkpoint cannot be continued: the training would not be the one that it began as.\n  "
                + "\n  ".join(differences)
                + f"\nSet {CHANGED_VARIABLE}=1 to continue nevertheless; the result is then not reproducible from the seed alone."
            )
        return differences


_NAMES = {
    "seed": "seed",
    "loading": "loader and transforms",
    "data": "preprocessed cases of this fold",
    "world_size": "number of GPUs",
    "cpu_threads": "torch's threads",
    "iterations": "(training, validation) batches per epoch",
    "seed_scheme": "seed scheme",
    "numerics": "version of the numerics",
}
_ADVICE = {
    "seed": " (unset DETAUG_SEED to take the checkpoint's)",
    "data": " (cases or splits_final.json were changed, or preprocessed again)",
    "cpu_threads": " (set DETAUG_CPU_THREADS to the checkpoint's number)",
    "seed_scheme": " (use the version of detaug that began it)",
    "numerics": " (use the version of detaug that began it)",
}
