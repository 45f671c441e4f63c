"""Python's, NumPy's and torch's random number generators: seeded in place from a SeedSequence, with
as many bits as each can take; their states taken and put back. No other file writes into these
states.

The same sequence always gives the same state, whatever state the generator was in, and the sequence
is never changed.

Libraries that keep generators of their own for the whole process (or thread), which no seed of
these three reaches, are known: OpenCV, Numba-compiled code, and the one that all MONAI transforms
share. None is imported for that. torchvision, TorchIO and Kornia draw from torch's generator;
scikit-image, SciPy and scikit-learn from NumPy's. SimpleITK's noise filters take their seed from
the clock, one filter at a time: nothing can be set for all of them.
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
    """`count` bytes: the raw output of ``numpy.random.SFC64(sequence)``, which spreads the
    sequence's 128 bits ten times faster than ``generate_state`` does.
    """
    return np.random.SFC64(sequence).random_raw(-(-count // 8)).tobytes()[:count]


def _mersenne_words(words: bytes) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """The 624 words of a state. Of the first one a single bit is used, and must not let all the
    state be zero.
    """
    state = np.frombuffer(words, np.uint32, MT19937_WORDS).copy()
    state[0] = 0x80000000
    return state


def seed_bit_generator(
    generator: np.random.Generator | np.random.BitGenerator, sequence: np.random.SeedSequence
) -> None:
    """NumPy's own kinds, and any other whose constructor takes a SeedSequence."""
    bits = _bits_of(generator)
    # A subclass of one of NumPy's may have any constructor; its state bears its own name.
    kind: Any = next((base for base in type(bits).__mro__ if base in _NUMPY_KINDS), type(bits))
    fresh: Any = kind(sequence).state
    fresh["bit_generator"] = bits.state["bit_generator"]
    bits.state = fresh


def _bits_of(generator: np.random.Generator | np.random.BitGenerator) -> np.random.BitGenerator:
    return generator.bit_generator if isinstance(generator, np.random.Generator) else generator


def seed_random_state(state: np.random.RandomState, sequence: np.random.SeedSequence) -> None:
    """All 19,936 bits of a Mersenne Twister; of any other bit generator what it takes."""
    inner = state._bit_generator
    if type(inner) is np.random.MT19937:
        write_random_state(state, random_bytes(sequence, MT19937_BYTES))
        return
    seed_bit_generator(inner, sequence)
    fresh: Any = inner.state
    state.set_state(
        {**fresh, "has_gauss": 0, "gauss": 0.0}
    )  # `seed` of other kinds keeps the cached normal


def seed_python_random(generator: random.Random, sequence: np.random.SeedSequence) -> None:
    """All 19,936 bits; 256 through the generator's own ``seed`` where a subclass has one."""
    if type(generator).seed is random.Random.seed:
        write_python_random(generator, random_bytes(sequence, MT19937_BYTES))
    else:
        generator.seed(int.from_bytes(sequence.generate_state(8).astype("<u4").tobytes(), "little"))


def write_random_state(state: np.random.RandomState, words: bytes) -> None:
    """Write the 624 words of its Mersenne Twister, and forget the second of a pair of normals."""
    state.set_state(("MT19937", _mersenne_words(words), MT19937_WORDS, 0, 0.0))


def write_python_random(generator: random.Random, words: bytes) -> None:
    """Write its 624 words, and forget the second normal."""
    random.Random.setstate(generator, (3, (*_mersenne_words(words).tolist(), MT19937_WORDS), None))


def seed_torch_generator(generator: torch.Generator, sequence: np.random.SeedSequence) -> None:
    """The whole state on the CPU, 64 bits on any other device."""
    if generator.device.type == "cpu":
        write_torch_words(generator, random_bytes(sequence, TORCH_BYTES))
    else:
        generator.manual_seed(int(sequence.generate_state(1, np.uint64)[0]))


def write_torch_words(generator: torch.Generator, words: bytes) -> None:
    """Write the whole Mersenne Twister of a generator on the CPU, from `TORCH_BYTES`: 19,936 bits
    instead of `manual_seed`'s 32.

    The cached normals are cleared. `initial_seed()` then gives 63 bits of the same sequence.
    RuntimeError: this torch lays the state out in another way.
    """
    content = _empty_torch_state().copy()
    content[_TORCH_STATE].view(np.uint64)[:] = _mersenne_words(words)
    low, high = struct.unpack_from("=2I", words, MT19937_BYTES)
    content[:8].view(np.uint64)[0] = (high << 32 | low) >> 1
    generator.set_state(torch.from_numpy(content))


@cache
def _empty_torch_state() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The state of a newly seeded generator, after a look whether it is laid out as this file takes
    it to be.
    """
    state: np.ndarray[Any, np.dtype[np.uint8]] = (
        torch.Generator().manual_seed(5489).get_state().numpy().copy()
    )
    expected = np.random.RandomState(5489).get_state(legacy=False)["state"]["key"]
    if state.nbytes != _TORCH_STATE_BYTES or not np.array_equal(
        state[_TORCH_STATE].view(np.uint64), expected
    ):
        raise RuntimeError(
            f"torch {torch.__version__} keeps the state of its CPU generator ({state.nbytes} "
            "bytes) in another way than "
            f"this version of detaug knows ({_TORCH_STATE_BYTES} bytes); use a later detaug or an "
            "earlier torch"
        )
    return state


def state_of(generator: Any) -> Any:
    """As the generator itself gives it; None for objects of other kinds. `put_back` takes it."""
    if isinstance(generator, (np.random.Generator, np.random.BitGenerator)):
        return _bits_of(generator).state
    if isinstance(generator, np.random.RandomState):
        # A pair: numpy.random.set_bit_generator may give the global one another bit generator
        # meanwhile.
        return generator._bit_generator, generator.get_state(legacy=False)
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    has_state = isinstance(generator, random.Random) and not isinstance(
        generator, random.SystemRandom
    )
    return generator.getstate() if has_state else None


def put_back(generator: Any, state: Any) -> None:
    """Set what `state_of` gave, or the same with other numbers."""
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
    """Python's, NumPy's and torch's for the CPU."""
    return [random._inst, np.random.mtrand._rand, torch.default_generator]


def device_generators(kind: str) -> list[torch.Generator]:
    """Those of the "cuda", "xpu" or "mps" devices that this process can ask: none in a forked
    child, where CUDA cannot be used again.
    """
    if kind == "mps":
        return [torch.mps._get_default_mps_generator()] if torch.backends.mps.is_available() else []
    module: Any = getattr(torch, kind, None)
    if module is None or not module.is_available() or module._is_in_bad_fork():
        return []
    module.init()
    return list(module.default_generators[: module.device_count()])


@contextmanager
def preserved(generators: Iterable[Any]) -> Iterator[None]:
    """Whatever happens inside, these generators are afterwards as they were."""
    states = [(generator, state_of(generator)) for generator in generators]
    try:
        yield
    except BaseException:
        try:
            for each in states:
                put_back(*each)
        except Exception:  # the exception from inside is what the user must see
            logger.exception("the random state could not be put back")
        raise
    for each in states:
        put_back(*each)


def reseed_global_rngs(sequence: np.random.SeedSequence) -> None:
    """Write the whole states of Python's and NumPy's global generators and of torch's default one
    for the CPU, and seed the process-wide generators of libraries that are loaded, all from
    disjoint bytes of one child.

    Code that draws from these (nnU-Net's loader, batchgenerators, TorchIO) is then a pure function
    of the batch. `torch.manual_seed` would reach for CUDA in every worker, and take only 32 bits.
    """
    words = random_bytes(sequence, _GLOBAL_BYTES + _NUMBA[-1].stop)
    write_python_random(random._inst, words[:MT19937_BYTES])
    numpys = np.random.mtrand._rand
    if type(numpys._bit_generator) is np.random.MT19937:
        write_random_state(numpys, words[MT19937_BYTES : 2 * MT19937_BYTES])
    else:  # numpy.random.set_bit_generator put another kind in place
        seed_random_state(numpys, sequence)
    write_torch_words(torch.default_generator, words[2 * MT19937_BYTES : _GLOBAL_BYTES])
    seed_libraries(words[_GLOBAL_BYTES:])


def seed_global_generators(sequence: np.random.SeedSequence) -> None:
    """As `reseed_global_rngs`, and all accelerators' generators, from words of `sequence` that
    these do not use.
    """
    low, high = (int(word) for word in sequence.generate_state(_WORDS_BEFORE_ACCELERATORS + 2)[-2:])
    # It seeds every kind of device, now or when the device is first used, and the CPU, which is
    # reseeded below.
    torch.manual_seed(low | (high & 0x7FFFFFFF) << 32)
    reseed_global_rngs(sequence)


@contextmanager
def preserved_global_rngs() -> Iterator[None]:
    """Put back at the block's end what `reseed_global_rngs` writes: all that is the caller's own."""
    with preserved(global_generators()), preserved_libraries():
        yield


def seed_libraries(words: bytes) -> None:
    """Seed their generators, in the calling thread. Which others are loaded changes no library's
    bytes.
    """
    opencv, numba, monai = _opencv(), _numba(), _monai()
    if opencv is not None:
        opencv.setRNGSeed(struct.unpack_from("=i", words)[0])  # 32 bits, signed: all that it takes
    if monai is not None:
        monai.seed(np.frombuffer(words, np.uint32, 8, offset=8))
    for address, part in zip(_numba_states(numba), _NUMBA, strict=False):
        numba.rnd_set_state(
            address, (MT19937_WORDS, list(struct.unpack(f"={MT19937_WORDS}I", words[part])))
        )


@contextmanager
def preserved_libraries() -> Iterator[None]:
    """Put these generators back at the block's end.

    OpenCV's state cannot be read: its generator continues from a number drawn from it beforehand.
    The second of a pair of normals, which Numba keeps for the next call, is lost.
    """
    with ExitStack() as stack:
        numba, opencv, monai = _numba(), _opencv(), _monai()
        for address in _numba_states(numba):
            stack.callback(numba.rnd_set_state, address, numba.rnd_get_state(address))
        if monai is not None:
            stack.callback(monai.set_state, monai.get_state(legacy=False))
        if opencv is not None:
            drawn = np.zeros(1, np.int32)
            opencv.randu(drawn, -(2**31), 2**31 - 1)
            stack.callback(opencv.setRNGSeed, int(drawn[0]))
        yield


def _opencv() -> Any:
    module = sys.modules.get("cv2")
    return module if hasattr(module, "setRNGSeed") else None


def _numba() -> Any:
    module = sys.modules.get("numba._helperlib")
    return module if hasattr(module, "rnd_set_state") else None


def _numba_states(numba: Any) -> list[int]:
    return [] if numba is None else [numba.rnd_get_np_state_ptr(), numba.rnd_get_py_state_ptr()]


def _monai() -> Any:
    """The RandomState that every MONAI transform draws from until ``set_random_state`` gives it its
    own.
    """
    kind = getattr(sys.modules.get("monai.transforms.transform"), "Randomizable", None)
    shared = getattr(kind, "R", None)
    return shared if isinstance(shared, np.random.RandomState) else None
