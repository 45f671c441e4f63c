"""Lightning: `fit` with loaders of training and validation, a checkpoint in mid-epoch, and `ckpt_path`.

python loop_lightning.py FOLDER            (again: it goes on from the last checkpoint)
torchrun --nproc_per_node=2 loop_lightning.py FOLDER
"""

from __future__ import annotations

import os

import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch import nn
from torch_dataset import AxialSlices

from detaug import DeterministicAugmenter, fingerprint

try:
    import pytorch_lightning as pl
except ImportError:
    raise SystemExit("this example needs Lightning: pip install pytorch-lightning") from None


class Segmentation(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network, self.loss = segmenter(), nn.CrossEntropyLoss()

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        loss = self.loss(self.network(batch["image"]), batch["labels"])
        show(batch["slice"], loss.item())
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        self.log(
            "val_loss", self.loss(self.network(batch["image"]), batch["labels"]), sync_dist=True
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    args = arguments(__doc__)
    # As from_dataset; under torchrun each rank has its part of the batches.
    make = DeterministicAugmenter.from_torch_distributed
    options = {"batch_size": BATCH_SIZE, "drop_last": True, "seed": 1234}
    train = make(AxialSlices(), num_processes=args.workers, name="train", **options).loader()
    val = make(AxialSlices(), num_processes=1, name="val", **options).loader()

    saving = pl.callbacks.ModelCheckpoint(args.folder, every_n_train_steps=4, save_last=True)
    trainer = pl.Trainer(
        accelerator="cpu", devices=int(os.environ.get("WORLD_SIZE", 1)), max_epochs=EPOCHS, callbacks=[saving],
        logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = Segmentation()
    trainer.fit(module, train, val, ckpt_path="last")
    print("weights", fingerprint(module.network.state_dict()))


if __name__ == "__main__":
    main()
