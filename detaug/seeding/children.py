"""`Child`: NumPy's SeedSequence of one batch, at a tenth of its cost.

Every batch seeds a handful of generators from children of its own, and `numpy.random.SeedSequence` takes 15 µs for each.
A child of branch (four words) and spawn key differs from the child before it in the last word of the key only; what the
words before it have mixed into the pool is kept. The arithmetic is that of NumPy's ``bit_generator.pyx``, after O'Neill's
``seed_seq_fe``, and the words are the same: the tests compare them with NumPy's.
"""

from __future__ import annotations

import hashlib
import struct
from functools import lru_cache
from typing import Any

import numpy as np

Pool = tuple[int, int, int, int]
Four = tuple[int, ...]

_MASK = 0xFFFFFFFF
_INIT_A, _MULT_A = 0x43B0D7E5, 0x931E8875
_INIT_B, _MULT_B = 0x8B51F9DD, 0x58F38DED
_MIX_L, _MIX_R = 0xCA01F9DD, 0x4973F715
#: Children whose words are computed together: a stream's next turns, a batch's next samples.
_BLOCK = 64
#: A spawn key has up to four words: epoch, stream, turn, sample.
_LONGEST_KEY = 4


def _powers(start: int, factor: int, count: int) -> tuple[int, ...]:
    found = [start]
    while len(found) < count:
        found.append(found[-1] * factor & _MASK)
    return tuple(found)


#: The constants of the n-th hash of the pool, and of the n-th word that is drawn from it.
_A = _powers(_INIT_A, _MULT_A, 16 + 4 * _LONGEST_KEY + 1)
_B = _powers(_INIT_B, _MULT_B, 17)


_A_ARRAY, _B_ARRAY = (np.array(powers, np.uint32) for powers in (_A, _B))
#: Words are drawn from the pool's four in turn.
_SIX = np.arange(6) % 4


class Child:
    """The child of a seed branch: what ``SeedSequence(entropy, spawn_key=key)`` is.

    Args:
        entropy: the branch's four uint32 words.
        key: up to four uint32 numbers.
    """

    __slots__ = ("_pool", "_spawning", "entropy", "key")

    def __init__(self, entropy: Four, key: tuple[int, ...]) -> None:
        self.entropy = entropy
        self.key = key
        self._pool: Pool | None = None
        self._spawning: np.random.SeedSequence | None = None

    def _mixed_pool(self) -> Pool:
        pool = self._pool
        if pool is None:
            pool = self._pool = _mixed(_pool(self.entropy, self.key[:-1]), len(self.key) - 1, self.key[-1])
        return pool

    def words(self, count: int) -> list[int]:
        """The first uint32 words, up to 16, of ``generate_state``."""
        pool = self._mixed_pool()
        drawn = []
        for number in range(count):
            word = (pool[number & 3] ^ _B[number]) * _B[number + 1] & _MASK
            drawn.append(word ^ word >> 16)
        return drawn

    def three_words(self) -> tuple[int, ...]:
        """The first uint64 words."""
        last = self.key[-1]
        return _three_words(self.entropy, self.key[:-1], last // _BLOCK)[last % _BLOCK]

    def of_part(self, part: bytes) -> Child:
        """The child with this key of another branch: that of a part of the pipeline, which has 16 bytes to its name."""
        return Child(_branch_of_part(self.entropy, part), self.key)

    def sequence(self) -> np.random.SeedSequence:
        """The same as NumPy's own object."""
        return np.random.SeedSequence(self.entropy, spawn_key=self.key)

    def spawn(self, n_children: int) -> list[np.random.SeedSequence]:
        """As NumPy's, which counts the children: `numpy.random.Generator.spawn` wants it."""
        if self._spawning is None:
            self._spawning = self.sequence()
        return self._spawning.spawn(n_children)

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """As NumPy's: bit generators take a child in the place of a SeedSequence."""
        per_word = np.dtype(dtype).itemsize // 4
        if n_words * per_word > 16:
            return self.sequence().generate_state(n_words, dtype)
        return np.array(self.words(n_words * per_word), "<u4").view(np.dtype(dtype).newbyteorder("<")).astype(dtype)


np.random.bit_generator.ISpawnableSeedSequence.register(Child)


def first_words(sequence: Child | np.random.SeedSequence, count: int) -> list[int]:
    """Up to 16 uint32 words of either kind."""
    if type(sequence) is Child:
        return sequence.words(count)
    return sequence.generate_state(count, np.uint32).tolist()  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)
def _branch_of_part(entropy: Four, part: bytes) -> Four:
    """Hashed to four words, as the branches of a seed tree are."""
    digest = hashlib.blake2b(struct.pack("<4I", *entropy) + part, digest_size=16, person=b"detaug-part").digest()
    return struct.unpack("<4I", digest)


@lru_cache(maxsize=4096)
def _pool(entropy: Four, key: tuple[int, ...]) -> Pool:
    """What the pool holds once the key is mixed in."""
    if key:
        return _mixed(_pool(entropy, key[:-1]), len(key) - 1, key[-1])
    pool = [_hashed(word, number) for number, word in enumerate(entropy)]
    number = len(pool)
    for source in range(4):
        for target in range(4):
            if source != target:
                pool[target] = _joined(pool[target], _hashed(pool[source], number))
                number += 1
    return pool[0], pool[1], pool[2], pool[3]


@lru_cache(maxsize=1024)
def _three_words(entropy: Four, key: tuple[int, ...], block: int) -> tuple[tuple[int, ...], ...]:
    """The first uint64 words of the children of a node in blocks of `_BLOCK`; NumPy's uint32 wraps as the algorithm wants."""
    last = np.arange(_BLOCK * block, _BLOCK * (block + 1), dtype=np.int64).astype(np.uint32)[:, None]
    before, constants = np.array(_pool(entropy, key), np.uint32), _A_ARRAY[16 + 4 * len(key) :]
    hashed = (last ^ constants[:4]) * constants[1:5]
    pool = np.uint32(_MIX_L) * before - np.uint32(_MIX_R) * (hashed ^ hashed >> 16)
    pool ^= pool >> 16
    words = (pool[:, _SIX] ^ _B_ARRAY[:6]) * _B_ARRAY[1:7]
    words ^= words >> 16
    pairs = words.astype(np.uint64)
    return tuple(map(tuple, (pairs[:, ::2] | pairs[:, 1::2] << 32).tolist()))


def _hashed(word: int, number: int) -> int:
    word = (word ^ _A[number]) * _A[number + 1] & _MASK
    return word ^ word >> 16


def _joined(a: int, b: int) -> int:
    word = (_MIX_L * a - _MIX_R * b) & _MASK
    return word ^ word >> 16


def _mixed(pool: Pool, position: int, word: int) -> Pool:
    """The pool, with the key's word at that position mixed in. Written out: it is done several times for each batch."""
    a, b, c, d = pool
    k0, k1, k2, k3, k4 = _A[16 + 4 * position : 21 + 4 * position]
    h = (word ^ k0) * k1 & _MASK
    a = (_MIX_L * a - _MIX_R * (h ^ h >> 16)) & _MASK
    h = (word ^ k1) * k2 & _MASK
    b = (_MIX_L * b - _MIX_R * (h ^ h >> 16)) & _MASK
    h = (word ^ k2) * k3 & _MASK
    c = (_MIX_L * c - _MIX_R * (h ^ h >> 16)) & _MASK
    h = (word ^ k3) * k4 & _MASK
    d = (_MIX_L * d - _MIX_R * (h ^ h >> 16)) & _MASK
    return a ^ a >> 16, b ^ b >> 16, c ^ c >> 16, d ^ d >> 16
