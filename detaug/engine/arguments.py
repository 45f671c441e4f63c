"""The user's arguments: validation, and the groups `Check` and `Skip`.

Each function returns a valid argument, or raises an error with the value and what is allowed.
Executors have groups of arguments of their own.
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


def optional_positive(name: str, value: Any) -> int | None:
    """Return a positive integer, or None."""
    if value is None:
        return None
    return positive_int(name, value)


def text(name: str, value: Any) -> str:
    """Return a string."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a string, got {value!r} of type {type(value).__name__}")
    return value


def strings(
    name: str, value: Any, kind: str, is_allowed: Callable[[str], bool] | None = None
) -> tuple[str, ...]:
    """Return several strings.

    Args:
        name: the argument.
        value: the user's value.
        kind: which strings they are, for the message.
        is_allowed: returns whether a string is one of that kind; None: every string is.
    """
    # A string would be read as a list of its characters.
    if isinstance(value, str) or not all(_is_string(item, is_allowed) for item in value):
        raise TypeError(f"{name} must be a list or tuple of {kind}, got {value!r}")
    return tuple(value)


def _is_string(value: Any, is_allowed: Callable[[str], bool] | None) -> bool:
    """Return whether a value is a string of an allowed kind."""
    return isinstance(value, str) and (is_allowed is None or is_allowed(value))


def seconds(name: str, value: Any) -> float | None:
    """Return a positive number of seconds, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} must be a number of seconds or None, got {value!r}")
    # Written so that NaN is refused.
    if not value > 0 or math.isinf(value):
        raise ValueError(f"{name} must be a positive, finite number of seconds, got {value!r}")
    return float(value)


def one_of(name: str, value: Any, allowed: Sequence[str]) -> str:
    """Return one of the allowed strings."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return str(value)


def rank_of(rank: Any, world_size: Any) -> tuple[int, int]:
    """Return (rank, world_size), with 0 <= rank < world_size."""
    valid_size = positive_int("world_size", world_size)
    valid_rank = non_negative_int("rank", rank)
    if valid_rank >= valid_size:
        raise ValueError(f"rank must be below world_size={valid_size}, got {valid_rank}")
    return valid_rank, valid_size


def epoch_for_all_ranks(source: Source, world_size: int, tail: str) -> None:
    """Raise ValueError unless all ranks get the same number of batches.

    With several ranks, the number of batches of an epoch that ends must be known beforehand. With
    ``tail="drop"`` there must be at least one batch for each rank.
    """
    if world_size == 1:
        return
    num_batches = source.total_batches
    ends = not source.stateless and not source.endless
    if num_batches is None and (ends or tail == "pad"):
        raise ValueError(
            f"world_size={world_size} ranks must all get the same number of batches, but"
            f" {source.class_name} does not declare how many an epoch has: pass"
            " batches_per_epoch=..., counted over all ranks"
        )
    if tail == "drop" and num_batches is not None and num_batches < world_size:
        raise ValueError(
            f"an epoch of {num_batches} batches leaves none for each of world_size={world_size}"
            " (batches_per_epoch counts those of all ranks together): there must be at least"
            f" {world_size}. Make batches smaller, train with fewer ranks, or pass tail='pad'."
        )


def epoch(value: Any) -> int:
    """Return an epoch, 0 ... 2**32 - 1."""
    return spawn_key_element("epoch", value)


def step(value: Any, num_streams: int) -> int:
    """Return a step, whose turn is in 0 ... 2**32 - 1."""
    number = non_negative_int("step", value)
    spawn_key_element("the step's turn (step // num_streams)", number // num_streams)
    return number


def start_method(value: Any) -> str:
    """Return the start method: the user's, else the program's, else the platform's default."""
    if value is not None:
        return one_of("start_method", value, START_METHODS)
    of_program = multiprocessing.get_start_method(allow_none=True)
    if of_program:
        return of_program
    if sys.platform.startswith("linux"):
        return "fork"
    return "spawn"


def executor(value: Any) -> Any:
    """Return an object that has the methods of a `detaug.engine.executor.Executor`."""
    names = ("requires_pickling", "num_workers", "start")
    if isinstance(value, type) or not all(hasattr(value, name) for name in names):
        raise TypeError(
            "executor must be LocalProcesses(...), InThisProcess(), RayExecutor(...) or None, got"
            f" {value!r}"
        )
    return value


def transform(value: Any) -> Any:
    """Return a callable, or None."""
    if value is not None and not callable(value):
        raise TypeError(
            f"transform must be callable or None, got {value!r} of type {type(value).__name__}"
        )
    return value


def ledger(value: Any, rank: int, world_size: int) -> Path | None:
    """Return this rank's ledger file, or None."""
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
    """Return the seed list that batchgenerators' augmenters take, or None if there is none.

    ``[None, None]`` counts as none.
    """
    if seeds is None:
        return None
    if seed is not None:
        raise ValueError("pass seed or seeds, not both: under old-style seeds the list is the seed")
    try:
        seed_list = list(seeds)
    except TypeError:
        raise TypeError(
            f"seeds must be a list with one seed for each process, got {seeds!r}"
        ) from None
    if len(seed_list) != num_processes:
        raise ValueError(
            f"seeds must have one entry for each process: len(seeds) is {len(seed_list)},"
            f" num_processes {num_processes}"
        )
    if all(entry is None for entry in seed_list):
        return None
    if num_streams is not None and num_streams != len(seed_list):
        raise ValueError(
            f"under old-style seeds num_streams is len(seeds) = {len(seed_list)}, got {num_streams}"
        )
    return [non_negative_int(f"seeds[{i}]", entry) for i, entry in enumerate(seed_list)]


@dataclass(frozen=True)
class Check:
    """The run-time check: some batches are made a second time and compared.

    Code that draws from the operating system's entropy is reported as well. ``check=20`` is
    ``check=Check(every=20)``, ``check=False`` is ``check=Check(every=0)``.

    Args:
        every: the second, fourth, eighth ... batch of each worker, and then every `every`-th, is
            made a second time, from a pristine copy in another process, and compared. In a long run
            this takes at most about 1 % of the workers' time (docs/verify.md). 1: every batch is
            compared, whatever it costs; 0: none is.
        ignore: keys of a batch that may differ from one making to the next, such as a process id. A
            ledger leaves them out as well.
        on_mismatch: how a batch that differs is reported: "raise" (ReproducibilityError), "warn",
            or None: an error for one of a worker's first batches, a warning for a later one, which
            would interrupt a training.
        guard: True: generators that are created without a seed while batches are made, or seeded by
            the time of day or the number of a process, are reported, with the line that does it.
            False: they are not.

    Raises:
        TypeError, ValueError: an argument is invalid, or `on_mismatch` is passed although no batch
            is compared.
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
                    f"on_mismatch={self.on_mismatch!r} has no effect with every=0, which compares"
                    " no batch: leave it out, or pass another every="
                )
        if not isinstance(self.guard, bool):
            raise TypeError(f"Check's guard must be True or False, got {self.guard!r}")

    @classmethod
    def of(cls, value: Any) -> Check:
        """Return the check of the augmenter's argument ``check``.

        Args:
            value: A `Check`; an integer, which is its `every`; True: the default; False: no batch
                is compared.
        """
        if isinstance(value, Check):
            return value
        if value is True:
            return cls()
        if value is False:
            return cls(every=0)
        try:
            return cls(every=count("check", value))
        except TypeError:
            raise TypeError(
                "check must be Check(every=..., ignore=..., on_mismatch=..., guard=...), an"
                f" integer (its every), True or False, got {value!r}"
            ) from None


@dataclass(frozen=True)
class Skip:
    """``on_error=Skip()``: batches whose loader or transform raises are left out and logged.

    They are the same batches in every run.

    Args:
        most: number of batches of this rank in a row that may be left out, also across epochs. The
            next one that fails raises; it is the same one with any number of processes and after a
            resume. None: any number.

    Raises:
        TypeError, ValueError: `most` is invalid.
    """

    #: One batch in a hundred that cannot be made is a bad case; a hundred in a row are a broken
    #: pipeline.
    most: int | None = 100

    def __post_init__(self) -> None:
        if self.most is not None:
            count("Skip's most", self.most)

    @staticmethod
    def of(value: Any) -> str | Skip:
        """Return the augmenter's argument ``on_error``: a `Skip` or "raise"."""
        if isinstance(value, Skip):
            return value
        if value == "raise":
            return "raise"
        raise ValueError(f'on_error must be "raise" or Skip(most=...), got {value!r}')
