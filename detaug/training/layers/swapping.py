"""`make_deterministic` swaps a model's or loss's layers in place, and reports what it did.

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

from detaug.objects.walking import parts_of, walk
from detaug.training.layers.functions import LINEAR_MODES, avg_pool3d, cross_entropy, interpolate

logger = logging.getLogger("detaug")

M = TypeVar("M", bound=nn.Module)

#: PyTorch's function → this package's, under the same name.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    functional.cross_entropy: cross_entropy,
    functional.avg_pool3d: avg_pool3d,
    functional.interpolate: interpolate,
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
    """Redirect calls of PyTorch's functions to this package's, within the block.

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
    """A mode that redirects PyTorch's functions to those of `_FUNCTIONS`."""

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
    """A mixin before a module's class; it redirects the functions that ``forward`` calls."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the module's own ``forward`` with PyTorch's functions redirected."""
        with _Redirection():
            return super().forward(*args, **kwargs)  # type: ignore[misc]

    def __reduce_ex__(self, protocol: Any) -> Any:
        # This object's class cannot be imported, but it can be created again from the user's.
        reduced: Any = super().__reduce_ex__(protocol)
        # Mostly ``copyreg.__newobj__(class, ...)``. A module with a ``__reduce__`` of its own may
        # name its class in another way, and is left as it is.
        function, arguments, *rest = reduced
        if not arguments or arguments[0] is not type(self):
            return (function, arguments, *rest)
        _, original_class = type(self).__bases__
        return (_new_instance, (original_class, *arguments[1:]), *rest)


@dataclass
class SwapReport:
    """The result of `swap_layers`.

    Names are as in `nn.Module.named_modules`; the root's is ``""``. The report covers classes of
    modules, not functions that other modules call: `detaug.training.audit` finds out whether a step
    is deterministic, on the GPU that is to train.

    Attributes:
        swapped: name → class.
        could_not: name → why a module that is not deterministic on a GPU keeps its class.
    """

    swapped: dict[str, str] = field(default_factory=dict)
    could_not: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = f"swapped {len(self.swapped)}, could not {len(self.could_not)}"
        lines = [f"{counts} (by their classes; detaug.training.audit looks at what they compute)"]
        lines += [f"  swapped    {_label(name)}: {kind}" for name, kind in self.swapped.items()]
        lines += [
            f"  could not  {_label(name)}: {reason}" for name, reason in self.could_not.items()
        ]
        return "\n".join(lines)


def make_deterministic(model: M) -> M:
    """Swap the deterministic layers into a model or loss, in place, and return the model.

        model = make_deterministic(model)
        loss = make_deterministic(loss)

    It also finds modules in lists, tuples and dictionaries among a module's attributes. Hooks,
    parameters and state_dict keys stay, `isinstance` with the original class holds, and the model
    can be copied and pickled. A second call changes nothing. Call it before torch.compile; a
    swapped model cannot be scripted.

    Args:
        model: any module, also a loss or a single layer.

    Returns:
        The same object, as torch's own converters do.

    Raises:
        TypeError: `model` is not an `nn.Module`.
    """
    report = swap_layers(model)
    logger.info("make_deterministic: %s", report)
    # A warning for each: with these layers the model may not be deterministic.
    for name, reason in report.could_not.items():
        logger.warning("make_deterministic could not swap %s: %s", _label(name), reason)
    return model


def swap_layers(model: nn.Module) -> SwapReport:
    """Swap layers as `make_deterministic` does, and return a report.

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
        obstacle = _obstacle(module)
        if obstacle is not None:
            report.could_not[name] = f"{kind.__name__}: {obstacle}"
            continue
        if isinstance(module, _Redirected) or not _varies(module):
            continue
        try:
            # The object stays the same, so that hooks and an optimiser's parameters stay valid.
            module.__class__ = _deterministic(kind)
        except TypeError as error:
            # The class has a metaclass or a layout of its own.
            report.could_not[name] = (
                f"{kind.__name__}: Python cannot give it another class ({error}); {_REDIRECT}"
            )
        else:
            report.swapped[name] = kind.__name__
    return report


def _varies(module: nn.Module) -> bool:
    """Return True if the module calls a function that is not deterministic on a GPU."""
    if isinstance(module, nn.Upsample):
        return module.mode in LINEAR_MODES
    return isinstance(module, _MODULES)


def _obstacle(module: nn.Module) -> str | None:
    """Return why another class would not make this module deterministic; None: it would."""
    if isinstance(module, _WITHOUT_FORM):
        if isinstance(module, _ADAPTIVE) and set(utils._triple(module.output_size)) == {1}:
            # Pooling to a single value is a mean.
            return None
        return _NO_FORM
    if isinstance(module, (nn.Conv1d, nn.Conv2d, nn.Conv3d)) and module.padding_mode == "reflect":
        return f"padding_mode 'reflect': {_NO_FORM}"
    if isinstance(module, nn.Upsample) and module.mode in ("bicubic", "area"):
        return f"mode {module.mode!r}: {_NO_FORM}"
    if isinstance(module, torch.jit.ScriptModule):
        names = {kind.__name__ for kind in (*_MODULES, *_WITHOUT_FORM)}
        if getattr(module, "original_name", None) in names:
            return "it is TorchScript already; call make_deterministic before torch.jit"
        return None
    # An attribute of the object comes before any method of its class.
    if "forward" in vars(module) and _varies(module):
        return f"its forward was replaced on the instance; {_REDIRECT}"
    return None


@functools.cache
def _deterministic(kind: Any) -> Any:
    """Return the class that replaces `kind`.

    Raises:
        TypeError: there can be no such class.
    """
    # Checkpoints of nnU-Net name the loss's class, and compare it when they are continued.
    if kind in _MODULES:
        name = kind.__name__
        module = "detaug.training.layers.redirection"
    else:
        name = f"Deterministic{kind.__name__}"
        module = kind.__module__
    return type(kind)(name, (_Redirected, kind), {"__module__": module, "__doc__": kind.__doc__})


def _new_instance(kind: type[nn.Module], *arguments: Any) -> Any:
    """Return an uninitialised object of the class that replaces `kind`."""
    replacement = _deterministic(kind)  # type: ignore[arg-type]
    return replacement.__new__(replacement, *arguments)


def _modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield every module once, with its shortest name.

    Modules in plain containers are named ``name[0]`` or ``name['key']``.
    """
    # Not `named_modules`, which would miss modules in plain lists.
    for name, value in walk([("", model)], into=_has_modules, parts=_named_parts):
        if isinstance(value, nn.Module):
            yield name, value


def _has_modules(value: Any) -> bool:
    """Return True for modules, and for containers that may hold some."""
    return isinstance(value, (nn.Module, list, tuple, dict))


def _named_parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, part) for the parts of a module or a container that is named `name`."""
    if not isinstance(value, nn.Module):
        for label, part in parts_of(value):
            yield name + label, part
        return
    own = {key: part for key, part in vars(value).items() if not key.startswith("_")}
    for key, part in {**value._modules, **own}.items():
        yield (f"{name}.{key}" if name else key), part


def _label(name: str) -> str:
    return name or "(the module itself)"
