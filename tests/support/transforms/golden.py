"""Fingerprints of the outputs of all pipelines and transforms, which are equal on every machine.

`python -m tests.support.transforms.golden` prints them, with what the process uses of its CPU.
`--write` writes them into golden.json. If a fingerprint has changed, raise
`detaug.versions.NUMERICS` as well.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from threadpoolctl import threadpool_info

from detaug import SeedTree, fingerprint
from detaug.nnunet import TRAINING_TRANSFORMS, training_transforms, validation_transforms
from detaug.transforms import Compose, Ghosting, GibbsNoise, Transform
from detaug.versions import NUMERICS
from tests.support.transforms.every_transform import EVERY

FILE = Path(__file__).with_name("golden.json")

SEEDS = range(6)
#: Rotations, in radians.
LITTLE = math.radians(30)
MUCH = math.radians(180)
SCALES = [[1, 1, 1], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]


def image(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return uniform numbers from -2 to 2 in steps of 2^-22, float32.

    They are computed without rounding, so every machine makes the same ones.
    """
    words = np.random.PCG64DXSM(seed).random_raw(math.prod(shape))
    integers = (words >> np.uint64(40)).astype(np.float32)
    numbers = integers * np.float32(2.0**-22) - np.float32(2)
    return numbers.reshape(shape)


def labels(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return a segmentation, int16: balls of labels 1 and 2 on 0, and an outer layer of -1.

    Args:
        seed: of the balls' middles.
        shape: ``(C, *space)``; all channels are equal.
    """
    _, *space = shape
    result = np.full(shape, -1, np.int16)
    inside = tuple(slice(1, length - 1) for length in space)
    result[(slice(None), *inside)] = 0
    words = np.random.PCG64DXSM(seed).random_raw(64)
    for ball in range(8):
        square = np.zeros(space, np.int64)
        for axis, index in enumerate(np.indices(space)):
            middle = int(words[4 * ball + axis]) % space[axis]
            square += (index - middle) ** 2
        is_in_ball = (square < 20 + 6 * ball) & (result[0] >= 0)
        result[:, is_in_ball] = 1 + ball % 2
    return result


def sample(seed: int, shape: tuple[int, ...], channels: int = 2) -> dict[str, np.ndarray]:
    """Return an image of this spatial shape and a segmentation with two channels."""
    return {"image": image(seed, (channels, *shape)), "segmentation": labels(seed, (2, *shape))}


def pipelines() -> dict[str, tuple[Transform, tuple[int, ...], int]]:
    """Return the pipelines: name -> (pipeline, spatial shape of the input, number of channels)."""
    cubic = (20, 18, 16)
    flat = (32, 28)
    slabs = (6, 28, 24)
    da5 = TRAINING_TRANSFORMS["nnUNetTrainerDA5"]
    cascade = {"is_cascaded": True, "foreground_labels": (1, 2)}
    regions = {"regions": [[1, 2], 2], "ignore_label": 3, "use_mask_for_norm": [True, False]}
    return {
        "3-D": (
            training_transforms(cubic, (-LITTLE, LITTLE), SCALES, (0, 1, 2), False),
            (32, 29, 26),
            1,
        ),
        "3-D, regions": (
            training_transforms(cubic, (-LITTLE, LITTLE), None, (0,), False, **regions),
            (32, 29, 26),
            2,
        ),
        "2-D": (
            training_transforms(flat, (-MUCH, MUCH), [s[:2] for s in SCALES], (0, 1), False),
            (52, 45),
            2,
        ),
        "dummy 2-D": (
            training_transforms(slabs, (-MUCH, MUCH), SCALES, (0, 1, 2), True),
            (6, 46, 39),
            1,
        ),
        "cascade": (
            training_transforms(cubic, (-LITTLE, LITTLE), SCALES, None, False, **cascade),
            (32, 29, 26),
            1,
        ),
        "DA5": (da5((18, 18, 12), (-LITTLE, LITTLE), SCALES, (0, 1, 2), False), (30, 30, 24), 1),
        "k-space, large primes": (Compose([GibbsNoise((0.2, 0.8)), Ghosting()]), (37, 6, 41), 1),
        "validation": (validation_transforms(SCALES, **cascade), cubic, 1),
    }


def fingerprints() -> dict[str, str]:
    """Return all fingerprints by name."""
    tree = SeedTree(20261121)
    result = {}
    for name, (pipeline, shape, channels) in pipelines().items():
        for seed in SEEDS:
            batch = pipeline(**sample(seed, shape, channels), rng=tree.generator(0, seed))
            result[f"{name}, seed {seed}"] = fingerprint(batch)
    for name, make in EVERY.items():
        for dims, shape in ((3, (18, 18, 14)), (2, (24, 24))):
            transform = make(dims)
            samples = []
            for seed in range(2):
                samples.append(transform(**sample(seed, shape), rng=tree.generator(1, seed)))
            result[f"{name}, {dims}-D"] = fingerprint(samples)
    return result


def numpy_features() -> dict[str, bool]:
    """Return which of its optional vector instructions NumPy uses on this machine."""
    if np.lib.NumpyVersion(np.__version__) >= "2.0.0":
        from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__
    else:
        from numpy.core._multiarray_umath import __cpu_dispatch__, __cpu_features__
    return {name: __cpu_features__[name] for name in __cpu_dispatch__}


def surroundings() -> dict[str, Any]:
    """Return the CPU's features and the settings that this process uses."""
    from numba.core.registry import cpu_target

    numba_cpu = cpu_target.target_context.codegen().magic_tuple()[1]
    return {
        "torch": torch.backends.cpu.get_cpu_capability(),
        "torch threads": torch.get_num_threads(),
        "numpy": [name for name, is_used in numpy_features().items() if is_used],
        "numba": numba_cpu,
        "blas": sorted({library.get("architecture", "") for library in threadpool_info()} - {""}),
        "libm": _digest_of_libm(),
    }


def _digest_of_libm() -> str:
    """Return a digest of exp and sin of the C library.

    It tells apart glibc's variants with and without fused multiply-add: at some of these points
    they differ in the last bit.
    """
    digest = hashlib.blake2b(digest_size=8)
    for i in range(20_000):
        x = i * 0.0012345678
        digest.update(struct.pack("<dd", math.exp(x), math.sin(x)))
    return digest.hexdigest()


def main() -> None:
    """Print or write the fingerprints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write golden.json")
    if "DETAUG_TEST_THREADS" in os.environ:
        torch.set_num_threads(int(os.environ["DETAUG_TEST_THREADS"]))
    options = parser.parse_args()
    golden = {"numerics": NUMERICS, "fingerprints": fingerprints()}
    if options.write:
        FILE.write_text(json.dumps(golden, indent=2) + "\n")
        return
    print(json.dumps({**golden, "surroundings": surroundings()}))


if __name__ == "__main__":
    main()
