"""Part: why are two trainings not equal, and what does it cost that they are?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.nn import functional

from benchmarks.calls import Stopwatch, Work, alternate
from benchmarks.gpu.children import Child, ChildFailed, Send, result_in_child
from benchmarks.gpu.dataset import DEFAULT_3D, SMALL_3D, TINY_3D, Plan, dataset_of, use_folders
from benchmarks.gpu.findings import Bench, Finding, require
from benchmarks.gpu.steps import make_trainer, random_batch, settle, synchronise
from benchmarks.gpu.trainings import DETERMINISTIC, STOCK

#: Steps that are timed, after a few that choose algorithms and fill memory pools.
STEPS = 20
WARM_UP = 5

#: Of a gradient in float32 against one in float64, relative to the largest.
MOST_ERROR = 1e-5


def run(bench: Bench) -> Iterator[Finding]:
    """Audit nnU-Net's network and loss, try each layer swap, and time the switches."""
    yield from _layers(bench)
    require("nnunetv2")
    small = TINY_3D
    default = TINY_3D
    if bench.device == "cuda":
        small = SMALL_3D
        default = DEFAULT_3D
    root = dataset_of(bench, small, "small")
    yield _in_child(bench, "audit of nnU-Net's network and loss", _audit, root, small)
    yield _in_child(bench, "nnU-Net's step without any switch", _plain_steps, root, small)
    # Its batches are random: the cases are never read.
    default = replace(default, case_shape=small.case_shape)
    yield _switches(bench, dataset_of(bench, default, "default"), default)


def _in_child(bench: Bench, name: str, function: Callable[..., None], *args: Any) -> Finding:
    """Return what ``function(send, device, *args)`` sends, a finding's text and values."""
    log = bench.folder / "log.txt"
    try:
        text, values = result_in_child(
            function, bench.device, *args, log=log, seconds=bench.seconds_left
        )
    except ChildFailed as error:
        return Finding(name, f"failed: {error}", {"error": str(error)}, is_as_promised=False)
    return Finding(name, text, values)


# --- nnU-Net's step -------------------------------------------------------------------------------


def _audit(send: Send, device: str, root: Path, plan: Plan) -> None:
    """Send what `audit` says of one step of nnU-Net's own network and loss."""
    from detaug.training import audit

    use_folders(root)
    trainer = make_trainer(STOCK, plan, device)
    batch = random_batch(trainer, plan)
    report = audit(trainer.network, trainer.loss, (batch["data"], batch["target"]), device)
    send((str(report), {"difference": report.difference, "operations": report.operations}))


def _plain_steps(send: Send, device: str, root: Path, plan: Plan) -> None:
    """Send the first gradient that differs between two equal steps, as nnU-Net trains.

    cuDNN tries its algorithms, and no deterministic switch is on. nnU-Net's PR #2871 saw trainings
    differ from the second batch on, which is after the first backward pass.
    """
    use_folders(root)
    torch.backends.cudnn.benchmark = True
    gradients = []
    losses = []
    for _ in range(2):
        torch.manual_seed(0)
        trainer = make_trainer(STOCK, plan, device)
        batch = random_batch(trainer, plan)
        losses.append(_backward(trainer, batch))
        gradients.append(_gradients(trainer.network))
    different = [
        name for name in gradients[0] if not torch.equal(gradients[0][name], gradients[1][name])
    ]
    first = None
    if different:
        # Backward passes run from the network's end to its beginning.
        first = different[-1]
    values = {
        "equal_losses": losses[0] == losses[1],
        "different_gradients": len(different),
        "gradients": len(gradients[0]),
        "first_different_gradient": first,
    }
    text = f"{len(different)} of {len(gradients[0])} gradients differ between two equal steps"
    if first is not None:
        text += f", the first in the backward pass: {first}"
    send((text, values))


def _backward(trainer: Any, batch: dict[str, Any]) -> float:
    """Run nnU-Net's step up to the gradients, and return the loss.

    Not further: nnU-Net clips all gradients by their common norm, which spreads a difference.
    """
    device = trainer.device
    data = batch["data"].to(device)
    targets = [target.to(device) for target in batch["target"]]
    with torch.autocast(device.type, enabled=device.type == "cuda"):
        loss = trainer.loss(trainer.network(data), targets)
    if trainer.grad_scaler is not None:
        loss = trainer.grad_scaler.scale(loss)
    loss.backward()
    return float(loss.detach())


def _gradients(network: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the gradients by name; the deepest output of all has no weight, and so none."""
    return {
        name: parameter.grad.cpu()
        for name, parameter in network.named_parameters()
        if parameter.grad is not None
    }


def _switches(bench: Bench, root: Path, plan: Plan) -> Finding:
    """Time a step of nnU-Net's default 3-D network, as stock and as Deterministic trains it."""
    name = f"deterministic switches, a step of {plan.patch}, batch {plan.batch_size}"
    milliseconds = {}
    for trainer in (STOCK, DETERMINISTIC):
        finding = _in_child(bench, name, _time_steps, root, plan, trainer)
        if "ms" not in finding.values:
            return finding
        milliseconds[trainer] = finding.values["ms"]
    without = milliseconds[STOCK]
    with_switches = milliseconds[DETERMINISTIC]
    text = f"{with_switches:.1f} ms with, {without:.1f} ms without"
    return Finding(name, text, {"ms_with": with_switches, "ms_without": without})


def _time_steps(send: Send, device: str, root: Path, plan: Plan, name: str) -> None:
    """Send the median milliseconds of a whole training step with a batch at hand."""
    use_folders(root)
    torch.backends.cudnn.benchmark = True
    trainer = make_trainer(name, plan, device)
    # detaug's trainers set their switches at an epoch's start.
    trainer.on_train_epoch_start()
    batch = random_batch(trainer, plan)

    def step(_: int, stopwatch: Stopwatch) -> None:
        with stopwatch:
            trainer.train_step(batch)
            synchronise(device)

    warm_up = 1
    count = 2
    if device == "cuda":
        warm_up = WARM_UP
        count = STEPS
    timed = alternate({name: step}, range(warm_up + count))[name][warm_up:]
    milliseconds = 1e3 * median(seconds.wall for seconds in timed)
    send((f"{milliseconds:.1f} ms", {"ms": milliseconds}))


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
            inputs.append(_labels(tensor))
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


def _labels(tensor: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    shape = (tensor.shape[0], *tensor.shape[2:])
    return torch.randint(0, tensor.shape[1], shape, generator=generator).to(tensor.device)


def _layers(bench: Bench) -> Iterator[Finding]:
    """Yield a finding for each layer, all from one child: to start CUDA takes seconds."""
    child = Child(_swap_all, bench.device, log=bench.folder / "layers.txt")
    try:
        yield from child.results(bench.seconds_left)
    except ChildFailed as error:
        yield Finding("layers", f"failed: {error}", {"error": str(error)}, is_as_promised=False)


def _swap_all(send: Send, device: str) -> None:
    settle()
    for layer in LAYERS:
        send(_swap(layer, device))


def _swap(layer: Layer, device: str) -> Finding:
    """Return errors, repeatability and milliseconds of detaug's form and of PyTorch's."""
    from detaug.training.layers import functions

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
        milliseconds = _time_layer(layer, library, tensor)
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


def _time_layer(layer: Layer, library: Any, tensor: torch.Tensor) -> float:
    """Return the median milliseconds of forward and backward."""
    device = tensor.device.type
    leaf = tensor.clone().requires_grad_()

    def forward_and_backward(_: int, stopwatch: Stopwatch) -> None:
        synchronise(device)
        with stopwatch:
            layer.call(library, leaf).sum().backward()
            synchronise(device)

    works: dict[str, Work] = {"": forward_and_backward}
    timed = alternate(works, range(WARM_UP + STEPS))[""][WARM_UP:]
    return 1e3 * median(seconds.wall for seconds in timed)
