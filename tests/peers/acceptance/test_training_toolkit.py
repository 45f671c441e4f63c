"""With the training toolkit a small 3-D U-Net on an MRI ends with the same weights, byte for byte.

The loop draws from every global generator: dropout from torch's, the weight of a step's loss from
NumPy's and Python's.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

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

STEPS = 8
BATCHES_PER_EPOCH = 4


class UNet(nn.Module):
    """A U-Net of two levels.

    It has instance normalisation, dropout, average pooling and trilinear up-sampling.
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


class Training:
    """A training that can be saved after any step.

    Args:
        num_processes: of the augmenter.
        seed: of everything.
    """

    def __init__(self, num_processes: int, seed: int = 11) -> None:
        # Before the generators are seeded: the library that reads the image draws from Python's
        # global generator when it is imported.
        loader = MRIPatchLoader([load_template()], batch_size=2, patch_size=(16, 16, 16))
        seed_everything(seed, workers=False)
        self.model = make_deterministic(UNet())
        self.loss = make_deterministic(nn.CrossEntropyLoss())
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.augmenter = DeterministicAugmenter(
            loader,
            Compose([Mirror((0, 1, 2)), RandomApply(GaussianNoise((0, 0.1)), 0.5)]),
            num_processes,
            seed=seed,
            batches_per_epoch=BATCHES_PER_EPOCH,
        )
        self.num_steps = 0

    def train(self, last_step: int) -> None:
        """Train until `last_step` steps have been done."""
        with self.augmenter:
            while self.num_steps < last_step:
                for batch in self.augmenter:
                    self._step(batch)
                    if self.num_steps == last_step:
                        break

    def _step(self, batch: dict[str, Any]) -> None:
        self.optimizer.zero_grad()
        scores = self.model(torch.as_tensor(batch["data"]))
        loss = self.loss(scores, torch.as_tensor(batch["seg"][:, 0]).long())
        weight = random.uniform(0.9, 1.1) * np.random.uniform(0.9, 1.1)
        (loss * weight).backward()
        self.optimizer.step()
        self.num_steps += 1

    def save(self, file: Path) -> None:
        """Save the state of everything."""
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "num_steps": self.num_steps,
            "rng": rng_state(),
            "data": self.augmenter.state_dict(),
        }
        torch.save(state, file)

    def load(self, file: Path) -> None:
        """Load what `save` has written."""
        state = torch.load(file, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.augmenter.load_state_dict(state["data"])
        set_rng_state(state["rng"])
        self.num_steps = state["num_steps"]


def weights(num_processes: int, seed: int = 11) -> str:
    """Return the fingerprint of the weights after a whole training."""
    with isolate_rng(), deterministic_mode(threads=1):
        training = Training(num_processes, seed)
        training.train(STEPS)
        return fingerprint(training.model.state_dict())


def weights_if_paused(step: int, processes_before: int, processes_after: int, file: Path) -> str:
    """Return the fingerprint of the weights after a training that is saved and resumed.

    Args:
        step: after which it is saved.
        processes_before: of the augmenter, until then.
        processes_after: of the augmenter, from then on.
        file: of the checkpoint.
    """
    with isolate_rng(), deterministic_mode(threads=1):
        paused = Training(processes_before)
        paused.train(step)
        paused.save(file)
        resumed = Training(processes_after)
        resumed.load(file)
        resumed.train(STEPS)
        return fingerprint(resumed.model.state_dict())


def test_weights_follow_from_the_seed_with_any_number_of_workers() -> None:
    expected = weights(0)
    assert weights(1) == expected
    assert weights(3) == expected
    assert weights(0, seed=12) != expected


SLOW_STEPS = [pytest.param(step, marks=pytest.mark.slow) for step in (2, 3, 4, 6, 7)]


@pytest.mark.parametrize("step", [1, 5, *SLOW_STEPS])
def test_a_run_that_is_resumed_at_any_step_ends_with_the_same_weights(
    step: int, tmp_path: Path
) -> None:
    paused = weights_if_paused(step, step % 3, (step + 1) % 3, tmp_path / "checkpoint.pt")
    assert paused == weights(0)
