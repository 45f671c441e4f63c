"""Seeding random number generators in place from a SeedSequence, with as many bits as each can take.

The same sequence always gives the same state, whatever state the generator was in, and the sequence is never changed.
States are written where the generators keep them: that takes a microsecond, the way through their attributes fifty. Where
a generator lies in memory is looked up once, and compared with what it says of itself; if a later NumPy, Python or
torch keeps it otherwise, the slow way is taken.
"""

from __future__ import annotations

import _random
import ctypes
import random
import struct
import sys
import threading
from functools import cache
from typing import Any

import numpy as np
import torch

from detaug.seeding.children import Child, first_words

#: Bytes of the state of torch's CPU generator: seed (8), left (4), seeded (4), next (8), 624 words of 8 bytes each,
#: then the cached normals.
_TORCH_STATE_BYTES = 5056
_TORCH_STATE = slice(24, 24 + 8 * 624)
MT19937_WORDS = 624
MT19937_BYTES = 4 * MT19937_WORDS
#: What `write_torch_words` takes.
TORCH_BYTES = MT19937_BYTES + 8

#: Of the first word that bit alone is used, and must not let all the state be zero.
_FIRST_WORD = struct.pack("=I", 0x80000000)
#: The position of a state of which nothing was used.
_UNUSED = struct.pack("=i", MT19937_WORDS)
_FOUR = struct.Struct("=4Q")
_NO_NORMAL = bytes(16)
_UNUSED_AND_FIRST = _UNUSED + _FIRST_WORD

Sequence = Child | np.random.SeedSequence


#: Memory of generators, by their ``id``: (generator, its bytes). They stay alive with it, so it is for small ones alone.
_memories: dict[int, tuple[Any, memoryview]] = {}
_MOST_MEMORIES = 64


def _memory_of(generator: Any, address: int, size: int) -> memoryview:
    """`size` bytes at that address, which belong to it."""
    known = _memories.get(id(generator))
    if known is None or known[0] is not generator:
        if len(_memories) >= _MOST_MEMORIES:
            _memories.clear()
        view = memoryview((ctypes.c_char * size).from_address(address)).cast("B")
        known = _memories[id(generator)] = generator, view
    return known[1]


class _Spread(threading.local):
    """This thread's SFC64, and its four words where it keeps them; None: elsewhere than is known."""

    def __init__(self) -> None:
        self.bits = np.random.SFC64(0)
        self.state: Any = None
        state = memoryview((ctypes.c_char * 32).from_address(self.bits.ctypes.state_address)).cast("B")
        if list(_FOUR.unpack(state)) == self.bits.state["state"]["state"].tolist():
            self.state = state


_spread = _Spread()


def random_bytes(sequence: Sequence, count: int) -> bytes:
    """`count` bytes, in words of this machine's order: the raw output of ``numpy.random.SFC64(sequence)``, which spreads
    the sequence's 128 bits ten times faster than ``generate_state`` does."""
    numbers = -(-count // 8)
    state = _spread.state
    if state is None:
        seed: Any = sequence
        raw = np.random.SFC64(seed).random_raw(numbers)
    else:
        _FOUR.pack_into(state, 0, *_three_words(sequence), 1)
        raw = _spread.bits.random_raw(12 + numbers)[12:]  # NumPy lets the first twelve go
    if sys.byteorder == "big":
        raw = raw.astype("<u8").view("<u4").astype(np.uint32)
    return raw.tobytes()[:count]


def _three_words(sequence: Sequence) -> tuple[int, ...]:
    return sequence.three_words() if type(sequence) is Child else tuple(sequence.generate_state(3, np.uint64).tolist())


def child_of(sequence: np.random.SeedSequence, *key: int) -> np.random.SeedSequence:
    """A child that no sample or batch has: spawning from `sequence` itself would meet the children of the seed path."""
    return np.random.SeedSequence(sequence.generate_state(4, np.uint32), spawn_key=key)


def seed_bit_generator(generator: np.random.BitGenerator, sequence: Sequence) -> None:
    """NumPy's own kinds, and any other whose constructor takes a SeedSequence."""
    kind: Any = type(generator)
    seed: Any = sequence  # a child will do, but NumPy's annotations do not say so
    if kind.__module__.startswith("numpy.") or not isinstance(generator, _NUMPY_KINDS):
        generator.state = kind(seed).state
        return
    # A subclass of one of NumPy's may have any constructor; its state bears its own name.
    base = next(base for base in kind.__mro__ if base in _NUMPY_KINDS)
    fresh: Any = base(seed).state
    fresh["bit_generator"] = generator.state["bit_generator"]
    generator.state = fresh


def seed_numpy_generator(generator: np.random.Generator, sequence: Sequence) -> None:
    seed_bit_generator(generator.bit_generator, sequence)


def seed_random_state(state: np.random.RandomState, sequence: Sequence) -> None:
    """All 19,936 bits of a Mersenne Twister; of any other bit generator what it takes."""
    inner = state._bit_generator
    if type(inner) is np.random.MT19937:
        forget_second_normal(state)
        write_mt19937(inner, random_bytes(sequence, MT19937_BYTES))
        return
    seed_bit_generator(inner, sequence)
    fresh: Any = inner.state
    state.set_state({**fresh, "has_gauss": 0, "gauss": 0.0})  # `seed` of other kinds keeps the cached normal


def seed_python_random(generator: random.Random, sequence: Sequence) -> None:
    """All 19,936 bits; 256 through the generator's own ``seed`` where a subclass has one."""
    if type(generator).seed is random.Random.seed and isinstance(generator, _random.Random):
        write_python_random(generator, random_bytes(sequence, MT19937_BYTES))
    else:
        generator.seed(int.from_bytes(struct.pack("<8I", *first_words(sequence, 8)), "little"))


def write_python_random(generator: random.Random, words: bytes) -> None:
    """Write its 624 words, and forget the second normal."""
    if _python_random_is_as_known():
        address, size = id(generator) + object.__basicsize__, 4 + MT19937_BYTES
        if type(generator) is random.Random:
            memory = _memory_of(generator, address, size)
            memory[:8] = _UNUSED_AND_FIRST  # a position, and the words behind it
            memory[8:] = words[4:]
        else:  # it may hold much more
            ctypes.memmove(address, _UNUSED_AND_FIRST + words[4:], size)
        generator.gauss_next = None  # type: ignore[attr-defined]
    else:
        numbers = struct.unpack(f"={MT19937_WORDS}I", _FIRST_WORD + words[4:])
        generator.setstate((3, (*numbers, MT19937_WORDS), None))


@cache
def _python_random_is_as_known() -> bool:
    if sys.implementation.name != "cpython":
        return False
    generator = random.Random(1)
    generator.random()
    words = 4 + MT19937_BYTES
    if _random.Random.__basicsize__ < object.__basicsize__ + words:
        return False
    position, *state = struct.unpack(
        f"=i{MT19937_WORDS}I", ctypes.string_at(id(generator) + object.__basicsize__, words)
    )
    return bool(generator.getstate()[1] == (*state, position))


def seed_torch_generator(generator: torch.Generator, sequence: Sequence) -> None:
    """The whole state on the CPU, 64 bits on any other device."""
    if generator.device.type == "cpu":
        write_torch_state(generator, sequence)
    else:
        low, high = first_words(sequence, 2)
        generator.manual_seed(high << 32 | low)


def write_torch_state(generator: torch.Generator, sequence: Sequence) -> None:
    """Write the whole Mersenne Twister of a generator on the CPU: 19,936 bits instead of `manual_seed`'s 32.

    The cached normals are cleared. `initial_seed()` then gives 63 bits of the same sequence.

    Raises:
        RuntimeError: this torch lays the state out in another way, or the generator is not on the CPU.
    """
    write_torch_words(generator, random_bytes(sequence, TORCH_BYTES))


def write_torch_words(generator: torch.Generator, words: bytes) -> None:
    """As `write_torch_state`, from `TORCH_BYTES` random ones."""
    room = _room
    state = room.state if room.state is not None else room.prepare()
    room.mersenne[1:] = np.frombuffer(words, np.uint32, MT19937_WORDS)[1:]
    low, high = struct.unpack_from("=2I", words, MT19937_BYTES)
    room.seed[0] = (high << 32 | low) >> 1
    generator.set_state(state)


class _TorchRoom(threading.local):
    """Where this thread puts a state together, and the parts of it that change."""

    state: torch.Tensor | None = None
    mersenne: np.ndarray[Any, np.dtype[np.uint64]]
    seed: np.ndarray[Any, np.dtype[np.uint64]]

    def prepare(self) -> torch.Tensor:
        """Make it, in the layout of this torch."""
        content = _empty_torch_state().copy()
        self.mersenne = content[_TORCH_STATE].view(np.uint64)
        self.mersenne[0] = 0x80000000
        self.seed = content[:8].view(np.uint64)
        self.state = torch.from_numpy(content)
        return self.state


_room = _TorchRoom()


def forget_second_normal(state: np.random.RandomState) -> None:
    """The cached one of each pair of normals, which lies outside of the bit generator."""
    place = _place_of_second_normal()
    if place is None:
        state.seed(0)
    elif type(state) is np.random.RandomState:
        _memory_of(state, id(state) + place, 16)[:] = _NO_NORMAL
    else:  # it may hold much more
        ctypes.memset(id(state) + place, 0, 16)


@cache
def _place_of_second_normal() -> int | None:
    """Where in a RandomState ``int has_gauss; double gauss`` of NumPy's ``legacy-distributions.h`` begin."""
    state: Any = np.random.RandomState(1)
    state.standard_normal()
    second = state.get_state(legacy=False)["gauss"]
    content = ctypes.string_at(id(state), np.random.RandomState.__basicsize__)
    place = content.find(struct.pack("=i4xd", 1, second))
    if sys.implementation.name != "cpython" or place < 0 or place % 8:
        return None
    ctypes.memset(id(state) + place, 0, 16)
    known = (state.get_state(legacy=False)["has_gauss"], state.get_state(legacy=False)["gauss"]) == (0, 0.0)
    return place if known else None


def write_mt19937(bits: np.random.MT19937, words: bytes) -> None:
    """Write its 624 words."""
    if _mt19937_is_as_known():
        # ``mt19937_state`` of NumPy's ``mt19937.h``: the words, and a position behind them.
        memory = _memory_of(bits, bits.ctypes.state_address, MT19937_BYTES + 4)
        memory[:4] = _FIRST_WORD
        memory[4:MT19937_BYTES] = words[4:]
        memory[MT19937_BYTES:] = _UNUSED
        return
    key = np.frombuffer(_FIRST_WORD + words[4:], np.uint32)
    bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": MT19937_WORDS}}


@cache
def _mt19937_is_as_known() -> bool:
    bits = np.random.MT19937(1)
    bits.random_raw(7)
    *key, position = struct.unpack(
        f"={MT19937_WORDS}Ii", ctypes.string_at(bits.ctypes.state_address, MT19937_BYTES + 4)
    )
    said = bits.state["state"]
    return key == said["key"].tolist() and position == said["pos"]  # type: ignore[no-any-return]


@cache
def _empty_torch_state() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The state of a newly seeded generator, after a look whether it is laid out as this file takes it to be."""
    generator = torch.Generator()
    generator.manual_seed(5489)
    state: np.ndarray[Any, np.dtype[np.uint8]] = generator.get_state().numpy().copy()
    expected = np.random.RandomState(5489).get_state(legacy=False)["state"]["key"]
    if state.nbytes != _TORCH_STATE_BYTES or not np.array_equal(state[_TORCH_STATE].view(np.uint64), expected):
        raise RuntimeError(
            f"torch {torch.__version__} keeps the state of its CPU generator ({state.nbytes} bytes) in another way than "
            f"this version of detaug knows ({_TORCH_STATE_BYTES} bytes); use a later detaug or an earlier torch"
        )
    return state


_NUMPY_KINDS = (
    np.random.MT19937,
    np.random.PCG64,
    np.random.PCG64DXSM,
    np.random.Philox,
    np.random.SFC64,
)
