"""The training toolkit in a real training: a small 3-D U-Net on an MRI ends with the same weights,
byte for byte.

The loop draws from every global generator: dropout from torch's, the weight of a step's loss from
NumPy's and Python's.
"""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from detaug import DeterministicAugmenter, fingerprint
from detaug.demo import MRIPatchLoader, load_template
from detaug.training import (
    deterministic_mode,
    isolate_rng,
    make_deterministic,
    rng_state,
    seed_everything,
    set_rng_state,
)
from detaug.transforms import Compose, GaussianNoise, Mirror, RandomApply

STEPS, BATCHES_PER_EPOCH = 8, 4


class UNet(nn.Module):
    """Two levels, instance normalisation, dropout, trilinear up-sampling, average pooling on the
    way down.
    """

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
        norm, dropout = nn.InstanceNorm3d(outputs, affine=True), nn.Dropout3d(0.2)
        return nn.Sequential(
            nn.Conv3d(inputs, outputs, 3, padding=1), norm, nn.LeakyReLU(), dropout
        )

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        fine = self.encoder(image)
        coarse = self.up(self.bottom(self.down(fine)))
        return self.head(self.decoder(torch.cat([fine, coarse], dim=1)))


class Training:
    def __init__(self, num_processes: int, seed: int = 11) -> None:
        # Before the seeds: importing what reads the images draws from Python's global generator,
        # the first time.
        loader = MRIPatchLoader([load_template()], batch_size=2, patch_size=(16, 16, 16))
        seed_everything(seed, workers=False)
        self.model, self.loss = (
            make_deterministic(UNet()),
            make_deterministic(nn.CrossEntropyLoss()),
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        transform = Compose([Mirror((0, 1, 2)), RandomApply(GaussianNoise((0, 0.1)), 0.5)])
        options = {"seed": seed, "batches_per_epoch": BATCHES_PER_EPOCH}
        self.augmenter = DeterministicAugmenter(loader, transform, num_processes, **options)
        self.done = 0

    def train(self, steps: int) -> None:
        with self.augmenter:
            while self.done < steps:
                for batch in self.augmenter:
                    self.optimizer.zero_grad()
                    scores = self.model(torch.as_tensor(batch["data"]))
                    loss = self.loss(scores, torch.as_tensor(batch["seg"][:, 0]).long())
                    (loss * random.uniform(0.9, 1.1) * np.random.uniform(0.9, 1.1)).backward()
                    self.optimizer.step()
                    self.done += 1
                    if self.done == steps:
                        break

    def save(self, file: Path) -> None:
        parts = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
        }
        torch.save({**parts, "rng": rng_state(), "data": self.augmenter.state_dict()}, file)

    def load(self, file: Path) -> None:
        state = torch.load(file, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.augmenter.load_state_dict(state["data"])
        set_rng_state(state["rng"])
        self.done = state["done"]


def weights(num_processes: int, seed: int = 11) -> str:
    with isolate_rng(), deterministic_mode(threads=1):
        training = Training(num_processes, seed)
        training.train(STEPS)
        return fingerprint(training.model.state_dict())


def weights_if_paused(step: int, processes_before: int, processes_after: int, file: Path) -> str:
    """Return the fingerprint of a run that is saved after `step` steps and goes on in another."""
    with isolate_rng(), deterministic_mode(threads=1):
        paused = Training(processes_before)
        paused.train(step)
        paused.save(file)
        resumed = Training(processes_after)
        resumed.load(file)
        resumed.train(STEPS)
        return fingerprint(resumed.model.state_dict())


def test_the_same_seed_gives_the_same_weights_with_any_number_of_workers_and_another_seed_others() -> (
    None
):
    expected = weights(0)
    assert [weights(1), weights(3)] == [expected] * 2
    assert weights(0, seed=12) != expected


@pytest.mark.parametrize(
    "step",
    [
        each if each in (1, 5) else pytest.param(each, marks=pytest.mark.slow)
        for each in range(1, STEPS)
    ],
)
def test_a_run_paused_at_any_step_goes_on_as_if_it_had_not_been_with_other_numbers_of_workers(
    step: int, tmp_path: Path
) -> None:
    paused = weights_if_paused(step, step % 3, (step + 1) % 3, tmp_path / "checkpoint.pt")
    assert paused == weights(0)
