"""Ranks that train together on the CPU, killed and continued.

    python -m tests.peers.nnunet.trainers.ranks ROOT FOLDER WORLD_SIZE

nnU-Net's own start of several ranks wants NCCL and GPUs. From the trainer on everything is
nnU-Net's own code: its division of the batch, its `DDP`, its losses and metrics over ranks. A
process that has imported all that is forked for every rank.
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
    """nnU-Net puts every rank on a GPU of its own; this one computes on the CPU."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = None
    ):
        if torch.distributed.is_initialized():
            ranks = torch.distributed.get_world_size()
            plans["configurations"]["3d_fullres"]["batch_size"] = ranks
        super().__init__(plans, configuration, fold, dataset_json, torch.device("cpu"))
        self.device, self.grad_scaler = torch.device("cpu"), None

    def train_step(self, batch: dict) -> dict:
        outcome = super().train_step(batch)
        if os.environ.get("RANKS_KILL_AT") == str(self.current_epoch):
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome


class RankDetAug(DetAugLoading, OnCPU):
    pass


def train(rank: int, world_size: int, root: Path, results: Path) -> None:
    """What one rank does, to its end."""
    store = f"file://{results}/store"
    torch.distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=world_size
    )
    ddp = nnunet.DDP  # which takes networks on GPUs
    nnunet.DDP = lambda network, device_ids=None, **options: ddp(network, **options)
    made = new_trainer(root, RankDetAug)
    latest = Path(made.output_folder) / "checkpoint_latest.pth"
    if latest.exists():
        made.load_checkpoint(str(latest))
    made.run_training()
    torch.distributed.destroy_process_group()


def together(world_size: int, root: Path, results: Path, **environment: str) -> None:
    """Fork the ranks and wait for them."""
    results.mkdir(parents=True, exist_ok=True)
    (results / "store").unlink(missing_ok=True)
    ranks = []
    for rank in range(world_size):
        pid = os.fork()
        if pid == 0:
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
        ranks.append(pid)
    codes = [exit_code(pid, "a rank has ended", patience=LONGEST_TRAINING) for pid in ranks]
    if any(codes) and not environment:
        raise SystemExit(f"{world_size} ranks: {codes}")


if __name__ == "__main__":
    root, folder, size = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    together(size, root, folder / "straight")
    together(size, root, folder / "killed", RANKS_KILL_AT="1")
    together(size, root, folder / "killed")
