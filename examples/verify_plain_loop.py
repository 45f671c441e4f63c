"""Is a training loop reproducible, and does it go on from a checkpoint as if it had not been interrupted?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from detaug import DeterministicAugmenter, current, seed_everything
from detaug.training import compare_trainings, make_deterministic, rng_state, set_rng_state


class NoisyImages:
    """A loader of one's own: each batch is drawn from the Generator that belongs to it."""

    def __next__(self) -> dict[str, np.ndarray]:
        images = current().generator.standard_normal((2, 1, 8, 8, 8), dtype=np.float32)
        return {"data": images, "seg": (images > 0.5)[:, 0].astype(np.int64)}

    def __iter__(self) -> NoisyImages:
        return self


class Training:
    """What `compare_trainings` needs of a loop: a model, `train`, `save` and `load`."""

    def __init__(self) -> None:
        seed = seed_everything(1234, deterministic=True, threads=1)
        layers = (
            nn.Conv3d(1, 4, 3, padding=1),
            nn.AvgPool3d(2),
            nn.Dropout3d(0.2),
            nn.Upsample(None, 2, "trilinear"),
        )
        self.model = make_deterministic(nn.Sequential(*layers, nn.Conv3d(4, 2, 1)))
        self.loss = make_deterministic(nn.CrossEntropyLoss())
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.batches = DeterministicAugmenter(NoisyImages(), None, 0, seed=seed)
        self.done = 0

    def train(self, steps: int) -> None:
        """Until `steps` steps have been made since the beginning, a resumed training's earlier ones among them."""
        while self.done < steps:
            batch = next(self.batches)
            self.optimizer.zero_grad()
            loss = self.loss(
                self.model(torch.as_tensor(batch["data"])), torch.as_tensor(batch["seg"])
            )
            loss.backward()
            self.optimizer.step()
            self.done += 1

    def save(self, file: Path) -> None:
        state = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "done": self.done,
        }
        torch.save({**state, "data": self.batches.state_dict(), "rng": rng_state()}, file)

    def load(self, file: Path) -> None:
        state = torch.load(file, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.batches.load_state_dict(state["data"])
        set_rng_state(state["rng"])
        self.done = state["done"]


class Forgetful(Training):
    """The same without the random state: dropout then draws other numbers after a resume."""

    def load(self, file: Path) -> None:
        super().load(file)
        torch.manual_seed(0)


def main() -> None:
    print(compare_trainings(Forgetful, steps=6))
    print()
    report = compare_trainings(Training, steps=6)
    print(report)
    assert report
    print("the loop is reproducible and resumes exactly")


if __name__ == "__main__":
    main()
