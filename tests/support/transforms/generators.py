"""Generators for tests: the same ones every time."""

from __future__ import annotations

import numpy as np

from detaug import SeedTree
from detaug.kernels.normals import add_normals
from detaug.kernels.threefry import key_words


def rng(seed: int = 3, step: int = 0) -> np.random.Generator:
    """Detaug's, of a seed and a step."""
    return SeedTree(seed).generator(0, step)


def generator(seed: int = 0) -> np.random.Generator:
    """NumPy's usual one."""
    return np.random.default_rng(seed)


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Standard normals, float32."""
    return generator(seed).standard_normal(shape).astype(np.float32)


def normals(shape: tuple[int, ...], key: int, stream: int = 0, scale: float = 1.0) -> np.ndarray:
    """Those of detaug's counter, float32."""
    out = np.zeros(shape, np.float32)
    flat = out.reshape(-1)
    add_normals(flat, flat, np.float32(scale), *key_words(key), np.uint32(stream))
    return out


def scan(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Noise of another scale and mean for every seed, float32."""
    rng = generator(seed)
    scale = 10 ** rng.uniform(-2, 2)
    offset = rng.uniform(-3, 3)
    values = rng.normal(size=shape) + offset
    return (scale * values).astype(np.float32)
