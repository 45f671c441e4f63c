"""skorch: `iterator_train`, a checkpoint after every epoch, and `load_params`.

python loop_skorch.py FOLDER               (again: it continues from the last checkpoint)
"""

import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from skorch import NeuralNet
from skorch.callbacks import Checkpoint
from torch_dataset import AxialSlices

from detaug import DataLoader, fingerprint


class Slices(AxialSlices):
    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        item = super().__getitem__(index)
        return item["image"], item["labels"]


class SliceNet(NeuralNet):
    def get_iterator(self, dataset: object, training: bool = False) -> DataLoader:
        loader = super().get_iterator(dataset, training)
        # The history has an entry for each epoch that an earlier run has trained.
        loader.set_epoch(len(self.history))
        return loader

    def on_batch_end(self, *batch: object, **loss: object) -> None:
        super().on_batch_end(*batch, **loss)
        show([], loss["loss"])


def main() -> None:
    args = arguments(__doc__)
    saving = Checkpoint(monitor=None, dirname=args.folder, f_criterion=None)
    net = SliceNet(
        segmenter(),
        torch.nn.CrossEntropyLoss,
        batch_size=BATCH_SIZE,
        train_split=None,
        callbacks=[saving],
        iterator_train=DataLoader,
        iterator_train__shuffle=True,
        iterator_train__drop_last=True,
        iterator_train__num_workers=args.workers,
        iterator_train__seed=1234,
    )
    net.initialize()
    if (args.folder / "history.json").exists():
        net.load_params(checkpoint=saving)
    net.partial_fit(Slices(), epochs=EPOCHS - len(net.history))
    print("weights", fingerprint(net.module_.state_dict()))


if __name__ == "__main__":
    main()
