"""From a user's seed to every random stream: `SeedTree` and the seed path.

    entropy   = 4 uint32 words = blake2b-128 of an unambiguous encoding of (scheme, seed, name path)
    spawn_key = (epoch,) | (epoch, stream) | (epoch, stream, turn) | (epoch, stream, turn, sample)

`numpy.random.SeedSequence` by itself aliases: ``5`` and ``[5, 0]`` give one stream, as do ``2**32 +
9`` and ``[9, 1]``, and a long seed runs into the spawn key. Hashing to exactly four words first
leaves nothing ambiguous.

Encoding (all of it hashed, in this order):

    b"detaug-seed"  u32(scheme)  seed  u32(number of names)  { u32(length)  utf-8 bytes of the name
    } ... seed = b"i" u32(length) big-endian bytes of the integer (zero: length 0)
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
        """Return the branch of that name. ``child("a/b")`` is ``child("a").child("b")``.

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
        return SeedTree(self.seed, _path=self.path + parts)

    @property
    def entropy(self) -> list[int]:
        """The four uint32 words from which every SeedSequence of this branch starts."""
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
            epoch: 0 ... 2**32 - 1. None: the branch's root.
            step: the batch's index within the epoch; it is turn ``step // num_streams`` of stream
                ``step % num_streams``.
            num_streams: number of the pipeline's logical workers.
            sample: a sample's index within the batch.

        Raises:
            TypeError, ValueError: a number is not an integer or out of range, or the level above it
                is missing.
        """
        if epoch is None and (step, sample) != (None, None):
            raise ValueError("step and sample lie below an epoch: pass epoch too")
        if sample is not None and step is None:
            raise ValueError("a sample lies below a batch: pass step too")
        levels = {"epoch": epoch}
        if step is not None:
            step = non_negative_int("step", step)
            num_streams = positive_int("num_streams", num_streams)
            turn, stream = divmod(step, num_streams)
            levels["stream"] = stream
            levels["turn"] = turn
        levels["sample"] = sample
        key = []
        for level, index in levels.items():
            if index is not None:
                key.append(spawn_key_element(level, index))
        return np.random.SeedSequence(self._entropy, spawn_key=tuple(key))

    def generator(
        self,
        epoch: int | None = None,
        step: int | None = None,
        num_streams: int = 1,
        sample: int | None = None,
    ) -> np.random.Generator:
        """Return ``Generator(PCG64DXSM(...))`` on the node that `sequence` returns for the same."""
        return make_generator(self.sequence(epoch, step, num_streams, sample))

    def integer(self, bits: int = 31) -> int:
        """Return an integer 0 ... 2**bits - 1 for this branch, for libraries that take one.

        Examples are scikit-learn's random_state and the trial seeds of an experiment.

        Raises:
            ValueError: bits is not within 1 ... 64.
        """
        width = positive_int("bits", bits)
        if width > 64:
            raise ValueError(f"bits must be within 1 ... 64, got {width}")
        (word,) = self.sequence().generate_state(1, np.uint64)
        return int(word) >> (64 - width)

    def __repr__(self) -> str:
        children = "".join(f".child({name!r})" for name in self.path)
        return f"SeedTree({self.seed!r}){children}"


def make_generator(sequence: np.random.SeedSequence) -> np.random.Generator:
    """Return a Generator of the one kind that is used everywhere: PCG64DXSM."""
    return np.random.Generator(np.random.PCG64DXSM(sequence))


def of_part(sequence: np.random.SeedSequence, part: bytes) -> np.random.SeedSequence:
    """Return the node with the same key in the branch of a part of the pipeline.

    Args:
        sequence: of a seed tree's branch; its entropy is four words.
        part: the part's name, 16 bytes.
    """
    words: Any = sequence.entropy
    entropy = _branch_of_part(tuple(words), part)
    return np.random.SeedSequence(entropy, spawn_key=sequence.spawn_key)


@lru_cache(maxsize=4096)
def _branch_of_part(entropy: tuple[int, ...], part: bytes) -> tuple[int, ...]:
    """Return four words, hashed as those of a seed tree's branches are."""
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
    parts.append(_u32(len(path)))
    for name in path:
        parts.append(_counted(name.encode("utf-8")))
    digest = hashlib.blake2b(b"".join(parts), digest_size=16).digest()
    return struct.unpack("<4I", digest)


def _u32(number: int) -> bytes:
    """Return an unsigned 32-bit little-endian integer."""
    return number.to_bytes(4, "little")


def _counted(data: bytes) -> bytes:
    """Return the data after its length."""
    return _u32(len(data)) + data


def _integer(number: int) -> bytes:
    """Return a non-negative integer of any size, after its length."""
    num_bytes = (number.bit_length() + 7) // 8
    return _counted(number.to_bytes(num_bytes, "big"))


def resolve_seed(seed: int | Sequence[int] | None) -> Seed:
    """Return the seed as plain Python integers.

    None becomes the environment's ``DETAUG_SEED``, or a number drawn from the operating system and
    logged.

    Raises:
        TypeError, ValueError: as for `SeedTree`; or ``DETAUG_SEED`` is not a seed.
    """
    if seed is not None:
        return checked_seed(seed)
    text = os.environ.get(SEED_VARIABLE)
    if text:
        try:
            return seed_of_text(text)
        except ValueError:
            raise ValueError(
                f"{SEED_VARIABLE}={text!r} in the environment is not a seed: it must be a "
                "non-negative integer, or several with commas between them"
            ) from None
    drawn = secrets.randbits(63)
    logger.warning(
        "no seed was given: drew seed=%d (pass it, or set %s=%d, to reproduce the run)",
        drawn,
        SEED_VARIABLE,
        drawn,
    )
    return drawn


def seed_of_text(text: str) -> Seed:
    """Return the seed that ``DETAUG_SEED`` or a command line has.

    Args:
        text: a non-negative integer, or several with commas between them. ``"7,"`` is a list of
            one.

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
        # Otherwise it would be read as an int.
        text += ","
    return text


def checked_seed(seed: int | Sequence[int]) -> Seed:
    """Return the seed as an int or a list of ints.

    Raises:
        TypeError, ValueError: as for `SeedTree`.
    """
    if isinstance(seed, np.ndarray) and seed.ndim == 1:
        seed = list(seed)
    if isinstance(seed, (list, tuple)):
        if not seed:
            raise ValueError("a seed list must not be empty")
        return [non_negative_int(f"seed[{index}]", value) for index, value in enumerate(seed)]
    return non_negative_int("seed", seed)


def non_negative_int(what: str, value: Any) -> int:
    """Return a value as an int that is at least 0.

    Args:
        what: the argument's name, for the message.
        value: an integer of any library.

    Raises:
        TypeError: it is not an integer (bool is refused).
        ValueError: it is negative.
    """
    number = _as_int(what, value, "a non-negative integer")
    if number < 0:
        raise ValueError(f"{what} must not be negative, got {number}")
    return number


def positive_int(what: str, value: Any) -> int:
    """Return a value as an int that is at least 1; see `non_negative_int`."""
    number = _as_int(what, value, "a positive integer")
    if number < 1:
        raise ValueError(f"{what} must be at least 1, got {number}")
    return number


def _as_int(what: str, value: Any, allowed: str) -> int:
    """Return a value as an int, or raise TypeError with what is `allowed`."""
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{what} must be {allowed}, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        pass
    advice = ""
    if isinstance(value, str) and value.isdecimal():
        advice = f": write {int(value)}, or int(...) of what a command line or a file gives"
    raise TypeError(
        f"{what} must be {allowed}, got {value!r:.80} of type {type(value).__name__}{advice}"
    )


def spawn_key_element(what: str, value: Any) -> int:
    """Return a value as an int within 0 ... 2**32 - 1; see `non_negative_int`.

    SeedSequence would spread a larger one over two words, and two different keys could then be one.
    """
    number = non_negative_int(what, value)
    if number >= UINT32_RANGE:
        raise ValueError(f"{what} must be within 0 ... {UINT32_RANGE - 1}, got {number}")
    return number


#: The public module: state dicts of loaders that hold a SeedTree name its class by it.
SeedTree.__module__ = "detaug.seeding"
