"""MONAI: a SupervisedTrainer, with CheckpointSaver within an epoch and CheckpointLoader.

python loop_monai.py FOLDER                (again: it continues from the last checkpoint)
"""

from typing import Any

import torch
from ignite.engine import Events
from monai.engines import SupervisedTrainer
from monai.handlers import CheckpointLoader, CheckpointSaver, from_engine
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch_dataset import AxialSlices

from detaug import DataLoader, fingerprint


def image_and_labels(batch: dict[str, torch.Tensor], *_: Any, **__: Any) -> Any:
    return batch["image"], batch["labels"]


def show_step(engine: Any) -> None:
    loss = from_engine("loss", first=True)(engine.state.output)
    show(from_engine("slice")(engine.state.batch), loss)


def main() -> None:
    args = arguments(__doc__)
    loader = DataLoader(
        AxialSlices(), BATCH_SIZE, shuffle=True, drop_last=True, num_workers=args.workers, seed=1234
    )
    network = segmenter()
    optimizer = torch.optim.AdamW(network.parameters())
    trainer = SupervisedTrainer(
        device="cpu",
        max_epochs=EPOCHS,
        train_data_loader=loader,
        network=network,
        optimizer=optimizer,
        loss_function=torch.nn.CrossEntropyLoss(),
        prepare_batch=image_and_labels,
    )
    trainer.add_event_handler(Events.ITERATION_COMPLETED, show_step)
    objects = {"network": network, "optimizer": optimizer, "trainer": trainer, "loader": loader}
    folder = str(args.folder)
    CheckpointSaver(folder, objects, save_interval=4, epoch_level=False).attach(trainer)
    checkpoints = sorted(args.folder.glob("*.pt"), key=lambda path: path.stat().st_mtime_ns)
    if checkpoints:
        CheckpointLoader(str(checkpoints[-1]), objects).attach(trainer)
    trainer.run()
    print("weights", fingerprint(network.state_dict()))


if __name__ == "__main__":
    main()
