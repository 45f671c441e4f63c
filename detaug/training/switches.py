"""`deterministic_mode` sets every switch that reproducible results of torch need, and resets them.

Reasons are from PyTorch's documentation ("Reproducibility" unless another page is named):

| switch | set to | why |
|---|---|---|
| `torch.backends.cudnn.benchmark` | False | it chooses a convolution algorithm by timing in each \
run |
| `torch.backends.cudnn.deterministic` | True | of cuDNN's algorithms only those that are \
reproducible |
| `torch.use_deterministic_algorithms` | True or "warn" | the same for torch's own operations; \
those without such an algorithm raise (or warn, and stay as they were) |
| `torch._inductor.config.deterministic` | True | torch.compile chooses nothing by timing (follows \
the one above) |
| `torch.backends.mkldnn.deterministic` | True | the same for oneDNN |
| `torch.cuda.tunable` | off | TunableOp chooses matrix multiplications by timing ("TunableOp") |
| `CUBLAS_WORKSPACE_CONFIG` | :4096:8 | cuBLAS gives the same result in several streams only with \
a fixed workspace |
| `torch.utils.deterministic.fill_uninitialized_memory` | False | filling every `torch.empty` \
costs time, and only matters to a program that reads memory it never wrote |
| TF32: `torch.backends.cuda.matmul.allow_tf32`, `torch.backends.cudnn.allow_tf32`, float32 matmul \
precision, `fp32_precision` of cuda and mkldnn | off | no cause of differences from run to run, \
but one from GPU to GPU ("Numerical accuracy") |
| `torch.set_num_threads` | only with ``threads=`` | on a CPU, sums are split among threads |

Not changed, because they are reproducible on one machine: reduced-precision reductions of float16
and bfloat16, the choice of a linear algebra library. docs/training.md covers RNNs, attention
and NCCL.
"""

from __future__ import annotations

import logging
import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
import torch.utils.deterministic

from detaug.seeding.tree import positive_int

logger = logging.getLogger("detaug")

Mode = Literal["warn"] | bool
CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
# cuBLAS's documentation, "Results reproducibility": with these two, and no other, results are
# reproducible.
CUBLAS_ALLOWED = (":4096:8", ":16:8")
NOT_SET = "not set"
#: What is read where the user's settings of TF32 contradict each other, and torch refuses to say.
UNREADABLE = "unreadable"


class Changes(dict[str, tuple[Any, Any]]):
    """The switches that `deterministic_mode` changed: name → (before, after).

    It prints as one line a switch.
    """

    def __repr__(self) -> str:
        lines = [f"{name}: {before!r} -> {after!r}" for name, (before, after) in self.items()]
        return "\n".join(lines) or "nothing changed"


@contextmanager
def deterministic_mode(
    mode: Mode = True, *, tf32: Literal[False] | None = False, threads: int | None = None
) -> Iterator[Changes]:
    """Make torch's results reproducible inside the block; reset every switch at its end.

    That is done after an exception, too.

        with deterministic_mode() as changes:
            print(changes)
            train()

    It can be nested and used as a decorator. The switches belong to the process, not to a thread:
    blocks of several threads must not overlap. The module's docstring has the table of switches and
    reasons. None leaves a switch as it is. A user's ``CUBLAS_WORKSPACE_CONFIG`` is kept, with a
    warning where cuBLAS is not reproducible with it. cuBLAS reads it once, when it starts: where
    CUDA is already running, a warning is logged.

    Args:
        mode: True: operations without a deterministic algorithm raise; "warn": they warn and run
            (`torch.use_deterministic_algorithms` with ``warn_only``); False: deterministic
            algorithms off; choices by timing (cuDNN's benchmark, TunableOp), TF32, cuBLAS's
            workspace and memory filling stay as they are.
        tf32: False: float32 is computed in float32; None: as the settings are.
        threads: the number of torch's threads on a CPU. Sums are split among them, so results
            depend on it.

    Yields:
        `Changes`, a mapping of switch → (before, after).

    Raises:
        TypeError, ValueError: mode is none of False, True, "warn"; tf32 is neither False nor None;
            `threads` is no positive integer.
    """
    chosen = chosen_switches(mode, tf32=tf32, threads=threads)
    with preserved_switches(chosen):
        yield _set(chosen)


def set_deterministic_mode(
    mode: Mode = True, *, tf32: Literal[False] | None = False, threads: int | None = None
) -> Changes:
    """Set the switches as `deterministic_mode` does, for good.

    ``set_deterministic_mode(False)`` switches it off.
    """
    return _set(chosen_switches(mode, tf32=tf32, threads=threads))


@contextmanager
def preserved_switches(switches: list[Switch] | None = None) -> Iterator[None]:
    """Reset these switches at the block's end; None: all of the table."""
    # With threads=, so that their number is among the switches. What is wanted is not set here.
    if switches is None:
        switches = chosen_switches(True, threads=1)
    before = [switch.read() for switch in switches]
    try:
        yield
    finally:
        for switch, value in zip(switches, before, strict=True):
            # Read again: setting one switch may have set another. What could not be read cannot be
            # put back.
            if value not in (None, UNREADABLE, switch.read()):
                switch.write(value)


def _set(switches: list[Switch]) -> Changes:
    """Set these switches, and return what changed."""
    # All are read before any is set: setting one may change another.
    before = {switch.name: switch.read() for switch in switches}
    _warn_of_cublas(before.get(CUBLAS_VARIABLE))
    for switch in switches:
        # It is read again: setting the one before may have set it, or reset it.
        if switch.read() not in (switch.wanted, *switch.fine, None):
            switch.write(switch.wanted)
    # Read again in a second pass, because a later switch may have changed an earlier one.
    changes = Changes()
    for switch in switches:
        old = before[switch.name]
        new = switch.read()
        if old not in (None, new):
            changes[switch.name] = (old, new)
    return changes


def _warn_of_cublas(value: str | None) -> None:
    """Warn if cuBLAS is not reproducible with this value of its variable."""
    # Only a look at a flag: asking for a device would start CUDA.
    if value == NOT_SET and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        logger.warning(
            "CUDA is already running and %s was not set: cuBLAS may have started without it. Set it"
            " before the first use of a GPU, or call this earlier.",
            CUBLAS_VARIABLE,
        )
    elif value not in (None, NOT_SET, *CUBLAS_ALLOWED):
        logger.warning(
            "%s=%r is kept, but cuBLAS is reproducible only with %s: set one of them, or unset it.",
            CUBLAS_VARIABLE,
            value,
            " or ".join(CUBLAS_ALLOWED),
        )


class Switch(NamedTuple):
    """One setting.

    Attributes:
        get: gives the value in force; raises AttributeError where this torch does not have the
            switch.
        wanted: the value to set.
        fine: further values that need no change.
    """

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], object]
    wanted: Any
    fine: tuple[Any, ...] = ()

    def read(self) -> Any:
        """Return the value in force; None: this torch (an older one, or without CUDA) lacks it."""
        try:
            with warnings.catch_warnings():
                # Some switches have two ways to be read and set, one of them deprecated.
                warnings.simplefilter("ignore")
                return self.get()
        except AttributeError:
            return None
        except RuntimeError:
            return UNREADABLE

    def write(self, value: Any) -> None:
        """Set the switch."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.set(value)


def checked_mode(name: str, mode: Any) -> Mode:
    """Return `mode` if it is False, True or "warn".

    Raises:
        TypeError: it is neither a bool nor a string.
        ValueError: it is another string.
    """
    if isinstance(mode, bool) or mode == "warn":
        return mode  # type: ignore[no-any-return]
    error_class = ValueError if isinstance(mode, str) else TypeError
    raise error_class(
        f'{name} must be False, True or "warn", got {mode!r} of type {type(mode).__name__}'
    )


def chosen_switches(
    mode: Mode, *, tf32: Literal[False] | None = False, threads: int | None = None
) -> list[Switch]:
    """Return the switches in the order in which they are set and reset.

    Arguments are those of `deterministic_mode`.
    """
    # The order matters: inductor's switch follows torch's, and TF32's flags follow each other.
    is_on = checked_mode("mode", mode) is not False
    if tf32 is not None and tf32 is not False:
        raise TypeError(f"tf32 must be False or None (left as it is), got {tf32!r}")
    switches = [
        _attribute("torch.backends.cudnn.deterministic", is_on),
        Switch("torch.use_deterministic_algorithms", _read_algorithms, _write_algorithms, mode),
        Switch("torch._inductor.config.deterministic", _read_inductor, _write_inductor, is_on),
        _attribute("torch.backends.mkldnn.deterministic", is_on),
    ]
    if threads is not None:
        count = positive_int("threads", threads)
        switches.append(
            Switch("torch.get_num_threads", torch.get_num_threads, torch.set_num_threads, count)
        )
    if not is_on:
        # Choices by timing stay as they are.
        return switches
    tunable = torch.cuda.tunable
    switches += [
        _attribute("torch.backends.cudnn.benchmark", False),
        Switch("torch.cuda.tunable", tunable.is_enabled, tunable.enable, False),
        Switch(
            CUBLAS_VARIABLE,
            partial(os.environ.get, CUBLAS_VARIABLE, NOT_SET),
            partial(set_variable, CUBLAS_VARIABLE),
            os.environ.get(CUBLAS_VARIABLE, CUBLAS_ALLOWED[0]),
        ),
        _attribute("torch.utils.deterministic.fill_uninitialized_memory", False),
    ]
    if tf32 is not None:
        switches += _tf32_switches()
    return switches


def _attribute(name: str, wanted: Any) -> Switch:
    """Return the switch that is an attribute of a module or object of torch's."""
    # The name is the path that users know, so that messages and settings cannot drift apart.
    path, _, attribute = name.removeprefix("torch.").rpartition(".")
    owner = operator.attrgetter(path)(torch)
    read = partial(getattr, owner, attribute)
    write = partial(setattr, owner, attribute)
    return Switch(name, read, write, wanted)


def _read_inductor() -> bool:
    """Return Inductor's switch.

    Raises:
        AttributeError: it is not imported (which takes seconds), or is older than the switch.
    """
    config: Any = sys.modules.get("torch._inductor.config")
    deterministic: bool = config.deterministic
    return deterministic


def _write_inductor(is_on: bool) -> None:
    config: Any = sys.modules.get("torch._inductor.config")
    config.deterministic = is_on


def _read_algorithms() -> Mode:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    if torch.is_deterministic_algorithms_warn_only_enabled():
        return "warn"
    return True


def _write_algorithms(mode: Mode) -> None:
    torch.use_deterministic_algorithms(mode is not False, warn_only=mode == "warn")


def compiles_reproducibly() -> bool:
    """Return True if `deterministic_mode` keeps ``torch.compile`` from choosing by timing.

    It can do so from torch 2.9 on.
    """
    # Importing it takes seconds.
    from torch._inductor import config

    return hasattr(config, "deterministic")


def set_variable(name: str, value: str | None) -> None:
    """Set an environment variable; None and `NOT_SET` remove it."""
    if value in (None, NOT_SET):
        os.environ.pop(name, None)
    else:
        os.environ[name] = str(value)


def _tf32_switches() -> list[Switch]:
    """Return torch's old flags, and the settings per backend and operation since torch 2.9.

    Both change together, because torch refuses to read a flag (and, on a GPU, to multiply) where
    they contradict each other: "mix of the legacy and new APIs" (PyTorch documentation, CUDA
    semantics, "TensorFloat-32 on Ampere"). Settings that others follow come first, so that their
    followers are right as soon as they are.
    """
    switches = [_precision_switch(backend, "all") for backend in ("generic", "cuda", "mkldnn")]
    switches.append(
        Switch(
            "torch.get_float32_matmul_precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
            "highest",
        )
    )
    switches.append(_attribute("torch.backends.cudnn.allow_tf32", False))
    for backend in ("cuda", "mkldnn"):
        for operation in ("matmul", "conv", "rnn"):
            switches.append(_precision_switch(backend, operation))
    return switches


def precision_settings() -> dict[str, Any]:
    """Return the settings of TF32 and of the precision of matrix multiplication, by name."""
    return {switch.name: switch.read() for switch in _tf32_switches()}


def _precision_switch(backend: str, operation: str) -> Switch:
    """Return the switch of the float32 precision of a backend's operation."""

    def read() -> str:
        return str(torch._C._get_fp32_precision_getter(backend, operation))

    def write(value: str) -> None:
        torch._C._set_fp32_precision_setter(backend, operation, value)

    return Switch(f"fp32_precision of {backend} {operation}", read, write, "none", ("ieee",))
