"""The state of all random number generators as one checkpoint entry: `rng_state`, `set_rng_state`, `isolate_rng`.

The dict holds tensors, ints, floats, strings, lists, dicts and None only, so that ``torch.load(weights_only=True)`` reads it:

    format      3
    torch       torch's version
    python      random.getstate(): generator version, 625 words, the cached second normal
    numpy       numpy.random.get_state(legacy=False): the bit generator's state and the cached second normal
    cpu         torch's CPU generator, with its cached normals, as a uint8 tensor
    cuda        a uint8 tensor for every CUDA device, in their order; empty without CUDA
    xpu, mps    the same for Intel's and Apple's devices
    generators  name -> {"kind": ..., "state": ...}
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from detaug.errors import StateMismatch
from detaug.fingerprints import fingerprint
from detaug.seeding.generators import device_generators, global_generators, preserved, put_back, state_of

FORMAT = 3
DEVICES = ("cuda", "xpu", "mps")
KINDS = {
    "numpy.random.Generator": np.random.Generator,
    "numpy.random.RandomState": np.random.RandomState,
    "torch.Generator": torch.Generator,
    "random.Random": random.Random,
}

#: The largest positions in bit generators' own buffers. NumPy's setters do not check them, and would read beyond the end.
_LARGEST = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1}

Generators = Mapping[str, Any]


def rng_state(generators: Generators | None = None, *, include_cuda: bool = True) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's global generators, every accelerator's and the named ones'.

        checkpoint["rng"] = rng_state({"augmentation": generator})
        ...
        set_rng_state(checkpoint["rng"], {"augmentation": generator})

    Cached second normals (`random.gauss`, `numpy.random.standard_normal`, torch's) are part of it. Each rank of a
    distributed training has its own state. It contains neither other generators (a DataLoader's ``generator``, a
    library's own) nor how many children `numpy.random.Generator.spawn` has made.

    Args:
        generators: name → `numpy.random.Generator` (of any of NumPy's bit generators), `numpy.random.RandomState`,
            `torch.Generator` or `random.Random`.
        include_cuda: whether the CUDA devices (and Intel's XPU, Apple's MPS) are asked, where there are any (which
            initialises CUDA). A forked child of a process that uses CUDA cannot ask them, and leaves them out.

    Raises:
        TypeError: generators is no mapping from strings to generators of these kinds.
    """
    held = _held(generators, DEVICES if include_cuda else ())
    return {"format": FORMAT, "torch": str(torch.__version__), **_plain(held)}


def set_rng_state(state: Mapping[str, Any], generators: Generators | None = None, *, include_cuda: bool = True) -> None:
    """Put back what `rng_state` gave. After an error nothing has been changed.

    Args:
        state: what `rng_state` gave, also after `torch.save` and `torch.load` (on whatever device that put it). Without
            CUDA devices in it, those of this machine stay as they are.
        generators: the same names as for `rng_state`, with generators of the same kinds. They are changed in place.
        include_cuda: False leaves the CUDA devices and their part of the state alone: for a machine with another
            number of them.

    Raises:
        TypeError: the state is no mapping, or a generator is of the wrong type.
        ValueError: an entry is missing, unknown or damaged; the message names it.
        StateMismatch: (a ValueError) another torch major version, number of CUDA devices, format, set of names, kind of
            generator or bit generator.
    """
    _check_versions(state)
    kinds = [kind for kind in DEVICES if include_cuda and state.get(kind) != []]
    left_alone: dict[str, Any] = {kind: [] for kind in DEVICES if kind in state and kind not in kinds}
    held = {"format": FORMAT, "torch": "", **_held(generators, kinds)}
    pairs = list(_pairs("", {**state, **left_alone}, held))
    before = [(generator, state_of(generator)) for _, generator, _ in pairs]
    try:
        for where, generator, stored in pairs:  # noqa: B007
            put_back(generator, _native(generator, stored))
            if fingerprint(_plain(generator)) != fingerprint(_on_cpu(stored)):
                raise ValueError("the generator does not take it as it is")
    except (ValueError, TypeError, RuntimeError, ArithmeticError, LookupError, AttributeError) as error:
        for generator, old in before:
            put_back(generator, old)
        raise ValueError(f"the state's entry {where} is damaged: {error}") from error


def isolate_rng(include_cuda: Any = True, *, generators: Generators | None = None) -> Any:
    """Put the state of all generators back at the end, also after an exception.

    A context manager and a decorator, with brackets (``@isolate_rng()``) or without, as Lightning's; it can be nested. NumPy's
    global bit generator is put back where another was set inside.

    Args:
        include_cuda: whether the accelerators are kept too, as for `rng_state`.
        generators: further generators to keep, by name.

    Raises:
        TypeError: as `rng_state`.
    """
    if callable(include_cuda):
        return _isolated(True, None)(include_cuda)
    return _isolated(include_cuda, generators)


@contextmanager
def _isolated(include_cuda: bool, generators: Generators | None) -> Iterator[None]:
    devices = [each for kind in DEVICES for each in device_generators(kind)] if include_cuda else []
    with preserved([*global_generators(), *devices, *_checked(generators).values()]):
        yield


def _checked(generators: Any) -> dict[str, Any]:
    if not isinstance(generators, Mapping | None):
        raise TypeError(f"generators must be a mapping from names to generators, got {generators!r}")
    for name, each in (generators or {}).items():
        if not isinstance(name, str) or _kind(each) is None:
            raise TypeError(
                f"generators[{name!r}] must be one of {', '.join(KINDS)} with a state, under a name that is a string, got "
                f"{each!r} of type {type(each).__name__}"
            )
    return dict(generators or {})


def _kind(generator: Any) -> str | None:
    kinds = (name for name, kind in KINDS.items() if isinstance(generator, kind))
    return None if isinstance(generator, random.SystemRandom) else next(kinds, None)


def _held(generators: Any, kinds: Collection[str]) -> dict[str, Any]:
    """The generators, where `rng_state` has their states."""
    return {
        **dict(zip(("python", "numpy", "cpu"), global_generators(), strict=True)),
        **{kind: device_generators(kind) if kind in kinds else [] for kind in DEVICES},
        "generators": {name: {"kind": _kind(g), "state": g} for name, g in _checked(generators).items()},
    }


def _check_versions(state: Any) -> None:
    if not isinstance(state, Mapping):
        raise TypeError(f"the state must be the dict that rng_state() gave, got {state!r}")
    if state.get("format", FORMAT) != FORMAT:
        raise StateMismatch(
            f"this random state has format {state['format']!r}, and this detaug reads format {FORMAT}: "
            "load it with the version of detaug that wrote it"
        )
    here = str(torch.__version__)
    there = str(state.get("torch", here))
    major = there.split(".")[0]
    if not major.isdigit():
        raise ValueError(f"the state's entry 'torch' must be torch's version as a string, got {state['torch']!r}")
    if major != here.split(".")[0]:
        raise StateMismatch(
            f"this random state was taken with torch {there}, and this is torch {here}: generators of another major "
            f"version may draw other numbers from it. Resume with torch {major}.x, or seed again with seed_everything"
        )


def _plain(value: Any) -> Any:
    """Generators become their states, and these lists and numbers; a torch.Generator's state remains a tensor."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if _kind(value) is not None:
        state = state_of(value)
        return _plain(state[1] if isinstance(value, np.random.RandomState) else state)
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _on_cpu(stored: Any) -> Any:
    """A copy; `torch.load` with a ``map_location`` may have put it elsewhere."""
    return stored.detach().to("cpu", copy=True) if isinstance(stored, torch.Tensor) else stored


def _native(generator: Any, stored: Any) -> Any:
    """`stored` as `put_back` takes it for that generator."""
    if isinstance(generator, torch.Generator):
        return _on_cpu(stored)
    if isinstance(generator, random.Random):
        version, words, cached = stored
        if not isinstance(cached, float | None):  # which `setstate` does not check
            raise TypeError(f"its cached normal must be a float or None, got {cached!r}")
        return version, tuple(words), cached
    for holder in (stored, stored["state"]):
        for key, largest in _LARGEST.items():
            if not 0 <= holder.get(key, 0) <= largest:
                raise ValueError(f"{key} must be within 0 ... {largest}, got {holder[key]}")
    return (generator._bit_generator, stored) if isinstance(generator, np.random.RandomState) else stored


def _pairs(where: str, stored: Any, held: Any) -> Iterator[tuple[str, Any, Any]]:
    """Every generator in `held`, where it is, and what `stored` has in its place."""
    if not isinstance(stored, type(_plain(held))):
        wanted, kind = type(_plain(held)).__name__, type(stored).__name__
        raise ValueError(f"the state's entry {where} must be a {wanted}, got {stored!r} of type {kind}")
    if isinstance(held, list) and len(stored) != len(held):
        raise StateMismatch(
            f"this random state was taken with {len(stored)} {where.upper()} devices, and here there are {len(held)}: "
            "resume with as many, or pass include_cuda=False to leave their part out (they then draw another stream)"
        )
    if _kind(held) is not None:
        _check_keys(where, stored, _plain(held))
        yield where, held, stored
    elif isinstance(held, dict):
        _check_keys(where, stored, held)
        for key, each in held.items():
            yield from _pairs(f"{where}[{key!r}]" if where else key, stored[key], each)
    elif isinstance(held, list):
        for number, each in enumerate(held):
            yield from _pairs(f"{where}[{number}]", stored[number], each)


def _check_keys(where: str, stored: Any, here: Any) -> None:
    if not isinstance(here, dict):
        return
    for key in ("kind", "bit_generator"):
        if isinstance(stored.get(key), str) and stored[key] != here.get(key):
            raise StateMismatch(f"{where}: the state is of a {stored[key]}, and the generator is a {here.get(key)}")
    missing, unknown = [each for each in here if each not in stored], [each for each in stored if each not in here]
    if where == "generators" and (missing or unknown):
        raise StateMismatch(
            f"the state holds the generators {sorted(map(str, stored))}, and {sorted(here)} were given: "
            "pass the same names as to rng_state"
        )
    if missing or unknown:
        raise ValueError(f"{where or 'this'} is not what rng_state() gave: missing {missing}, unknown {unknown}")
