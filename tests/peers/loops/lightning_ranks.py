"""Lightning's Trainer on two ranks: python -m tests.peers.loops.lightning_ranks FILE FOLDER."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
import torch.distributed
from torch.utils.data import WeightedRandomSampler

from tests.support.numbers import loader, samples

#: Of checkpoints.
FOLDER = Path(sys.argv[2])


class Module(pl.LightningModule):
    """A linear layer that records the samples of its batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(1, 1)
        self.trained: list[list[Any]] = []
        self.validated: list[list[Any]] = []

    def on_train_epoch_start(self) -> None:
        self.trained.append([])

    def on_validation_epoch_start(self) -> None:
        self.validated.append([])

    def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
        # Lightning does not call the hook of an epoch that it resumes.
        if not self.trained:
            self.on_train_epoch_start()
        self.trained[-1].append(samples(batch))
        return self.layer(batch[:, :1]).mean()

    def validation_step(self, batch: torch.Tensor, _: int) -> None:
        self.validated[-1].append(samples(batch))

    def predict_step(self, batch: torch.Tensor, _: int) -> Any:
        return samples(batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1e-3)


class WithHook(Module):
    """A module with a hook that makes the loader, whose arguments Lightning then records."""

    def __init__(self, make_loader: Callable[[], Any]) -> None:
        super().__init__()
        self.make_loader = make_loader

    def train_dataloader(self) -> Any:
        return self.make_loader()


def trainer(**options: Any) -> pl.Trainer:
    """Return a Trainer for two ranks."""
    defaults = {
        "enable_checkpointing": False,
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    return pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", **{**defaults, **options})


def fit(module: Module, *loaders: Any, checkpoint: Path | None = None, **options: Any) -> Module:
    """Train a module for three epochs and return it.

    Args:
        module: the module.
        loaders: for training and validation; none if the module has a hook.
        checkpoint: from which the training continues.
        options: of the Trainer.
    """
    training = trainer(max_epochs=3, num_sanity_val_steps=0, **options)
    training.fit(module, *loaders, ckpt_path=checkpoint)
    return module


def weighted() -> Any:
    """Return a loader with a sampler that draws with weights."""
    return loader(shuffle=None, sampler=WeightedRandomSampler([1.0] * 11 + [30.0], 12))


def cases() -> Iterator[tuple[str, Any]]:
    """Yield the name of each case and what this rank saw."""
    saving = pl.callbacks.ModelCheckpoint(FOLDER, "{step}", every_n_train_steps=5, save_top_k=-1)
    validation = loader(shuffle=False, epoch=0, name="val")
    module = fit(Module(), loader(), validation, callbacks=[saving], enable_checkpointing=True)
    yield "a loader given to fit", module.trained
    yield "validated", module.validated
    yield "resumed", fit(Module(), loader(), checkpoint=FOLDER / "step=5.ckpt").trained
    yield "a loader of a hook", fit(WithHook(loader)).trained
    yield "sharded before", fit(Module(), loader(shard=True)).trained
    yield "a custom sampler", fit(Module(), weighted()).trained
    yield "a custom sampler of a hook", fit(WithHook(weighted)).trained
    try:
        trainer().predict(Module(), loader())
    except ValueError as error:
        yield "an error of predict", str(error)
    yield "predicted, sharded before", trainer().predict(Module(), loader(shard=True))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    Path(sys.argv[1]).write_text(json.dumps(dict(cases())))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
