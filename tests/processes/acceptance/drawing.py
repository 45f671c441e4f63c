"""A pipeline that draws from generators of the user's. Other interpreters import it quickly."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.loaders import Noise, RandomLoader


class DrawsFromMine(Noise):
    """Draws from generators of the user's in an attribute, in its class and in the module."""

    of_class = np.random.default_rng(77)

    def __init__(self) -> None:
        super().__init__()
        self.held = HELD

    def __call__(self, **batch: Any) -> dict[str, Any]:
        mine = self.held.random(), self.of_class.random(), OF_MODULE.random_sample()
        return {**super().__call__(**batch), "mine": mine}


HELD = np.random.default_rng(78)
OF_MODULE = np.random.RandomState(79)


def pipeline() -> Any:
    return RandomLoader(), DrawsFromMine()
