"""A pipeline whose module has a variable, in a module of its own: fresh interpreters import it."""

from __future__ import annotations

from typing import Any

import numpy as np

#: A setting that programs change.
STRENGTH = 1


class Numbers:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": np.full(3, float(index))}


def scale(**batch: Any) -> dict[str, Any]:
    return {**batch, "x": batch["x"] * STRENGTH}
