"""Python's, NumPy's and torch's global random number generators: reseeding them per batch, and putting them back.

Code that draws from global state (nnU-Net's loader, batchgenerators, batchgeneratorsv2, MONAI, TorchIO) becomes a pure
function of the batch when all three are reseeded from the batch's SeedSequence child before it runs.
"""

from __future__ import annotations

import random
from contextlib import AbstractContextManager

import numpy as np
import torch

from detaug.seeding.generator_kinds import (
    MT19937_BYTES,
    TORCH_BYTES,
    global_generators,
    preserved,
    random_bytes,
    seed_bit_generator,
    write_python_random,
    write_random_state,
    write_torch_words,
)
from detaug.seeding.libraries import loaded_libraries, seed_libraries

# `reseed_global_rngs` seeds a bit generator with fewer words of the same SeedSequence: the two after them are unused.
_WORDS_BEFORE_ACCELERATORS = 18
_GLOBAL_BYTES = 2 * MT19937_BYTES + TORCH_BYTES


def reseed_global_rngs(sequence: np.random.SeedSequence) -> None:
    """Write the whole states of Python's and NumPy's global generators and of torch's default one for the CPU, and seed
    the process-wide generators of libraries that are loaded, all from disjoint bytes of one child.

    `torch.default_generator` is used and not `torch.manual_seed`, which would reach for CUDA in every worker, and of
    whose argument torch's generator takes only 32 bits.
    """
    libraries = loaded_libraries()
    words = random_bytes(sequence, _GLOBAL_BYTES + libraries.nbytes)
    write_python_random(random._inst, words[:MT19937_BYTES])
    _write_numpy_state(words[MT19937_BYTES : 2 * MT19937_BYTES], sequence)
    write_torch_words(torch.default_generator, words[2 * MT19937_BYTES : _GLOBAL_BYTES])
    if libraries.nbytes:
        seed_libraries(libraries, words[_GLOBAL_BYTES:])


def seed_global_generators(sequence: np.random.SeedSequence) -> None:
    """As `reseed_global_rngs`, and all accelerators' generators, from words of `sequence` that these do not use."""
    low, high = (int(word) for word in sequence.generate_state(_WORDS_BEFORE_ACCELERATORS + 2)[-2:])
    # It seeds every kind of device, now or when the device is first used, and the CPU, which is reseeded below.
    torch.manual_seed(low | (high & 0x7FFFFFFF) << 32)
    reseed_global_rngs(sequence)


def _write_numpy_state(words: bytes, sequence: np.random.SeedSequence) -> None:
    bits = np.random.get_bit_generator()  # type: ignore[attr-defined]
    if type(bits) is np.random.MT19937:
        write_random_state(np.random.mtrand._rand, words)
        return
    # numpy.random.set_bit_generator put another kind in place; `seed` then keeps the cached second normal.
    seed_bit_generator(bits, sequence)
    np.random.set_state({**np.random.get_state(legacy=False), "has_gauss": 0, "gauss": 0.0})


def preserved_global_rngs() -> AbstractContextManager[None]:
    """Whatever happens inside, the caller finds its own global random state again afterwards."""
    return preserved(global_generators())
