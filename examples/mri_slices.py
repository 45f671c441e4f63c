"""What the examples loop_*.py have in common: their arguments, a small network, and the line that
they print a step.

Their data set is that of torch_dataset.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn

EPOCHS = 3
BATCH_SIZE = 8


def arguments(about: str) -> argparse.Namespace:
    """Return ``folder``, of checkpoints (a training continues from the last one), and ``workers``,
    that make batches.
    """
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument(
        "folder", type=Path, help="of checkpoints; a training continues from the last one"
    )
    parser.add_argument("--workers", type=int, default=2, help="processes that make batches")
    parsed = parser.parse_args()
    parsed.folder.mkdir(parents=True, exist_ok=True)
    return parsed


def segmenter() -> nn.Module:
    """Return a network from images (N, 1, H, W) to scores (N, 3, H, W): background and two tissues."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))


def show(slices: Iterable[Any], loss: Any) -> None:
    """Print the line of a step: which slices were in the batch, and the loss."""
    print(f"slices {' '.join(str(int(z)) for z in slices)}: loss {float(loss):.6f}", flush=True)
