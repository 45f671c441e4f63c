"""What `detaug.training.audit` found: the first differences, and the operations that may vary."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent
from typing import Literal

Phase = Literal["forward", "loss", "backward"]


@dataclass(frozen=True)
class Owner:
    """A module, and its part of the step.

    Attributes:
        phase: in the backward pass, the module is that in whose forward pass the operation has its origin.
        module: the dotted name that ``named_modules()`` gives it, ``""`` for the model itself; ``"loss"`` and ``"loss.…"`` for
            the loss.
    """

    phase: Phase
    module: str
    module_class: str

    @property
    def backward(self) -> Owner:
        """The same module's part of the backward pass."""
        return Owner("backward", self.module, self.module_class)

    @property
    def place(self) -> str:
        """Name and class, for people."""
        return f"{self.module or 'the model itself'} ({self.module_class})"


@dataclass(frozen=True)
class Difference(Owner):
    """The first place in one phase at which two runs gave different bytes.

    Attributes:
        what: such as ``"output[0]"``, ``"buffer running_mean"``, ``"gradient of its input"``, ``"gradient of weight"``.
        operation: in the backward pass, autograd's name of the operation, e.g. ``"AvgPool3DBackward0"``.
        size: dtype and shape, and how many elements differ by how much, as `torch.testing` words it, between two more runs.
        note: what else helps to find the cause.
    """

    what: str
    operation: str | None = None
    size: str = ""
    note: str = ""

    def __str__(self) -> str:
        by = f", computed by {self.operation}" if self.operation else ""
        lines = [f"{self.phase}: {self.place}: {self.what} differs{by}", self.size, self.note]
        return "\n  ".join(line for line in lines if line)


#: Parts of the names in PyTorch's alerts → what to use instead.
ADVICE = {
    "nll_loss2d": "detaug.training.make_deterministic swaps in detaug.training.layers.CrossEntropyLoss or NLLLoss",
    "avg_pool": "detaug.training.make_deterministic swaps in the pooling of detaug.training.layers",
    "upsample_": "detaug.training.make_deterministic swaps in detaug.training.layers.Upsample; antialias=True it cannot",
    "reflection_pad": "detaug.training.make_deterministic swaps in the padding of detaug.training.layers",
    "grid_sampler": "resample before the network (detaug.transforms)",
    "max_unpool": "use a transposed convolution, or nn.Upsample(mode='nearest')",
    "max_pool": "use nn.MaxPool with a fixed kernel and stride, or amax where the output size is 1",
    "ctc_loss": "compute this loss on the CPU",
    "histc": "count on the CPU",
    "put_": "use index_put_",
}


@dataclass(frozen=True)
class OperationUse(Owner):
    """An operation that varies, and the module in which it ran.

    Attributes:
        name: as PyTorch's alert has it, or the operator's name where PyTorch gives none.
        alerted: whether ``torch.use_deterministic_algorithms(True)`` raises for it, on this device.
        calls: in one run.
        advice: what to use instead, or what to set.
    """

    name: str
    alerted: bool
    calls: int
    advice: str


@dataclass(frozen=True)
class AuditReport:
    """What an audit found.

    Attributes:
        runs: how many runs were compared.
        forward_difference: the first output, buffer or loss that differs, in order of execution; None if none.
        backward_difference: the first gradient that differs, in order of the backward pass; None if none. Where the forward
            pass differs already, this one may follow from it.
        operations: those that may vary on this device, in order of first call.
        modules, gradients: how many calls of modules and how many gradients were compared in one run.
    """

    device: str
    runs: int
    forward_difference: Difference | None = None
    backward_difference: Difference | None = None
    operations: tuple[OperationUse, ...] = ()
    modules: int = 0
    gradients: int = 0

    @property
    def deterministic(self) -> bool:
        """Whether all runs gave the same bytes, outputs and gradients. Not a proof for other batches or devices."""
        return self.first_difference is None

    @property
    def first_difference(self) -> Difference | None:
        """The first of all, in order of execution."""
        return self.forward_difference or self.backward_difference

    def __str__(self) -> str:
        compared = f"{self.modules} calls of modules and {self.gradients} gradients on {self.device}"
        if self.first_difference is None:
            lines = [f"Deterministic: {self.runs} runs gave the same bytes in {compared}."]
        else:
            lines = [f"Not deterministic: runs from one state differ ({compared}). First difference:"]
            lines.append(indent(str(self.first_difference), "  "))
            if self.forward_difference and self.backward_difference:
                lines.append("In the backward pass (it may follow from the above):")
                lines.append(indent(str(self.backward_difference), "  "))
        return "\n".join([*lines, *self._operation_lines()])

    def _operation_lines(self) -> list[str]:
        elsewhere = "" if self.device.startswith("cuda") else " On a GPU it may: audit there."
        if not self.operations:
            return [f"PyTorch alerts on no operation that ran on {self.device}.{elsewhere}"]
        lines = [f"Operations that may vary on {self.device}.{elsewhere}"]
        grouped: dict[str, list[OperationUse]] = {}
        for use in sorted(self.operations, key=lambda use: not use.alerted):  # what raises first
            grouped.setdefault(use.name, []).append(use)
        for name, uses in grouped.items():
            places = list(dict.fromkeys(use.place for use in uses))
            more = f" and {len(places) - 3} more" if len(places) > 3 else ""
            verdict = "raises in deterministic mode" if uses[0].alerted else "PyTorch does not alert on it"
            lines += [f"  {name} ({verdict}) in {', '.join(places[:3])}{more}", f"    {uses[0].advice}"]
        return lines
