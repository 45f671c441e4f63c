"""The rank of this process in a distributed training, and the seed that all ranks have in common.

The rank is `torch.distributed`'s if it is initialised, else the launcher's: torchrun, Slurm's srun
(not sbatch, whose script is one process) or Open MPI's mpirun.
"""

from __future__ import annotations

import logging
import os
from typing import Any

import torch
import torch.distributed

from detaug.seeding.tree import SEED_VARIABLE, Seed, non_negative_int, resolve_seed, text_of_seed

logger = logging.getLogger("detaug")

#: (rank, number of processes) by launcher. Slurm sets SLURM_NTASKS for a batch script too,
#: SLURM_STEP_NUM_TASKS with srun.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)

#: The part of messages that says where to call a function again.
WHERE_RANKS_ARE_KNOWN = (
    "where the process group is initialised (in Lightning: in train_dataloader())"
)


def launcher() -> tuple[str, str]:
    """Return the two variables of the launcher that started this process; by default torchrun's."""
    for rank_variable, size_variable in LAUNCHERS:
        if os.environ.get(rank_variable) and os.environ.get(size_variable):
            return rank_variable, size_variable
    return LAUNCHERS[0]


class RankUnknown(RuntimeError, ValueError):
    """An error: the rank, or a value of rank 0, is needed, and there is no process group to ask."""


def process_group() -> tuple[int, int] | None:
    """Return (rank, world size) of the default process group, or None if there is no such group."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def known_rank(rank: int | None = None) -> int | None:
    """Return this process's rank: `rank`, else the process group's, else the launcher's, else None.

    Raises:
        ValueError: the process group has another rank, or the launcher's variable is no rank.
    """
    if rank is not None:
        rank = non_negative_int("rank", rank)
    # The process group decides, because the ranks communicate by its numbers.
    group = process_group()
    if group is None:
        rank_variable, _ = launcher()
        return _from_environment(rank_variable) if rank is None else rank
    group_rank, group_size = group
    if rank is not None and rank != group_rank:
        raise ValueError(
            f"rank={rank} was given, but torch.distributed says that this process is rank "
            f"{group_rank} of {group_size}: pass that rank, or leave rank out"
        )
    return group_rank


def rank_and_world_size() -> tuple[int | None, int | None]:
    """Return (rank, number of processes that train together), None for a number that is unknown.

    The process group decides, else the launcher; (0, 1) if there is neither. Lightning's processes
    have ``LOCAL_RANK`` and ``WORLD_SIZE``, but no rank before ``fit`` creates the group.

    Raises:
        ValueError: the launcher's variables are no numbers.
    """
    group = process_group()
    if group is not None:
        return group
    rank_variable, size_variable = launcher()
    rank = _from_environment(rank_variable)
    processes = _from_environment(size_variable)
    if processes == 1:
        return rank or 0, 1
    # LOCAL_RANK alone shows that there are several processes, as with Lightning's launcher.
    local_rank = _local_rank()
    if rank is None and processes is None and local_rank is None:
        return 0, 1
    return rank, processes


def known_rank_and_world_size() -> tuple[int, int]:
    """Return (rank, number of processes that train together).

    Raises:
        RankUnknown: nothing tells which of several processes this one is.
    """
    rank, processes = rank_and_world_size()
    if rank is not None and processes is not None:
        return rank, processes
    settings = []
    for name in (*launcher(), "LOCAL_RANK"):
        if os.environ.get(name):
            settings.append(f"{name}={os.environ[name]}")
    raise RankUnknown(
        f"{', '.join(settings)} in the environment does not say which of how many ranks this "
        f"process is: do this {WHERE_RANKS_ARE_KNOWN}, or pass the numbers"
    )


def check_all_are_known(world_size: int) -> None:
    """Raise a ValueError if more processes than `world_size` train together.

    All of them would be given the same batches.
    """
    try:
        rank, processes = rank_and_world_size()
        local_rank = _local_rank()
    except ValueError:
        # Variables that are no numbers are not a launcher's.
        return
    if processes is None:
        # Ranks are numbered from 0, so there are at least as many as this one's number and one.
        least = max(rank or 0, local_rank or 0) + 1
        count = f"at least {least}"
    else:
        least = processes
        count = str(processes)
    if least <= world_size:
        return
    this = f"rank {rank}" if rank is not None else f"local rank {local_rank}"
    raise ValueError(
        f"{count} processes train together (this is {this}), and {world_size} is known of here, so "
        "that each would be given the same batches. Pass rank=torch.distributed.get_rank() and "
        f"world_size=torch.distributed.get_world_size(), {WHERE_RANKS_ARE_KNOWN}, or read a torch "
        "Dataset with detaug.DataLoader(..., shard=True); rank=0, world_size=1 gives every process "
        "all batches"
    )


def _local_rank() -> int | None:
    """Return this process's number on its machine; some launchers write -1 for none."""
    if os.environ.get("LOCAL_RANK") == "-1":
        return None
    return _from_environment("LOCAL_RANK")


def _from_environment(variable: str) -> int | None:
    text = os.environ.get(variable)
    if not text:
        return None
    try:
        return non_negative_int(variable, int(text))
    except ValueError:
        raise ValueError(
            f"{variable}={text!r} in the environment must be a non-negative integer, as launchers "
            f"set it: correct it, or unset {variable}"
        ) from None


def broadcast_from_rank_0(value: Any) -> Any:
    """Return rank 0's `value` on every rank of the default process group; all ranks must call it.

    The value is pickled. NCCL moves GPU memory only: the value then travels through this process's
    current device or, if none was chosen yet, through that of torchrun's ``LOCAL_RANK``, so that
    two ranks do not meet on device 0.
    """
    values = [value]
    device = None
    if torch.distributed.get_backend() == "nccl" and torch.cuda.is_available():
        local_rank = _from_environment("LOCAL_RANK") or 0
        current = torch.cuda.current_device()
        # Device 0 is also what a process has that has not chosen.
        is_unchosen = current == 0 and local_rank < torch.cuda.device_count()
        device = torch.device("cuda", local_rank if is_unchosen else current)
    torch.distributed.broadcast_object_list(values, src=0, device=device)
    return values[0]


def common_seed(rank: int | None, verbose: bool = True) -> Seed:
    """Return the seed of all ranks if none was given: ``DETAUG_SEED``, else one that rank 0 draws.

    Args:
        rank: this process's rank, for messages.
        verbose: log the seed.

    Raises:
        ValueError: ``DETAUG_SEED`` is no seed.
        RankUnknown: one of several processes without a process group, each of which would draw
            another seed.
    """
    is_set = bool(os.environ.get(SEED_VARIABLE))
    group = process_group()
    _, world_size = rank_and_world_size()
    processes = world_size or 1
    if group is None and not is_set and (rank or processes > 1):
        raise RankUnknown(
            f"this is one of {processes if processes > 1 else 'several'} processes (rank {rank}), "
            "no seed was given, and without a process group each would draw a different one: pass "
            f"seed=, set {SEED_VARIABLE}, or call torch.distributed.init_process_group first"
        )
    resolved: tuple[Seed | None, str] = (None, "")
    if group is None or group[0] == 0:
        resolved = _resolved_or_error(is_set)
    if group is None:
        seed, origin = resolved
        if seed is None:
            raise ValueError(origin)
        return announced(seed, origin, verbose)
    # Rank 0 sends its error as well: else the other ranks would wait forever.
    seed, origin = broadcast_from_rank_0(resolved)
    if seed is None:
        raise ValueError(f"on rank 0: {origin}")
    if group[0] != 0:
        origin = f"rank 0's, {origin}"
    return announced(seed, origin, verbose)


def _resolved_or_error(is_set: bool) -> tuple[Seed | None, str]:
    """Return (seed, its origin), or (None, the error's text)."""
    try:
        seed = resolve_seed(None)
    except ValueError as error:
        return None, str(error)
    return seed, f"from {SEED_VARIABLE}" if is_set else "drawn"


def announced(seed: Seed, origin: str, verbose: bool) -> Seed:
    """Return the seed; log it with its origin."""
    # `resolve_seed` has logged a drawn seed already.
    if verbose and origin != "drawn":
        logger.info("seed=%s (%s)", text_of_seed(seed), origin)
    return seed
