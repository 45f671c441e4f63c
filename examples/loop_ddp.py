"""Plain DistributedDataParallel: two ranks are killed, and one continues to the same weights.

torchrun --nproc_per_node=2 loop_ddp.py FOLDER
(again, with 1 or 2 ranks: it continues from the last checkpoint)
"""

import os

import torch
import torch.distributed as dist
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler
from torch_dataset import AxialSlices

from detaug import DataLoader, fingerprint


def main() -> None:
    args = arguments(__doc__)
    dist.init_process_group("gloo")
    options = {"drop_last": True, "num_workers": args.workers, "seed": 1234}
    sampler = DistributedSampler(AxialSlices())
    loader = DataLoader(AxialSlices(), BATCH_SIZE, sampler=sampler, **options)
    network = DistributedDataParallel(segmenter())
    optimizer = torch.optim.AdamW(network.parameters())
    objects = {"network": network, "optimizer": optimizer, "loader": loader}
    file = args.folder / "checkpoint.pt"
    first_epoch, states = torch.load(file) if file.exists() else (0, {})
    for name, state in states.items():
        objects[name].load_state_dict(state)

    # Each step has two batches, over all ranks. The mean of their gradients does not depend on
    # which rank has which batch.
    batches_per_rank = 2 // dist.get_world_size()
    for epoch in range(first_epoch, EPOCHS):
        # Directly after load_state_dict, the loop gets the rest of the epoch.
        sampler.set_epoch(epoch)
        for count, batch in enumerate(loader, 1):
            loss = cross_entropy(network(batch["image"]), batch["labels"])
            (loss / batches_per_rank).backward()
            show(batch["slice"], loss)
            if count % batches_per_rank == 0:
                optimizer.step()
                optimizer.zero_grad()
                if dist.get_rank() == 0:
                    states = {name: item.state_dict() for name, item in objects.items()}
                    # A kill while the file is written leaves the checkpoint before.
                    torch.save((epoch, states), f"{file}.new")
                    os.replace(f"{file}.new", file)
    print("weights", fingerprint(network.module.state_dict()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
