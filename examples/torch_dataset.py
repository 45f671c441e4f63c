"""A map-style torch Dataset of MRI slices, shuffled and batched by `DeterministicAugmenter.from_dataset`.

The augmentation draws from `detaug.current().generator`: a Generator of that very sample, in whatever process.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import Dataset

from detaug import DeterministicAugmenter, current, fingerprint
from detaug.demo import load_template

BATCH_SIZE = 8
EPOCHS = 2


class AxialSlices(Dataset[dict[str, torch.Tensor]]):
    """Every other axial slice through the middle of the brain, with its tissue labels.

    Each item is ``{'image': (1, H, W) float32, 'labels': (H, W) int64, 'slice': which one}``.
    """

    def __init__(self) -> None:
        self.head = load_template()
        self.slices = range(20, 130, 2)

    def __len__(self) -> int:
        return len(self.slices)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        z = self.slices[index]
        image, labels = self.head.image[..., z], self.head.labels[..., z]
        generator = current().generator
        for axis in (0, 1):
            if generator.random() < 0.5:
                image, labels = np.flip(image, axis), np.flip(labels, axis)
        image = image + generator.normal(0, 0.1, image.shape).astype(np.float32)
        return {
            "image": torch.from_numpy(image[None]),
            "labels": torch.from_numpy(labels.astype(np.int64)),
            "slice": torch.tensor(z),
        }


def epochs(num_processes: int) -> list[list[str]]:
    """Fingerprints of all batches of each epoch."""
    augmenter = DeterministicAugmenter.from_dataset(
        AxialSlices(),
        BATCH_SIZE,
        shuffle=True,
        drop_last=False,
        num_processes=num_processes,
        seed=1234,
    )
    prints = []
    with augmenter:
        for epoch in range(EPOCHS):
            augmenter.set_epoch(epoch)
            batches = list(augmenter)
            prints.append([fingerprint(batch) for batch in batches])
            order = torch.cat([batch["slice"] for batch in batches]).tolist()
            assert sorted(order) == list(AxialSlices().slices), "an epoch shows every slice once"
            print(
                f"{num_processes} processes, epoch {epoch}: {len(batches)} batches, "
                f"images {tuple(batches[0]['image'].shape)}, first slices {order[:5]}"
            )
    return prints


def main() -> None:
    in_process, with_two = epochs(0), epochs(2)
    assert in_process == with_two, "the number of processes changed a batch"
    assert in_process[0] != in_process[1], "two epochs were shuffled alike"
    print(
        "same batches with 0 and with 2 processes; another order and other augmentation in each epoch"
    )


if __name__ == "__main__":
    main()
