"""Common parts of the examples loop_*.py: arguments, a small network, the line of each step.

Their data set is the one of torch_dataset.py.
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
    """Return the command line's arguments, ``folder`` and ``workers``.

    Args:
        about: the program's docstring; its first line is the help's description.
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
    """Return a network from images (N, 1, H, W) to scores (N, 3, H, W).

    The three classes are background and two tissues.
    """
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1))


def show(slices: Iterable[Any], loss: Any) -> None:
    """Print the line of a step: the slices of the batch, and the loss."""
    numbers = " ".join(str(int(z)) for z in slices)
    print(f"slices {numbers}: loss {float(loss):.6f}", flush=True)
