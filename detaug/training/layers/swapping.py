"""`make_deterministic`: swaps a model's or loss's layers in place, and reports which it could and
could not swap.

A layer is swapped by giving the module another class. The object stays, with its parameters, hooks,
name and all references to it. A user's subclass (nnU-Net's RobustCrossEntropyLoss) keeps its own
``forward``. What that calls is redirected.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules import utils
from torch.overrides import TorchFunctionMode

from detaug.training.layers.functions import LINEAR_MODES, avg_pool3d, cross_entropy, interpolate
from detaug.walking import parts_of, walk

logger = logging.getLogger("detaug")

M = TypeVar("M", bound=nn.Module)

#: PyTorch's function → this package's, under the same name.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    getattr(functional, each.__name__): each for each in (cross_entropy, avg_pool3d, interpolate)
}
#: PyTorch's modules that call them.
_MODULES = (nn.CrossEntropyLoss, nn.AvgPool3d, nn.Upsample)

_ADAPTIVE = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
#: Modules whose gradients PyTorch adds atomically on a GPU, as it does those above.
_WITHOUT_FORM = (nn.NLLLoss, *_ADAPTIVE, nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d)
_NO_FORM = (
    "it has no deterministic form here, and on a GPU PyTorch's deterministic mode raises or warns"
)
_REDIRECT = "run it within detaug.training.deterministic_functions()"


@contextlib.contextmanager
def deterministic_functions() -> Iterator[None]:
    """Within the block (or the function it decorates), calls of PyTorch's functions go to this
    package's.

    It reaches what `make_deterministic` cannot: a ``forward`` that calls ``F.interpolate`` itself.
    Redirected are cross_entropy, avg_pool3d and linear, bilinear and trilinear interpolate (which
    upsample and upsample_bilinear call). The backward pass may run outside the block.

    The block holds for the thread that enters it. A forward pass that torch.utils.checkpoint
    repeats during the backward pass is redirected only if the block is inside the checkpointed
    function.
    """
    with _Redirection():
        yield


class _Redirection(TorchFunctionMode):
    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        # PyTorch takes the mode off while this runs, so the replacements reach PyTorch's functions.
        return _FUNCTIONS.get(func, func)(*args, **(kwargs or {}))


class _Redirected:
    """Before a module's class, in its method resolution order: what ``forward`` calls is
    redirected.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with _Redirection():
            return super().forward(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class made below cannot be imported, but it can be made again from the user's.
        made: Any = super().__reduce_ex__(protocol)
        maker, arguments, *rest = made
        if arguments and arguments[0] is type(self):
            return (_new_instance, (type(self).__bases__[1], *arguments[1:]), *rest)
        return (maker, arguments, *rest)


@dataclass
class SwapReport:
    """What `swap_layers` did. Names are as in `nn.Module.named_modules`; the root's is ``""``.

    It covers classes of modules, not functions that other modules call: `detaug.training.audit`
    finds out whether a step is deterministic, on the GPU that is to train.

    Attributes:
        swapped: name → class.
        could_not: name → why a module that is not deterministic on a GPU keeps its class.
    """

    swapped: dict[str, str] = field(default_factory=dict)
    could_not: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = f"swapped {len(self.swapped)}, could not {len(self.could_not)}"
        lines = [f"{counts} (by their classes; detaug.training.audit looks at what they compute)"]
        lines += [f"  swapped    {_shown(name)}: {kind}" for name, kind in self.swapped.items()]
        lines += [f"  could not  {_shown(name)}: {why}" for name, why in self.could_not.items()]
        return "\n".join(lines)


def make_deterministic(model: M) -> M:
    """Swap the deterministic layers into a model or loss, in place, log what was done, and return
    the model.

        model, loss = make_deterministic(model), make_deterministic(loss)

    It also finds modules in lists, tuples and dictionaries among a module's attributes. Hooks,
    parameters and state_dict keys stay, `isinstance` with the original class holds, and the model
    can be copied and pickled. A second call changes nothing. Call it before torch.compile; a
    swapped model cannot be scripted.

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
            "make_deterministic takes a torch.nn.Module (a model or a loss), not"
            f" {type(model).__name__}; run a function within"
            " detaug.training.deterministic_functions()"
        )
    report = SwapReport()
    for name, module in _modules(model):
        kind: Any = type(module)
        if obstacle := _obstacle(module):
            report.could_not[name] = f"{kind.__name__}: {obstacle}"
        elif _varies(module) and not isinstance(module, _Redirected):
            try:
                module.__class__ = _deterministic(kind)
            except TypeError as error:  # a metaclass or a layout of its own
                report.could_not[name] = (
                    f"{kind.__name__}: Python cannot give it another class ({error}); {_REDIRECT}"
                )
            else:
                report.swapped[name] = kind.__name__
    return report


def _varies(module: nn.Module) -> bool:
    return isinstance(module, _MODULES) and not (
        isinstance(module, nn.Upsample) and module.mode not in LINEAR_MODES
    )


def _obstacle(module: nn.Module) -> str | None:
    """Why another class would not make deterministic what this module computes, or None."""
    if isinstance(module, _WITHOUT_FORM):
        pools_to_one = isinstance(module, _ADAPTIVE) and set(utils._triple(module.output_size)) == {
            1
        }
        return None if pools_to_one else _NO_FORM  # that is a mean
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) and module.padding_mode == "reflect":
        return f"padding_mode 'reflect': {_NO_FORM}"
    if isinstance(module, nn.Upsample) and module.mode in ("bicubic", "area"):
        return f"mode {module.mode!r}: {_NO_FORM}"
    if isinstance(module, torch.jit.ScriptModule):
        scripted = getattr(module, "original_name", None) in {
            each.__name__ for each in (*_MODULES, *_WITHOUT_FORM)
        }
        return (
            "it is TorchScript already; call make_deterministic before torch.jit"
            if scripted
            else None
        )
    if "forward" in vars(module) and _varies(module):
        return f"its forward was replaced on the instance; {_REDIRECT}"
    return None


@functools.cache
def _deterministic(kind: Any) -> Any:
    """The class that takes the place of `kind` (TypeError: impossible)."""
    # What nnU-Net's checkpoints call a loss is compared when they are continued.
    name, home = f"Deterministic{kind.__name__}", kind.__module__
    if kind in _MODULES:
        name, home = kind.__name__, "detaug.training.layers.redirection"
    return type(kind)(name, (_Redirected, kind), {"__module__": home, "__doc__": kind.__doc__})


def _new_instance(kind: type[nn.Module], *arguments: Any) -> Any:
    made = _deterministic(kind)  # type: ignore[arg-type]
    return made.__new__(made, *arguments)


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every module once, by its shortest name; those in plain containers as ``name[0]`` or
    ``name['key']``.
    """

    def parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
        if not isinstance(value, nn.Module):
            yield from ((name + label, part) for label, part in parts_of(value))
            return
        own = {key: part for key, part in vars(value).items() if not key.startswith("_")}
        yield from (
            (f"{name}.{key}" if name else key, part)
            for key, part in {**value._modules, **own}.items()
        )

    followed = nn.Module, list, tuple, dict
    found = walk([("", model)], into=lambda value: isinstance(value, followed), parts=parts)
    return ((name, value) for name, value in found if isinstance(value, nn.Module))


def _shown(name: str) -> str:
    return name or "(the module itself)"
