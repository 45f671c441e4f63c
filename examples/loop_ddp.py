"""Plain DistributedDataParallel: two ranks are killed, and one goes on with their batches and ends
with their weights.

torchrun --nproc_per_node=2 loop_ddp.py FOLDER      (again, with 1 or 2: it continues from the last
checkpoint)
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

    # Two batches a step over all ranks: the mean of their gradients is the same, whoever made them.
    accumulated = 2 // dist.get_world_size()
    for epoch in range(first_epoch, EPOCHS):
        sampler.set_epoch(epoch)  # the rest of it, directly after load_state_dict
        for number, batch in enumerate(loader, 1):
            loss = cross_entropy(network(batch["image"]), batch["labels"])
            (loss / accumulated).backward()
            show(batch["slice"], loss)
            if number % accumulated == 0:
                optimizer.step()
                optimizer.zero_grad()
                if dist.get_rank() == 0:
                    states = {name: each.state_dict() for name, each in objects.items()}
                    torch.save((epoch, states), f"{file}.new")
                    os.replace(f"{file}.new", file)
    print("weights", fingerprint(network.module.state_dict()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
