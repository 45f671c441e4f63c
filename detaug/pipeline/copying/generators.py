"""What has to be reseeded, and told the epoch, in each copy of a pipeline: `Owned`."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from types import FrameType
from typing import Any

import numpy as np
import torch

from detaug.objects.fingerprints import fingerprint
from detaug.objects.references import shared_generators
from detaug.objects.walking import paths_of, walk
from detaug.pipeline.copying.snapshot import Snapshot
from detaug.seeding.generators import GENERATORS, global_generators, preserved
from detaug.seeding.reseeders import Reseeder, reseeder_of
from detaug.seeding.tree import of_part
from detaug.system.interception import listening

#: How many objects are searched for generators that a batch has made, and how many of these are
#: named.
_MOST_VALUES, _MOST_FOUND = 5_000, 20


class Owned(Snapshot):
    """A template that knows where in its copies the generators and the parts with ``set_epoch``
    are.

    Each generator is keyed by its path, found once and on the pristine object: what is added to a
    pipeline elsewhere, or made while it runs, moves no other generator's numbers. `roots` are the
    object, or its parts, by the names that paths begin with.
    """

    def __init__(self, value: Any, roots: Mapping[str, Any], **options: Any) -> None:
        super().__init__(value, **options)
        self.roots = roots
        paths = paths_of(self.originals, roots)
        parts = [(n, paths.get(id(part), f"#{n}"), part) for n, part in enumerate(self.originals)]
        self._generators = _seeded(parts)
        #: Which parts of it have ``set_epoch``.
        self.tellable = [
            number for number, _, part in parts if callable(getattr(part, "set_epoch", None))
        ]


class SnapshotCopy:
    """A copy, whose generators are seeded and whose parts are told the epoch."""

    def __init__(self, template: Owned, copy: tuple[Any, list[Any]]) -> None:
        self.template = template
        self.value, self.parts = copy

    def reseed(self, child: np.random.SeedSequence) -> None:
        """Seed every generator that it owns for that batch (or sample, or epoch)."""
        for number, _, key, reseed in self.template._generators:
            if self.parts[number] is not None:
                reseed(self.parts[number], of_part(child, key))

    def find_again(self, name: str, root: Any) -> None:
        """It may hold other generators in the same places below `root` now: those are seeded from
        now on.
        """
        at = dict(walk([(name, root)]))
        for number, path, _, reseed in self.template._generators:
            if path in at and reseeder_of(type(at[path])) is reseed:
                self.parts[number] = at[path]

    def set_epoch_on_parts(self, epoch: int) -> None:
        """Call ``set_epoch`` of every part that has one, outermost first; not again where another
        one has passed it on.
        """
        told: set[int] = set()

        def note(frame: FrameType, event: str, _: Any) -> None:
            code = frame.f_code
            if event == "call" and code.co_name == "set_epoch" and code.co_argcount:
                told.add(id(frame.f_locals.get(code.co_varnames[0])))

        for number in self.template.tellable:
            part = self.parts[number]
            if part is not None and id(part) not in told:
                with listening(note):
                    part.set_epoch(epoch)


class GlobalGenerators:
    """Generators that belong to no copy: of classes, modules and functions, one for the whole
    process.
    """

    def __init__(self, references: list[Any]) -> None:
        found = shared_generators(references, lambda kind: reseeder_of(kind) is not None)
        ours = {id(each) for each in global_generators()}
        self._generators = _seeded(
            (each, path, each) for path, each in found.items() if id(each) not in ours
        )

    def reseed(self, child: np.random.SeedSequence, *copies: SnapshotCopy | None) -> None:
        """Seed them for that batch (or sample, or epoch), and the generators that these copies own."""
        for generator, _, key, reseed in self._generators:
            reseed(generator, of_part(child, key))
        for copy in copies:
            if copy is not None:
                copy.reseed(child)

    def preserved(self) -> AbstractContextManager[None]:
        """They are the user's: in the user's own process they are afterwards as they were."""
        return preserved(generator for generator, *_ in self._generators)


def _seeded(parts: Iterable[tuple[Any, str, Any]]) -> list[tuple[Any, str, bytes, Reseeder]]:
    """Of parts (handle, path, object), those to be seeded: (handle, path, key, how)."""
    found = [(handle, path, part, reseeder_of(type(part))) for handle, path, part in parts]
    # Bit generators are seeded with the generator around them.
    around: list[Any] = [
        part
        for _, _, part, _ in found
        if isinstance(part, (np.random.Generator, np.random.RandomState))
    ]
    inside = {id(each._bit_generator) for each in around}
    return [
        (handle, path, name_of(path), reseed)
        for handle, path, part, reseed in found
        if reseed is not None and id(part) not in inside
    ]


def name_of(path: str) -> bytes:
    """16 bytes that stand for a path, of any length, in the seed path."""
    return hashlib.blake2b(path.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def made_late(transforms: Mapping[str, Any], known: list[Any]) -> dict[str, str]:
    """Generators that a batch has made in its copy of the transforms, beside the `known` ones: by
    path, with a stand-in for the seed.

    The next batch makes them again, from the original transforms: with a constant seed, every batch
    draws the same numbers. That is reproducible, but not augmentation.
    """
    before = {id(each) for each in known if isinstance(each, GENERATORS)}
    made = (
        (path[:200], fingerprint(_seed_of(value)))
        for path, value in walk(
            transforms.items(), _MOST_VALUES, lambda value: not isinstance(value, GENERATORS)
        )
        if isinstance(value, GENERATORS)
        and not isinstance(value, random.SystemRandom)
        and id(value) not in before
    )
    return dict(islice(made, _MOST_FOUND))


def _seed_of(generator: Any) -> Any:
    """What it was seeded with, or where that is not kept a state that stays for hundreds of draws."""
    if isinstance(generator, torch.Generator):
        return str(generator.initial_seed())
    if isinstance(generator, random.Random):
        return [str(word) for word in generator.getstate()[1][:624]]
    if isinstance(generator, np.random.RandomState):
        state: Any = generator.get_state(legacy=False)["state"]
        return state.get("key", str(state))
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator
    seed = bits.seed_seq
    return (
        f"{seed.entropy} {seed.spawn_key}"
        if isinstance(seed, np.random.SeedSequence)
        else str(bits.state)
    )
