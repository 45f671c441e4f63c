"""The generators of a pipeline that are reseeded for every batch, each by its path."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from detaug.objects.fingerprints import fingerprint
from detaug.objects.references import shared_generators
from detaug.objects.walking import walk
from detaug.seeding.generators import GENERATORS, global_generators, preserved
from detaug.seeding.reseeders import Reseeder, reseeder_of
from detaug.seeding.tree import of_part

#: How many objects are searched for generators that a batch has made.
_MOST_VALUES = 5_000
#: How many new generators are named.
_MOST_NAMED = 20


class SeededPart(NamedTuple):
    """A generator, and how it is seeded.

    Attributes:
        handle: the generator itself, or its index among the parts of a copy.
        path: where it is in the pipeline.
        key: the path in the seed path, see `name_of`.
        reseed: seeds it.
    """

    handle: Any
    path: str
    key: bytes
    reseed: Reseeder


class Reseedable(Protocol):
    """A copy of a pipeline, or of a part of one, that owns generators."""

    def reseed(self, child: np.random.SeedSequence) -> None:
        """Seed every generator that it owns."""


class GlobalGenerators:
    """Generators of classes, modules and functions: no copy owns them, the process has one each."""

    def __init__(self, references: list[Any]) -> None:
        generators = shared_generators(references, _has_reseeder)
        # Those of random, NumPy and torch are seeded by `reseed_global_rngs`.
        known = {id(generator) for generator in global_generators()}
        parts = []
        for path, generator in generators.items():
            if id(generator) not in known:
                parts.append((generator, path, generator))
        self._parts = seeded_parts(parts)

    def reseed(self, child: np.random.SeedSequence, *copies: Reseedable | None) -> None:
        """Seed them for a batch (or sample, or epoch), and the generators that the copies own."""
        for part in self._parts:
            part.reseed(part.handle, of_part(child, part.key))
        for copy in copies:
            if copy is not None:
                copy.reseed(child)

    def generators(self) -> list[Any]:
        """Return the generators, without those that `reseed_global_rngs` seeds."""
        return [part.handle for part in self._parts]

    def preserved(self) -> AbstractContextManager[None]:
        """Return a context that restores their states: the user's process may use them, too."""
        return preserved(self.generators())


def _has_reseeder(kind: type) -> bool:
    return reseeder_of(kind) is not None


def seeded_parts(parts: Iterable[tuple[Any, str, Any]]) -> list[SeededPart]:
    """Return the objects that are to be seeded, in their order.

    Args:
        parts: (handle, path, object) of each object.
    """
    candidates = list(parts)
    # A bit generator is seeded with the generator around it; on its own it would be seeded twice.
    seeded_by_owner = set()
    for _, _, part in candidates:
        if isinstance(part, (np.random.Generator, np.random.RandomState)):
            owner: Any = part
            seeded_by_owner.add(id(owner._bit_generator))
    seeded = []
    for handle, path, part in candidates:
        reseed = reseeder_of(type(part))
        if reseed is not None and id(part) not in seeded_by_owner:
            seeded.append(SeededPart(handle, path, name_of(path), reseed))
    return seeded


def name_of(path: str) -> bytes:
    """Return 16 bytes that stand for a path, of any length, in the seed path."""
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def new_generators(transforms: Mapping[str, Any], known: list[Any]) -> dict[str, str]:
    """Return stand-ins for the seeds of generators that a batch has made, by path.

    The next batch makes them again, from the original transforms: with a constant seed, every batch
    draws the same numbers. That is reproducible, but not augmentation.

    Args:
        transforms: the copy of the transforms that has made the batch, by name.
        known: the generators that the copy had before.
    """
    known_ids = {id(part) for part in known if isinstance(part, GENERATORS)}
    seeds: dict[str, str] = {}
    num_found = 0
    # Generators are not entered: the bit generators in them are seeded with them.
    for path, value in walk(transforms.items(), _MOST_VALUES, _is_no_generator):
        if _is_no_generator(value) or isinstance(value, random.SystemRandom):
            continue
        if id(value) in known_ids:
            continue
        seeds[path[:200]] = fingerprint(_seed_of(value))
        num_found += 1
        if num_found == _MOST_NAMED:
            break
    return seeds


def _is_no_generator(value: Any) -> bool:
    return not isinstance(value, GENERATORS)


def _seed_of(generator: Any) -> Any:
    """Return a generator's seed, or, if it keeps none, a state that stays for hundreds of draws."""
    if isinstance(generator, torch.Generator):
        return str(generator.initial_seed())
    if isinstance(generator, random.Random):
        return [str(word) for word in generator.getstate()[1][:624]]
    if isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state(legacy=False)["state"]
        return state.get("key", str(state))
    bits = generator
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
    seed = bits.seed_seq
    if isinstance(seed, np.random.SeedSequence):
        return f"{seed.entropy} {seed.spawn_key}"
    return str(bits.state)
