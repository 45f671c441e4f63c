"""A map-style torch Dataset of MRI slices, read by `detaug.DataLoader` as by torch's.

The augmentation draws from `detaug.current().generator`, the sample's own Generator in any process.
"""

from __future__ import annotations

import numpy as np
import torch
from torch.utils.data import Dataset

from detaug import DataLoader, current, fingerprint
from detaug.demo import load_template


class AxialSlices(Dataset[dict[str, torch.Tensor]]):
    """Every other axial slice through the middle of the brain, with its tissue labels.

    Each item is ``{'image': (1, H, W) float32, 'labels': (H, W) int64, 'slice': index}``.
    """

    def __init__(self) -> None:
        self.head = load_template()
        self.slices = range(20, 130, 2)

    def __len__(self) -> int:
        return len(self.slices)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        z = self.slices[index]
        image = self.head.image[..., z]
        labels = self.head.labels[..., z]
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


def main() -> None:
    in_this_process = DataLoader(AxialSlices(), batch_size=8, shuffle=True, seed=1234)
    with_workers = DataLoader(AxialSlices(), batch_size=8, shuffle=True, seed=1234, num_workers=2)
    orders = []
    for _ in range(2):
        batches = list(with_workers)
        expected = [fingerprint(batch) for batch in in_this_process]
        assert [fingerprint(batch) for batch in batches] == expected
        orders.append(torch.cat([batch["slice"] for batch in batches]).tolist())
        assert sorted(orders[-1]) == list(AxialSlices().slices), "an epoch shows every slice once"
    assert orders[0] != orders[1], "two epochs were shuffled alike"
    print("same batches with 0 and with 2 workers; another order in each epoch")


if __name__ == "__main__":
    main()
