"""Accelerate: `prepare`, `save_state` within an epoch, `load_state` with `skip_first_batches`.

python loop_accelerate.py FOLDER           (again: it continues from the last checkpoint)
torchrun --nproc_per_node=2 loop_accelerate.py FOLDER
"""

import torch
from accelerate import Accelerator
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch.nn.functional import cross_entropy
from torch_dataset import AxialSlices

from detaug import DataLoader, fingerprint


def main() -> None:
    args = arguments(__doc__)
    accelerator = Accelerator(cpu=True)
    loader = DataLoader(
        AxialSlices(), BATCH_SIZE, shuffle=True, drop_last=True, num_workers=args.workers, seed=1234
    )
    network = segmenter()
    optimizer = torch.optim.AdamW(network.parameters())
    network, optimizer, loader = accelerator.prepare(network, optimizer, loader)

    saved = [int(path.name.removeprefix("step_")) for path in args.folder.glob("step_*")]
    step = max(saved, default=0)
    if step:
        accelerator.load_state(args.folder / f"step_{step}")
    first_epoch, num_to_skip = divmod(step, len(loader))
    for epoch in range(first_epoch, EPOCHS):
        loader.set_epoch(epoch)
        batches = loader
        if epoch == first_epoch:
            batches = accelerator.skip_first_batches(loader, num_to_skip)
        for batch in batches:
            loss = cross_entropy(network(batch["image"]), batch["labels"])
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            show(batch["slice"], loss)
            step += 1
            if step % 4 == 0:
                accelerator.save_state(args.folder / f"step_{step}")
    print("weights", fingerprint(accelerator.unwrap_model(network).state_dict()))
    accelerator.end_training()


if __name__ == "__main__":
    main()
