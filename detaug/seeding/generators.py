"""Python's, NumPy's and torch's generators: seeded in place, their states taken and put back.

Each is seeded from a SeedSequence, with as many bits as it can take. The same sequence always gives
the same state, whatever state the generator was in, and the sequence is never changed. No other
file writes into these states.

Some libraries keep generators of their own for the whole process (or thread), which no seed of
these three reaches: OpenCV, Numba-compiled code, and the one that all MONAI transforms share. They
are seeded if they are loaded; none is imported for that. torchvision, TorchIO and Kornia draw from
torch's generator; scikit-image, SciPy and scikit-learn from NumPy's. SimpleITK's noise filters take
their seed from the clock, one filter at a time: nothing can be set for all of them.
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

#: Classes of Python's, NumPy's and torch's generators.
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
#: Number of bytes for `write_torch_words`.
TORCH_BYTES = MT19937_BYTES + 8
_GLOBAL_BYTES = 2 * MT19937_BYTES + TORCH_BYTES
#: Slices of Numba's two states in the bytes for libraries, after OpenCV's 4 bytes, 4 unused ones,
#: and MONAI's 32.
_NUMBA = (
    slice(40, 40 + MT19937_BYTES),
    slice(40 + MT19937_BYTES, 40 + 2 * MT19937_BYTES),
)
#: `reseed_global_rngs` seeds a bit generator with fewer words of the same SeedSequence: the two
#: words after these are unused.
_WORDS_BEFORE_ACCELERATORS = 18
_NUMPY_KINDS = (
    np.random.MT19937,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
)


def random_bytes(sequence: np.random.SeedSequence, count: int) -> bytes:
    """Return `count` bytes: the raw output of ``numpy.random.SFC64(sequence)``.

    It spreads the sequence's 128 bits ten times faster than ``generate_state`` does.
    """
    num_words = -(-count // 8)  # rounded up
    return np.random.SFC64(sequence).random_raw(num_words).tobytes()[:count]


def _mersenne_words(words: bytes) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """Return the 624 words of a state, uint32."""
    state = np.frombuffer(words, np.uint32, MT19937_WORDS).copy()
    # The generator uses a single bit of the first word. It is set, so that the state is never zero.
    state[0] = 0x80000000
    return state


def seed_bit_generator(
    generator: np.random.Generator | np.random.BitGenerator, sequence: np.random.SeedSequence
) -> None:
    """Seed one of NumPy's kinds, or any other whose constructor takes a SeedSequence."""
    bits = _bit_generator_of(generator)
    # A subclass of one of NumPy's may have any constructor; its state bears its own name.
    kind: Any = _constructor_of(type(bits))
    state: Any = kind(sequence).state
    state["bit_generator"] = bits.state["bit_generator"]
    bits.state = state


def _constructor_of(kind: type) -> type:
    """Return the class of NumPy's from which a bit generator's class derives, else the class."""
    for base in kind.__mro__:
        if base in _NUMPY_KINDS:
            return base
    return kind


def _bit_generator_of(
    generator: np.random.Generator | np.random.BitGenerator,
) -> np.random.BitGenerator:
    """Return a Generator's bit generator, and a bit generator itself."""
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator
    return generator


def seed_random_state(state: np.random.RandomState, sequence: np.random.SeedSequence) -> None:
    """Seed all 19,936 bits of a Mersenne Twister, or another bit generator as it allows."""
    bits = state._bit_generator
    if type(bits) is np.random.MT19937:
        write_random_state(state, random_bytes(sequence, MT19937_BYTES))
        return
    seed_bit_generator(bits, sequence)
    # The RandomState has cached the second of a pair of normals, which must not be drawn.
    bits_state: Any = bits.state
    state.set_state({**bits_state, "has_gauss": 0, "gauss": 0.0})


def seed_python_random(generator: random.Random, sequence: np.random.SeedSequence) -> None:
    """Seed all 19,936 bits; or 256 by the generator's own ``seed`` if a subclass has one."""
    if type(generator).seed is random.Random.seed:
        write_python_random(generator, random_bytes(sequence, MT19937_BYTES))
        return
    words = sequence.generate_state(8).astype("<u4")
    generator.seed(int.from_bytes(words.tobytes(), "little"))


def write_random_state(state: np.random.RandomState, words: bytes) -> None:
    """Write the 624 words of its Mersenne Twister, and forget the second of a pair of normals."""
    state.set_state(("MT19937", _mersenne_words(words), MT19937_WORDS, 0, 0.0))


def write_python_random(generator: random.Random, words: bytes) -> None:
    """Write its 624 words, and forget the second of a pair of normals."""
    internal = (*_mersenne_words(words).tolist(), MT19937_WORDS)
    # Its own method: a subclass's may convert or refuse the state. 3 is the state's version.
    random.Random.setstate(generator, (3, internal, None))


def seed_torch_generator(generator: torch.Generator, sequence: np.random.SeedSequence) -> None:
    """Seed the whole state on the CPU, 64 bits on any other device."""
    if generator.device.type == "cpu":
        write_torch_words(generator, random_bytes(sequence, TORCH_BYTES))
        return
    (word,) = sequence.generate_state(1, np.uint64)
    generator.manual_seed(int(word))


def write_torch_words(generator: torch.Generator, words: bytes) -> None:
    """Write the whole Mersenne Twister of a generator on the CPU.

    These are 19,936 bits instead of `manual_seed`'s 32. The cached normals are cleared.
    `initial_seed()` then returns 63 bits of the same sequence.

    Args:
        generator: on the CPU.
        words: `TORCH_BYTES` random bytes.

    Raises:
        RuntimeError: this torch lays the state out in another way.
    """
    content = _empty_torch_state().copy()
    content[_TORCH_STATE].view(np.uint64)[:] = _mersenne_words(words)
    low, high = struct.unpack_from("=2I", words, MT19937_BYTES)
    content[:8].view(np.uint64)[0] = (high << 32 | low) >> 1
    generator.set_state(torch.from_numpy(content))


@cache
def _empty_torch_state() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return the state of a newly seeded generator, whose layout this file knows.

    Raises:
        RuntimeError: this torch lays the state out in another way.
    """
    generator = torch.Generator().manual_seed(5489)
    state: np.ndarray[Any, np.dtype[np.uint8]] = generator.get_state().numpy().copy()
    # NumPy's Mersenne Twister has the same words after the same seed.
    expected = np.random.RandomState(5489).get_state(legacy=False)["state"]["key"]
    is_known = state.nbytes == _TORCH_STATE_BYTES and np.array_equal(
        state[_TORCH_STATE].view(np.uint64), expected
    )
    if not is_known:
        raise RuntimeError(
            f"torch {torch.__version__} keeps the state of its CPU generator ({state.nbytes} "
            "bytes) in another way than this version of detaug knows "
            f"({_TORCH_STATE_BYTES} bytes); use a later detaug or an earlier torch"
        )
    return state


def state_of(generator: Any) -> Any:
    """Return a generator's state for `put_back`; None for objects of other kinds."""
    if isinstance(generator, (np.random.Generator, np.random.BitGenerator)):
        return _bit_generator_of(generator).state
    if isinstance(generator, np.random.RandomState):
        # A pair: until it is put back, numpy.random.set_bit_generator may give the global one
        # another bit generator.
        return generator._bit_generator, generator.get_state(legacy=False)
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.SystemRandom):
        return None
    if isinstance(generator, random.Random):
        return generator.getstate()
    return None


def put_back(generator: Any, state: Any) -> None:
    """Set a state of `state_of`, or one like it with other numbers."""
    if isinstance(generator, (np.random.Generator, np.random.BitGenerator)):
        _bit_generator_of(generator).state = state
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
    """Return the global generators of Python, of NumPy, and of torch for the CPU."""
    return [random._inst, np.random.mtrand._rand, torch.default_generator]


def device_generators(kind: str) -> list[torch.Generator]:
    """Return torch's generators of the devices of a kind that this process can use.

    There are none in a forked child, where CUDA cannot be used again.

    Args:
        kind: "cuda", "xpu" or "mps".
    """
    if kind == "mps":
        if not torch.backends.mps.is_available():
            return []
        return [torch.mps._get_default_mps_generator()]
    module: Any = getattr(torch, kind, None)
    if module is None or not module.is_available() or module._is_in_bad_fork():
        return []
    module.init()
    return list(module.default_generators[: module.device_count()])


@contextmanager
def preserved(generators: Iterable[Any]) -> Iterator[None]:
    """Put these generators back at the block's end, also after an exception."""
    states = [(generator, state_of(generator)) for generator in generators]
    try:
        yield
    except BaseException:
        try:
            for generator, state in states:
                put_back(generator, state)
        except Exception:
            # Logged, not raised: the user must see the exception of the block.
            logger.exception("the random state could not be put back")
        raise
    for generator, state in states:
        put_back(generator, state)


def reseed_global_rngs(sequence: np.random.SeedSequence) -> None:
    """Seed all global generators: Python's, NumPy's, torch's for the CPU, and those of libraries.

    The first three get whole states. The libraries are those that are loaded. All get disjoint
    bytes of one sequence. Code that draws from them (nnU-Net's loader, batchgenerators, TorchIO)
    is then a pure function of the batch. `torch.manual_seed` would reach for CUDA in every worker,
    and take only 32 bits.
    """
    words = random_bytes(sequence, _GLOBAL_BYTES + _NUMBA[-1].stop)
    write_python_random(random._inst, words[:MT19937_BYTES])
    global_state = np.random.mtrand._rand
    if type(global_state._bit_generator) is np.random.MT19937:
        write_random_state(global_state, words[MT19937_BYTES : 2 * MT19937_BYTES])
    else:
        # numpy.random.set_bit_generator has installed another kind.
        seed_random_state(global_state, sequence)
    write_torch_words(torch.default_generator, words[2 * MT19937_BYTES : _GLOBAL_BYTES])
    seed_libraries(words[_GLOBAL_BYTES:])


def seed_global_generators(sequence: np.random.SeedSequence) -> None:
    """Seed all global generators as `reseed_global_rngs` does, and all accelerators'.

    The latter get words of `sequence` that the others do not use.
    """
    words = sequence.generate_state(_WORDS_BEFORE_ACCELERATORS + 2)
    low = int(words[-2])
    high = int(words[-1])
    # It seeds every kind of device, now or when the device is first used, and the CPU. So the CPU
    # is reseeded after it.
    torch.manual_seed(low | (high & 0x7FFFFFFF) << 32)
    reseed_global_rngs(sequence)


@contextmanager
def preserved_global_rngs() -> Iterator[None]:
    """Put back at the block's end all states that `reseed_global_rngs` writes."""
    with preserved(global_generators()), preserved_libraries():
        yield


def seed_libraries(words: bytes) -> None:
    """Seed the generators of the libraries that are loaded, in the calling thread.

    Every library has its own bytes: they do not depend on the other libraries that are loaded.

    Args:
        words: `_NUMBA[-1].stop` random bytes.
    """
    opencv = _opencv()
    if opencv is not None:
        # 32 bits, signed: it takes no more.
        (seed,) = struct.unpack_from("=i", words)
        opencv.setRNGSeed(seed)
    monai = _monai()
    if monai is not None:
        monai.seed(np.frombuffer(words, np.uint32, 8, offset=8))
    numba = _numba()
    # No addresses if Numba is not loaded.
    for address, part in zip(_numba_states(numba), _NUMBA, strict=False):
        state = struct.unpack(f"={MT19937_WORDS}I", words[part])
        numba.rnd_set_state(address, (MT19937_WORDS, list(state)))


@contextmanager
def preserved_libraries() -> Iterator[None]:
    """Put these generators back at the block's end.

    OpenCV's state cannot be read: its generator continues from a number drawn from it beforehand.
    The second of a pair of normals, which Numba keeps for the next call, is lost.
    """
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
            opencv.randu(drawn, -(2**31), 2**31 - 1)
            stack.callback(opencv.setRNGSeed, int(drawn[0]))
        yield


def _loaded_module(name: str, function: str) -> Any:
    """Return the module if it is loaded and has the function, else None."""
    module = sys.modules.get(name)
    if not hasattr(module, function):
        return None
    return module


def _opencv() -> Any:
    """Return OpenCV if it is loaded, else None."""
    return _loaded_module("cv2", "setRNGSeed")


def _numba() -> Any:
    """Return Numba's module of generators if it is loaded, else None."""
    return _loaded_module("numba._helperlib", "rnd_set_state")


def _numba_states(numba: Any) -> list[int]:
    """Return the addresses of Numba's two states in this thread; none if Numba is not loaded."""
    if numba is None:
        return []
    return [numba.rnd_get_np_state_ptr(), numba.rnd_get_py_state_ptr()]


def _monai() -> Any:
    """Return the RandomState that all MONAI transforms share, if MONAI is loaded, else None.

    Each draws from it until ``set_random_state`` gives it its own.
    """
    module = sys.modules.get("monai.transforms.transform")
    kind = getattr(module, "Randomizable", None)
    shared = getattr(kind, "R", None)
    if not isinstance(shared, np.random.RandomState):
        return None
    return shared
