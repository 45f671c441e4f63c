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

#: Advice.
WHERE_RANKS_ARE_KNOWN = (
    "where the process group is initialised (in Lightning: in train_dataloader())"
)


def launcher() -> tuple[str, str]:
    """The two variables of the launcher that started this process; torchrun's where none did."""
    return next(
        (pair for pair in LAUNCHERS if all(os.environ.get(name) for name in pair)), LAUNCHERS[0]
    )


class RankUnknown(RuntimeError, ValueError):
    """Something needs this process's rank, or a value from rank 0, and there is no process group to
    ask.
    """


def process_group() -> tuple[int, int] | None:
    """(rank, world size) of the default process group; None where `torch.distributed` is not
    initialised.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def known_rank(rank: int | None = None) -> int | None:
    """This process's rank: the one given, else the process group's, else the launcher's, else None.

    ValueError: the process group gives this process another one, or the launcher's is no rank.
    """
    given, group = None if rank is None else non_negative_int("rank", rank), process_group()
    if group is None:
        return _from_environment(launcher()[0]) if given is None else given
    if given not in (None, group[0]):
        raise ValueError(
            f"rank={given} was given, but torch.distributed says that this process is rank "
            f"{group[0]} of {group[1]}: "
            "pass that rank, or leave rank out"
        )
    return group[0]


def place() -> tuple[int | None, int | None]:
    """(rank, number of processes that train together), by the process group, else by the launcher;
    (0, 1) where nothing speaks of ranks. None is what nothing says: Lightning's processes have
    ``LOCAL_RANK`` and ``WORLD_SIZE``, and no rank before ``fit`` makes the group. ValueError: the
    launcher's variables are no numbers.
    """
    group = process_group()
    if group is not None:
        return group
    rank, processes = map(_from_environment, launcher())
    if processes == 1 or (rank, processes, _local_rank()) == (None, None, None):
        return rank or 0, 1
    return rank, processes


def known_rank_and_world_size() -> tuple[int, int]:
    """(rank, number of processes that train together). RankUnknown: nothing says which of several
    this process is.
    """
    rank, processes = place()
    if rank is None or processes is None:
        found = {
            name: os.environ[name] for name in (*launcher(), "LOCAL_RANK") if os.environ.get(name)
        }
        told = ", ".join(f"{name}={value}" for name, value in found.items())
        raise RankUnknown(
            f"{told} in the environment does not say which of how many ranks this process is: do "
            f"this {WHERE_RANKS_ARE_KNOWN}, "
            "or pass the numbers"
        )
    return rank, processes


def check_all_are_known(world_size: int) -> None:
    """ValueError: more processes train together than `world_size`, and would all be given the same."""
    try:
        (rank, processes), local_rank = place(), _local_rank()
    except ValueError:
        return  # variables that are no numbers are not a launcher's
    least = max(rank or 0, local_rank or 0) + 1 if processes is None else processes
    if least > world_size:
        this = f"rank {rank}" if rank is not None else f"local rank {local_rank}"
        raise ValueError(
            f"{'' if processes else 'at least '}{least} processes train together (this is {this}), "
            f"and {world_size} is "
            "known of here, so that each would be given the same batches. Pass "
            "rank=torch.distributed.get_rank() and "
            f"world_size=torch.distributed.get_world_size(), {WHERE_RANKS_ARE_KNOWN}, or read a "
            "torch Dataset with "
            "detaug.DataLoader(..., shard=True); rank=0, world_size=1 gives every process all "
            "batches"
        )


def _local_rank() -> int | None:
    """This process's number on its machine; some launchers write -1 for none."""
    return None if os.environ.get("LOCAL_RANK") == "-1" else _from_environment("LOCAL_RANK")


def _from_environment(variable: str) -> int | None:
    text = os.environ.get(variable)
    try:
        return non_negative_int(variable, int(text)) if text else None
    except ValueError:
        raise ValueError(
            f"{variable}={text!r} in the environment must be a non-negative integer, as launchers "
            "set it: correct it, "
            f"or unset {variable}"
        ) from None


def broadcast_from_rank_0(value: Any) -> Any:
    """Rank 0's `value`, pickled, on every rank of the default process group. Every rank must call
    it.

    NCCL only moves GPU memory: the value then travels through this process's current device, or,
    where none was chosen yet, the one of torchrun's ``LOCAL_RANK``, so that two ranks do not meet
    on device 0.
    """
    held, device = [value], None
    if torch.distributed.get_backend() == "nccl" and torch.cuda.is_available():
        local_rank = _from_environment("LOCAL_RANK") or 0
        unchosen = torch.cuda.current_device() == 0 and local_rank < torch.cuda.device_count()
        device = torch.device("cuda", local_rank if unchosen else torch.cuda.current_device())
    torch.distributed.broadcast_object_list(held, src=0, device=device)
    return held[0]


def common_seed(rank: int | None, verbose: bool = True) -> Seed:
    """The seed of all ranks where none was given: ``DETAUG_SEED`` (ValueError: it is no seed), else
    one that rank 0 draws and logs. RankUnknown: one of several processes without a process group,
    where each would draw another.
    """
    given, group = bool(os.environ.get(SEED_VARIABLE)), process_group()
    processes = place()[1] or 1
    if group is None and not given and (rank or processes > 1):
        raise RankUnknown(
            f"this is one of {processes if processes > 1 else 'several'} processes (rank {rank}), "
            "no seed was given, and without "
            f"a process group each would draw another: pass seed=, set {SEED_VARIABLE}, or call "
            "torch.distributed.init_process_group first"
        )
    # Rank 0 sends its failure too: the other ranks would wait for it forever.
    found: tuple[Seed | None, str] = (None, "")
    if group is None or group[0] == 0:
        try:
            found = (resolve_seed(None), f"from {SEED_VARIABLE}" if given else "drawn")
        except ValueError as error:
            found = (None, str(error))
    seed, origin = found if group is None else broadcast_from_rank_0(found)
    if seed is None:
        raise ValueError(origin if group is None else f"on rank 0: {origin}")
    return announced(
        seed, origin if group is None or group[0] == 0 else f"rank 0's, {origin}", verbose
    )


def announced(seed: Seed, origin: str, verbose: bool) -> Seed:
    """The seed, logged with where it comes from."""
    if verbose and origin != "drawn":  # `resolve_seed` has logged that
        logger.info("seed=%s (%s)", text_of_seed(seed), origin)
    return seed
