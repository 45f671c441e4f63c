"""The state of all random number generators as one checkpoint entry: `rng_state`, `set_rng_state`,
`isolate_rng`.

The dict holds tensors, ints, floats, strings, lists, dicts and None only, so that
``torch.load(weights_only=True)`` reads it:

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

Function = TypeVar("Function", bound=Callable[..., Any])


def rng_state(generators: Generators | None = None, *, include_cuda: bool = True) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's global generators, every accelerator's and the
    named ones'.

        checkpoint["rng"] = rng_state({"augmentation": generator})
        ...
        set_rng_state(checkpoint["rng"], {"augmentation": generator})

    Cached second normals (`random.gauss`, `numpy.random.standard_normal`, torch's) are part of it.
    Each rank of a distributed training has its own state. It contains neither other generators (a
    DataLoader's ``generator``, a library's own) nor how many children
    `numpy.random.Generator.spawn` has made.

    Args:
        generators: name → `numpy.random.Generator` (of any of NumPy's bit generators),
            `numpy.random.RandomState`,
            `torch.Generator` or `random.Random`.
        include_cuda: whether the CUDA devices (and Intel's XPU, Apple's MPS) are asked, where there
            are any (which initialises CUDA). A forked child of a process that uses CUDA cannot ask
            them, and leaves them out.

    Raises:
        TypeError: generators is no mapping from strings to generators of these kinds.
    """
    return {
        "format": FORMAT,
        "torch": str(torch.__version__),
        **dict(zip(GLOBAL, map(_saved, global_generators()), strict=True)),
        **{
            kind: [_saved(each) for each in device_generators(kind)] if include_cuda else []
            for kind in DEVICES
        },
        "generators": {
            name: {"kind": _kind(each), "state": _saved(each)}
            for name, each in _checked(generators).items()
        },
    }


def set_rng_state(
    state: Mapping[str, Any], generators: Generators | None = None, *, include_cuda: bool = True
) -> None:
    """Put back what `rng_state` gave. After an error nothing has been changed.

    Args:
        state: what `rng_state` gave, also after `torch.save` and `torch.load` (on whatever device
            that put it). Without
            CUDA devices in it, those of this machine stay as they are.
        generators: the same names as for `rng_state`, with generators of the same kinds. They are
            changed in place.
        include_cuda: False leaves the CUDA devices and their part of the state alone: for a machine
            with another
            number of them.

    Raises:
        TypeError: the state is no mapping, or a generator is of the wrong type.
        ValueError: an entry is missing, unknown or damaged; the message names it.
        StateMismatch: (a ValueError) another torch major version, number of CUDA devices, format,
            set of names, kind of
            generator or bit generator.
    """
    named = _checked(generators)
    _check_versions(state)
    _check_entries(state, {name: _kind(each) for name, each in named.items()})
    triples = [
        (name, each, state[name]) for name, each in zip(GLOBAL, global_generators(), strict=True)
    ]
    for kind in DEVICES if include_cuda else ():
        triples += _on_devices(kind, state[kind]) if state[kind] else []
    triples += [
        (f"generators[{name!r}]", each, state["generators"][name]["state"])
        for name, each in named.items()
    ]
    before = [(generator, state_of(generator)) for _, generator, _ in triples]
    try:
        for where, generator, stored in triples:
            _put_back(where, generator, stored)
    except ValueError:
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
    if callable(include_cuda):
        return _isolation(include_cuda=True)(include_cuda)
    return _isolation(include_cuda)


@contextmanager
def _isolation(include_cuda: bool) -> Iterator[None]:
    devices = [each for kind in DEVICES for each in device_generators(kind)] if include_cuda else []
    with preserved_global_rngs(), preserved(devices):
        yield


def _checked(generators: Any) -> dict[str, Any]:
    if not isinstance(generators, Mapping | None):
        raise TypeError(
            f"generators must be a mapping from names to generators, got {generators!r}"
        )
    for name, each in (generators or {}).items():
        if not isinstance(name, str) or _kind(each) is None:
            raise TypeError(
                f"generators[{name!r}] must be one of {', '.join(KINDS)} with a state, under a name"
                f" that is a string, got {each!r} of type {type(each).__name__}"
            )
    return dict(generators or {})


def _kind(generator: Any) -> str | None:
    kinds = (name for name, kind in KINDS.items() if isinstance(generator, kind))
    return None if isinstance(generator, random.SystemRandom) else next(kinds, None)


def _check_versions(state: Any) -> None:
    if not isinstance(state, Mapping):
        raise TypeError(f"the state must be the dict that rng_state() gave, got {state!r}")
    if state.get("format", FORMAT) != FORMAT:
        raise StateMismatch(
            f"this random state has format {state['format']!r}, and this detaug reads format"
            f" {FORMAT}: load it with the version of detaug that wrote it"
        )
    here = str(torch.__version__)
    there = str(state.get("torch", here))
    major = there.split(".")[0]
    if not major.isdigit():
        raise ValueError(
            f"the state's entry 'torch' must be torch's version as a string, got {state['torch']!r}"
        )
    if major != here.split(".")[0]:
        raise StateMismatch(
            f"this random state was taken with torch {there}, and this is torch {here}: generators"
            " of another major version may draw other numbers from it. Resume with torch"
            f" {major}.x, or seed again with seed_everything"
        )


def _check_entries(state: Mapping[str, Any], kinds: dict[str, str | None]) -> None:
    names = {"format", "torch", *GLOBAL, *DEVICES, "generators"}
    if set(state) != names:
        missing, unknown = sorted(names - set(state)), sorted(map(str, set(state) - names))
        raise ValueError(f"this is not what rng_state() gave: missing {missing}, unknown {unknown}")
    if not all(isinstance(state[kind], list) for kind in DEVICES):
        raise ValueError(f"the state's entries {', '.join(DEVICES)} must be lists")
    try:
        found = {name: each["kind"] for name, each in state["generators"].items()}
    except (AttributeError, TypeError, LookupError) as error:
        raise ValueError(f"the state's entry generators is damaged: {error}") from error
    if found != kinds:
        raise StateMismatch(
            f"the state holds the generators {found}, and these were given: {kinds}"
        )


def _on_devices(kind: str, stored: Any) -> list[tuple[str, Any, Any]]:
    devices = device_generators(kind)
    if len(stored) != len(devices):
        raise StateMismatch(
            f"this random state was taken with {len(stored)} {kind.upper()} devices, and here there"
            f" are {len(devices)}: resume with as many, or pass include_cuda=False to leave their"
            " part out (they then draw another stream)"
        )
    return [
        (f"{kind}[{number}]", *pair)
        for number, pair in enumerate(zip(devices, stored, strict=True))
    ]


def _saved(generator: Any) -> Any:
    """Its state in lists and numbers; a torch.Generator's remains a tensor."""
    state = state_of(generator)
    return _plain(state[1] if isinstance(generator, np.random.RandomState) else state)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value


def _put_back(where: str, generator: Any, stored: Any) -> None:
    """What `_saved` gave, also after `torch.load` with a ``map_location``. ValueError: the
    generator does not take it.
    """
    here = _saved(generator)
    if (
        isinstance(here, dict)
        and isinstance(stored, dict)
        and stored.get("bit_generator") != here["bit_generator"]
    ):
        raise StateMismatch(
            f"{where}: the state is of a {stored.get('bit_generator')}, not a"
            f" {here['bit_generator']}"
        )
    try:
        if isinstance(generator, torch.Generator):
            stored = stored.detach().to("cpu", copy=True)
        elif isinstance(generator, random.Random):
            version, words, cached_normal = stored
            if not isinstance(cached_normal, float | None):  # which `setstate` does not check
                raise TypeError(f"its cached normal must be a float or None, got {cached_normal!r}")
            stored = version, tuple(words), cached_normal
        else:
            for name, position in {**stored, **stored["state"]}.items():
                if name in _LARGEST and not 0 <= position <= _LARGEST[name]:
                    raise ValueError(
                        f"{name} must be within 0 ... {_LARGEST[name]}, got {position}"
                    )
            stored = (
                (generator._bit_generator, stored)
                if isinstance(generator, np.random.RandomState)
                else stored
            )
        put_back(generator, stored)
    except (
        ValueError,
        TypeError,
        RuntimeError,
        ArithmeticError,
        LookupError,
        AttributeError,
    ) as error:
        raise ValueError(f"the state's entry {where} is damaged: {error}") from error
