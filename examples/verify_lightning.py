"""Is a Lightning training reproducible, and does it go on from its checkpoint as if it had not been interrupted?

It needs Lightning 2.6 or later: ``pip install pytorch-lightning``.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import TensorDataset

from detaug import DeterministicAugmenter, seed_everything
from detaug.training import compare_trainings, make_deterministic, rng_state, set_rng_state

try:
    import lightning.pytorch as pl
except ImportError:
    try:
        import pytorch_lightning as pl  # type: ignore[no-redef]
    except ImportError:
        raise SystemExit("this example needs Lightning: pip install pytorch-lightning") from None


class Segmentation(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = make_deterministic(
            nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Dropout2d(), nn.Conv2d(4, 2, 1))
        )
        self.loss = make_deterministic(nn.CrossEntropyLoss())

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return self.loss(self.network(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


class Complete(pl.Callback):
    """Lightning's checkpoints have neither the random state nor the position in the data."""

    def __init__(self, batches: DeterministicAugmenter) -> None:
        self.batches = batches

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        checkpoint["rng"], checkpoint["data"] = rng_state(), self.batches.state_dict()

    def on_load_checkpoint(self, trainer: Any, module: Any, checkpoint: dict[str, Any]) -> None:
        self.loaded = checkpoint["rng"]
        self.batches.load_state_dict(checkpoint["data"])

    def on_train_start(self, trainer: Any, module: Any) -> None:
        if hasattr(self, "loaded"):
            set_rng_state(self.loaded)


class Training:
    """What `compare_trainings` needs: a model, `train`, `save` and `load`; Lightning's Trainer does the work."""

    def __init__(self) -> None:
        seed = seed_everything(1234, deterministic=True, threads=1)
        self.lightning = Segmentation()
        self.model = self.lightning.network
        images = torch.randn(16, 1, 8, 8)
        dataset = TensorDataset(images, (images[:, 0] > 0).long())
        self.loader = DeterministicAugmenter.from_dataset(dataset, 2, num_processes=0, seed=seed)
        self.checkpoint: Path | None = None

    def train(self, steps: int) -> None:
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        self.trainer = pl.Trainer(
            accelerator="cpu", max_epochs=steps // len(self.loader), deterministic=True, enable_checkpointing=False,
            callbacks=[Complete(self.loader)], **quiet,
        )  # fmt: skip
        self.trainer.fit(self.lightning, self.loader, ckpt_path=self.checkpoint, weights_only=False)

    def save(self, file: Path) -> None:
        self.trainer.save_checkpoint(file)

    def load(self, file: Path) -> None:
        self.checkpoint = file


def main() -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    # Eight batches are an epoch: Lightning resumes at the beginning of one.
    report = compare_trainings(Training, steps=16, interrupt_after=8)
    print(report)
    assert report
    print("the Lightning training is reproducible and resumes exactly")


if __name__ == "__main__":
    main()
