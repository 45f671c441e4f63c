"""`make_deterministic`: replaces a model's or loss's layers in place, and reports which it could and could not replace.

A layer is swapped by giving the module another class. The object stays, with its parameters, hooks, name and all references
to it. A user's subclass (nnU-Net's RobustCrossEntropyLoss) gets a class of its own, and keeps its own ``forward``.
"""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn

from detaug.training.layers.redirection import MODULES, Redirected

logger = logging.getLogger("detaug")

M = TypeVar("M", bound=nn.Module)


@dataclass
class SwapReport:
    """What `swap_layers` did. Names are those of `nn.Module.named_modules`; the root's is ``""``.

    It covers classes of modules, not functions that other modules call: `detaug.training.audit` finds out whether a step is
    deterministic, on the GPU that is to train.

    Attributes:
        swapped: name → (class before, class now).
        could_not: name → why a module keeps its class although there is a deterministic one.
        modules: how many modules there are.
    """

    swapped: dict[str, tuple[str, str]] = field(default_factory=dict)
    could_not: dict[str, str] = field(default_factory=dict)
    modules: int = 0

    def __str__(self) -> str:
        counts = f"swapped {len(self.swapped)}, could not {len(self.could_not)}, of {self.modules} modules"
        lines = [f"{counts} (by their classes; detaug.training.audit looks at what they compute)"]
        lines += [f"  swapped    {_shown(name)}: {old} -> {new}" for name, (old, new) in self.swapped.items()]
        lines += [f"  could not  {_shown(name)}: {why}" for name, why in self.could_not.items()]
        return "\n".join(lines)


def make_deterministic(model: M) -> M:
    """Swap the deterministic layers into a model or loss, in place, log what was done, and return the model.

        model, loss = make_deterministic(model), make_deterministic(loss)

    It also finds modules in lists, tuples and dictionaries among a module's attributes. Hooks, parameters and state_dict keys
    stay, `isinstance` with the original class holds, and the model can be copied and pickled. A second call changes
    nothing. Call it before torch.compile; a swapped model cannot be scripted.

    Args:
        model: any module, also a loss or a single layer.

    Returns:
        The same object, as torch's own converters do. `swap_layers` returns the report instead.

    Raises:
        TypeError: `model` is not an `nn.Module`.
    """
    report = swap_layers(model)
    logger.info("make_deterministic: %s", report)
    for name, why in report.could_not.items():
        logger.warning("make_deterministic could not swap %s: %s", _shown(name), why)
    return model


def swap_layers(model: nn.Module) -> SwapReport:
    """As `make_deterministic`; returns what was swapped, what could not be, and why.

    Raises:
        TypeError: `model` is not an `nn.Module`.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"make_deterministic takes a torch.nn.Module (a model or a loss), not {type(model).__name__}; run a "
            "function within detaug.training.deterministic_functions()"
        )
    report = SwapReport()
    for name, module in _modules(model):
        report.modules += 1
        kind: Any = type(module)
        if obstacle := _obstacle(module):
            report.could_not[name] = obstacle
        elif _varies(module) and not isinstance(module, Redirected):
            try:
                module.__class__ = _deterministic(kind)
            except TypeError as error:  # a metaclass or a layout of its own
                report.could_not[name] = f"{_title(kind)}: Python cannot give it another class ({error}); {_REDIRECT}"
            else:
                report.swapped[name] = (_title(kind), _title(type(module)))
    return report


_REDIRECT = "run it within detaug.training.deterministic_functions()"


def _varies(module: nn.Module) -> bool:
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        return module.padding_mode == "reflect"
    nearest = isinstance(module, nn.Upsample) and str(getattr(module, "mode", "")).startswith("nearest")
    return isinstance(module, tuple(MODULES)) and not nearest


def _obstacle(module: nn.Module) -> str | None:
    """Why another class would not change what this module computes, or None."""
    if isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, "original_name", None)
        scripted = name in {each.__name__ for each in MODULES}
        return f"{name}: it is TorchScript already; call make_deterministic before torch.jit" if scripted else None
    if isinstance(module, nn.modules.lazy.LazyModuleMixin) and _varies(module):
        return f"{_title(type(module))}: it has no shape yet; run the model once, then call make_deterministic"
    if "forward" in vars(module) and _varies(module):
        return f"{_title(type(module))}: its forward was replaced on the instance; {_REDIRECT}"
    return None


@functools.cache
def _deterministic(kind: Any) -> Any:
    """The class that takes the place of `kind`: this package's, or a new one for a user's subclass (TypeError: impossible)."""
    layer = next((MODULES[base] for base in kind.__mro__ if base in MODULES), Redirected)
    if kind in MODULES:
        return layer

    def reduce(self: Any, protocol: Any) -> Any:
        # The class made here cannot be imported, but it can be made again from the user's.
        maker, arguments, *rest = super(combined, self).__reduce_ex__(protocol)
        if arguments and arguments[0] is combined:
            return (_new_instance, (kind, *arguments[1:]), *rest)
        return (maker, arguments, *rest)

    namespace = {"__module__": kind.__module__, "__doc__": kind.__doc__, "__reduce_ex__": reduce}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of deprecated classes such as NLLLoss2d
        combined: Any = type(kind)(f"Deterministic{kind.__name__}", (layer, kind), namespace)
    return combined


def _new_instance(kind: type[nn.Module], *arguments: Any) -> Any:
    made = _deterministic(kind)  # type: ignore[arg-type]
    return made.__new__(made, *arguments)


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, under its first name; those in plain containers as ``name[0]`` or ``name['key']``."""
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", model)]
    while waiting:
        name, found = waiting.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        inner: Iterable[tuple[str, Any]]
        if isinstance(found, nn.Module):
            yield name, found
            prefix = f"{name}." if name else ""
            own = ((key, value) for key, value in vars(found).items() if not key.startswith("_"))
            inner = [(prefix + key, value) for key, value in (*found._modules.items(), *own)]
        elif isinstance(found, dict):
            inner = [(f"{name}[{key!r}]", value) for key, value in found.items()]
        else:
            inner = [(f"{name}[{number}]", value) for number, value in enumerate(found)]
        followed = [each for each in inner if isinstance(each[1], (nn.Module, list, tuple, dict))]
        waiting += reversed(followed)


def _shown(name: str) -> str:
    return name or "(the module itself)"


def _title(kind: type) -> str:
    for package in ("torch.nn", "detaug.training.layers"):  # their public homes
        if kind.__module__.startswith(f"{package}."):
            return f"{package}.{kind.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"
