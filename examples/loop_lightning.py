"""Lightning: `fit` with two loaders, a checkpoint within an epoch, and `ckpt_path`.

python loop_lightning.py FOLDER            (again: it continues from the last checkpoint)
torchrun --nproc_per_node=2 loop_lightning.py FOLDER
"""

import os

import pytorch_lightning as pl
import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch.nn.functional import cross_entropy
from torch_dataset import AxialSlices

from detaug import DataLoader, fingerprint


class Segmentation(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = segmenter()

    def training_step(self, batch: dict[str, torch.Tensor], _: int) -> torch.Tensor:
        loss = cross_entropy(self.network(batch["image"]), batch["labels"])
        show(batch["slice"], loss)
        return loss

    def validation_step(self, batch: dict[str, torch.Tensor], _: int) -> None:
        self.log("val_loss", cross_entropy(self.network(batch["image"]), batch["labels"]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters())


def main() -> None:
    args = arguments(__doc__)
    options = {"batch_size": BATCH_SIZE, "drop_last": True, "seed": 1234}
    train = DataLoader(AxialSlices(), shuffle=True, num_workers=args.workers, **options)
    # epoch=0: every validation has the same batches.
    val = DataLoader(AxialSlices(), epoch=0, name="val", **options)
    module = Segmentation()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=int(os.environ.get("WORLD_SIZE", "1")),
        max_epochs=EPOCHS,
        callbacks=[
            pl.callbacks.ModelCheckpoint(args.folder, every_n_train_steps=4, save_last=True)
        ],
        logger=False,
        enable_progress_bar=False,
    )
    trainer.fit(module, train, val, ckpt_path="last")
    print("weights", fingerprint(module.network.state_dict()))


if __name__ == "__main__":
    main()
