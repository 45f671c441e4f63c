"""Seed, read and restore the random number generators of Python, NumPy and torch.

They are seeded in place from a SeedSequence, with as many bits as each can take. The same sequence
always gives the same state, whatever state the generator was in, and the sequence is never changed.
No other file writes to these states.

Some libraries have generators of their own for the whole process (or thread), which no seed of
these three reaches: OpenCV, Numba-compiled code, and the one that all MONAI transforms share. They
are seeded as well, without importing any of them. torchvision, TorchIO and Kornia draw from torch's
generator; scikit-image, SciPy and scikit-learn from NumPy's. SimpleITK's noise filters take their
seed from the clock, one filter at a time: nothing can be set for all of them.
"""

from __future__ import annotations

import logging
import random
import struct
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch

logger = logging.getLogger("detaug")

#: Python's, NumPy's and torch's.
GENERATORS = (
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    random.Random,
    torch.Generator,
)
#: Bytes of the state of torch's CPU generator: seed (8), left (4), seeded (4), next (8), 624 words
#: of 8 bytes each, then the cached normals.
_TORCH_STATE_BYTES = 5056
_TORCH_STATE = slice(24, 24 + 8 * 624)
MT19937_WORDS = 624
MT19937_BYTES = 4 * MT19937_WORDS
#: What `write_torch_words` takes.
TORCH_BYTES = MT19937_BYTES + 8
_GLOBAL_BYTES = 2 * MT19937_BYTES + TORCH_BYTES
#: Where Numba's two states are among the bytes for libraries; OpenCV's four and MONAI's 32 come
#: before.
_NUMBA = slice(40, 40 + MT19937_BYTES), slice(40 + MT19937_BYTES, 40 + 2 * MT19937_BYTES)
# `reseed_global_rngs` seeds a bit generator with fewer words of the same SeedSequence: the two
# after them are unused.
_WORDS_BEFORE_ACCELERATORS = 18
_NUMPY_KINDS = (
    np.random.MT19937,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
)


def random_bytes(sequence: np.random.SeedSequence, count: int) -> bytes:
    """Return `count` bytes, the raw output of ``numpy.random.SFC64(sequence)``.

    It spreads the sequence's 128 bits ten times faster than ``generate_state`` does.
    """
    return np.random.SFC64(sequence).random_raw(-(-count // 8)).tobytes()[:count]


def _mersenne_words(words: bytes) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the 624 words of a Mersenne Twister's state.

    Of the first word a single bit is used; it is set, so that the state is never all zero.
    """
    # A copy: what `frombuffer` returns cannot be written to.
    state = np.frombuffer(words, np.uint32, MT19937_WORDS).copy()
    state[0] = 0x80000000
    return state


def seed_bit_generator(
    generator: np.random.Generator | np.random.BitGenerator, sequence: np.random.SeedSequence
) -> None:
    """Seed NumPy's own kinds, and any other whose constructor takes a SeedSequence."""
    bits = _bits_of(generator)
    # A subclass of one of NumPy's may have any constructor; its state bears its own name.
    kind: Any = next((base for base in type(bits).__mro__ if base in _NUMPY_KINDS), type(bits))
    # The state of a new generator is copied, because the pipeline holds this object.
    fresh: Any = kind(sequence).state
    fresh["bit_generator"] = bits.state["bit_generator"]
    bits.state = fresh


def _bits_of(generator: np.random.Generator | np.random.BitGenerator) -> np.random.BitGenerator:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator
    return generator


def seed_random_state(state: np.random.RandomState, sequence: np.random.SeedSequence) -> None:
    """Seed all 19,936 bits of a Mersenne Twister; any other bit generator by its constructor."""
    inner = state._bit_generator
    if type(inner) is np.random.MT19937:
        write_random_state(state, random_bytes(sequence, MT19937_BYTES))
        return
    seed_bit_generator(inner, sequence)
    fresh: Any = inner.state
    # Seeding another kind keeps the cached normal number: it is cleared here.
    state.set_state({**fresh, "has_gauss": 0, "gauss": 0.0})


def seed_python_random(generator: random.Random, sequence: np.random.SeedSequence) -> None:
    """Seed all 19,936 bits; 256 bits by the generator's own ``seed`` if a subclass has one."""
    if type(generator).seed is random.Random.seed:
        write_python_random(generator, random_bytes(sequence, MT19937_BYTES))
    else:
        words = sequence.generate_state(8).astype("<u4")
        generator.seed(int.from_bytes(words.tobytes(), "little"))


def write_random_state(state: np.random.RandomState, words: bytes) -> None:
    """Write the 624 words of its Mersenne Twister, and clear the cached normal number."""
    # NumPy takes the words one by one: three times faster from a list than from an array.
    state.set_state(("MT19937", _mersenne_words(words).tolist(), MT19937_WORDS, 0, 0.0))


def write_python_random(generator: random.Random, words: bytes) -> None:
    """Write its 624 words, and clear the cached normal number."""
    random.Random.setstate(generator, (3, (*_mersenne_words(words).tolist(), MT19937_WORDS), None))


def seed_torch_generator(generator: torch.Generator, sequence: np.random.SeedSequence) -> None:
    """Seed the whole state on the CPU, 64 bits on any other device."""
    if generator.device.type == "cpu":
        write_torch_words(generator, random_bytes(sequence, TORCH_BYTES))
    else:
        generator.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


def write_torch_words(generator: torch.Generator, words: bytes) -> None:
    """Write the whole Mersenne Twister of a generator on the CPU, from `TORCH_BYTES` bytes.

    These are 19,936 bits; `manual_seed` takes 32. The cached normal numbers are cleared.
    `initial_seed()` then returns 63 bits of the same sequence.

    Raises:
        RuntimeError: this version of torch has another layout of the state.
    """
    content = _empty_torch_state().copy()
    content[_TORCH_STATE].view(np.uint64)[:] = _mersenne_words(words)
    low, high = struct.unpack_from("=2I", words, MT19937_BYTES)
    content[:8].view(np.uint64)[0] = (high << 32 | low) >> 1
    generator.set_state(torch.from_numpy(content))


@cache
def _empty_torch_state() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the state of a newly seeded generator; raise if its layout is not the known one."""
    state: np.ndarray[Any, np.dtype[np.uint8]] = (
        torch.Generator().manual_seed(5489).get_state().numpy().copy()
    )
    expected = np.random.RandomState(5489).get_state(legacy=False)["state"]["key"]
    if state.nbytes != _TORCH_STATE_BYTES or not np.array_equal(
        state[_TORCH_STATE].view(np.uint64), expected
    ):
        raise RuntimeError(
            f"torch {torch.__version__} keeps the state of its CPU generator ({state.nbytes} "
            f"bytes) in another way than this version of detaug knows ({_TORCH_STATE_BYTES} "
            "bytes); use a later detaug or an earlier torch"
        )
    return state


def state_of(generator: Any) -> Any:
    """Return a generator's own state, for `put_back`; None for objects of other kinds."""
    if isinstance(generator, (np.random.Generator, np.random.BitGenerator)):
        return _bits_of(generator).state
    if isinstance(generator, np.random.RandomState):
        # A pair, because numpy.random.set_bit_generator may replace the global one's bit generator.
        return generator._bit_generator, generator.get_state(legacy=False)
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    # Before its base class `Random`: the system's entropy has no state, and `getstate` raises.
    if isinstance(generator, random.SystemRandom):
        return None
    if isinstance(generator, random.Random):
        return generator.getstate()
    return None


def put_back(generator: Any, state: Any) -> None:
    """Set the state that `state_of` returned, or one like it with other numbers."""
    if isinstance(generator, (np.random.Generator, np.random.BitGenerator)):
        _bits_of(generator).state = state
    elif isinstance(generator, np.random.RandomState):
        bits, state = state
        if generator._bit_generator is not bits:
            np.random.set_bit_generator(bits)  # type: ignore[attr-defined]
        generator.set_state(state)
    elif isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif state is not None:
        generator.setstate(state)


def global_generators() -> list[Any]:
    """Return the global generators of Python, NumPy and, for the CPU, torch."""
    return [random._inst, np.random.mtrand._rand, torch.default_generator]


def device_generators(kind: str) -> list[torch.Generator]:
    """Return the generators of all "cuda", "xpu" or "mps" devices that this process can use.

    There are none in a forked child, where CUDA cannot be used again.
    """
    if kind == "mps":
        if not torch.backends.mps.is_available():
            return []
        return [torch.mps._get_default_mps_generator()]
    module: Any = getattr(torch, kind, None)
    if module is None or not module.is_available() or module._is_in_bad_fork():
        return []
    # Before that, devices have no generators.
    module.init()
    return list(module.default_generators[: module.device_count()])


@contextmanager
def preserved(generators: Iterable[Any]) -> Iterator[None]:
    """Restore the states of these generators at the end of the block, also after an exception."""
    states = [(generator, state_of(generator)) for generator in generators]
    try:
        yield
    except BaseException:
        try:
            _put_all_back(states)
        except Exception:
            # Logged only: the user must see the exception from inside the block.
            logger.exception("the random state could not be put back")
        raise
    _put_all_back(states)


def _put_all_back(states: list[tuple[Any, Any]]) -> None:
    for generator, state in states:
        put_back(generator, state)


def reseed_global_rngs(sequence: np.random.SeedSequence) -> None:
    """Write the whole states of the global generators, from disjoint bytes of one child.

    They are those of Python and NumPy, torch's default one for the CPU, and the process-wide
    generators of the libraries that are loaded. Code that draws from them (nnU-Net's loader,
    batchgenerators, TorchIO) is then a pure function of the batch. `torch.manual_seed` would
    initialise CUDA in every worker, and take only 32 bits.
    """
    # One call gives the bytes of all states: this runs for every batch, and must be quick.
    words = random_bytes(sequence, _GLOBAL_BYTES + _NUMBA[-1].stop)
    write_python_random(random._inst, words[:MT19937_BYTES])
    numpy_state = np.random.mtrand._rand
    if type(numpy_state._bit_generator) is np.random.MT19937:
        write_random_state(numpy_state, words[MT19937_BYTES : 2 * MT19937_BYTES])
    else:
        # numpy.random.set_bit_generator has set another kind.
        seed_random_state(numpy_state, sequence)
    write_torch_words(torch.default_generator, words[2 * MT19937_BYTES : _GLOBAL_BYTES])
    seed_libraries(words[_GLOBAL_BYTES:])


def seed_global_generators(sequence: np.random.SeedSequence) -> None:
    """Seed the global generators as `reseed_global_rngs` does, and those of all accelerators.

    The latter take words of `sequence` that the former do not use.
    """
    words = sequence.generate_state(_WORDS_BEFORE_ACCELERATORS + 2)
    low = int(words[-2])
    high = int(words[-1])
    # It seeds every kind of device, now or when the device is first used, and the CPU, which is
    # reseeded below.
    torch.manual_seed(low | (high & 0x7FFFFFFF) << 32)
    reseed_global_rngs(sequence)


@contextmanager
def preserved_global_rngs() -> Iterator[None]:
    """Restore all states that `reseed_global_rngs` writes, at the end of the block."""
    with preserved(global_generators()), preserved_libraries():
        yield


def seed_libraries(words: bytes) -> None:
    """Seed the generators of loaded libraries, in the calling thread.

    Each library has its own part of the bytes, whichever others are loaded.
    """
    opencv = _opencv()
    if opencv is not None:
        # It takes 32 bits, signed.
        (seed,) = struct.unpack_from("=i", words)
        opencv.setRNGSeed(seed)
    monai = _monai()
    if monai is not None:
        monai.seed(np.frombuffer(words, np.uint32, 8, offset=8))
    numba = _numba()
    for address, part in zip(_numba_states(numba), _NUMBA, strict=False):
        state = list(struct.unpack(f"={MT19937_WORDS}I", words[part]))
        numba.rnd_set_state(address, (MT19937_WORDS, state))


@contextmanager
def preserved_libraries() -> Iterator[None]:
    """Restore the states of loaded libraries' generators at the end of the block.

    OpenCV's state cannot be read: its generator continues from a number that is drawn from it
    before. The normal number that Numba keeps for the next call is lost.
    """
    # Each callback is registered as soon as its state was read: if a later library raises, those
    # before it are restored.
    with ExitStack() as stack:
        numba = _numba()
        for address in _numba_states(numba):
            stack.callback(numba.rnd_set_state, address, numba.rnd_get_state(address))
        monai = _monai()
        if monai is not None:
            stack.callback(monai.set_state, monai.get_state(legacy=False))
        opencv = _opencv()
        if opencv is not None:
            drawn = np.zeros(1, np.int32)
            # In place of the state, which OpenCV does not return.
            opencv.randu(drawn, -(2**31), 2**31 - 1)
            stack.callback(opencv.setRNGSeed, int(drawn[0]))
        yield


def _opencv() -> Any:
    module = sys.modules.get("cv2")
    if not hasattr(module, "setRNGSeed"):
        return None
    return module


def _numba() -> Any:
    module = sys.modules.get("numba._helperlib")
    if not hasattr(module, "rnd_set_state"):
        return None
    return module


def _numba_states(numba: Any) -> list[int]:
    if numba is None:
        return []
    return [numba.rnd_get_np_state_ptr(), numba.rnd_get_py_state_ptr()]


def _monai() -> Any:
    """Return the RandomState that MONAI's transforms share until ``set_random_state``, or None."""
    transform_class = getattr(sys.modules.get("monai.transforms.transform"), "Randomizable", None)
    shared = getattr(transform_class, "R", None)
    if not isinstance(shared, np.random.RandomState):
        return None
    return shared
