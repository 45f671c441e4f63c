"""The state of all random number generators as one checkpoint entry: `rng_state`, `set_rng_state`, `isolate_rng`.

What the dict holds (tensors, ints, floats, strings, tuples, lists, dicts and None only, so that
``torch.load(weights_only=True)`` takes it):

    format      2 (1, without xpu and mps, is read too)
    torch       torch's version
    python      random.getstate(): generator version, 625 words as an int64 tensor, the cached second normal
    numpy       numpy.random.get_state(legacy=False): the bit generator's state and the cached second normal
    cpu         torch's CPU generator, with its cached normals, as a uint8 tensor
    cuda        a uint8 tensor for every CUDA device, in their order; empty without CUDA
    xpu, mps    the same for Intel's and Apple's devices
    generators  name -> {"kind": ..., "state": ...}
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch

from detaug.errors import StateMismatch
from detaug.training import generator_state

logger = logging.getLogger("detaug")

FORMAT = 2
ENTRIES = ("format", "torch", "python", "numpy", "cpu", "cuda", "xpu", "mps", "generators")

Generators = Mapping[str, Any]


def rng_state(generators: Generators | None = None, *, include_cuda: bool = True) -> dict[str, Any]:
    """The state of Python's, NumPy's and torch's global generators, every accelerator's and the named ones'.

        checkpoint["rng"] = rng_state({"augmentation": generator})
        ...
        set_rng_state(checkpoint["rng"], {"augmentation": generator})

    Cached second normals (`random.gauss`, `numpy.random.standard_normal`, torch's) are part of it. Each rank of a
    distributed training has a state of its own. Generators that nothing names (a DataLoader's ``generator``, a
    library's own) are not in it, nor how many children `numpy.random.Generator.spawn` has made.

    Args:
        generators: name → `numpy.random.Generator` (of any of NumPy's bit generators), `numpy.random.RandomState`,
            `torch.Generator` or `random.Random`.
        include_cuda: whether the CUDA devices (and Intel's XPU, Apple's MPS) are asked, where there are any (which
            initialises CUDA). A forked child of a process that uses CUDA cannot ask them, and leaves them out.

    Raises:
        TypeError: generators is no mapping from strings to generators of these kinds.
    """
    return {
        "format": FORMAT,
        "torch": str(torch.__version__),
        "python": generator_state.of_python(random.getstate()),
        "numpy": generator_state.of_numpy(np.random.get_state(legacy=False)),
        "cpu": torch.default_generator.get_state(),
        "cuda": list(torch.cuda.get_rng_state_all()) if include_cuda and _cuda_devices() else [],
        "xpu": list(torch.xpu.get_rng_state_all()) if include_cuda and _has("xpu") else [],
        "mps": [torch.mps.get_rng_state()] if include_cuda and _has("mps") else [],
        "generators": {name: generator_state.of_generator(g) for name, g in _checked_generators(generators).items()},
    }


def set_rng_state(state: Mapping[str, Any], generators: Generators | None = None, *, include_cuda: bool = True) -> None:
    """Put back what `rng_state` gave. Everything is checked first: after an error nothing has been changed.

    Args:
        state: what `rng_state` gave, also after `torch.save` and `torch.load` (on whatever device that put it).
        generators: the same names as when it was taken, with generators of the same kinds. They are changed in place.
        include_cuda: False leaves the CUDA devices and their part of the state alone: for a machine with another
            number of them.

    A state without CUDA devices (taken where there were none, or with ``include_cuda=False``) leaves the devices of
    this machine as they are.

    Raises:
        TypeError: the state is no mapping, or an entry or a generator is of the wrong type.
        ValueError: an entry is missing, unknown or damaged; the message names it.
        StateMismatch: (a ValueError) another torch major version, number of CUDA devices, format, set of names, kind of
            generator or bit generator.
    """
    if isinstance(state, Mapping) and state.get("format") == 1:
        state = {**state, "format": FORMAT, "xpu": [], "mps": []}
    _check_frame(state)
    named = _checked_generators(generators)
    steps: list[Callable[[], None]] = [
        generator_state.python_step("python", state["python"], random),
        generator_state.numpy_step("numpy", state["numpy"], np.random.get_state(legacy=False), np.random.set_state),
        generator_state.torch_step("cpu", state["cpu"], torch.default_generator),
        *(_cuda_steps(state["cuda"]) if include_cuda else []),
        *(_other_steps(state) if include_cuda else []),
        *_generator_steps(state["generators"], named),
    ]
    for step in steps:
        step()


def isolate_rng(include_cuda: Any = True, *, generators: Generators | None = None) -> Any:
    """Whatever is drawn or seeded inside, the generators outside do not notice, also after an exception.

    A context manager and a decorator, with brackets (``@isolate_rng()``) or without; it can be nested (Lightning's name and
    argument for the same). NumPy's global bit generator is put back where another was set inside.

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
    bits = np.random.get_bit_generator()  # type: ignore[attr-defined]
    state = rng_state(generators, include_cuda=include_cuda)
    failed = True
    try:
        yield
        failed = False
    finally:
        try:
            if np.random.get_bit_generator() is not bits:  # type: ignore[attr-defined]
                np.random.set_bit_generator(bits)  # type: ignore[attr-defined]
            set_rng_state(state, generators, include_cuda=include_cuda)
        except Exception:
            if not failed:
                raise
            # the exception from inside is what the user must see
            logger.exception("the random state could not be put back")


def _check_frame(state: Any) -> None:
    """The entries are there, of this format and of a torch whose generators this one understands."""
    if not isinstance(state, Mapping):
        raise TypeError(
            f"the state must be the dict that rng_state() gave, got {state!r} of type {type(state).__name__}"
        )
    if "format" in state and state["format"] != FORMAT:
        raise StateMismatch(
            f"this random state has format {state['format']!r}, and this detaug reads format {FORMAT}: "
            "load it with the version of detaug that wrote it"
        )
    missing = [entry for entry in ENTRIES if entry not in state]
    unknown = [entry for entry in state if entry not in ENTRIES]
    if missing or unknown:
        raise ValueError(
            f"this is not what rng_state() gave: missing {missing}, unknown {unknown}; it must have {list(ENTRIES)}"
        )
    here, there = str(torch.__version__), state["torch"]
    major = there.split(".")[0] if isinstance(there, str) else ""
    if not major.isdigit():
        raise ValueError(f"the state's entry 'torch' must be torch's version as a string, got {there!r}")
    if major != here.split(".")[0]:
        raise StateMismatch(
            f"this random state was taken with torch {there}, and this is torch {here}: generators of another major "
            f"version may draw other numbers from it. Resume with torch {major}.x, or seed anew with seed_everything"
        )


def _checked_generators(generators: Any) -> dict[str, Any]:
    if generators is None:
        return {}
    if not isinstance(generators, Mapping):
        raise TypeError(
            f"generators must be a mapping from names to generators, got {generators!r} of type "
            f"{type(generators).__name__}"
        )
    for name, generator in generators.items():
        if not isinstance(name, str):
            raise TypeError(f"the names of generators must be strings, got {name!r} of type {type(name).__name__}")
        generator_state.kind_of(generator, f"generators[{name!r}]")
    return dict(generators)


def _generator_steps(stored: Any, named: dict[str, Any]) -> list[Callable[[], None]]:
    if not isinstance(stored, Mapping):
        raise TypeError(f"the state's entry 'generators' must be a dict, got type {type(stored).__name__}")
    if set(stored) != set(named):
        raise StateMismatch(
            f"the state holds the generators {sorted(map(str, stored))}, and {sorted(named)} were given: "
            "pass the same names as to rng_state"
        )
    return [
        generator_state.generator_step(f"generators[{name!r}]", stored[name], generator)
        for name, generator in named.items()
    ]


def _cuda_devices() -> int:
    """How many there are that this process can ask. None in a forked child, where CUDA cannot be used again."""
    if not torch.cuda.is_available() or torch.cuda._is_in_bad_fork():
        return 0
    return torch.cuda.device_count()


def _cuda_steps(stored: Any) -> list[Callable[[], None]]:
    if not isinstance(stored, (list, tuple)):
        raise TypeError(f"the state's entry 'cuda' must be a list of tensors, got type {type(stored).__name__}")
    if not stored:
        return []
    devices = _cuda_devices()
    if len(stored) != devices:
        raise StateMismatch(
            f"this random state was taken with {len(stored)} CUDA devices, and here there are {devices}: resume with as "
            "many, or pass include_cuda=False to leave the devices' part out (what they draw is then another stream)"
        )
    torch.cuda.init()  # type: ignore[no-untyped-call]
    return [
        generator_state.torch_step(f"cuda[{index}]", tensor, torch.cuda.default_generators[index])
        for index, tensor in enumerate(stored)
    ]


def _has(kind: str) -> bool:
    if kind == "mps":
        return bool(torch.backends.mps.is_available())
    return hasattr(torch, "xpu") and torch.xpu.is_available()


def _other_steps(state: Mapping[str, Any]) -> list[Callable[[], None]]:
    """Intel's and Apple's devices. A state from a machine without them leaves them as they are."""
    steps: list[Callable[[], None]] = []
    for kind in ("xpu", "mps"):
        stored = state[kind]
        if stored and not _has(kind):
            raise StateMismatch(
                f"this random state has {len(stored)} {kind} devices, and here there are none: pass include_cuda=False"
            )
        for index, tensor in enumerate(stored):
            if kind == "mps":
                steps.append(partial(torch.mps.set_rng_state, tensor))
            else:
                steps.append(partial(torch.xpu.set_rng_state, tensor, index))
    return steps
