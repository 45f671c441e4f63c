"""Keras 3 on torch: `fit` with a loader, `BackupAndRestore` after every epoch.

KERAS_BACKEND=torch python loop_keras.py FOLDER     (again: it continues from the last backup)
"""

import keras
import numpy as np
import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, show
from torch_dataset import AxialSlices

from detaug import DataLoader, fingerprint


class Slices(AxialSlices):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        item = super().__getitem__(index)
        return item["image"].movedim(0, -1), item["labels"]


class Progress(keras.callbacks.Callback):
    def __init__(self, loader: DataLoader) -> None:
        super().__init__()
        self.loader = loader

    def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
        # Keras has used a batch of epoch 0 to build the model.
        self.loader.set_epoch(epoch + 1)

    def on_train_batch_end(self, batch: int, logs: dict[str, float]) -> None:
        show([], logs["loss"])


def main() -> None:
    args = arguments(__doc__)
    keras.utils.set_random_seed(0)
    loader = DataLoader(
        Slices(), BATCH_SIZE, shuffle=True, drop_last=True, num_workers=args.workers, seed=1234
    )
    model = keras.Sequential(
        [keras.layers.Conv2D(4, 3, padding="same", activation="relu"), keras.layers.Conv2D(3, 1)]
    )
    model.compile("adamw", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    backup = keras.callbacks.BackupAndRestore(args.folder, delete_checkpoint=False)
    model.fit(loader, epochs=EPOCHS, verbose=0, callbacks=[backup, Progress(loader)])
    print("weights", fingerprint([np.asarray(weight) for weight in model.get_weights()]))


if __name__ == "__main__":
    main()
