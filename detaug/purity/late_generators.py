"""Generators that a transform creates while it makes a batch, and that detaug has not seeded.

The next batch starts from a copy of the original transforms and creates them again: with a constant seed, every batch
draws the same numbers. That is reproducible, but not augmentation.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch

from detaug.fingerprints import fingerprint
from detaug.purity.references import walk
from detaug.seeding.generators import GENERATORS

#: How many objects are searched.
_MOST_VALUES = 5_000
_MOST_FOUND = 20


def made_late(transforms: Mapping[str, Any], known: list[Any]) -> dict[str, str]:
    """Generators in transforms that a batch was made with, by path, each with a stand-in for its seed.

    Args:
        transforms: the copy that the batch was made with.
        known: the generators that were in it beforehand.
    """
    before = {id(each) for each in known if isinstance(each, GENERATORS)}
    made = (
        (path[:200], fingerprint(_seed_of(value)))
        for path, value in walk(transforms, _MOST_VALUES, lambda value: not isinstance(value, GENERATORS))
        if isinstance(value, GENERATORS) and not isinstance(value, random.SystemRandom) and id(value) not in before
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
    return f"{seed.entropy} {seed.spawn_key}" if isinstance(seed, np.random.SeedSequence) else str(bits.state)
