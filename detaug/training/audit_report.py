"""What `detaug.training.audit` found: the first differences, and the operations that PyTorch calls non-deterministic."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from detaug.training.nondeterministic_operations import HANDLED, RAISES, Status

Phase = Literal["forward", "loss", "backward"]


@dataclass(frozen=True)
class Difference:
    """The first place in one phase at which two runs gave different bytes.

    Attributes:
        phase: where in the step it came up.
        module: the module's dotted name as ``named_modules()`` gives it, ``""`` for the model itself; ``"loss"`` and
            ``"loss.…"`` for the loss.
        module_class: its class's name.
        what: ``"output"``, ``"output[0]"``, ``"buffer running_mean"``, ``"gradient of its input"``, ``"gradient of
            weight"``.
        operation: in the backward pass, autograd's name of the operation, e.g. ``"AvgPool3DBackward0"``.
        shape, dtype: of the tensor.
        elements, differing_elements: how many it has, and how many differ in any byte (NaNs of equal bytes are equal).
        max_abs_difference: the largest, in float64; NaN where a NaN stands against a number. Like
            ``differing_elements``, None where two more runs, which are made to measure it, agreed.
        note: what else helps to find the cause.
    """

    phase: Phase
    module: str
    module_class: str
    what: str
    operation: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    elements: int | None = None
    differing_elements: int | None = None
    max_abs_difference: float | None = None
    note: str = ""

    def __str__(self) -> str:
        by = f", computed by {self.operation}" if self.operation else ""
        lines = [f"{self.phase}: {described(self.module, self.module_class)}: {self.what} differs{by}"]
        if self.shape is not None and self.dtype is not None:
            size = f"{self.dtype} of shape {self.shape}"
            if self.differing_elements is not None:
                size += f": {self.differing_elements} of {self.elements} elements differ"
            if self.max_abs_difference is not None:
                size += f", by up to {self.max_abs_difference:.3g}"
            lines.append(f"  {size}")
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])


@dataclass(frozen=True)
class OperationUse:
    """An operation that PyTorch calls non-deterministic, and the module in which it ran.

    Attributes:
        name: as PyTorch's documentation has it.
        aten: the operator's name in ``torch.ops.aten``.
        phase, module, module_class: where it ran; in the backward pass, the module whose forward pass it belongs to.
        calls: how often in one run.
        status: what ``torch.use_deterministic_algorithms(True)`` does about it.
        where: the tensors and circumstances for which PyTorch says so. An audit on the CPU lists what holds on CUDA.
        advice: what to use instead, or what to set.
    """

    name: str
    aten: str
    phase: Phase
    module: str
    module_class: str
    calls: int
    status: Status
    where: str
    advice: str


@dataclass(frozen=True)
class AuditReport:
    """What an audit saw.

    Attributes:
        device: where it ran.
        runs: how many runs were compared.
        forward_difference: the first module, in order of execution, whose output differs, or the loss; None if none.
        backward_difference: the first, in order of the backward pass, at which a gradient differs; None if none.
            Where the forward pass differs already, this one may follow from it.
        operations: in order of first call.
        alerts: PyTorch's own warnings of operations that have no deterministic implementation. On the CPU there are
            hardly any, for it alerts on the device that the operation runs on.
        modules: how many calls of modules were compared in one run.
        gradients: how many gradients were compared in one run.
    """

    device: str
    runs: int
    forward_difference: Difference | None = None
    backward_difference: Difference | None = None
    operations: tuple[OperationUse, ...] = ()
    alerts: tuple[str, ...] = ()
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

    def as_dict(self) -> dict[str, Any]:
        """Everything as JSON has it; numbers that are not finite as strings."""
        found = asdict(self)
        found.update(deterministic=self.deterministic, first_difference=None)
        if self.first_difference is not None:
            found["first_difference"] = asdict(self.first_difference)
        return dict(_jsonable(found))

    def to_json(self, indent: int | None = 2) -> str:
        """`as_dict` as a JSON text."""
        return json.dumps(self.as_dict(), indent=indent, allow_nan=False)

    def __str__(self) -> str:
        compared = f"{self.modules} calls of modules and {self.gradients} gradients on {self.device}"
        if self.first_difference is None:
            lines = [f"Deterministic: {self.runs} runs gave the same bytes in {compared}."]
        else:
            lines = [f"Not deterministic: runs from one state differ ({compared}). First difference:"]
            lines += _indented(str(self.first_difference))
            if self.forward_difference and self.backward_difference:
                lines += ["In the backward pass (it may follow from the above):"]
                lines += _indented(str(self.backward_difference))
        return "\n".join([*lines, *self._operation_lines(), *self._alert_lines()])

    def _operation_lines(self) -> list[str]:
        if not self.operations:
            return ["No operation was run that PyTorch calls non-deterministic."]
        lines = ["Operations that PyTorch calls non-deterministic:"]
        for (name, status), uses in _by_operation(self.operations).items():
            places = list(dict.fromkeys(described(use.module, use.module_class) for use in uses))
            more = f" and {len(places) - 3} more" if len(places) > 3 else ""
            verdict = "raises in deterministic mode" if status == RAISES else status
            lines.append(f"  {name} ({verdict}; {uses[0].where})")
            lines.append(f"    in {', '.join(places[:3])}{more}")
            lines.append(f"    {uses[0].advice}")
        return lines

    def _alert_lines(self) -> list[str]:
        return ["PyTorch warned:", *(f"  {alert}" for alert in self.alerts)] if self.alerts else []


def described(module: str, module_class: str) -> str:
    """A module's name and class for people."""
    return f"{module} ({module_class})" if module else f"the model itself ({module_class})"


def _by_operation(uses: tuple[OperationUse, ...]) -> dict[tuple[str, Status], list[OperationUse]]:
    """What raises first, what the mode handles last."""
    grouped: dict[tuple[str, Status], list[OperationUse]] = {}
    for use in sorted(uses, key=lambda use: (use.status != RAISES) + (use.status == HANDLED)):
        grouped.setdefault((use.name, use.status), []).append(use)
    return grouped


def _indented(text: str) -> list[str]:
    return [f"  {line}" for line in text.splitlines()]


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
