"""Ignite: an Engine, its `Checkpoint` handler within an epoch, and `load_objects`.

python loop_ignite.py FOLDER               (again: it continues from the last checkpoint)
"""

import torch
from ignite.engine import Engine, Events
from ignite.handlers import Checkpoint, DiskSaver
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch.nn.functional import cross_entropy
from torch_dataset import AxialSlices

from detaug import DataLoader, fingerprint


def main() -> None:
    args = arguments(__doc__)
    loader = DataLoader(
        AxialSlices(), BATCH_SIZE, shuffle=True, drop_last=True, num_workers=args.workers, seed=1234
    )
    network = segmenter()
    optimizer = torch.optim.AdamW(network.parameters())

    def train_step(_: Engine, batch: dict[str, torch.Tensor]) -> None:
        optimizer.zero_grad()
        loss = cross_entropy(network(batch["image"]), batch["labels"])
        loss.backward()
        optimizer.step()
        show(batch["slice"], loss)

    trainer = Engine(train_step)
    objects = {"network": network, "optimizer": optimizer, "trainer": trainer, "loader": loader}
    saving = Checkpoint(objects, DiskSaver(args.folder, require_empty=False), n_saved=2)
    trainer.add_event_handler(Events.ITERATION_COMPLETED(every=4), saving)

    checkpoints = list(args.folder.glob("checkpoint_*.pt"))
    if checkpoints:
        latest = max(checkpoints, key=lambda path: path.stat().st_mtime_ns)
        Checkpoint.load_objects(objects, checkpoint=latest)
    trainer.run(loader, max_epochs=EPOCHS)
    print("weights", fingerprint(network.state_dict()))


if __name__ == "__main__":
    main()
