"""How much of its pipeline a training has seen."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from detaug.nnunet.verification.gates import seen_in

#: The file in a training's folder.
SEEN = "seen.json"


@dataclass(frozen=True)
class Seen:
    """Of a training's samples.

    Attributes:
        iterations: training batches of an epoch.
        samples: training samples in all.
        rare: (name, probability) of each gate that was expected to be open in few of them.
        forced: whether each of those was open in one more batch that was made for it.
        reading: where a batch of nnU-Net's loader and detaug's differ for the same cases and boxes; "" if nowhere, None if
            detaug does not take that loader's place.
    """

    iterations: int = 0
    samples: int = 0
    rare: tuple[tuple[str, float], ...] = ()
    forced: bool = False
    reading: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Seen:
        """What a training wrote into its folder."""
        stored = json.loads((folder / SEEN).read_text())
        return cls(**{**stored, "rare": tuple((name, probability) for name, probability in stored["rare"])})

    def __str__(self) -> str:
        """In sentences."""
        least = f"{seen_in(self.samples):.2g}"
        said = f"Each training saw {self.samples} training samples: a branch taken with a probability of {least} or more was seen"
        said += " at least once, with 99 % confidence."
        if self.rare:
            named = ", ".join(
                f"{name} (expected {probability * self.samples:.1f} times)" for name, probability in self.rare
            )
            said += f" Rarely open: {named}" + ("; each was opened in one more batch." if self.forced else ".")
        return said
