"""A small 3-D U-Net trained on real MRI with the training toolkit, stoppable and resumable at any step.

The loop draws from every global generator: dropout from torch's, the weight of a step's loss from NumPy's and Python's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from detaug import DeterministicAugmenter, fingerprint
from detaug.demo import MRIPatchLoader, load_template
from detaug.training import deterministic_mode, make_deterministic, rng_state, seed_everything, set_rng_state
from detaug.transforms import Compose, GaussianNoise, Mirror, RandomApply

PATCH = (16, 16, 16)
BATCHES_PER_EPOCH = 4
EPOCHS = 2
STEPS = EPOCHS * BATCHES_PER_EPOCH


class UNet(nn.Module):
    """Two levels, instance normalisation, dropout, trilinear up-sampling, average pooling on the way down."""

    def __init__(self, channels: int = 4, classes: int = 3) -> None:
        super().__init__()
        self.encoder = self._block(1, channels)
        self.down = nn.AvgPool3d(2)
        self.bottom = self._block(channels, 2 * channels)
        self.up = nn.Upsample(scale_factor=2, mode="trilinear")
        self.decoder = self._block(3 * channels, channels)
        self.head = nn.Conv3d(channels, classes, 1)

    @staticmethod
    def _block(inputs: int, outputs: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv3d(inputs, outputs, 3, padding=1),
            nn.InstanceNorm3d(outputs, affine=True),
            nn.LeakyReLU(),
            nn.Dropout3d(0.2),
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = self.encoder(image)
        coarse = self.up(self.bottom(self.down(fine)))
        return self.head(self.decoder(torch.cat([fine, coarse], dim=1)))


def pipeline() -> Compose:
    return Compose([Mirror((0, 1, 2)), RandomApply(GaussianNoise((0, 0.1)), 0.5)])


class Training:
    """A run: network, optimizer and place in the data."""

    def __init__(self, num_processes: int, seed: int = 11) -> None:
        # Before the seeds: importing what reads the images draws from Python's global generator, the first time.
        cases = [load_template()]
        seed_everything(seed, workers=False)
        self.network: nn.Module = UNet()
        make_deterministic(self.network)
        self.loss = make_deterministic(torch.nn.CrossEntropyLoss())
        self.optimizer = torch.optim.SGD(self.network.parameters(), lr=0.05, momentum=0.9)
        self.augmenter = DeterministicAugmenter(
            MRIPatchLoader(cases, batch_size=2, patch_size=PATCH),
            pipeline(),
            num_processes,
            seed=seed,
            batches_per_epoch=BATCHES_PER_EPOCH,
        )

    def steps(self) -> Iterator[float]:
        """Train to the end; the loss after each step."""
        for epoch in range(self.augmenter.epoch, EPOCHS):
            self.augmenter.set_epoch(epoch)
            for batch in self.augmenter:
                yield self.step(batch)

    def step(self, batch: dict[str, Any]) -> float:
        self.optimizer.zero_grad()
        scores = self.network(torch.as_tensor(batch["data"]))
        loss = self.loss(scores, torch.as_tensor(batch["seg"][:, 0]).long())
        (loss * random.uniform(0.9, 1.1) * np.random.uniform(0.9, 1.1)).backward()
        self.optimizer.step()
        return float(loss.detach())

    def save(self, file: Path) -> None:
        state = {
            "network": self.network.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "rng": rng_state(),
            "data": self.augmenter.state_dict(),
        }
        torch.save(state, file)

    def resume(self, file: Path) -> None:
        state = torch.load(file, weights_only=True)
        self.network.load_state_dict(state["network"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.augmenter.load_state_dict(state["data"])
        set_rng_state(state["rng"])

    def weights(self) -> str:
        return fingerprint(self.network.state_dict())


def train(num_processes: int, seed: int = 11) -> tuple[str, list[float]]:
    """A whole run: the fingerprint of its weights, and its losses."""
    with deterministic_mode():
        training = Training(num_processes, seed)
        with training.augmenter:
            losses = list(training.steps())
        return training.weights(), losses


def train_until(step: int, file: Path, num_processes: int) -> None:
    """A run that saves a checkpoint after `step` steps and ends there."""
    with deterministic_mode():
        training = Training(num_processes)
        with training.augmenter:
            steps = training.steps()
            for _ in range(step):
                next(steps)
            training.save(file)


def train_on(file: Path, num_processes: int) -> str:
    """From a checkpoint to the end: the fingerprint of the weights."""
    with deterministic_mode():
        training = Training(num_processes)
        training.resume(file)
        with training.augmenter:
            for _ in training.steps():
                pass
        return training.weights()
