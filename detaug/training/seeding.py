"""`seed_everything` seeds every global random number generator of a run from one seed."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import Any, overload

import torch

from detaug.seeding.generators import seed_global_generators
from detaug.seeding.ranks import RankUnknown, announced, common_seed, known_rank
from detaug.seeding.tree import SEED_VARIABLE, Seed, SeedTree, checked_seed, text_of_seed
from detaug.training.switches import Mode, checked_mode, set_deterministic_mode

logger = logging.getLogger("detaug")

BRANCH = "everything"


@overload
def seed_everything(
    seed: int,
    workers: bool = ...,
    verbose: bool = ...,
    *,
    rank: int | None = ...,
    diff_rank_seed: bool = ...,
    deterministic: Mode = ...,
    threads: int | None = ...,
) -> int: ...


@overload
def seed_everything(
    seed: int | Sequence[int] | None = ...,
    workers: bool = ...,
    verbose: bool = ...,
    *,
    rank: int | None = ...,
    diff_rank_seed: bool = ...,
    deterministic: Mode = ...,
    threads: int | None = ...,
) -> Seed: ...


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
    """Seed `random`, `numpy.random`, torch's CPU generator and every GPU, and return the seed.

    Each gets separate words from ``SeedTree(seed).child("everything").sequence()``. All CUDA (XPU,
    MPS) devices get the same ones: draws do not depend on which device a rank has. CUDA is not
    initialised here; its devices are seeded when it starts.

    Args:
        seed: a non-negative integer of any size or a list of them, as for `SeedTree`. None: the
            environment's ``DETAUG_SEED``; without it, a number drawn from the operating system and
            logged as a warning. Where `torch.distributed` is initialised, None takes rank 0's seed
            on all ranks: every rank must make the call. A given seed is not compared between ranks.
        workers: write the seed to ``DETAUG_SEED`` in `os.environ`, for child processes,
            ``DeterministicAugmenter(seed=None)``, detaug's DataLoader helpers and later calls of
            ``seed_everything()`` (Lightning: ``PL_GLOBAL_SEED``, by default False).
        verbose: log the seed, and what `deterministic` changed. A drawn seed is always logged.
        rank: this process's rank. None: the process group's, or the launcher's.
        diff_rank_seed: every rank draws its own numbers, from ``.child("everything/rank/<rank>")``
            (MMEngine adds the rank to the seed, and neighbouring seeds then share streams). Without
            it, the rank changes nothing.
        deterministic: True or "warn" also sets the switches of `deterministic_mode`, for good, and
            logs what changed.
        threads: as for `deterministic_mode`, with `deterministic`: 1 makes a training on a CPU the
            same on machines with other numbers of cores. With None, a warning names the number of
            threads that the result depends on.

    Returns:
        The seed that all ranks have in common, also with ``diff_rank_seed=True``: pass it to
            reproduce the run.

    Raises:
        TypeError: the seed or the rank is not an integer (bool, float and str are refused), or a
            switch is not a bool.
        ValueError: the seed is negative (also in ``DETAUG_SEED``, on any rank that reads it), the
            rank is negative or not the process group's, `deterministic` is another string than
            "warn", or `threads` comes without it.
        RankUnknown: (a RuntimeError and a ValueError) ``diff_rank_seed=True`` without a known rank;
            or no seed in one of several processes without a process group, where each would draw
            another.
    """
    # All arguments before the first effect: after an error nothing is seeded, logged or set.
    checked_mode("deterministic", deterministic)
    _check_bool("diff_rank_seed", diff_rank_seed)
    _check_bool("workers", workers)
    _check_bool("verbose", verbose)
    if threads is not None and deterministic is False:
        raise ValueError(
            f'threads={threads!r} is set with the switches: pass deterministic=True or "warn" too'
        )
    user_seed: Seed | None = None
    if seed is not None:
        user_seed = checked_seed(seed)
    # A given seed needs no rank, and asking raises where a launcher's variables are wrong.
    own_rank: int | None = None
    if rank is not None or seed is None or diff_rank_seed:
        own_rank = known_rank(rank)
    if diff_rank_seed and own_rank is None:
        raise RankUnknown(
            "diff_rank_seed=True needs this process's rank, which is unknown: pass rank=,"
            " initialise the process group (torch.distributed.init_process_group) first, or start"
            " with torchrun, which sets RANK"
        )
    if user_seed is None:
        common = common_seed(own_rank, verbose=verbose)
    else:
        common = announced(user_seed, "given", verbose)
    # A branch of its own, so that batches with the same seed draw other numbers.
    tree = SeedTree(common).child(BRANCH)
    if diff_rank_seed:
        tree = tree.child(f"rank/{own_rank}")
    # Each generator gets words of its own: `random` and NumPy are both Mersenne Twisters, and
    # from one integer could give the same numbers.
    seed_global_generators(tree.sequence())
    if workers:
        # The common seed, also with diff_rank_seed: a child process derives its own from it.
        os.environ[SEED_VARIABLE] = text_of_seed(common)
    if deterministic is not False:
        _set_switches(deterministic, threads, verbose)
    return common


def _set_switches(mode: Mode, threads: int | None, verbose: bool) -> None:
    """Set the switches of `deterministic_mode`, and log what changed."""
    changes = set_deterministic_mode(mode, threads=threads)
    if not verbose:
        return
    logger.info("deterministic=%r: %s", mode, changes)
    # On a GPU, the CPU's threads sum nothing that a training depends on.
    if threads is None and not torch.cuda.is_available():
        logger.warning(
            "torch computes with %d threads on this CPU, and with another number of them the"
            " same seed gives other weights: pass threads=1 (slower, the same everywhere), or a"
            " fixed number",
            torch.get_num_threads(),
        )


def _check_bool(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise TypeError(
            f"{name} must be True or False, got {value!r} of type {type(value).__name__}"
        )
