"""`detaug.DataLoader` in Ray Train on two ranks.

python -m tests.peers.loops.ray_ranks FILE writes what this rank saw. Ray Train's local mode uses
torchrun's ranks; there is no cluster.
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
    """Return the batches of two epochs."""
    batches = prepare_data_loader(loader(shard=True))
    epochs = []
    for epoch in range(2):
        batches.sampler.set_epoch(epoch)
        epochs.append(seen(batches))
    return epochs


def refusal() -> str:
    """Return the error of a loader to which Ray adds a DistributedSampler, or ""."""
    batches = prepare_data_loader(loader())
    try:
        next(iter(batches))
    except RuntimeError as error:
        return str(error)
    return ""


def train() -> None:
    """Write what this rank saw."""
    results = {"passes": passes(), "refusal": refusal()}
    Path(sys.argv[1]).write_text(json.dumps(results))


def main() -> None:
    """Run the training function as Ray Train does without a cluster."""
    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=0)).fit()


if __name__ == "__main__":
    main()
