"""One random number generator's state, as plain values and tensors, and back.

Back is in two halves: a `..._step` function checks the state against a generator of the same kind that nobody else uses,
and returns a function that puts it in place. NumPy's setters do not check positions in their buffers, and a damaged one
would have them read beyond the end.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from detaug.errors import StateMismatch

Step = Callable[[], None]

# The largest allowed value of the bit generators' positions in their own buffers.
LARGEST_POSITION = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1, "uinteger": 2**32 - 1}
PYTHON_WORDS = 625


def kind_of(generator: Any, where: str) -> str:
    """The kind's name, as it stands in a state.

    Raises:
        TypeError: a generator of no kind that is known here.
    """
    for kind, name in (
        (np.random.Generator, "numpy.random.Generator"),
        (np.random.RandomState, "numpy.random.RandomState"),
        (torch.Generator, "torch.Generator"),
        (random.Random, "random.Random"),
    ):
        if isinstance(generator, kind) and not isinstance(generator, random.SystemRandom):
            return name
    raise TypeError(
        f"{where} must be a numpy.random.Generator, numpy.random.RandomState, torch.Generator or random.Random with a "
        f"state, got {generator!r} of type {type(generator).__name__}"
    )


def is_generator(value: Any) -> bool:
    """Whether it is of a kind that is known here."""
    kinds = (np.random.Generator, np.random.RandomState, torch.Generator, random.Random)
    return isinstance(value, kinds) and not isinstance(value, random.SystemRandom)


def of_generator(generator: Any) -> dict[str, Any]:
    """``{"kind": ..., "state": ...}`` of a generator of any kind."""
    kind = kind_of(generator, "the generator")
    if isinstance(generator, np.random.Generator):
        state: Any = of_numpy(generator.bit_generator.state)
    elif isinstance(generator, np.random.RandomState):
        state = of_numpy(generator.get_state(legacy=False))
    elif isinstance(generator, torch.Generator):
        state = generator.get_state()
    else:
        state = of_python(generator.getstate())
    return {"kind": kind, "state": state}


def generator_step(where: str, stored: Any, generator: Any) -> Step:
    """Checks what `of_generator` gave against the generator that it is for."""
    _check_keys(where, stored, ("kind", "state"))
    kind, state = stored["kind"], stored["state"]
    here = kind_of(generator, where)
    if kind != here:
        raise StateMismatch(f"{where}: the state is of a {kind}, and the generator that was given is a {here}")
    if isinstance(generator, np.random.Generator):
        bit_generator = generator.bit_generator

        def put(decoded: Any) -> None:
            bit_generator.state = decoded

        return numpy_step(where, state, bit_generator.state, put)
    if isinstance(generator, np.random.RandomState):
        return numpy_step(where, state, generator.get_state(legacy=False), generator.set_state)
    if isinstance(generator, torch.Generator):
        return torch_step(where, state, generator)
    return python_step(where, state, generator)


def of_python(state: tuple[Any, ...]) -> dict[str, Any]:
    """`random.Random.getstate()` with its 625 words in a tensor."""
    version, words, cached = state
    return {"version": version, "words": torch.tensor(words, dtype=torch.int64, device="cpu"), "gauss": cached}


def python_step(where: str, stored: Any, generator: Any) -> Step:
    """Checks what `of_python` gave; `generator` is a `random.Random` or the module `random`."""
    _check_keys(where, stored, ("version", "words", "gauss"))
    words = _tensor(f"{where}['words']", stored["words"], torch.int64, (PYTHON_WORDS,)).tolist()
    cached = stored["gauss"]
    if not (cached is None or isinstance(cached, float)):
        raise TypeError(f"{where}['gauss'] must be a float or None, got {cached!r} of type {type(cached).__name__}")
    if min(words) < 0 or max(words) >= 2**32:
        raise ValueError(f"{where}['words'] is damaged: its numbers must be within 0 ... {2**32 - 1}")
    decoded = (stored["version"], tuple(words), cached)
    try:
        random.Random().setstate(decoded)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{where} is damaged: {error}") from error
    return lambda: generator.setstate(decoded)


def torch_step(where: str, stored: Any, generator: torch.Generator) -> Step:
    """Checks a torch generator's state; `generator` is on the CPU or on a CUDA device."""
    state = _tensor(where, stored, torch.uint8, tuple(generator.get_state().shape))
    try:
        torch.Generator(device=generator.device).set_state(state)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"{where} is damaged: {error}") from error

    def put() -> None:
        generator.set_state(state)

    return put


def of_numpy(state: Any) -> Any:
    """A bit generator's state, or a RandomState's: arrays become tensors (uint64 as the int64 of the same bits)."""
    if isinstance(state, Mapping):
        return {str(key): of_numpy(value) for key, value in state.items()}
    if isinstance(state, np.ndarray):
        bits = state.view(np.int64) if state.dtype == np.uint64 else state.astype(np.int64)
        return torch.tensor(bits.tolist(), dtype=torch.int64, device="cpu").reshape(state.shape)
    if isinstance(state, str):
        return state
    return float(state) if isinstance(state, (float, np.floating)) else int(state)


def numpy_step(where: str, stored: Any, current: Mapping[str, Any], put: Callable[[Any], None]) -> Step:
    """Checks what `of_numpy` gave against the state that the generator has now, which has the same shape."""
    kind = stored.get("bit_generator") if isinstance(stored, Mapping) else None
    if isinstance(kind, str) and kind != current["bit_generator"]:
        raise StateMismatch(
            f"{where}: the state is of a {kind}, and the generator here is a {current['bit_generator']}: "
            "make it with the same bit generator"
        )
    decoded = _like(where, stored, current)
    return lambda: put(decoded)


def _like(where: str, stored: Any, current: Any) -> Any:
    """`stored` with arrays for tensors, if it has the structure, types and shapes of `current`."""
    if isinstance(current, Mapping):
        _check_keys(where, stored, tuple(current))
        return {key: _in_range(f"{where}[{key!r}]", key, _like(f"{where}[{key!r}]", stored[key], current[key]))
                for key in current}  # fmt: skip
    if isinstance(current, np.ndarray):
        array = _tensor(where, stored, torch.int64, current.shape).numpy()
        if current.dtype == np.uint64:
            return array.view(np.uint64)
        if array.size and (array.min() < 0 or array.max() > np.iinfo(current.dtype).max):
            raise ValueError(f"{where} is damaged: its numbers must be within 0 ... {np.iinfo(current.dtype).max}")
        return array.astype(current.dtype)
    wanted = str if isinstance(current, str) else float if isinstance(current, (float, np.floating)) else int
    if isinstance(stored, bool) or not isinstance(stored, wanted):
        raise TypeError(f"{where} must be of type {wanted.__name__}, got {stored!r} of type {type(stored).__name__}")
    return stored


def _in_range(where: str, key: str, value: Any) -> Any:
    largest = LARGEST_POSITION.get(key, 2**128 - 1)
    if isinstance(value, int) and not 0 <= value <= largest:
        raise ValueError(f"{where} is damaged: it must be within 0 ... {largest}, got {value}")
    return value


def _check_keys(where: str, stored: Any, keys: tuple[str, ...]) -> None:
    if not isinstance(stored, Mapping):
        raise TypeError(f"the state's entry {where} must be a dict, got {stored!r} of type {type(stored).__name__}")
    if set(stored) != set(keys):
        raise ValueError(f"the state's entry {where} is damaged: it must have {list(keys)}, got {list(stored)}")


def _tensor(where: str, stored: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """A copy on the CPU (`torch.load` with a ``map_location`` may have put it elsewhere)."""
    if not isinstance(stored, torch.Tensor):
        raise TypeError(f"the state's entry {where} must be a tensor, got {stored!r} of type {type(stored).__name__}")
    if stored.dtype != dtype or tuple(stored.shape) != tuple(shape):
        raise ValueError(
            f"the state's entry {where} is damaged: it must be {dtype} of shape {tuple(shape)}, got {stored.dtype} of "
            f"shape {tuple(stored.shape)}"
        )
    return stored.detach().to("cpu", copy=True)
