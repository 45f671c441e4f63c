"""Ignite: an Engine, its `Checkpoint` handler in mid-epoch, and `load_objects`.

python loop_ignite.py FOLDER               (again: it goes on from the last checkpoint)
"""

from __future__ import annotations

import torch
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch import nn
from torch_dataset import AxialSlices

from detaug import DeterministicAugmenter, fingerprint

try:
    from ignite.engine import Engine, Events
    from ignite.handlers import Checkpoint, DiskSaver
except ImportError:
    raise SystemExit("this example needs Ignite: pip install pytorch-ignite") from None


def main() -> None:
    args = arguments(__doc__)
    loader = DeterministicAugmenter.from_dataset(
        AxialSlices(), BATCH_SIZE, drop_last=True, num_processes=args.workers, seed=1234
    ).loader()
    network, loss_function = segmenter(), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(network.parameters())

    def train_step(_: Engine, batch: dict[str, torch.Tensor]) -> float:
        optimizer.zero_grad()
        loss = loss_function(network(batch["image"]), batch["labels"])
        loss.backward()
        optimizer.step()
        show(batch["slice"], loss.item())
        return loss.item()

    trainer = Engine(train_step)
    everything = {"network": network, "optimizer": optimizer, "trainer": trainer, "loader": loader}
    saving = Checkpoint(everything, DiskSaver(args.folder, require_empty=False), n_saved=2)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=4), saving)

    saved = max(
        args.folder.glob("checkpoint_*.pt"),
        key=lambda path: int(path.stem.split("_")[1]),
        default=None,
    )
    if saved:
        Checkpoint.load_objects(everything, checkpoint=saved)
    trainer.run(loader, max_epochs=EPOCHS)
    print("weights", fingerprint(network.state_dict()))


if __name__ == "__main__":
    main()
