"""`SeedTree` and the seed path: from a user's seed to every random stream.

    entropy   = 4 uint32 words = blake2b-128 of an unambiguous encoding of (scheme, seed, name path)
    spawn_key = (epoch,) | (epoch, stream) | (epoch, stream, turn) | (epoch, stream, turn, sample)

`numpy.random.SeedSequence` by itself is ambiguous: ``5`` and ``[5, 0]`` give one stream, as do
``2**32 + 9`` and ``[9, 1]``, and a long seed runs into the spawn key. Therefore everything is
hashed to exactly four words first.

Encoding (all of it is hashed, in this order):

    b"detaug-seed"  u32(scheme)  seed  u32(number of names)
        { u32(length)  utf-8 bytes of the name } ...
    seed = b"i" u32(length) big-endian bytes of the integer (zero: length 0)
         | b"l" u32(number of integers) { u32(length) big-endian bytes } ...

u32 is an unsigned 32-bit little-endian integer. The four words are the 16 digest bytes read as
little-endian uint32.
"""

from __future__ import annotations

import hashlib
import logging
import operator
import os
import secrets
import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from detaug.versions import SEED_SCHEME

logger = logging.getLogger("detaug")

Seed = int | list[int]

UINT32_RANGE = 2**32
SEED_VARIABLE = "DETAUG_SEED"


class SeedTree:
    """One seed and all the streams below it.

    Args:
        seed: a non-negative integer of any size, or a non-empty list of them. ``None`` draws one
            from the operating system (or takes the environment's ``DETAUG_SEED``), logs it, and
            shows it as `.seed`.

    Raises:
        TypeError: the seed is neither an integer nor a list of integers (bool and float are
            refused).
        ValueError: the seed is negative or an empty list.
    """

    def __init__(
        self, seed: int | Sequence[int] | None = None, *, _path: tuple[str, ...] = ()
    ) -> None:
        self.seed: Seed = resolve_seed(seed)
        self.path = _path
        self._entropy = entropy_words(self.seed, _path)

    def child(self, name: str) -> SeedTree:
        """Return the branch of that name; ``child("a/b")`` is ``child("a").child("b")``.

        Raises:
            TypeError: the name is not a string.
            ValueError: the name, or a part of it between slashes, is empty.
        """
        if not isinstance(name, str):
            raise TypeError(f"a name must be a string, got {name!r} of type {type(name).__name__}")
        parts = tuple(name.split("/"))
        if not all(parts):
            raise ValueError(
                f"a name and its parts between slashes must not be empty, got {name!r}"
            )
        # Words are hashed from the seed and the whole path, not from the parent's words, so that
        # ``child("a/b")`` equals ``child("a").child("b")``.
        return SeedTree(self.seed, _path=self.path + parts)

    @property
    def entropy(self) -> list[int]:
        """The four uint32 words that every SeedSequence of this branch starts from."""
        return list(self._entropy)

    def sequence(
        self,
        epoch: int | None = None,
        step: int | None = None,
        num_streams: int = 1,
        sample: int | None = None,
    ) -> np.random.SeedSequence:
        """Return the SeedSequence of this branch, of an epoch, of a batch, or of a sample.

        Args:
            epoch: 0 ... 2**32 - 1. Left out: the branch's root.
            step: the batch's index within the epoch; it is turn ``step // num_streams`` of stream
                ``step % num_streams``.
            num_streams: the number of logical workers of the pipeline.
            sample: the sample's index within the batch.

        Raises:
            TypeError, ValueError: a number is not an integer or out of range, or the level above it
                is missing.
        """
        # A key without gaps: SeedSequence could not tell (epoch, sample) from (epoch, stream).
        if epoch is None and (step, sample) != (None, None):
            raise ValueError("step and sample lie below an epoch: pass epoch too")
        if sample is not None and step is None:
            raise ValueError("a sample lies below a batch: pass step too")
        # Turn and stream are known only if the step is.
        turn = stream = None
        if step is not None:
            turn, stream = divmod(
                non_negative_int("step", step), positive_int("num_streams", num_streams)
            )
        key = []
        if epoch is not None:
            key.append(spawn_key_element("epoch", epoch))
        if stream is not None:
            key.append(spawn_key_element("stream", stream))
        if turn is not None:
            key.append(spawn_key_element("turn", turn))
        if sample is not None:
            key.append(spawn_key_element("sample", sample))
        return np.random.SeedSequence(self._entropy, spawn_key=tuple(key))

    def generator(
        self,
        epoch: int | None = None,
        step: int | None = None,
        num_streams: int = 1,
        sample: int | None = None,
    ) -> np.random.Generator:
        """Return a PCG64DXSM Generator of the SeedSequence that `sequence` returns."""
        return make_generator(self.sequence(epoch, step, num_streams, sample))

    def integer(self, bits: int = 31) -> int:
        """Return an integer 0 ... 2**bits - 1 of this branch, for libraries that take one.

        Examples are scikit-learn's random_state and an experiment's trial seeds.

        Raises:
            ValueError: bits is not within 1 ... 64.
        """
        width = positive_int("bits", bits)
        if width > 64:
            raise ValueError(f"bits must be within 1 ... 64, got {width}")
        # The upper bits, so that a wider integer begins with a narrower one.
        return int(self.sequence().generate_state(1, np.uint64)[0]) >> (64 - width)

    def __repr__(self) -> str:
        children = "".join(f".child({part!r})" for part in self.path)
        return f"SeedTree({self.seed!r}){children}"


def make_generator(sequence: np.random.SeedSequence) -> np.random.Generator:
    """Return a Generator of a SeedSequence, of the one kind used everywhere: PCG64DXSM."""
    return np.random.Generator(np.random.PCG64DXSM(sequence))


def of_part(sequence: np.random.SeedSequence, part: bytes) -> np.random.SeedSequence:
    """Return the node with the same key in the branch of a part of the pipeline.

    Args:
        sequence: a node of a seed tree: its entropy has four words.
        part: the part's name as 16 bytes.
    """
    entropy = _branch_of_part(tuple(sequence.entropy), part)  # type: ignore[arg-type]
    return np.random.SeedSequence(entropy, spawn_key=sequence.spawn_key)


@lru_cache(maxsize=4096)
def _branch_of_part(entropy: tuple[int, ...], part: bytes) -> tuple[int, ...]:
    """Return the four words of a part's branch, hashed as all branches of a seed tree are."""
    # `person` separates these hashes from those of `entropy_words`: no seed and name give the same
    # words by the same bytes.
    data = struct.pack("<4I", *entropy) + part
    digest = hashlib.blake2b(data, digest_size=16, person=b"detaug-part").digest()
    return struct.unpack("<4I", digest)


def entropy_words(seed: Seed, path: tuple[str, ...] = ()) -> tuple[int, int, int, int]:
    """Return four uint32 words for (scheme, seed, name path), as the module's docstring defines."""
    parts = [b"detaug-seed", _u32(SEED_SCHEME)]
    if isinstance(seed, list):
        parts += [b"l", _u32(len(seed))]
        parts += [_integer(number) for number in seed]
    else:
        parts += [b"i", _integer(seed)]
    # Counts before everything of variable length: no two inputs have one encoding.
    parts.append(_u32(len(path)))
    for name in path:
        parts.append(_counted(name.encode("utf-8")))
    digest = hashlib.blake2b(b"".join(parts), digest_size=16).digest()
    return struct.unpack("<4I", digest)


def _u32(number: int) -> bytes:
    return number.to_bytes(4, "little")


def _counted(data: bytes) -> bytes:
    return _u32(len(data)) + data


def _integer(number: int) -> bytes:
    return _counted(number.to_bytes((number.bit_length() + 7) // 8, "big"))


def resolve_seed(seed: int | Sequence[int] | None) -> Seed:
    """Return the seed as plain Python integers.

    ``None`` becomes ``DETAUG_SEED``, or a number drawn from the operating system, which is logged.
    """
    if seed is not None:
        return checked_seed(seed)
    # So that a program that passes no seed can be repeated without changing its code.
    text = os.environ.get(SEED_VARIABLE)
    if text:
        try:
            return seed_of_text(text)
        except ValueError:
            raise ValueError(
                f"{SEED_VARIABLE}={text!r} in the environment is not a seed: it must be a "
                "non-negative integer, or several with commas between them"
            ) from None
    # 63 bits fit into a signed 64-bit integer, which is what torch and others take.
    drawn = secrets.randbits(63)
    logger.warning(
        "no seed was given: drew seed=%d (pass it, or set %s=%d, to reproduce the run)",
        drawn,
        SEED_VARIABLE,
        drawn,
    )
    return drawn


def seed_of_text(text: str) -> Seed:
    """Return the seed that ``DETAUG_SEED`` or a command line's text stands for.

    Args:
        text: a non-negative integer, or several with commas between them; "7," is a list of one.

    Raises:
        ValueError: it is something else.
    """
    numbers = [int(part) for part in text.removesuffix(",").split(",")]
    if "," in text:
        return checked_seed(numbers)
    return checked_seed(numbers[0])


def text_of_seed(seed: Seed) -> str:
    """Return the text that `seed_of_text` reads as this seed."""
    if isinstance(seed, int):
        return str(seed)
    text = ",".join(str(number) for number in seed)
    if len(seed) == 1:
        # Without the comma it would be read as an integer.
        text += ","
    return text


def checked_seed(seed: int | Sequence[int]) -> Seed:
    """Return the seed as an int or a list of ints; raise errors as `SeedTree`."""
    if isinstance(seed, np.ndarray) and seed.ndim == 1:
        # Its elements are checked one by one below: an array of floats is refused.
        seed = list(seed)
    if isinstance(seed, (list, tuple)):
        if not seed:
            raise ValueError("a seed list must not be empty")
        return [non_negative_int(f"seed[{i}]", number) for i, number in enumerate(seed)]
    return non_negative_int("seed", seed)


def non_negative_int(name: str, value: Any) -> int:
    """Return `value` as an int.

    Raises:
        TypeError: it is not an integer; a bool is refused, too.
        ValueError: it is negative.
    """
    number = _as_int(name, value, "a non-negative integer")
    if number < 0:
        raise ValueError(f"{name} must not be negative, got {number}")
    return number


def positive_int(name: str, value: Any) -> int:
    """Return `value` as an int of at least 1; raise errors as `non_negative_int`."""
    number = _as_int(name, value, "a positive integer")
    if number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    return number


def _as_int(name: str, value: Any, allowed: str) -> int:
    # An integer, to Python; here it is most likely an argument in the wrong position.
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} must be {allowed}, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        pass
    advice = ""
    if isinstance(value, str) and value.isdecimal():
        advice = f": write {int(value)}, or int(...) of what a command line or a file gives"
    raise TypeError(
        f"{name} must be {allowed}, got {value!r:.80} of type {type(value).__name__}{advice}"
    )


def spawn_key_element(name: str, value: Any) -> int:
    """Return `value` as an int from 0 to 2**32 - 1; raise errors as `non_negative_int`.

    SeedSequence would spread a larger one over two words, and two different keys could then be one.
    """
    number = non_negative_int(name, value)
    if number >= UINT32_RANGE:
        raise ValueError(f"{name} must be within 0 ... {UINT32_RANGE - 1}, got {number}")
    return number


# Its public home: state dicts of loaders that hold one contain this name.
SeedTree.__module__ = "detaug.seeding"
