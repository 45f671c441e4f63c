"""Seeded generators and arrays of random numbers for tests."""

from __future__ import annotations

import numpy as np

from detaug import SeedTree
from detaug.kernels.normals import add_normals
from detaug.kernels.threefry import key_words


def rng(seed: int = 3, step: int = 0) -> np.random.Generator:
    """Return the Generator that detaug derives from a seed for a step of epoch 0."""
    return SeedTree(seed).generator(0, step)


def generator(seed: int = 0) -> np.random.Generator:
    """Return NumPy's default Generator for a seed."""
    return np.random.default_rng(seed)


def noise(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return standard normals, float32."""
    return generator(seed).standard_normal(shape).astype(np.float32)


def normals(shape: tuple[int, ...], key: int, stream: int = 0, scale: float = 1.0) -> np.ndarray:
    """Return normals of detaug's counter-based generator, float32, with this standard deviation."""
    out = np.zeros(shape, np.float32)
    flat = out.reshape(-1)
    add_normals(flat, flat, np.float32(scale), *key_words(key), np.uint32(stream))
    return out


def scan(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Return normals whose scale and mean also depend on the seed, float32."""
    rng = generator(seed)
    scale = 10 ** rng.uniform(-2, 2)
    offset = rng.uniform(-3, 3)
    values = rng.normal(size=shape) + offset
    return (scale * values).astype(np.float32)
