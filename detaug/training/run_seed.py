"""`seed_everything`: one call, and every global random number generator of a run starts from one seed."""

from __future__ import annotations

import logging
import os
import secrets
from typing import Any

import numpy as np
import torch

from detaug.global_rng import reseed_global_rngs
from detaug.seeding import SEED_VARIABLE, UINT32_RANGE, SeedTree, non_negative_int
from detaug.training.ranks import (
    RANK_VARIABLE,
    WORLD_SIZE_VARIABLE,
    RankUnknown,
    broadcast_from_rank_0,
    known_rank,
    known_world_size,
    process_group,
)
from detaug.training.switch_list import Mode, checked_mode
from detaug.training.switches import set_deterministic_mode

logger = logging.getLogger("detaug")

BRANCH = "everything"
# The words that `reseed_global_rngs` takes from the same SeedSequence come before these two.
WORDS_BEFORE_ACCELERATORS = 18


def seed_everything(
    seed: int | None = None,
    *,
    rank: int | None = None,
    diff_rank_seed: bool = False,
    deterministic: Mode = False,
    workers: bool = True,
) -> int:
    """Seed `random`, `numpy.random`, torch's CPU generator and every GPU from one seed, and return that seed.

    Each of them gets words of its own from ``SeedTree(seed).child("everything").sequence()``. Every CUDA (XPU, MPS)
    device gets the same ones, so that what is drawn does not depend on which device a rank was given. CUDA is not
    initialised by this; where it is not running yet, its devices are seeded when it starts.

    Args:
        seed: 0 ... 2**32 - 1, NumPy's and Lightning's range. None: the environment's ``DETAUG_SEED``; without it, a
            number drawn from the operating system and logged as a warning. Where `torch.distributed` is initialised,
            None is rank 0's value of these, on all ranks: every rank must make the call. A given seed is taken as it
            is, without a word between ranks: it is the caller's to give the same one everywhere.
        rank: this process's rank. Left out: the process group's, or torchrun's ``RANK``.
        diff_rank_seed: every rank draws numbers of its own, from ``.child("everything/rank/<rank>")`` (SeedSequence
            keeps them apart; MMEngine adds the rank to the seed, and neighbouring seeds then share streams). Without
            it, the rank changes nothing.
        deterministic: True or "warn" also sets the switches of `deterministic_mode`, for good, and logs what changed.
            False leaves them all as they are.
        workers: write the seed to ``DETAUG_SEED`` in `os.environ`, so that child processes,
            ``DeterministicAugmenter(seed=None)`` and detaug's DataLoader helpers take it too (as Lightning's
            ``PL_GLOBAL_SEED``). A later ``seed_everything()`` in this process then takes it as well.

    Returns:
        The seed that all ranks have in common, also with ``diff_rank_seed=True``: pass it to repeat the run.

    Raises:
        TypeError: the seed or the rank is not an integer (bool, float and str are refused), or a switch is not a bool.
        ValueError: the seed is out of range (also in ``DETAUG_SEED``, on whichever rank that was read), the rank is
            negative or not the one that the process group has, or `deterministic` is another string than "warn".
        RankUnknown: (a RuntimeError and a ValueError) ``diff_rank_seed=True`` where nothing tells the rank; or no seed
            in one of several processes without a process group, where each would draw another.
    """
    checked_mode("deterministic", deterministic)
    for what, value in (("diff_rank_seed", diff_rank_seed), ("workers", workers)):
        if not isinstance(value, bool):
            raise TypeError(f"{what} must be True or False, got {value!r} of type {type(value).__name__}")
    given = None if seed is None else checked_run_seed("seed", seed)
    own_rank = known_rank(rank) if rank is not None or seed is None or diff_rank_seed else None
    if diff_rank_seed and own_rank is None:
        raise RankUnknown(
            "diff_rank_seed=True needs this process's rank, and nothing tells it: pass rank=, initialise the process "
            f"group (torch.distributed.init_process_group) first, or start with torchrun, which sets {RANK_VARIABLE}"
        )
    common = _announced(given, "given") if given is not None else common_seed(own_rank)
    tree = SeedTree(common).child(BRANCH)
    seed_global_generators((tree.child(f"rank/{own_rank}") if diff_rank_seed else tree).sequence())
    if workers:
        os.environ[SEED_VARIABLE] = str(common)
    if deterministic is not False:
        logger.info("deterministic=%r: %s", deterministic, set_deterministic_mode(deterministic))
    return common


def checked_run_seed(what: str, seed: Any) -> int:
    """The seed as an int within 0 ... 2**32 - 1.

    Raises:
        TypeError: not an integer.
        ValueError: out of range.
    """
    try:
        number = non_negative_int(what, seed)
    except ValueError:
        number = -1
    if not 0 <= number < UINT32_RANGE:
        raise ValueError(f"{what} must be within 0 ... {UINT32_RANGE - 1} (2**32 - 1), got {seed}")
    return number


def seed_global_generators(sequence: np.random.SeedSequence) -> None:
    """Seed Python's, NumPy's and torch's global generators and all accelerators' from disjoint words of `sequence`."""
    low, high = (int(word) for word in sequence.generate_state(WORDS_BEFORE_ACCELERATORS + 2)[-2:])
    # Reaches every kind of device that torch knows, at once or when it is first used, and the CPU, which is seeded anew
    # from its own words right after.
    torch.manual_seed(low | (high & 0x7FFFFFFF) << 32)
    reseed_global_rngs(sequence)


def common_seed(rank: int | None) -> int:
    """The seed where none was given, one for all ranks: ``DETAUG_SEED``, else one that is drawn and logged.

    Raises:
        ValueError: ``DETAUG_SEED`` is no seed.
        RankUnknown: one of several processes without a process group, where each would draw another.
    """
    if process_group() is None:
        if not os.environ.get(SEED_VARIABLE):
            _check_that_nobody_else_draws(rank)
        return _announced(*_from_environment_or_drawn())
    # A failure on rank 0 is sent too: the other ranks would wait for its word for ever.
    found: tuple[int | None, str] = (None, "")
    if rank == 0:
        try:
            found = _from_environment_or_drawn()
        except ValueError as error:
            found = (None, str(error))
    number, origin = broadcast_from_rank_0(found)
    if number is None:
        raise ValueError(f"on rank 0: {origin}")
    return _announced(number, origin if rank == 0 else f"rank 0's, {origin}")


def _from_environment_or_drawn() -> tuple[int, str]:
    text = os.environ.get(SEED_VARIABLE)
    if not text:
        return secrets.randbits(32), "drawn"
    try:
        return checked_run_seed(SEED_VARIABLE, int(text)), f"from {SEED_VARIABLE}"
    except ValueError:
        raise ValueError(
            f"{SEED_VARIABLE}={text!r} in the environment must be an integer within 0 ... {UINT32_RANGE - 1}: correct "
            "it, unset it, or pass seed="
        ) from None


def _check_that_nobody_else_draws(rank: int | None) -> None:
    world_size = known_world_size()
    if (rank is None or rank == 0) and (world_size is None or world_size <= 1):
        return
    told = f"rank={rank}" if rank else f"{WORLD_SIZE_VARIABLE}={world_size} in the environment"
    raise RankUnknown(
        f"{told} says that this is one process of several, no seed was given, and without a process group each would "
        f"draw another: pass seed=, set {SEED_VARIABLE}, or call torch.distributed.init_process_group first"
    )


def _announced(seed: int, origin: str) -> int:
    if origin == "drawn":
        logger.warning("no seed was given: drew seed=%d (pass it, or set %s=%d, to repeat)", seed, SEED_VARIABLE, seed)
    else:
        logger.info("seed=%d (%s)", seed, origin)
    return seed
