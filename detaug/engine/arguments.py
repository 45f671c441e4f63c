"""What users pass to the augmenter: its groups of arguments, `Check` and `Skip` (executors have
their own), and what is refused of all arguments, with the value seen and what is allowed.
"""

from __future__ import annotations

import math
import multiprocessing
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from detaug.ledger.writing import check_place, path_of_rank
from detaug.pipeline.sources import Source
from detaug.seeding.tree import non_negative_int, positive_int, spawn_key_element

START_METHODS = ("fork", "spawn", "forkserver")

count = non_negative_int


def optional_positive(what: str, value: Any) -> int | None:
    """A positive integer or None."""
    return None if value is None else positive_int(what, value)


def text(what: str, value: Any) -> str:
    """A string."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a string, got {value!r} of type {type(value).__name__}")
    return value


def strings(
    what: str, value: Any, of: str, allowed: Callable[[str], bool] = lambda _: True
) -> tuple[str, ...]:
    """Several strings, `of` a kind."""
    if isinstance(value, str) or not all(isinstance(each, str) and allowed(each) for each in value):
        raise TypeError(f"{what} must be a list or tuple of {of}, got {value!r}")
    return tuple(value)


def seconds(what: str, value: Any) -> float | None:
    """A positive number of seconds, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{what} must be a number of seconds or None, got {value!r}")
    if not value > 0 or math.isinf(value):
        raise ValueError(f"{what} must be a positive, finite number of seconds, got {value!r}")
    return float(value)


def one_of(what: str, value: Any, allowed: Sequence[str]) -> str:
    """One of some strings."""
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def rank_of(rank: Any, world_size: Any) -> tuple[int, int]:
    """(rank, world_size) with 0 <= rank < world_size."""
    size = positive_int("world_size", world_size)
    number = non_negative_int("rank", rank)
    if number >= size:
        raise ValueError(f"rank must be below world_size={size}, got {number}")
    return number, size


def epoch_for_all_ranks(source: Source, world_size: int, tail: str) -> None:
    """Raise ValueError unless every one of several ranks gets the same number of batches.

    Epochs that end have a number of batches that is known beforehand; where what does not fill all
    ranks is dropped, there is at least one batch for each.
    """
    if world_size == 1:
        return
    number = source.total_batches
    ends = not source.stateless and not source.endless
    if number is None and (ends or tail == "pad"):
        raise ValueError(
            f"world_size={world_size} ranks, which must all get the same number of batches, need "
            "the "
            f"number of batches of an epoch, and {source.class_name} does not say it: pass "
            "batches_per_epoch=..., counted over all ranks"
        )
    if tail == "drop" and number is not None and number < world_size:
        raise ValueError(
            f"an epoch of {number} batches leaves none for each of world_size={world_size} "
            "(batches_per_epoch counts those of all ranks together): there must be at least "
            f"{world_size}. Make batches smaller, train with fewer ranks, or pass tail='pad'."
        )


def epoch(value: Any) -> int:
    """0 ... 2**32 - 1."""
    return spawn_key_element("epoch", value)


def step(value: Any, num_streams: int) -> int:
    """A step whose turn is within 0 ... 2**32 - 1."""
    number = non_negative_int("step", value)
    spawn_key_element("the step's turn (step // num_streams)", number // num_streams)
    return number


def start_method(value: Any) -> str:
    """The start method asked for, or the one the program has chosen, or this platform's default."""
    if value is None:
        chosen = multiprocessing.get_start_method(allow_none=True)
        return chosen or ("fork" if sys.platform.startswith("linux") else "spawn")
    return one_of("start_method", value, START_METHODS)


def executor(value: Any) -> Any:
    """What has an `detaug.engine.executor.Executor`'s methods."""
    if isinstance(value, type) or not all(
        hasattr(value, name) for name in ("travels", "num_workers", "start")
    ):
        raise TypeError(
            "executor must be LocalProcesses(...), InThisProcess(), RayExecutor(...) or None, got "
            f"{value!r}"
        )
    return value


def transform(value: Any) -> Any:
    """None or a callable."""
    if value is not None and not callable(value):
        raise TypeError(
            f"transform must be callable or None, got {value!r} of type {type(value).__name__}"
        )
    return value


def ledger(value: Any, rank: int, world_size: int) -> Path | None:
    """This rank's ledger file, or None."""
    if value is None:
        return None
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise TypeError(f"ledger must be a file's path or None, got {value!r}")
    path = path_of_rank(Path(os.path.abspath(os.path.expanduser(value))), rank, world_size)
    check_place(path)
    return path


def old_style_seeds(
    seeds: Any, seed: Any, num_processes: int, num_streams: Any
) -> list[int] | None:
    """The seed list that batchgenerators' augmenters take, or None where there is none (``[None,
    None]`` is none).
    """
    if seeds is None:
        return None
    if seed is not None:
        raise ValueError("pass seed or seeds, not both: under old-style seeds the list is the seed")
    try:
        listed = list(seeds)
    except TypeError:
        raise TypeError(
            f"seeds must be a list with one seed for each process, got {seeds!r}"
        ) from None
    if len(listed) != num_processes:
        raise ValueError(
            f"seeds must have one entry for each process: len(seeds) is {len(listed)}, "
            f"num_processes {num_processes}"
        )
    if all(entry is None for entry in listed):
        return None
    if num_streams is not None and num_streams != len(listed):
        raise ValueError(
            f"under old-style seeds num_streams is len(seeds) = {len(listed)}, got {num_streams}"
        )
    return [non_negative_int(f"seeds[{i}]", entry) for i, entry in enumerate(listed)]


@dataclass(frozen=True)
class Check:
    """The run-time check: batches are made a second time, and what draws from the operating system
    is reported.

    ``check=20`` is ``check=Check(every=20)``, ``check=False`` is ``check=Check(every=0)``.

    Args:
        every: the second, fourth, eighth ... batch of each worker, and then one in so many, is made
            a second time, from a pristine copy in another process, and compared, for at most about
            1 % of the workers' time (docs/how.md); 1: every batch is, whatever it costs; 0: none.
        ignore: keys of a batch that may differ from one making to the next, such as a process
            number. A ledger leaves them out as well.
        on_mismatch: how a batch that differs is reported: "raise" (ReproducibilityError), "warn",
            or None: an error among a worker's first batches, a warning later, when a training is
                under way.
        guard: report generators that are created without a seed while batches are made, with the
            line that does it.

    Raises:
        TypeError, ValueError: an argument cannot be right, or `on_mismatch` is given although no
            batch is compared.
    """

    every: int = 100
    ignore: Sequence[str] = ()
    on_mismatch: str | None = None
    guard: bool = False

    def __post_init__(self) -> None:
        count("Check's every", self.every)
        object.__setattr__(self, "ignore", strings("Check's ignore", self.ignore, "a batch's keys"))
        if self.on_mismatch is not None:
            one_of("Check's on_mismatch", self.on_mismatch, ("raise", "warn"))
            if not self.every:
                raise ValueError(
                    f"on_mismatch={self.on_mismatch!r} has no effect with every=0, which compares "
                    "no batch: leave it out, or "
                    "pass another every="
                )
        if not isinstance(self.guard, bool):
            raise TypeError(f"Check's guard must be True or False, got {self.guard!r}")

    @classmethod
    def of(cls, value: Any) -> Check:
        """What the augmenter's argument ``check`` means: itself, its `every`, True (as by default)
        or False (none).
        """
        if isinstance(value, Check):
            return value
        if isinstance(value, bool):
            return cls() if value else cls(every=0)
        try:
            return cls(every=count("check", value))
        except TypeError:
            raise TypeError(
                "check must be Check(every=..., ignore=..., on_mismatch=..., guard=...), an "
                "integer (its every), True or "
                f"False, got {value!r}"
            ) from None


@dataclass(frozen=True)
class Skip:
    """``on_error=Skip()``: batches whose loader or transform raises are left out, the same ones in
    every run, and logged.

    Args:
        most: how many batches of this rank in a row may be left out, also across epochs. The next
            one that fails raises; it is the same one with any number of processes and after a
            resume. None: any number.

    Raises:
        TypeError, ValueError: `most` is no such number.
    """

    #: A batch in a hundred that cannot be made is a bad case; a hundred in a row are a broken
    #: pipeline.
    most: int | None = 100

    def __post_init__(self) -> None:
        if self.most is not None:
            count("Skip's most", self.most)

    @staticmethod
    def of(value: Any) -> str | Skip:
        """What the augmenter's argument ``on_error`` means: itself, or "raise"."""
        if isinstance(value, Skip):
            return value
        if value == "raise":
            return "raise"
        raise ValueError(f'on_error must be "raise" or Skip(most=...), got {value!r}')
