"""`rng_state`: the state of all random number generators as one checkpoint entry.

The dict holds tensors, ints, floats, strings, lists, dicts and None only, so that
``torch.load(weights_only=True)`` reads it:

    format      3
    torch       torch's version
    python      random.getstate(): generator version, 625 words, the cached second normal
    numpy       numpy.random.get_state(legacy=False): the bit generator's state, the cached second
                normal
    cpu         torch's CPU generator, with its cached normals, as a uint8 tensor
    cuda        a uint8 tensor for every CUDA device, in their order; empty without CUDA
    xpu, mps    the same for Intel's and Apple's devices
    generators  name -> {"kind": ..., "state": ...}
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import _GeneratorContextManager, contextmanager
from typing import Any, TypeVar, overload

import numpy as np
import torch

from detaug.errors import StateMismatch
from detaug.seeding.generators import (
    device_generators,
    global_generators,
    preserved,
    preserved_global_rngs,
    put_back,
    state_of,
)

FORMAT = 3
GLOBAL = ("python", "numpy", "cpu")
DEVICES = ("cuda", "xpu", "mps")
KINDS = {
    "numpy.random.Generator": np.random.Generator,
    "numpy.random.RandomState": np.random.RandomState,
    "torch.Generator": torch.Generator,
    "random.Random": random.Random,
}

#: The largest positions in bit generators' own buffers. NumPy's setters do not check them, and
#: would read beyond the end.
_LARGEST = {"pos": 624, "buffer_pos": 4, "has_uint32": 1, "has_gauss": 1}

Generators = Mapping[str, Any]

#: The name of a state's entry, the generator that it belongs to, and the stored state.
_Entry = tuple[str, Any, Any]
Function = TypeVar("Function", bound=Callable[..., Any])


def rng_state(generators: Generators | None = None, *, include_cuda: bool = True) -> dict[str, Any]:
    """Return the state of all global generators, of every accelerator's, and of the named ones.

        checkpoint["rng"] = rng_state({"augmentation": generator})
        ...
        set_rng_state(checkpoint["rng"], {"augmentation": generator})

    Cached second normals (`random.gauss`, `numpy.random.standard_normal`, torch's) are part of it.
    Each rank of a distributed training has its own state. It contains neither other generators (a
    DataLoader's ``generator``, a library's own) nor how many children
    `numpy.random.Generator.spawn` has made.

    Args:
        generators: name → `numpy.random.Generator` (of any of NumPy's bit generators),
            `numpy.random.RandomState`, `torch.Generator` or `random.Random`.
        include_cuda: whether the CUDA devices (and Intel's XPU, Apple's MPS) are asked, where there
            are any (which initialises CUDA). A forked child of a process that uses CUDA cannot ask
            them, and leaves them out.

    Raises:
        TypeError: generators is no mapping from strings to generators of these kinds.
    """
    state: dict[str, Any] = {"format": FORMAT, "torch": str(torch.__version__)}
    for name, generator in zip(GLOBAL, global_generators(), strict=True):
        state[name] = _saved(generator)
    for kind in DEVICES:
        # An empty list, so that a state without devices has all entries, too.
        devices = device_generators(kind) if include_cuda else []
        state[kind] = [_saved(generator) for generator in devices]
    named = _checked(generators)
    state["generators"] = {
        name: {"kind": _kind(generator), "state": _saved(generator)}
        for name, generator in named.items()
    }
    return state


def set_rng_state(
    state: Mapping[str, Any], generators: Generators | None = None, *, include_cuda: bool = True
) -> None:
    """Put back what `rng_state` gave. After an error nothing has been changed.

    Args:
        state: what `rng_state` gave, also after `torch.save` and `torch.load` (on whatever device
            that put it). Without CUDA devices in it, those of this machine stay as they are.
        generators: the same names as for `rng_state`, with generators of the same kinds. They are
            changed in place.
        include_cuda: False leaves the CUDA devices and their part of the state alone: for a machine
            with another number of them.

    Raises:
        TypeError: the state is no mapping, or a generator is of the wrong type.
        ValueError: an entry is missing, unknown or damaged; the message names it.
        StateMismatch: (a ValueError) another torch major version, number of CUDA devices, format,
            set of names, kind of generator or bit generator.
    """
    named = _checked(generators)
    _check_versions(state)
    # Checked before anything is read: the state may come from a damaged file.
    _check_entries(state, {name: _kind(generator) for name, generator in named.items()})
    # All entries are collected, and their devices counted, before the first generator is changed.
    entries: list[_Entry] = []
    for name, generator in zip(GLOBAL, global_generators(), strict=True):
        entries.append((name, generator, state[name]))
    if include_cuda:
        for kind in DEVICES:
            entries += _device_entries(kind, state[kind])
    for name, generator in named.items():
        stored = state["generators"][name]["state"]
        entries.append((f"generators[{name!r}]", generator, stored))
    # Kept to undo the changes: an error must not leave half of the generators changed.
    before = [(generator, state_of(generator)) for _, generator, _ in entries]
    try:
        for label, generator, stored in entries:
            _put_back(label, generator, stored)
    except ValueError:
        # A generator's own setter refused its part: a program must not go on from half a state.
        for generator, old in before:
            put_back(generator, old)
        raise


@overload
def isolate_rng(include_cuda: Function, /) -> Function: ...


@overload
def isolate_rng(include_cuda: bool = True) -> _GeneratorContextManager[None]: ...


def isolate_rng(include_cuda: Any = True) -> Any:
    """Put the state of all generators back at the end, also after an exception.

    A context manager, and a decorator with and without brackets, as `torch.no_grad`:

        with isolate_rng():
            evaluate()

        @isolate_rng
        def evaluate(): ...

    It can be nested. NumPy's global bit generator is put back where another was set inside.
    The generators that OpenCV, Numba and MONAI share in a process are put back as well.

    Args:
        include_cuda: whether the accelerators are kept too, as for `rng_state`.
    """
    # ``@isolate_rng`` without brackets: the argument is the function.
    if callable(include_cuda):
        # A context manager of contextlib is a decorator as well.
        return _isolation(include_cuda=True)(include_cuda)
    return _isolation(include_cuda)


@contextmanager
def _isolation(include_cuda: bool) -> Iterator[None]:
    devices = []
    if include_cuda:
        for kind in DEVICES:
            devices += device_generators(kind)
    with preserved_global_rngs(), preserved(devices):
        yield


def _checked(generators: Any) -> dict[str, Any]:
    """Return the named generators as a dict.

    Raises:
        TypeError: they are no mapping from names to generators.
    """
    if generators is None:
        return {}
    if not isinstance(generators, Mapping):
        raise TypeError(
            f"generators must be a mapping from names to generators, got {generators!r}"
        )
    for name, generator in generators.items():
        if not isinstance(name, str) or _kind(generator) is None:
            raise TypeError(
                f"generators[{name!r}] must be one of {', '.join(KINDS)} with a state, under a name"
                f" that is a string, got {generator!r} of type {type(generator).__name__}"
            )
    return dict(generators)


def _kind(generator: Any) -> str | None:
    """Return the name of a generator's kind; None if it is none that has a state."""
    # It is a `random.Random` by its class, and draws from the operating system.
    if isinstance(generator, random.SystemRandom):
        return None
    for name, kind in KINDS.items():
        if isinstance(generator, kind):
            return name
    return None


def _check_versions(state: Any) -> None:
    """Raise unless this detaug and this torch can read the state."""
    if not isinstance(state, Mapping):
        raise TypeError(f"the state must be the dict that rng_state() gave, got {state!r}")
    # An entry that is missing is reported by `_check_entries`, with all others.
    if state.get("format", FORMAT) != FORMAT:
        raise StateMismatch(
            f"this random state has format {state['format']!r}, and this detaug reads format"
            f" {FORMAT}: load it with the version of detaug that wrote it"
        )
    current = str(torch.__version__)
    stored = str(state.get("torch", current))
    major = stored.split(".")[0]
    if not major.isdigit():
        raise ValueError(
            f"the state's entry 'torch' must be torch's version as a string, got {state['torch']!r}"
        )
    if major != current.split(".")[0]:
        raise StateMismatch(
            f"this random state was taken with torch {stored}, and this is torch {current}:"
            " generators of another major version may draw other numbers from it. Resume with torch"
            f" {major}.x, or seed again with seed_everything"
        )


def _check_entries(state: Mapping[str, Any], kinds: dict[str, str | None]) -> None:
    """Raise unless the state has all its entries, and named generators of these kinds."""
    names = {"format", "torch", *GLOBAL, *DEVICES, "generators"}
    if set(state) != names:
        missing = sorted(names - set(state))
        unknown = sorted(map(str, set(state) - names))
        raise ValueError(f"this is not what rng_state() gave: missing {missing}, unknown {unknown}")
    if not all(isinstance(state[kind], list) for kind in DEVICES):
        raise ValueError(f"the state's entries {', '.join(DEVICES)} must be lists")
    try:
        stored_kinds = {name: entry["kind"] for name, entry in state["generators"].items()}
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"the state's entry generators is damaged: {error}") from error
    # Names must agree, too: a generator that is missing would silently keep its position.
    if stored_kinds != kinds:
        raise StateMismatch(
            f"the state holds the generators {stored_kinds}, and these were given: {kinds}"
        )


def _device_entries(kind: str, stored: list[Any]) -> list[_Entry]:
    """Return the entries of the devices of a kind; none where none was stored.

    Raises:
        StateMismatch: another number of devices was stored.
    """
    if not stored:
        return []
    devices = device_generators(kind)
    if len(stored) != len(devices):
        raise StateMismatch(
            f"this random state was taken with {len(stored)} {kind.upper()} devices, and here there"
            f" are {len(devices)}: resume with as many, or pass include_cuda=False to leave their"
            " part out (they then draw another stream)"
        )
    entries = []
    for index, (device, state) in enumerate(zip(devices, stored, strict=True)):
        entries.append((f"{kind}[{index}]", device, state))
    return entries


def _saved(generator: Any) -> Any:
    """Return its state in lists and numbers; a torch.Generator's remains a tensor."""
    state = state_of(generator)
    if isinstance(generator, np.random.RandomState):
        # The first entry is the bit generator itself.
        _, state = state
    return _plain(state)


def _plain(value: Any) -> Any:
    """Return mappings, sequences and arrays as dicts, lists and numbers."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return value


def _put_back(label: str, generator: Any, stored: Any) -> None:
    """Give a generator the state that `_saved` returned, also after `torch.load`.

    Raises:
        StateMismatch: the state is of another kind of bit generator.
        ValueError: the generator does not take it.
    """
    # Named here: the setters' own errors do not name the kind of a state.
    current = _saved(generator)
    if isinstance(current, dict) and isinstance(stored, dict):
        stored_kind = stored.get("bit_generator")
        if stored_kind != current["bit_generator"]:
            raise StateMismatch(
                f"{label}: the state is of a {stored_kind}, not a {current['bit_generator']}"
            )
    try:
        put_back(generator, _restored(generator, stored))
    except (
        ValueError,
        TypeError,
        RuntimeError,
        ArithmeticError,
        LookupError,
        AttributeError,
    ) as error:
        raise ValueError(f"the state's entry {label} is damaged: {error}") from error


def _restored(generator: Any, stored: Any) -> Any:
    """Return a stored state in the form that the generator's own setter takes."""
    if isinstance(generator, torch.Generator):
        # `torch.load` may have put it on another device.
        return stored.detach().to("cpu", copy=True)
    if isinstance(generator, random.Random):
        version, words, cached_normal = stored
        # `setstate` does not check it.
        if not isinstance(cached_normal, float | None):
            raise TypeError(f"its cached normal must be a float or None, got {cached_normal!r}")
        return version, tuple(words), cached_normal
    for name, position in {**stored, **stored["state"]}.items():
        if name in _LARGEST and not 0 <= position <= _LARGEST[name]:
            raise ValueError(f"{name} must be within 0 ... {_LARGEST[name]}, got {position}")
    if isinstance(generator, np.random.RandomState):
        return generator._bit_generator, stored
    return stored
