"""Generators for tests: the same ones every time."""

from __future__ import annotations

import numpy as np

from detaug import SeedTree


def rng(seed: int = 3, step: int = 0) -> np.random.Generator:
    """Detaug's, of a seed and a step."""
    return SeedTree(seed).generator(0, step)


def generator(seed: int = 0) -> np.random.Generator:
    """NumPy's usual one."""
    return np.random.default_rng(seed)


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Standard normals, float32."""
    return generator(seed).standard_normal(shape).astype(np.float32)
