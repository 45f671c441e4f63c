"""A training loop of one's own on real MRI, stopped in mid-epoch and resumed from a checkpoint.

The resumed run ends with the same weights, bit for bit, as the run that was never stopped.
"""

from __future__ import annotations

import io
from collections.abc import Iterator

import torch
from torch import nn

from detaug import DeterministicAugmenter, fingerprint
from detaug.demo import MRIPatchLoader, load_template, training_transforms
from detaug.demo.loader import enlarged

PATCH = (24, 24, 24)
EPOCHS = 2
BATCHES_PER_EPOCH = 8
#: Number of batches in the first epoch after which the run stops.
STOP_AFTER = 5


class Training:
    """The state of a training: network, optimizer, and position in the data."""

    def __init__(self, num_processes: int) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(
            nn.Conv3d(1, 8, 3, padding=1), nn.LeakyReLU(), nn.Conv3d(8, 3, 1)
        )
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9)
        self.augmenter = DeterministicAugmenter(
            MRIPatchLoader([load_template()], batch_size=2, patch_size=enlarged(PATCH)),
            training_transforms(PATCH),
            num_processes,
            seed=1234,
            batches_per_epoch=BATCHES_PER_EPOCH,
        )

    def steps(self) -> Iterator[str]:
        """Train to the end. After each step, yield the fingerprint of its batch."""
        for epoch in range(self.augmenter.epoch, EPOCHS):
            # In a resumed epoch this keeps the position.
            self.augmenter.set_epoch(epoch)
            for batch in self.augmenter:
                self.optimizer.zero_grad()
                images = torch.from_numpy(batch["data"])
                labels = torch.from_numpy(batch["seg"][:, 0]).long()
                loss = nn.functional.cross_entropy(self.network(images), labels)
                loss.backward()
                self.optimizer.step()
                yield fingerprint(batch)

    def checkpoint(self) -> bytes:
        """Return the state as the bytes of a checkpoint file."""
        file = io.BytesIO()
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "augmenter": self.augmenter.state_dict(),
        }
        torch.save(state, file)
        return file.getvalue()

    def resume(self, checkpoint: bytes) -> None:
        """Load the state of a checkpoint."""
        state = torch.load(io.BytesIO(checkpoint))
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.augmenter.load_state_dict(state["augmenter"])

    def weights(self) -> str:
        """Return a fingerprint of the network's weights."""
        return fingerprint(self.network.state_dict())


def main() -> None:
    torch.use_deterministic_algorithms(True)

    uninterrupted = Training(num_processes=2)
    with uninterrupted.augmenter:
        expected = list(uninterrupted.steps())

    stopped = Training(num_processes=2)
    with stopped.augmenter:
        steps = stopped.steps()
        seen = [next(steps) for _ in range(STOP_AFTER)]
        checkpoint = stopped.checkpoint()
    print(f"stopped after {STOP_AFTER} of {BATCHES_PER_EPOCH} batches of epoch 0")

    # The number of processes may change.
    resumed = Training(num_processes=1)
    resumed.resume(checkpoint)
    print(f"resumed at epoch {resumed.augmenter.epoch}, step {resumed.augmenter.step}")
    with resumed.augmenter:
        rest = list(resumed.steps())

    print(f"uninterrupted: {len(expected)} batches, weights {uninterrupted.weights()}")
    print(f"resumed:       {len(seen)} + {len(rest)} batches, weights {resumed.weights()}")
    assert seen + rest == expected, "the resumed run saw other batches"
    assert resumed.weights() == uninterrupted.weights(), "the resumed run ended with other weights"
    print("same batches, same weights")


if __name__ == "__main__":
    main()
