"""Plain DistributedDataParallel: two ranks are killed, and one goes on with their batches and ends with their weights.

torchrun --nproc_per_node=2 loop_ddp.py FOLDER      (again, with 1 or 2: it goes on from the last checkpoint)
"""

from __future__ import annotations

import torch
import torch.distributed
from mri_slices import BATCH_SIZE, EPOCHS, arguments, segmenter, show
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch_dataset import AxialSlices

from detaug import DeterministicAugmenter, fingerprint

BATCHES_A_STEP = 2  # over all ranks: the mean of their gradients is the same, whoever made them


def main() -> None:
    args = arguments(__doc__)
    torch.distributed.init_process_group("gloo")
    loader = DeterministicAugmenter.from_torch_distributed(
        AxialSlices(), batch_size=BATCH_SIZE, drop_last=True, num_processes=args.workers, seed=1234
    ).loader()
    network, loss_function = DistributedDataParallel(segmenter()), nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(network.parameters())

    first_epoch, file = 0, args.folder / "checkpoint.pt"
    if file.exists():
        state = torch.load(file)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["loader"])
        first_epoch = state["epoch"]

    accumulated = BATCHES_A_STEP // torch.distributed.get_world_size()
    for epoch in range(first_epoch, EPOCHS):
        loader.set_epoch(epoch)  # the rest of it, directly after load_state_dict
        for number, batch in enumerate(loader, 1):
            loss = loss_function(network(batch["image"]), batch["labels"])
            (loss / accumulated).backward()
            show(batch["slice"], loss.item())
            if number % accumulated == 0:
                optimizer.step()
                optimizer.zero_grad()
                if torch.distributed.get_rank() == 0:
                    everything = {"network": network, "optimizer": optimizer, "loader": loader}
                    state = {name: each.state_dict() for name, each in everything.items()}
                    torch.save({**state, "epoch": epoch}, file.with_suffix(".new"))
                    file.with_suffix(".new").replace(file)
    print("weights", fingerprint(network.module.state_dict()))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
