"""How many cores and nodes make batches as fast as a GPU takes them: arithmetic on seconds that were measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil


@dataclass(frozen=True)
class Gpu:
    """How fast batches are taken.

    Attributes:
        name: of the GPU.
        step: seconds of a training step with a batch at hand.
        origin: where that number is from.
    """

    name: str
    step: float
    origin: str


#: NVIDIA's data sheets: memory bandwidth 2.04 TB/s (A100 80 GB SXM) and 3.35 TB/s (H100 SXM), dense float16 312 and 989 TFLOP/s.
BANDWIDTH, ARITHMETIC = 3.35 / 2.04, 989 / 312
_A100 = 0.131

#: Seconds of that user's CPU for a sample's transforms (batchgeneratorsv2's).
USERS_SAMPLE = 1.023

GPUS = (
    Gpu("A100", _A100, "measured by a user, 3d_fullres, batch 2 (nnU-Net #3063)"),
    Gpu(
        "H100, at least",
        _A100 / BANDWIDTH,
        f"assumed: A100's by memory bandwidth, {BANDWIDTH:.2f} times as fast",
    ),
    Gpu(
        "H100, at most",
        _A100 / ARITHMETIC,
        f"assumed: A100's by float16 arithmetic, {ARITHMETIC:.2f} times as fast",
    ),
)


@dataclass(frozen=True)
class Machines:
    """What batches are made on.

    Attributes:
        own_cores: of the GPU's node, for each of its GPUs.
        busy_cores: of them, for the training itself.
        node_cores: of a CPU node.
        slowdown: how much longer a batch takes there than where it was measured.
    """

    own_cores: int = 4
    busy_cores: int = 1
    node_cores: int = 16
    slowdown: float = 1.0


def cores(seconds: float, gpu: Gpu, machines: Machines) -> float:
    """Cores that keep one GPU busy, where a batch takes so many CPU seconds."""
    return seconds * machines.slowdown / gpu.step


def nodes(seconds: float, gpu: Gpu, machines: Machines, gpus: int = 1) -> int:
    """CPU nodes beside the own cores of a node with so many GPUs."""
    own = max(0, machines.own_cores - machines.busy_cores)
    missing = gpus * (cores(seconds, gpu, machines) - own)
    return max(0, ceil(missing / machines.node_cores - 1e-9))


def gigabytes_per_second(batch_bytes: float, gpu: Gpu, gpus: int = 1) -> float:
    """What arrives at the GPU's node if other nodes make every batch."""
    return gpus * batch_bytes / gpu.step / 1e9
