"""Train on several ranks on the CPU; the training is killed and continued.

    python -m tests.peers.nnunet.trainers.ranks ROOT FOLDER WORLD_SIZE

nnU-Net's own start of several ranks requires NCCL and GPUs. From the trainer on everything is
nnU-Net's own code: its division of the batch, its `DDP`, its losses and metrics over ranks. Every
rank is a fork of a process that has imported all of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as nnunet

from detaug.nnunet import DetAugLoading
from tests.peers.nnunet.trainers.command_line import LONGEST_TRAINING
from tests.peers.nnunet.trainers.in_process import Short, new_trainer
from tests.support.waiting import exit_code


class OnCPU(Short):
    """A trainer whose ranks compute on the CPU, while nnU-Net gives each a GPU.

    Each rank kills itself in the epoch that the variable RANKS_KILL_AT names.
    """

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = None
    ):
        if torch.distributed.is_initialized():
            world_size = torch.distributed.get_world_size()
            plans["configurations"]["3d_fullres"]["batch_size"] = world_size
        super().__init__(plans, configuration, fold, dataset_json, torch.device("cpu"))
        self.device = torch.device("cpu")
        self.grad_scaler = None

    def train_step(self, batch: dict) -> dict:
        outcome = super().train_step(batch)
        if os.environ.get("RANKS_KILL_AT") == str(self.current_epoch):
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome


class RankDetAug(DetAugLoading, OnCPU):
    """A trainer on the CPU with detaug's reading and augmentation of cases."""


_DDP = nnunet.DDP


def ddp_on_cpu(network: Any, device_ids: Any = None, **options: Any) -> Any:
    """Return nnU-Net's DDP, without the GPUs that nnU-Net passes."""
    return _DDP(network, **options)


def train(rank: int, world_size: int, root: Path, results: Path) -> None:
    """Train as one rank, from the last checkpoint if there is one.

    Args:
        rank: of this process.
        world_size: number of ranks.
        root: folder with nnU-Net's ``preprocessed``.
        results: nnU-Net's results folder.
    """
    store = f"file://{results}/store"
    torch.distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=world_size
    )
    nnunet.DDP = ddp_on_cpu
    trainer = new_trainer(root, RankDetAug)
    latest = Path(trainer.output_folder) / "checkpoint_latest.pth"
    if latest.exists():
        trainer.load_checkpoint(str(latest))
    trainer.run_training()
    torch.distributed.destroy_process_group()


def fork_rank(rank: int, world_size: int, root: Path, results: Path, **environment: str) -> int:
    """Fork a process that trains as one rank and prints nothing; return its id.

    Args:
        rank: as for `train`.
        world_size: as for `train`.
        root: as for `train`.
        results: as for `train`.
        environment: further variables.
    """
    pid = os.fork()
    if pid != 0:
        return pid
    code = 1
    try:
        os.environ.update(environment, nnUNet_results=str(results))
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            train(rank, world_size, root, results)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def train_on_ranks(world_size: int, root: Path, results: Path, **environment: str) -> None:
    """Fork all ranks and wait for them; they must succeed if `environment` is empty."""
    results.mkdir(parents=True, exist_ok=True)
    (results / "store").unlink(missing_ok=True)
    ranks = [
        fork_rank(rank, world_size, root, results, **environment) for rank in range(world_size)
    ]
    codes = [exit_code(pid, "a rank has ended", patience=LONGEST_TRAINING) for pid in ranks]
    if any(codes) and not environment:
        raise SystemExit(f"{world_size} ranks: {codes}")


def main() -> None:
    """Train once straight, and once with a kill in epoch 1."""
    root = Path(sys.argv[1])
    folder = Path(sys.argv[2])
    world_size = int(sys.argv[3])
    train_on_ranks(world_size, root, folder / "straight")
    train_on_ranks(world_size, root, folder / "killed", RANKS_KILL_AT="1")
    train_on_ranks(world_size, root, folder / "killed")


if __name__ == "__main__":
    main()
