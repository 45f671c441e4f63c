"""A registry of the types whose objects can be seeded; users extend it with `register_reseeder`.

Types of other libraries are known by name, and looked up among the base classes of an object's
type, so that no library is imported for them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch

from detaug.seeding.generators import (
    seed_bit_generator,
    seed_python_random,
    seed_random_state,
    seed_torch_generator,
)

Reseeder = Callable[[Any, np.random.SeedSequence], None]

#: The users' functions, by the type's name.
_registered: dict[str, Reseeder] = {}
#: The results of `reseeder_of`; weak references, because pipelines bring classes of their own.
_cache: WeakKeyDictionary[type, Reseeder | None] = WeakKeyDictionary()


def register_reseeder(kind: type, function: Reseeder) -> None:
    """Have every object of a type seeded for each batch (each sample of a data set).

    Args:
        kind: the type. It also applies to subclasses. A later registration of the same type
            replaces an earlier one, and detaug's own.
        function: called as ``function(obj, sequence)`` with a `numpy.random.SeedSequence` that no
            other object gets. It sets all randomness of `obj`, whatever state it is in, and leaves
            the sequence as it is (no ``spawn``).
            Worker processes get a copy of it: a function in a module, or anything else that
                cloudpickle can write.

    Raises:
        TypeError: `kind` is no type, or `function` cannot be called.
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_reseeder: kind must be a type, got {kind!r}")
    if not callable(function):
        raise TypeError(
            "register_reseeder: function must be callable as function(obj, sequence), got "
            f"{function!r}"
        )
    # By name, because another interpreter has another class object, or none yet.
    _registered[_name(kind)] = function
    _cache.clear()


def reseeder_of(kind: type) -> Reseeder | None:
    """Return the function that seeds objects of that type, or None.

    Registrations of users come before detaug's own. Among either, the class that comes first in the
    type's method resolution order decides.
    """
    try:
        return _cache[kind]
    except KeyError:
        reseeder = _look_up(kind)
        _cache[kind] = reseeder
        return reseeder


def registered() -> dict[str, Reseeder]:
    """Return the users' registrations of this process, for `install` in another one."""
    return dict(_registered)


def install(snapshot: dict[str, Reseeder]) -> None:
    """Add the registrations that `registered` returned in another process."""
    _registered.update(snapshot)
    _cache.clear()


def _look_up(kind: type) -> Reseeder | None:
    names = [_name(base) for base in kind.__mro__]
    # All base classes come before detaug's tables, so that a user's function for a base class
    # replaces detaug's for a subclass.
    for name in names:
        if name in _registered:
            return _registered[name]
    # Class by class, so that the nearest one decides, whichever table it is in.
    for base, name in zip(kind.__mro__, names, strict=True):
        if base in _OWN:
            return _OWN[base]
        if name in _OF_LIBRARIES:
            return _OF_LIBRARIES[name]
    return None


def _name(kind: type) -> str:
    # The user's script has another name in a process that multiprocessing spawned.
    module = "__main__" if kind.__module__ == "__mp_main__" else kind.__module__
    return f"{module}.{kind.__qualname__}"


def _reseed_monai(transform: Any, sequence: np.random.SeedSequence) -> None:
    """Seed a transform of MONAI, whose protocol is ``set_random_state(state=RandomState)``.

    A transform's own ``R`` is seeded in place.
    """
    state = getattr(transform, "__dict__", {}).get("R")
    if not isinstance(state, np.random.RandomState):
        state = np.random.RandomState(np.random.MT19937(sequence))
    seed_random_state(state, sequence)
    inherited = getattr(type(transform).set_random_state, "__module__", "")
    if inherited != "monai.transforms.compose":
        transform.set_random_state(state=state)
        return
    # A composition would hand 32 bits to each of its transforms: they get their own children
    # instead, of other words than those of `sequence`, from which spawning would meet the children
    # of the seed path.
    transform.R = state
    words = sequence.generate_state(4, np.uint32)
    for index, part in enumerate(transform.transforms):
        reseed = reseeder_of(type(part))
        if reseed is not None and callable(getattr(part, "set_random_state", None)):
            reseed(part, np.random.SeedSequence(words, spawn_key=(index,)))


def _reseed_albumentations(transform: Any, sequence: np.random.SeedSequence) -> None:
    """Seed a transform of Albumentations 2 or AlbumentationsX.

    The protocol is ``set_random_state(generator, python_generator)``.
    """
    words = sequence.generate_state(16, np.uint32)
    # PCG64DXSM takes the words 0 ... 7.
    generator = np.random.Generator(np.random.PCG64DXSM(sequence))
    python_seed = int.from_bytes(words[8:].astype("<u4").tobytes(), "little")
    transform.set_random_state(generator, random.Random(python_seed))


_OWN: dict[type, Reseeder | None] = {
    np.random.Generator: seed_bit_generator,
    np.random.RandomState: seed_random_state,
    np.random.BitGenerator: seed_bit_generator,
    # The operating system's entropy has no state.
    random.SystemRandom: None,
    random.Random: seed_python_random,
    torch.Generator: seed_torch_generator,
}

_OF_LIBRARIES: dict[str, Reseeder] = {
    "monai.transforms.transform.Randomizable": _reseed_monai,
    "albumentations.core.composition.BaseCompose": _reseed_albumentations,
    "albumentations.core.transforms_interface.BasicTransform": _reseed_albumentations,
}
