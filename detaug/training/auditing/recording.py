"""Records one run of a training step: a digest of every module's output and of every gradient, and who computed it.

Hooks on autograd's nodes see the gradients, because full backward hooks forbid in-place activations. A node belongs to the
innermost module in whose forward pass it was made: it is reachable from the module's outputs and was not there before. The
gradients that a node returns are compared, so that a module is blamed for its own backward, and not for its incoming gradient.
"""

from __future__ import annotations

import dataclasses
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from detaug.fingerprints import dense, fingerprint
from detaug.training.auditing.report import Owner


@dataclass(frozen=True)
class Seen:
    """One value, to compare with that of another run. It is equal to what the other run has in its place."""

    owner: Owner
    what: str
    digest: str = field(compare=False)
    operation: str | None = None
    #: an input, which says where to look, but which the module has not computed
    given: bool = False


#: Operations without an alert by PyTorch, by their name in ``torch.ops.aten``, with what to do.
SILENT = {
    "topk": "where values may tie, use torch.sort(stable=True) and take the first ones",
    "kthvalue": "where values may tie, use torch.sort(stable=True)",
    "mode": "where values may tie, use torch.sort(stable=True)",
    "sort": "pass stable=True where values may tie and their indices are used",
    "_cudnn_rnn": "set CUBLAS_WORKSPACE_CONFIG=:4096:8 (or CUDA_LAUNCH_BLOCKING=1) before CUDA starts (PyTorch, nn.RNN)",
}
NO_IMPLEMENTATION = "does not have a deterministic implementation"


#: Which value: ("forward", its place in the order of execution) or ("backward", node, which of its gradients).
Key = tuple[Any, ...]


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Watches one run.

    Args:
        model, loss: as given to `audit`; the modules of a loss are watched too.
        keep: the values to copy.
        caught: the list of `warnings.catch_warnings`: PyTorch's new alerts belong to the operation that has just run.

    Attributes:
        forward: modules' inputs, outputs and buffers and the loss, in order of execution.
        backward: gradients, in order of execution.
        operations: how often each operation that PyTorch alerts on, or of `SILENT`, was called, and where.
        kept: copies on the CPU of the values in `keep`.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Any,
        keep: frozenset[Key] = frozenset(),
        caught: Sequence[warnings.WarningMessage] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.forward: list[Seen] = []
        self.backward: dict[Key, Seen] = {}
        self.operations: Counter[tuple[str, Owner]] = Counter()
        self.kept: dict[Key, torch.Tensor] = {}
        self.module_calls = 0
        self._model, self._loss, self._keep, self._caught = model, loss, keep, caught
        self._roots = {"": model, **({"loss": loss} if isinstance(loss, nn.Module) else {})}
        self._loss_owner = Owner("loss", "loss", str(getattr(loss, "__name__", None) or type(loss).__name__))
        self._owners: dict[nn.Module, Owner] = {}
        self._parameters: dict[int, str] = {}
        for prefix, root in self._roots.items():
            for name, module in root.named_modules(prefix=prefix):
                self._owners.setdefault(module, Owner("loss" if prefix else "forward", name, type(module).__name__))
                for short, parameter in module.named_parameters(recurse=False):
                    self._parameters.setdefault(id(parameter), short)
        self._phase_owner = self._last_owner = self._owners[model]
        self._claimed = len(caught)
        self._ran: dict[str, Owner] = {}
        self._inside: list[Owner] = []
        self._nodes: dict[Any, int] = {}
        self._in_backward = threading.local()  # autograd has one thread for each device
        self._hooks = ExitStack()

    def step(self, inputs: Any, target: Any) -> Recorder:
        """Run forward and backward."""
        with self:
            output = self._model(*inputs) if isinstance(inputs, tuple) else self._model(inputs)
            for name, buffer in self._model.named_buffers():
                owner, short = self._home(self._model, name)
                self._see_value(owner, buffer, f"buffer {short}")
            self._phase_owner = self._loss_owner
            value = _checked_loss(self._loss(output, target))
            self._claim([value], self._loss_owner)
            self._see_value(self._loss_owner, value, "output")
            value.backward()  # type: ignore[no-untyped-call]
            for prefix, root in self._roots.items():
                for name, parameter in root.named_parameters():
                    if parameter.grad is not None:
                        owner, short = self._home(root, name)
                        key = ("backward", f"{prefix}.{name}", -1)
                        self._see_gradient(key, owner.backward, f"gradient of {short}", None, parameter.grad)
        return self

    def _home(self, root: nn.Module, name: str) -> tuple[Owner, str]:
        module, _, short = name.rpartition(".")
        return self._owners[root.get_submodule(module)], short

    # ---- hooks ----------------------------------------------------------------------------------------------------
    def __enter__(self) -> Recorder:
        for module in self._owners:
            if isinstance(module, torch.jit.ScriptModule):
                continue  # takes no hooks: its operations count as the surrounding module's
            before = module.register_forward_pre_hook(self._before, with_kwargs=True)
            after = module.register_forward_hook(self._after, with_kwargs=True, always_call=True)
            self._hooks.callback(before.remove)
            self._hooks.callback(after.remove)
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        self._claim_alerts()
        self._hooks.close()
        # nodes hold the graph
        self._nodes.clear()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # wrapping would import the compiler, which takes seconds, for a mode that runs no compiled code
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._claim_alerts()  # torch 2.14 alerts only when the operation has returned to its caller
        owner = self._last_owner = self._current()
        name = func._schema.name.removeprefix("aten::").rstrip("_") or func._schema.name
        self._ran[name] = owner
        result = func(*args, **kwargs)
        self._claim_alerts()
        if name in SILENT and not (name == "sort" and kwargs.get("stable")):
            self.operations[name, owner] += 1
        return result

    def _claim_alerts(self) -> None:
        """PyTorch's new alerts are of the last operation of their name, else of the one that has run last."""
        names = [alerted(str(each.message)) for each in self._caught[self._claimed :]]
        self._claimed = len(self._caught)
        self.operations.update((each, self._ran.get(each.rstrip("_"), self._last_owner)) for each in names if each)

    def _current(self) -> Owner:
        backward: Owner | None = getattr(self._in_backward, "owner", None)
        if backward is not None:
            return backward
        return self._inside[-1] if self._inside else self._phase_owner

    def _before(self, module: nn.Module, args: Any, kwargs: Any) -> None:
        owner = self._owners[module]
        values = list(leaves((args, kwargs)))
        # nodes made between modules belong to the module around them
        self._claim([value for _, value in values], self._inside[-1] if self._inside else self._phase_owner)
        for where, value in values:
            self._see_value(owner, value, f"input{where}", given=True)
        self._inside.append(owner)

    def _after(self, module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
        owner = self._owners[module]
        while self._inside and self._inside.pop() != owner:
            pass
        self.module_calls += 1
        values = list(leaves(output))
        self._claim([value for _, value in values], owner)
        for where, value in values:
            self._see_value(owner, value, f"output{where}")

    def _claim(self, values: list[Any], owner: Owner) -> None:
        """Give this owner to the nodes that are reachable from these tensors and have none yet."""
        waiting = [value.grad_fn for value in values if isinstance(value, torch.Tensor) and value.requires_grad]
        found = []
        while waiting:
            node = waiting.pop()
            if node is None or node in self._nodes or node.name() == "torch::autograd::AccumulateGrad":
                continue
            self._nodes[node] = len(self._nodes)
            found.append(node)
            waiting += [following for following, _ in reversed(node.next_functions)]
        for node in found:
            self._watch(node, owner)

    def _watch(self, node: Any, owner: Owner) -> None:
        number, operation = self._nodes[node], node.name()
        whose = [self._parameters.get(id(getattr(following, "variable", None))) for following, _ in node.next_functions]

        def before(_: Any) -> None:
            self._in_backward.owner = owner.backward

        def after(gradients: Any, _: Any) -> None:
            self._in_backward.owner = None
            for i, gradient in enumerate(gradients):
                if gradient is not None:
                    parameter = whose[i] if i < len(whose) else None
                    what = f"gradient of {parameter or 'its input'}"
                    self._see_gradient(("backward", number, i), owner.backward, what, operation, gradient)

        self._hooks.callback(node.register_prehook(before).remove)
        self._hooks.callback(node.register_hook(after).remove)

    # ---- values ---------------------------------------------------------------------------------------------------
    def _see_value(self, owner: Owner, value: Any, what: str, given: bool = False) -> None:
        key = ("forward", len(self.forward))
        self.forward.append(Seen(owner, what, self._digest(key, value), given=given))

    def _see_gradient(self, key: Key, owner: Owner, what: str, operation: str | None, gradient: torch.Tensor) -> None:
        self.backward[key] = Seen(owner, what, self._digest(key, gradient), operation)

    def _digest(self, key: Key, value: Any) -> str:
        if not isinstance(value, torch.Tensor):
            return fingerprint(value)
        with _disable_current_modes(), torch.no_grad():
            if key in self._keep:
                self.kept[key] = dense(value).cpu().clone()
            return fingerprint(dense(value))


def alerted(text: str) -> str | None:
    """The operation that one of PyTorch's alerts names; None for another warning."""
    if NO_IMPLEMENTATION in text:
        return text.strip().partition(" ")[0]
    if "non-deterministic" in text or "not deterministic" in text:
        return text.strip().splitlines()[0]
    return None


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """Tensors, arrays and numbers in nested dicts, lists, tuples and dataclasses, with the path to each."""
    if isinstance(value, (torch.Tensor, np.ndarray, bool, int, float, complex, str, np.generic)):
        yield where, value
    elif isinstance(value, Mapping):
        for key in value:
            yield from leaves(value[key], f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from leaves(item, f"{where}[{i}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            yield from leaves(getattr(value, each.name), f"{where}.{each.name}")


def _checked_loss(value: Any) -> torch.Tensor:
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"loss(output, target) must return a tensor with one element, got {type(value).__name__}; "
            "where a loss returns more, wrap it: lambda output, target: loss(output, target)[0]"
        )
    if value.numel() != 1:
        raise ValueError(
            f"loss(output, target) must return a tensor with one element, got shape {tuple(value.shape)}; take its mean"
        )
    if not value.requires_grad:
        raise ValueError("the loss does not depend on any parameter that requires a gradient: nothing to differentiate")
    return value.reshape(()) if value.ndim else value
