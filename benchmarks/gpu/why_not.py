"""Part: why are two trainings not equal, and what does it cost that they are?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch.nn import functional

from benchmarks.gpu.bench import Bench, Child, Finding
from benchmarks.gpu.trainers import (
    DEFAULT_3D,
    DETERMINISTIC,
    SMALL_3D,
    STOCK,
    TINY_3D,
    Plan,
    dataset_of,
    make_trainer,
    random_batch,
    synchronise,
)
from detaug.tools.bench.timing import consume
from detaug.training import audit
from detaug.training.layers import functions

#: Steps that are timed, after a few that choose algorithms and fill memory pools; then those of a
#: CPU, where a step of a network takes long.
LENGTH = {"warm_up": 5, "least": 20}
CPUS_LENGTH = {"warm_up": 1, "least": 2}

#: Of a gradient in float32 against one in float64, relative to the largest.
MOST_ERROR = 1e-5


def run(bench: Bench) -> Iterator[Finding]:
    """Audit nnU-Net's network and loss, try each layer swap, and time the switches."""
    small = TINY_3D
    default = TINY_3D
    if bench.device == "cuda":
        small = SMALL_3D
        # Its batches are random: the cases are never read, and may be small.
        default = replace(DEFAULT_3D, case_shape=SMALL_3D.case_shape)
    yield from Child(bench, "layers", _swap_all, bench.device).findings()
    root = dataset_of(bench, small)
    name = "audit of nnU-Net's network and loss"
    yield from Child(bench, name, _audit, name, bench.device, root, small).findings()
    root = dataset_of(bench, default)
    for trainer in (STOCK, DETERMINISTIC):
        name = f"a step of {trainer}, {default.patch}, batch {default.batch_size}"
        child = Child(bench, trainer, _time_steps, name, bench.device, root, default, trainer)
        yield from child.findings()


# --- nnU-Net's step -------------------------------------------------------------------------------


def _audit(name: str, device: str, root: Path, plan: Plan) -> Iterator[Finding]:
    """Yield what `audit` says of one step of nnU-Net's own network and loss.

    nnU-Net's PR #2871 saw trainings differ from the second batch on, which is after the first
    backward pass: the audit names the operation.
    """
    trainer = make_trainer(STOCK, root, plan, device)
    batch = random_batch(trainer, plan)
    report = audit(trainer.network, trainer.loss, (batch["data"], batch["target"]), device)
    values = {"difference": report.difference, "operations": report.operations}
    yield Finding(name, str(report), values)


def _time_steps(name: str, device: str, root: Path, plan: Plan, kind: str) -> Iterator[Finding]:
    """Yield the milliseconds of a whole training step with a batch at hand.

    Deterministic trains with the deterministic switches, nnU-Net's own trainer without.
    """
    torch.backends.cudnn.benchmark = True
    trainer = make_trainer(kind, root, plan, device)
    # detaug's trainers set their switches at an epoch's start.
    trainer.on_train_epoch_start()
    batches = repeat(random_batch(trainer, plan))
    length = LENGTH if device == "cuda" else CPUS_LENGTH
    milliseconds = _milliseconds(batches, trainer.train_step, device, length)
    yield Finding(name, f"{milliseconds:.1f} ms", {"trainer": kind, "ms": milliseconds})


def _milliseconds(
    inputs: Iterator[Any], function: Callable[[Any], Any], device: str, length: dict[str, Any]
) -> float:
    """Return the mean milliseconds of a call."""

    def call(value: Any) -> None:
        function(value)
        synchronise(device)

    return 1e3 * consume(inputs, call, **length).seconds_per_batch


# --- layer swaps ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layer:
    """A function of PyTorch's that has a deterministic form in detaug.

    Attributes:
        name: of the function.
        shape: of the tensor that is differentiated, for a GPU; a CPU gets smaller ones.
        options: its arguments.
    """

    name: str
    shape: tuple[int, ...]
    options: dict[str, Any]

    def call(self, library: Any, tensor: torch.Tensor) -> torch.Tensor:
        """Call the function of `torch.nn.functional`, or of detaug's."""
        inputs = [tensor]
        if self.name == "cross_entropy":
            generator = torch.Generator().manual_seed(1)
            shape = (tensor.shape[0], *tensor.shape[2:])
            labels = torch.randint(0, tensor.shape[1], shape, generator=generator)
            inputs.append(labels.to(tensor.device))
        output: torch.Tensor = getattr(library, self.name)(*inputs, **self.options)
        return output


LAYERS = (
    Layer("cross_entropy", (2, 3, 96, 96, 96), {}),
    Layer("cross_entropy", (2, 3, 96, 96, 96), {"label_smoothing": 0.1}),
    Layer("avg_pool3d", (2, 32, 64, 64, 64), {"kernel_size": 2}),
    Layer("avg_pool3d", (2, 32, 64, 64, 64), {"kernel_size": 3, "stride": 2, "padding": 1}),
    Layer("interpolate", (2, 32, 32, 32, 32), {"scale_factor": 2, "mode": "trilinear"}),
    Layer("interpolate", (2, 32, 128, 128), {"scale_factor": 2, "mode": "bilinear"}),
)


def _swap_all(device: str) -> Iterator[Finding]:
    torch.set_num_threads(1)
    for layer in LAYERS:
        yield _swap(layer, device)


def _swap(layer: Layer, device: str) -> Finding:
    """Return errors, repeatability and milliseconds of detaug's form and of PyTorch's."""
    shape = layer.shape
    if device == "cpu":
        shape = (*shape[:2], *(extent // 8 for extent in shape[2:]))
    tensor = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(device)
    exact = _gradient(layer, functional, tensor.double())
    values: dict[str, Any] = {}
    texts = []
    for name, library in (("detaug", functions), ("PyTorch", functional)):
        gradient = _gradient(layer, library, tensor)
        error = float((gradient.double() - exact).abs().max() / exact.abs().max())
        is_equal = torch.equal(gradient, _gradient(layer, library, tensor))

        def forward_and_backward(leaf: torch.Tensor, library: Any = library) -> None:
            layer.call(library, leaf).sum().backward()

        leaves = repeat(tensor.clone().requires_grad_())
        milliseconds = _milliseconds(leaves, forward_and_backward, device, LENGTH)
        values[name] = {"error": error, "equal_twice": is_equal, "ms": milliseconds}
        twice = "equal twice" if is_equal else "DIFFERENT twice"
        texts.append(f"{name}: {twice}, error {error:.1e}, {milliseconds:.2f} ms")
    ours = values["detaug"]
    is_as_promised = ours["equal_twice"] and ours["error"] < MOST_ERROR
    options = ", ".join(f"{name}={value}" for name, value in layer.options.items())
    return Finding(f"{layer.name}({options})", "; ".join(texts), values, is_as_promised)


def _gradient(layer: Layer, library: Any, tensor: torch.Tensor) -> torch.Tensor:
    leaf = tensor.clone().requires_grad_()
    output = layer.call(library, leaf)
    # Weights that differ from place to place: a sum over ones would hide an order.
    weights = torch.linspace(0.5, 1.5, output.numel(), dtype=output.dtype, device=output.device)
    (output * weights.reshape(output.shape)).sum().backward()
    assert leaf.grad is not None
    return leaf.grad
