"""The rank of this process in a distributed training, and one value shared by all ranks.

The rank is `torch.distributed`'s where that is initialised, else the launcher's: torchrun, Slurm's srun (not sbatch, whose
script is one process) or Open MPI's mpirun.
"""

from __future__ import annotations

import os
from typing import Any

import torch
import torch.distributed

from detaug.seeding.tree import non_negative_int

#: (rank, number of processes) by launcher. Slurm sets SLURM_NTASKS for a batch script too, SLURM_STEP_NUM_TASKS with srun.
LAUNCHERS = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
)


def launcher() -> tuple[str, str]:
    """The two variables of the launcher that started this process; torchrun's where none did."""
    return next((pair for pair in LAUNCHERS if all(os.environ.get(name) for name in pair)), LAUNCHERS[0])


class RankUnknown(RuntimeError, ValueError):
    """Something needs this process's rank, or a value from rank 0, and there is no process group to ask."""


def process_group() -> tuple[int, int] | None:
    """(rank, world size) of the default process group; None where `torch.distributed` is not initialised."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return None
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def known_rank(rank: int | None = None) -> int | None:
    """This process's rank: the one given, else the process group's, else the launcher's, else None.

    Raises:
        TypeError: the rank is not an integer (bool is refused).
        ValueError: it is negative, not the one that the process group gives this process, or the launcher's is no rank.
    """
    given, group = None if rank is None else non_negative_int("rank", rank), process_group()
    if group is None:
        return _from_environment(launcher()[0]) if given is None else given
    if given not in (None, group[0]):
        raise ValueError(
            f"rank={given} was given, but torch.distributed says that this process is rank {group[0]} of {group[1]}: "
            "pass that rank, or leave rank out"
        )
    return group[0]


def known_world_size() -> int | None:
    """How many processes train together, by the process group, else by the launcher (ValueError where that number is
    malformed), else None."""
    group = process_group()
    return group[1] if group is not None else _from_environment(launcher()[1])


def _from_environment(variable: str) -> int | None:
    text = os.environ.get(variable)
    try:
        return non_negative_int(variable, int(text)) if text else None
    except ValueError:
        raise ValueError(
            f"{variable}={text!r} in the environment must be a non-negative integer, as launchers set it: correct it, "
            f"or unset {variable}"
        ) from None


def broadcast_from_rank_0(value: Any) -> Any:
    """Rank 0's `value` on every rank of the default process group. Every rank must call it.

    The value is pickled. NCCL only moves GPU memory: the value then travels through this process's current device, or, where
    none was chosen yet, the one of torchrun's ``LOCAL_RANK``, so that two ranks do not meet on device 0.
    """
    held, device = [value], None
    if torch.distributed.get_backend() == "nccl" and torch.cuda.is_available():
        local_rank = _from_environment("LOCAL_RANK") or 0
        unchosen = torch.cuda.current_device() == 0 and local_rank < torch.cuda.device_count()
        device = torch.device("cuda", local_rank if unchosen else torch.cuda.current_device())
    torch.distributed.broadcast_object_list(held, src=0, device=device)
    return held[0]
