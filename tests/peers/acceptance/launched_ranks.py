"""A training of two ranks that torchrun or Lightning starts: what each is given, or told.

python launched_ranks.py FOLDER (torchrun | ddp | ddp_spawn) (plain | from_torch_distributed)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning
import torch
import torch.distributed
import torch.utils.data

from detaug import DeterministicAugmenter


class Samples:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> torch.Tensor:
        return torch.tensor([float(i)])


def make(how: str) -> DeterministicAugmenter:
    if how == "plain":
        return DeterministicAugmenter.from_dataset(Samples(), 2, num_processes=1, seed=1)
    return DeterministicAugmenter.from_torch_distributed(Samples(), batch_size=2, num_processes=1)


class Module(pytorch_lightning.LightningModule):
    def __init__(self, folder: str, how: str) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.folder, self.how, self.seen = folder, how, []  # type: ignore[var-annotated]

    def train_dataloader(self) -> Any:
        return told(self.folder, self.global_rank, lambda: make(self.how))

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        self.seen += batch.flatten().int().tolist()
        return self.layer(batch).sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.01)

    def on_train_end(self) -> None:
        write(self.folder, self.global_rank, self.seen)


def told(folder: str, rank: int, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except ValueError as error:
        write(folder, rank, str(error))
        return torch.utils.data.DataLoader(Samples(), 6)  # so that the ranks end together


def write(folder: str, rank: int, found: Any) -> None:
    path = Path(folder, f"{rank}.json")
    if not path.exists():
        path.write_text(json.dumps(found))


def main(folder: str, starts: str, how: str) -> None:
    if starts != "torchrun":
        quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
        trainer = pytorch_lightning.Trainer(accelerator="cpu", devices=2, strategy=starts, max_epochs=1, **quiet)  # type: ignore[arg-type]
        trainer.fit(Module(folder, how))
        return
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    write(folder, rank, told(folder, rank, lambda: [int(i) for batch in make(how) for i in batch]))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
