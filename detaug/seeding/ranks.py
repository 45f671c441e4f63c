"""The rank of this process in a distributed training, and the seed that all ranks have in common.

The rank is `torch.distributed`'s where that is initialised, else the launcher's: torchrun, Slurm's
srun (not sbatch, whose script is one process) or Open MPI's mpirun.
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

#: Ends the advice of several messages.
WHERE_RANKS_ARE_KNOWN = (
    "where the process group is initialised (in Lightning: in train_dataloader())"
)


def launcher() -> tuple[str, str]:
    """Return the two variables of the launcher of this process; torchrun's if there is none."""
    for rank_variable, size_variable in LAUNCHERS:
        if os.environ.get(rank_variable) and os.environ.get(size_variable):
            return rank_variable, size_variable
    return LAUNCHERS[0]


class RankUnknown(RuntimeError, ValueError):
    """This process's rank, or a value from rank 0, is needed, and there is no process group."""


def process_group() -> tuple[int, int] | None:
    """Return (rank, world size) of the default process group; None if it is not initialised."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def known_rank(rank: int | None = None) -> int | None:
    """Return this process's rank.

    Args:
        rank: the user's; None: the process group's, else the launcher's, else None.

    Raises:
        TypeError: the user's rank is not an integer.
        ValueError: the process group gives this process another rank, or the launcher's is no rank.
    """
    if rank is not None:
        rank = non_negative_int("rank", rank)
    group = process_group()
    if group is None:
        if rank is not None:
            return rank
        rank_variable, _ = launcher()
        return _from_environment(rank_variable)
    group_rank, group_size = group
    if rank is not None and rank != group_rank:
        raise ValueError(
            f"rank={rank} was given, but torch.distributed says that this process is rank "
            f"{group_rank} of {group_size}: pass that rank, or leave rank out"
        )
    return group_rank


def rank_and_world_size() -> tuple[int | None, int | None]:
    """Return (rank, world size), of the process group, else of the launcher, else (0, 1).

    Either is None if it is not known: Lightning's processes have ``LOCAL_RANK`` and ``WORLD_SIZE``,
    and no rank before ``fit`` makes the group.

    Raises:
        ValueError: the launcher's variables are no numbers.
    """
    group = process_group()
    if group is not None:
        return group
    rank_variable, size_variable = launcher()
    rank = _from_environment(rank_variable)
    world_size = _from_environment(size_variable)
    if world_size == 1:
        return rank or 0, 1
    local_rank = _local_rank()
    if rank is None and world_size is None and local_rank is None:
        return 0, 1
    return rank, world_size


def known_rank_and_world_size() -> tuple[int, int]:
    """Return (rank, world size).

    Raises:
        RankUnknown: the environment does not say which of several processes this is.
        ValueError: the launcher's variables are no numbers.
    """
    rank, world_size = rank_and_world_size()
    if rank is not None and world_size is not None:
        return rank, world_size
    settings = {}
    for name in (*launcher(), "LOCAL_RANK"):
        if os.environ.get(name):
            settings[name] = os.environ[name]
    text = ", ".join(f"{name}={value}" for name, value in settings.items())
    raise RankUnknown(
        f"{text} in the environment does not say which of how many ranks this process is: do "
        f"this {WHERE_RANKS_ARE_KNOWN}, or pass the numbers"
    )


def check_all_are_known(world_size: int) -> None:
    """Raise ValueError if more than `world_size` processes train together.

    Each of them would get the same batches.
    """
    try:
        rank, known_size = rank_and_world_size()
        local_rank = _local_rank()
    except ValueError:
        # Variables that are no numbers are not a launcher's.
        return
    if known_size is None:
        # A rank of any kind counts from 0.
        least_size = max(rank or 0, local_rank or 0) + 1
    else:
        least_size = known_size
    if least_size <= world_size:
        return
    size_text = str(least_size) if known_size else f"at least {least_size}"
    rank_text = f"local rank {local_rank}" if rank is None else f"rank {rank}"
    raise ValueError(
        f"{size_text} processes train together (this is {rank_text}), and {world_size} is "
        "known of here, so that each would be given the same batches. Pass "
        "rank=torch.distributed.get_rank() and world_size=torch.distributed.get_world_size(), "
        f"{WHERE_RANKS_ARE_KNOWN}, or read a torch Dataset with "
        "detaug.DataLoader(..., shard=True); rank=0, world_size=1 gives every process all batches"
    )


def _local_rank() -> int | None:
    """Return this process's index on its machine; some launchers write -1 for none."""
    if os.environ.get("LOCAL_RANK") == "-1":
        return None
    return _from_environment("LOCAL_RANK")


def _from_environment(variable: str) -> int | None:
    """Return a variable's number; None if it is not set or empty.

    Raises:
        ValueError: it is no number, or negative.
    """
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
    """Return rank 0's `value`, pickled, on every rank of the default process group.

    Every rank must call it. NCCL only moves GPU memory: the value then travels through this
    process's current device, or, if none was chosen yet, through that of torchrun's ``LOCAL_RANK``.
    Otherwise two ranks would meet on device 0.
    """
    # A list of one: torch writes the received value into it.
    values = [value]
    device = None
    if torch.distributed.get_backend() == "nccl" and torch.cuda.is_available():
        device = torch.device("cuda", _cuda_device())
    torch.distributed.broadcast_object_list(values, src=0, device=device)
    return values[0]


def _cuda_device() -> int:
    """Return the index of this process's device: the current one, or that of ``LOCAL_RANK``."""
    local_rank = _from_environment("LOCAL_RANK") or 0
    current = torch.cuda.current_device()
    # Device 0 is the current one until the user chooses another.
    if current == 0 and local_rank < torch.cuda.device_count():
        return local_rank
    return current


def common_seed(rank: int | None, verbose: bool = True) -> Seed:
    """Return the seed of all ranks if the user gave none.

    It is the environment's ``DETAUG_SEED``, else one that rank 0 draws and logs.

    Args:
        rank: of this process; None: not known.
        verbose: log where the seed comes from.

    Raises:
        RankUnknown: one of several processes has no process group: each would draw another seed.
        ValueError: ``DETAUG_SEED`` is no seed.
    """
    is_in_environment = bool(os.environ.get(SEED_VARIABLE))
    group = process_group()
    _, known_size = rank_and_world_size()
    world_size = known_size or 1
    if group is None and not is_in_environment and (rank or world_size > 1):
        size_text = str(world_size) if world_size > 1 else "several"
        raise RankUnknown(
            f"this is one of {size_text} processes (rank {rank}), no seed was given, and without "
            f"a process group each would draw another: pass seed=, set {SEED_VARIABLE}, or call "
            "torch.distributed.init_process_group first"
        )
    if group is None:
        seed, origin = _seed_or_error()
        if seed is None:
            raise ValueError(origin)
        return announced(seed, origin, verbose)
    group_rank, _ = group
    outcome: tuple[Seed | None, str] = (None, "")
    if group_rank == 0:
        outcome = _seed_or_error()
    # Rank 0 sends its failure too: the other ranks would wait for it forever.
    seed, origin = broadcast_from_rank_0(outcome)
    if seed is None:
        raise ValueError(f"on rank 0: {origin}")
    if group_rank != 0:
        origin = f"rank 0's, {origin}"
    return announced(seed, origin, verbose)


def _seed_or_error() -> tuple[Seed | None, str]:
    """Return the environment's seed or a drawn one and its origin; or None and an error's text."""
    is_in_environment = bool(os.environ.get(SEED_VARIABLE))
    try:
        seed = resolve_seed(None)
    except ValueError as error:
        return None, str(error)
    if is_in_environment:
        return seed, f"from {SEED_VARIABLE}"
    return seed, "drawn"


def announced(seed: Seed, origin: str, verbose: bool) -> Seed:
    """Return the seed, after it was logged with its origin."""
    # `resolve_seed` has logged a drawn one.
    if verbose and origin != "drawn":
        logger.info("seed=%s (%s)", text_of_seed(seed), origin)
    return seed
