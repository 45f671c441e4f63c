"""MONAI: a SupervisedTrainer, with CheckpointSaver in mid-epoch and CheckpointLoader.

python loop_monai.py FOLDER                (again: it goes on from the last checkpoint)
"""

from __future__ import annotations

from typing import Any

import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch import nn
from torch_dataset import AxialSlices

from detaug import DeterministicAugmenter, fingerprint

try:
    from ignite.engine import Events
    from monai.engines import SupervisedTrainer
    from monai.handlers import CheckpointLoader, CheckpointSaver, from_engine
except ImportError:
    raise SystemExit("this example needs MONAI with Ignite: pip install 'monai[ignite]'") from None


def image_and_labels(
    batch: dict[str, torch.Tensor], *_: Any, **__: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return batch["image"], batch["labels"]


def main() -> None:
    args = arguments(__doc__)
    loader = DeterministicAugmenter.from_dataset(
        AxialSlices(), BATCH_SIZE, drop_last=True, num_processes=args.workers, seed=1234
    ).loader()
    network = segmenter()
    optimizer = torch.optim.AdamW(network.parameters())
    trainer = SupervisedTrainer(
        device="cpu", max_epochs=EPOCHS, train_data_loader=loader, network=network, optimizer=optimizer,
        loss_function=nn.CrossEntropyLoss(), prepare_batch=image_and_labels,
    )  # fmt: skip

    @trainer.on(Events.ITERATION_COMPLETED)
    def _(engine: Any) -> None:
        loss = from_engine("loss", first=True)(engine.state.output)
        show(from_engine("slice")(engine.state.batch), float(loss))

    everything = {"network": network, "optimizer": optimizer, "trainer": trainer, "loader": loader}
    CheckpointSaver(
        str(args.folder), everything, save_interval=4, epoch_level=False, n_saved=2
    ).attach(trainer)
    saved = max(
        args.folder.glob("*.pt"), key=lambda path: int(path.stem.split("=")[1]), default=None
    )
    if saved:
        CheckpointLoader(str(saved), everything).attach(trainer)
    trainer.run()
    print("weights", fingerprint(network.state_dict()))


if __name__ == "__main__":
    main()
