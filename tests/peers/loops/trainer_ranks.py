"""Hugging Face's Trainer on two ranks: python -m tests.peers.loops.trainer_ranks FILE."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import transformers

from tests.support.numbers import loader, samples


class Module(torch.nn.Module):
    """A linear layer that records the samples of its batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def forward(self, numbers: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen.append(list(samples(numbers)))
        return {"loss": self.layer(numbers[:, :1]).mean()}


def named(items: list[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Collate items into the arguments of `Module.forward`."""
    return {"numbers": torch.stack(items)}


class Trainer(transformers.Trainer):  # type: ignore[misc]
    """A Trainer that reads a prepared loader of seven batches."""

    def get_train_dataloader(self) -> Any:
        return self.accelerator.prepare(loader(14, collate_fn=named))


def train(folder: str, **options: Any) -> list[list[int]]:
    """Train for three epochs and return the samples of each of this rank's batches.

    Args:
        folder: of checkpoints.
        options: of `Trainer.train`.
    """
    module = Module()
    arguments = transformers.TrainingArguments(
        folder,
        num_train_epochs=3,
        save_steps=3,
        use_cpu=True,
        ddp_backend="gloo",
        report_to="none",
        disable_tqdm=True,
    )
    Trainer(model=module, args=arguments).train(**options)
    return module.seen


def main() -> None:
    """Write what this rank saw, in a whole training and in three that were resumed."""
    # Reading the device creates the process group.
    _ = transformers.TrainingArguments(
        "out", use_cpu=True, ddp_backend="gloo", report_to="none"
    ).device
    # Both ranks use the folder of rank 0.
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    results = {"whole": train(folder[0])}
    for step in (3, 6, 9):
        checkpoint = f"{folder[0]}/checkpoint-{step}"
        results[str(step)] = train(tempfile.mkdtemp(), resume_from_checkpoint=checkpoint)
    Path(sys.argv[1]).write_text(json.dumps(results))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
