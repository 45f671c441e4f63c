"""Every deterministic replacement against PyTorch's original, on the patches that a 3-D segmentation network sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.report import Row, ratio_check
from benchmarks.transforms.timing import Prepare, Settings, alternating
from detaug.bench.measuring import Ratio

#: (the module that has the functions) -> a function of the tensor that is differentiated.
Choose = Callable[[Any], Callable[[Any], Any]]


@dataclass(frozen=True)
class Case:
    """One operation.

    Attributes:
        title: with the arguments.
        shape: of the tensor that is differentiated, float32.
        choose: picks the function from `torch.nn.functional`, or from `detaug.training.layers.functions`.
        bound: the most that the replacement may take on a CPU, as a multiple of the original; None: only shown.
    """

    title: str
    shape: tuple[int, ...]
    choose: Choose
    bound: float | None = None


def _cross_entropy(**keywords: Any) -> Choose:
    def choose(library: Any) -> Callable[[Any], Any]:
        targets: dict[Any, Any] = {}

        def loss(logits: Any) -> Any:
            import torch

            if logits.device not in targets:
                random = torch.Generator().manual_seed(1)
                shape = (logits.shape[0], *logits.shape[2:])
                targets[logits.device] = torch.randint(
                    0, logits.shape[1], shape, generator=random
                ).to(logits.device)
            return library.cross_entropy(logits, targets[logits.device], **keywords)

        return loss

    return choose


CASES: dict[str, Case] = {
    "cross-entropy": Case("cross-entropy, 3 classes", (2, 3, 96, 96, 96), _cross_entropy(), 1.5),
    "cross-entropy-14": Case(
        "cross-entropy, 14 classes", (2, 14, 64, 64, 64), _cross_entropy(), 1.5
    ),
    "cross-entropy-smooth": Case(
        "cross-entropy, label smoothing 0.1",
        (2, 3, 96, 96, 96),
        _cross_entropy(label_smoothing=0.1),
    ),
    "average-pooling": Case(
        "average pooling, 2", (2, 32, 64, 64, 64), lambda f: lambda x: f.avg_pool3d(x, 2), 1.5
    ),
    "average-pooling-3": Case(
        "average pooling, kernel 3, stride 2, padding 1",
        (2, 32, 64, 64, 64),
        lambda f: lambda x: f.avg_pool3d(x, 3, 2, 1),
    ),
    "trilinear": Case(
        "trilinear, scale 2",
        (2, 32, 32, 32, 32),
        lambda f: lambda x: f.interpolate(x, scale_factor=2, mode="trilinear"),
        1.5,
    ),
    "trilinear-aligned": Case(
        "trilinear, 32 to 50, aligned corners",
        (2, 32, 32, 32, 32),
        lambda f: lambda x: f.interpolate(x, size=50, mode="trilinear", align_corners=True),
        1.5,
    ),
    "bilinear": Case(
        "bilinear, scale 2",
        (2, 32, 128, 128),
        lambda f: lambda x: f.interpolate(x, scale_factor=2, mode="bilinear"),
        1.5,
    ),
}


def measure(name: str, device: str, settings: Settings) -> Row:
    """Milliseconds for forward and backward on one thread, or on the CUDA device."""
    import torch
    from torch.nn import functional

    from detaug.training.layers import functions

    torch.set_num_threads(1)
    case = CASES[name]
    tensor = torch.randn(case.shape, generator=torch.Generator().manual_seed(0)).to(device)
    systems = {
        "detaug": _forward_and_backward(case.choose(functions), tensor),
        "PyTorch": _forward_and_backward(case.choose(functional), tensor),
    }
    seconds = alternating(systems, settings)
    # On a GPU the original is another thing, an addition in any order: its price is shown, not judged.
    bound = case.bound if device == "cpu" else None
    ratio = Ratio.of(_block_medians(seconds["detaug"]), _block_medians(seconds["PyTorch"]))
    return Row(
        name=f"{case.title}, {device}",
        unit="ms",
        ours=1e3 * median(seconds["detaug"]),
        checks=[ratio_check("PyTorch", 1e3 * median(seconds["PyTorch"]), ratio, "<=", bound)],
        repeats=len(seconds["detaug"]),
        settings={"shape": case.shape, "device": device, "threads": 1},
        details={"seconds": seconds},
    )


def _forward_and_backward(function: Callable[[Any], Any], tensor: Any) -> Prepare:
    import torch

    leaf = tensor.clone().requires_grad_()
    cotangent = torch.ones_like(function(leaf))

    def prepare(_: int) -> Callable[[], object]:
        leaf.grad = None
        _wait(leaf)

        def run() -> object:
            function(leaf).backward(cotangent)
            _wait(leaf)
            return leaf.grad

        return run

    return prepare


def _wait(tensor: Any) -> None:
    import torch

    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def _block_medians(values: list[float], blocks: int = 5) -> list[float]:
    return [median(values[first::blocks]) for first in range(min(blocks, len(values)))]
