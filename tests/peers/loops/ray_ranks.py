"""What two ranks see of `detaug.DataLoader` in Ray Train: python -m tests.peers.loops.ray_ranks FILE.

Ray Train's local mode takes the ranks of torchrun; there is no cluster.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer, prepare_data_loader

from tests.support.numbers import loader, seen


def passes() -> list[Any]:
    """The batches of two epochs."""
    batches = prepare_data_loader(loader(shard=True))
    found = []
    for epoch in range(2):
        batches.sampler.set_epoch(epoch)
        found.append(seen(batches))
    return found


def refusal() -> str:
    """What is said of a loader to which Ray adds a DistributedSampler."""
    batches = prepare_data_loader(loader())
    try:
        next(iter(batches))
    except RuntimeError as error:
        return str(error)
    return ""


def main() -> None:
    def train() -> None:
        found = {"passes": passes(), "refusal": refusal()}
        Path(sys.argv[1]).write_text(json.dumps(found))

    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=0)).fit()


if __name__ == "__main__":
    main()
