"""Params of every transform, made wrong in every way: they are refused by name, or applied without
harm.

`python -m tests.support.transforms.params_fuzz --rounds 50` with ``NUMBA_BOUNDSCHECK=1`` (and a
``NUMBA_CACHE_DIR`` of its own) checks every access of every kernel.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from detaug import SeedTree, fingerprint
from detaug.kernels.voxels import picked
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.golden import sample

SHAPES = {2: (13, 13), 3: (11, 11, 10)}
_GUARD = 4096
_SENTINEL = 0xA5
WRONG: list[Any] = [
    math.nan, math.inf, -math.inf, 1e308, -1e308, 1e300, 1e12, -1e12, 1e9, -1e9, 10**400, -1, -2, 3, 7, 1000, 2**31 - 1, 2**31,
    -(2**31), 2**63, 2**64, 0, 0.0, -0.0, 0.5, 1e-320, True, False, None, "0", "nan", "", [], {}, [[]], [0], [0, 0], (1, 2, 3),
    np.float32(math.inf), np.float64(math.nan), np.int64(-1), np.float16(6e4), np.bool_(True), np.zeros(2), np.zeros(()),
    torch.tensor(1.0), 1j, object(), b"0",
]  # fmt: skip


def mutated(params: Any, rng: random.Random, others: Sequence[Any]) -> Any:
    """Params with one or two things wrong: a value, a length, a key, or those of another transform."""
    made = copy.deepcopy(params)
    if rng.random() < 0.05:
        return copy.deepcopy(rng.choice([*others, *WRONG]))
    for _ in range(rng.choice([1, 1, 1, 2])):
        made = _changed(made, rng)
    return made


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        how = rng.random()
        if how < 0.08:
            return {key: each for key, each in value.items() if key != name}
        if how < 0.14:
            return {**value, "surplus": rng.choice(WRONG)}
        return {**value, name: _changed(value[name], rng)}
    if isinstance(value, (list, tuple)) and value and rng.random() < 0.85:
        place = rng.randrange(len(value))
        how = rng.random()
        if how < 0.1:
            return [*value[:place], *value[place + 1 :]]
        if how < 0.2:
            return [*value, value[place]]
        if how < 0.25:
            return np.array(value, dtype=object) if rng.random() < 0.5 else tuple(value)
        return [*value[:place], _changed(value[place], rng), *value[place + 1 :]]
    return rng.choice(WRONG)


class Guarded:
    """Arrays between bytes that nobody may write to."""

    def __init__(self) -> None:
        self._memory: list[tuple[np.ndarray, int]] = []

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        kind, wanted = np.dtype(dtype), tuple(np.atleast_1d(shape).tolist())
        size = math.prod(wanted) * kind.itemsize
        memory = np.full(size + 2 * _GUARD, _SENTINEL, np.uint8)
        self._memory.append((memory, size))
        return memory[_GUARD : _GUARD + size].view(kind).reshape(wanted)

    def copy(self, array: np.ndarray) -> np.ndarray:
        made = self.empty(array.shape, array.dtype)
        made[...] = array
        return made

    def check(self) -> None:
        for block, size in self._memory:
            assert (block[:_GUARD] == _SENTINEL).all(), "written before an array"
            assert (block[_GUARD + size :] == _SENTINEL).all(), "written behind an array"
        self._memory.clear()


@contextmanager
def guarded_arrays() -> Iterator[Guarded]:
    """Whatever is allocated with NumPy lies between guards, results of transforms too."""
    guarded = Guarded()
    like = lambda array: guarded.empty(array.shape, array.dtype)  # noqa: E731
    with patch.object(np, "empty", guarded.empty), patch.object(np, "empty_like", like):
        yield guarded


def error_of(call: Callable[[], Any]) -> Exception | None:
    """What a call raises."""
    try:
        call()
    except Exception as error:
        return error
    return None


def fuzz(name: str, dims: int, rounds: int, seed: int) -> tuple[int, int]:
    """How many params were refused, and how many applied.

    Raises:
        AssertionError: an error that does not name the transform and the param, a write beyond an
            array, or one into the caller's arrays.
    """
    rng = random.Random(f"{name} {dims} {seed}")
    transform = EVERY[name](dims)
    for kernel in transform.kernels:
        kernel.compile()  # Numba knows no other numpy.empty
    given = sample(1, SHAPES[dims])
    shapes = {key: array.shape for key, array in given.items()}
    drawn = [transform.sample(SeedTree(seed).generator(0, n), shapes) for n in range(4)]
    others = [
        EVERY[other](dims).sample(SeedTree(seed).generator(1, 0), shapes)
        for other in rng.sample(list(EVERY), 6)
    ]
    refused = 0
    before = fingerprint(given)
    for n in range(rounds):
        params = mutated(rng.choice(drawn), rng, others) if n >= len(drawn) else drawn[n]
        with guarded_arrays() as guarded, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            arrays = {key: guarded.copy(array) for key, array in given.items()}
            found = error_of(lambda arrays=arrays, params=params: transform.apply(arrays, params))
            guarded.check()
            assert fingerprint(arrays) == before, (
                f"{name} with {params!r} wrote into what it was given"
            )
        if found is not None:
            refused += 1
            named = "params" in str(found) or "Convert3DTo2D must come before" in str(found)
            expected = named and isinstance(found, (TypeError, ValueError, IndexError, KeyError))
            assert expected, f"{name} with {params!r} raised {found!r}"
            assert n >= len(drawn), f"{name} refuses what it has drawn, {params!r}: {found!r}"
    return refused, rounds - refused


def check_that_kernels_check() -> None:
    """With ``NUMBA_BOUNDSCHECK=1``, a kernel that reads beyond an array raises."""
    if os.environ.get("NUMBA_BOUNDSCHECK") == "1":
        found = error_of(
            lambda: picked(np.zeros((1, 1, 4), np.float32), [np.array([0]), np.array([9])])
        )
        assert isinstance(found, IndexError), found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    check_that_kernels_check()
    for name in EVERY:
        counts = [fuzz(name, dims, options.rounds, seed=0) for dims in SHAPES]
        print(
            f"{name}: {sum(c[0] for c in counts)} refused, {sum(c[1] for c in counts)} applied",
            flush=True,
        )


if __name__ == "__main__":
    main()
