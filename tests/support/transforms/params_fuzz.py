"""Random wrong params for every transform, which must refuse them by name or apply them safely.

`python -m tests.support.transforms.params_fuzz --rounds 50` with ``NUMBA_BOUNDSCHECK=1`` (and a
``NUMBA_CACHE_DIR`` of its own) checks every access to an array in every kernel.
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
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from detaug import SeedTree, fingerprint
from detaug.kernels.voxels import picked
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.golden import sample

#: Number of spatial axes -> shape of the input.
SHAPES = {2: (13, 13), 3: (11, 11, 10)}
#: Bytes before and after a guarded array, and the value of each.
_GUARD = 4096
_SENTINEL = 0xA5
#: Replacements for a value of params. Some are right in some places.
WRONG: list[Any] = [
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    -1e308,
    1e300,
    1e12,
    -1e12,
    1e9,
    -1e9,
    10**400,
    -1,
    -2,
    3,
    7,
    1000,
    2**31 - 1,
    2**31,
    -(2**31),
    2**63,
    2**64,
    0,
    0.0,
    -0.0,
    0.5,
    1e-320,
    True,
    False,
    None,
    "0",
    "nan",
    "",
    [],
    {},
    [[]],
    [0],
    [0, 0],
    (1, 2, 3),
    np.float32(math.inf),
    np.float64(math.nan),
    np.int64(-1),
    np.float16(6e4),
    np.bool_(True),
    np.zeros(2),
    np.zeros(()),
    torch.tensor(1.0),
    1j,
    object(),
    b"0",
]


def mutated(params: Any, rng: random.Random, others: Sequence[Any]) -> Any:
    """Return params with one or two faults, or rarely something else in their place.

    Args:
        params: right ones.
        rng: generator that chooses the faults: a value, a length or a key.
        others: params of other transforms.
    """
    changed = copy.deepcopy(params)
    if rng.random() < 0.05:
        return copy.deepcopy(rng.choice([*others, *WRONG]))
    num_changes = rng.choice([1, 1, 1, 2])
    for _ in range(num_changes):
        changed = _changed(changed, rng)
    return changed


def _changed(value: Any, rng: random.Random) -> Any:
    if isinstance(value, dict) and value and rng.random() < 0.9:
        return _changed_dict(value, rng)
    if isinstance(value, (list, tuple)) and value and rng.random() < 0.85:
        return _changed_list(list(value), rng)
    return rng.choice(WRONG)


def _changed_dict(value: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    changed = dict(value)
    name = rng.choice(list(value))
    kind = rng.random()
    if kind < 0.08:
        del changed[name]
    elif kind < 0.14:
        changed["surplus"] = rng.choice(WRONG)
    else:
        changed[name] = _changed(value[name], rng)
    return changed


def _changed_list(value: list[Any], rng: random.Random) -> Any:
    index = rng.randrange(len(value))
    kind = rng.random()
    if kind < 0.1:
        del value[index]
    elif kind < 0.2:
        value.append(value[index])
    elif kind < 0.225:
        return np.array(value, dtype=object)
    elif kind < 0.25:
        return tuple(value)
    else:
        value[index] = _changed(value[index], rng)
    return value


class Guarded:
    """An allocator of arrays that lie between guard bytes, which nobody may write to."""

    def __init__(self) -> None:
        self._memory: list[tuple[np.ndarray, int]] = []

    def empty(self, shape: int | Sequence[int], dtype: Any = np.float64) -> np.ndarray:
        """Return an array as `numpy.empty` does."""
        array_dtype = np.dtype(dtype)
        lengths = tuple(np.atleast_1d(shape).tolist())
        size = math.prod(lengths) * array_dtype.itemsize
        memory = np.full(size + 2 * _GUARD, _SENTINEL, np.uint8)
        self._memory.append((memory, size))
        between_guards = memory[_GUARD : _GUARD + size]
        return between_guards.view(array_dtype).reshape(lengths)

    def empty_like(self, array: np.ndarray) -> np.ndarray:
        """Return an array as `numpy.empty_like` does."""
        return self.empty(array.shape, array.dtype)

    def copy(self, array: np.ndarray) -> np.ndarray:
        """Return a guarded copy of an array."""
        copied = self.empty_like(array)
        copied[...] = array
        return copied

    def check(self) -> None:
        """Assert that nothing has written to the guard bytes, and forget all arrays."""
        for block, size in self._memory:
            assert (block[:_GUARD] == _SENTINEL).all(), "written before an array"
            assert (block[_GUARD + size :] == _SENTINEL).all(), "written behind an array"
        self._memory.clear()


@contextmanager
def guarded_arrays() -> Iterator[Guarded]:
    """Guard all arrays of `numpy.empty` and `numpy.empty_like`, so results of transforms too."""
    guarded = Guarded()
    empty = patch.object(np, "empty", guarded.empty)
    empty_like = patch.object(np, "empty_like", guarded.empty_like)
    with empty, empty_like:
        yield guarded


def error_of(call: Callable[[], Any]) -> Exception | None:
    """Return the exception that a call raises, or None."""
    try:
        call()
    except Exception as error:
        return error
    return None


def fuzz(name: str, dims: int, rounds: int, seed: int) -> tuple[int, int]:
    """Apply many wrong params of a transform; return how many were refused and how many applied.

    Raises:
        AssertionError: if an error does not say that params are wrong or is of another class, if
            something was written beyond an array, or into the caller's arrays.
    """
    rng = random.Random(f"{name} {dims} {seed}")
    transform = EVERY[name](dims)
    # Compiled before `numpy.empty` is replaced, as Numba cannot compile the replacement.
    for kernel in transform.kernels:
        kernel.compile()
    original = sample(1, SHAPES[dims])
    shapes = {key: array.shape for key, array in original.items()}
    tree = SeedTree(seed)
    right_params = [transform.sample(tree.generator(0, number), shapes) for number in range(4)]
    others = []
    for other in rng.sample(list(EVERY), 6):
        others.append(EVERY[other](dims).sample(tree.generator(1, 0), shapes))
    num_refused = 0
    for params in right_params:
        error = _error_of(transform, original, params)
        assert error is None, f"{name} refuses what it has drawn, {params!r}: {error!r}"
    for _ in range(len(right_params), rounds):
        params = mutated(rng.choice(right_params), rng, others)
        error = _error_of(transform, original, params)
        if error is None:
            continue
        num_refused += 1
        is_named = "params" in str(error) or "Convert3DTo2D must come before" in str(error)
        is_of_kind = isinstance(error, (TypeError, ValueError, IndexError, KeyError))
        text = f"{name} with {params!r} raised {error!r}"
        assert is_named, text
        assert is_of_kind, text
    return num_refused, rounds - num_refused


def _error_of(transform: Any, original: dict[str, np.ndarray], params: Any) -> Exception | None:
    """Return the exception of applying params, or None; fail if it writes to others' memory."""
    with guarded_arrays() as guarded, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        arrays = {key: guarded.copy(array) for key, array in original.items()}
        error = error_of(partial(transform.apply, arrays, params))
        guarded.check()
    assert fingerprint(arrays) == fingerprint(original), f"{params!r}: written into what was given"
    return error


def check_that_kernels_check() -> None:
    """Assert that ``NUMBA_BOUNDSCHECK=1``, if set, makes a read beyond an array an error."""
    if os.environ.get("NUMBA_BOUNDSCHECK") == "1":
        image = np.zeros((1, 1, 4), np.float32)
        indices = [np.array([0]), np.array([9])]
        error = error_of(partial(picked, image, indices))
        assert isinstance(error, IndexError), error


def main() -> None:
    """Try wrong params on every transform and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    check_that_kernels_check()
    for name in EVERY:
        num_refused = 0
        num_applied = 0
        for dims in SHAPES:
            refused, applied = fuzz(name, dims, options.rounds, seed=0)
            num_refused += refused
            num_applied += applied
        print(f"{name}: {num_refused} refused, {num_applied} applied", flush=True)


if __name__ == "__main__":
    main()
