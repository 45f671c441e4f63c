"""`seed_everything`: one call, and every global random number generator of a run starts from one seed."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import numpy as np
import torch

from detaug.seeding.global_generators import reseed_global_rngs
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree, checked_seed, resolve_seed, text_of_seed
from detaug.training.ranks import (
    RankUnknown,
    broadcast_from_rank_0,
    known_rank,
    known_world_size,
    launcher,
    process_group,
)
from detaug.training.switches import Mode, checked_mode, set_deterministic_mode

logger = logging.getLogger("detaug")

BRANCH = "everything"
# `reseed_global_rngs` seeds a bit generator with fewer words of the same SeedSequence: these two are nobody else's.
WORDS_BEFORE_ACCELERATORS = 18


def seed_everything(
    seed: int | Sequence[int] | None = None,
    workers: bool = True,
    verbose: bool = True,
    *,
    rank: int | None = None,
    diff_rank_seed: bool = False,
    deterministic: Mode = False,
    threads: int | None = None,
) -> Seed:
    """Seed `random`, `numpy.random`, torch's CPU generator and every GPU from one seed, and return that seed.

    Each of them gets words of its own from ``SeedTree(seed).child("everything").sequence()``. Every CUDA (XPU, MPS)
    device gets the same ones, so that what is drawn does not depend on which device a rank was given. CUDA is not
    initialised by this; where it is not running yet, its devices are seeded when it starts.

    Args:
        seed: a non-negative integer of any size or a list of them, as `SeedTree` and `DeterministicAugmenter` take it (torch's
            generator gets its whole state from it, not 32 bits). None: the environment's ``DETAUG_SEED``; without it, a
            number drawn from the operating system and logged as a warning. Where `torch.distributed` is initialised,
            None is rank 0's value of these, on all ranks: every rank must make the call. A given seed is taken as it
            is, without a word between ranks: it is the caller's to give the same one everywhere.
        workers: write the seed to ``DETAUG_SEED`` in `os.environ`, so that child processes,
            ``DeterministicAugmenter(seed=None)`` and detaug's DataLoader helpers take it too (as Lightning's
            ``PL_GLOBAL_SEED``; there, the default is False). A later ``seed_everything()`` in this process takes it as well.
        verbose: log the seed, and what `deterministic` changed. A drawn seed is always logged.
        rank: this process's rank. Left out: the process group's, or torchrun's ``RANK``.
        diff_rank_seed: every rank draws numbers of its own, from ``.child("everything/rank/<rank>")`` (SeedSequence
            keeps them apart; MMEngine adds the rank to the seed, and neighbouring seeds then share streams). Without
            it, the rank changes nothing.
        deterministic: True or "warn" also sets the switches of `deterministic_mode`, for good, and logs what changed.
            False leaves them all as they are.
        threads: as for `deterministic_mode`, with `deterministic`: 1 makes a training on a CPU the same on machines with
            other numbers of cores. With None, a training on a CPU is told by how many threads its result is decided.

    Returns:
        The seed that all ranks have in common, also with ``diff_rank_seed=True``: pass it to repeat the run.

    Raises:
        TypeError: the seed or the rank is not an integer (bool, float and str are refused), or a switch is not a bool.
        ValueError: the seed is negative (also in ``DETAUG_SEED``, on whichever rank that was read), the rank is negative or not
            the one that the process group has, or `deterministic` is another string than "warn".
        RankUnknown: (a RuntimeError and a ValueError) ``diff_rank_seed=True`` where nothing tells the rank; or no seed
            in one of several processes without a process group, where each would draw another.
    """
    checked_mode("deterministic", deterministic)
    for what, value in (("diff_rank_seed", diff_rank_seed), ("workers", workers), ("verbose", verbose)):
        if not isinstance(value, bool):
            raise TypeError(f"{what} must be True or False, got {value!r} of type {type(value).__name__}")
    given = None if seed is None else checked_seed(seed)
    own_rank = known_rank(rank) if rank is not None or seed is None or diff_rank_seed else None
    if diff_rank_seed and own_rank is None:
        raise RankUnknown(
            "diff_rank_seed=True needs this process's rank, and nothing tells it: pass rank=, initialise the process "
            "group (torch.distributed.init_process_group) first, or start with torchrun, which sets RANK"
        )
    common = common_seed(own_rank, verbose) if given is None else _announced(given, "given", verbose)
    tree = SeedTree(common).child(BRANCH)
    seed_global_generators((tree.child(f"rank/{own_rank}") if diff_rank_seed else tree).sequence())
    if workers:
        os.environ[SEED_VARIABLE] = text_of_seed(common)
    if deterministic is not False:
        changes = set_deterministic_mode(deterministic, threads=threads)
        if verbose:
            logger.info("deterministic=%r: %s", deterministic, changes)
            _tell_threads(threads)
    return common


def _tell_threads(threads: int | None) -> None:
    if threads is None and not torch.cuda.is_available():
        logger.warning(
            "torch computes with %d threads on this CPU, and with another number of them the same seed gives other "
            "weights: pass threads=1 (slower, the same everywhere), or the number that is to be kept",
            torch.get_num_threads(),
        )


def seed_global_generators(sequence: np.random.SeedSequence) -> None:
    """Seed Python's, NumPy's and torch's global generators and all accelerators' from disjoint words of `sequence`."""
    low, high = (int(word) for word in sequence.generate_state(WORDS_BEFORE_ACCELERATORS + 2)[-2:])
    # Reaches every kind of device that torch knows, at once or when it is first used, and the CPU, which is seeded anew
    # from its own words right after.
    torch.manual_seed(low | (high & 0x7FFFFFFF) << 32)
    reseed_global_rngs(sequence)


def common_seed(rank: int | None, verbose: bool = True) -> Seed:
    """The seed where none was given, one for all ranks: ``DETAUG_SEED``, else one that is drawn and logged.

    Raises:
        ValueError: ``DETAUG_SEED`` is no seed.
        RankUnknown: one of several processes without a process group, where each would draw another.
    """
    given, several = bool(os.environ.get(SEED_VARIABLE)), process_group() is not None
    if not several and not given:
        _check_that_nobody_else_draws(rank)
    # A failure on rank 0 is sent too: the other ranks would wait for its word for ever.
    found: tuple[Seed | None, str] = (None, "")
    if not several or rank == 0:
        try:
            found = (resolve_seed(None), f"from {SEED_VARIABLE}" if given else "drawn")
        except ValueError as error:
            found = (None, str(error))
    number, origin = broadcast_from_rank_0(found) if several else found
    if number is None:
        raise ValueError(f"on rank 0: {origin}" if several else origin)
    return _announced(number, origin if rank == 0 or not several else f"rank 0's, {origin}", verbose)


def _check_that_nobody_else_draws(rank: int | None) -> None:
    world_size = known_world_size()
    if not rank and (world_size or 1) <= 1:
        return
    told = f"rank={rank}" if rank else f"{launcher()[1]}={world_size} in the environment"
    raise RankUnknown(
        f"{told} says that this is one process of several, no seed was given, and without a process group each would "
        f"draw another: pass seed=, set {SEED_VARIABLE}, or call torch.distributed.init_process_group first"
    )


def _announced(seed: Seed, origin: str, verbose: bool) -> Seed:
    if verbose and origin != "drawn":  # `resolve_seed` has logged that
        logger.info("seed=%s (%s)", text_of_seed(seed), origin)
    return seed
