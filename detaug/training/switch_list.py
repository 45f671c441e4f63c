"""The switches themselves: how each is read, set and put back, and in which order. `switches` has the table of reasons."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.utils import deterministic as memory_filling

from detaug.seeding.tree import positive_int
from detaug.training import float32_precision as fp32

logger = logging.getLogger("detaug")

Mode = Literal["warn"] | bool
CUBLAS_VARIABLE = "CUBLAS_WORKSPACE_CONFIG"
CUBLAS_CHOSEN = ":4096:8"
# cuBLAS's documentation, "Results reproducibility": these two, and no other, make it repeat itself.
CUBLAS_ALLOWED = (":4096:8", ":16:8")
NOT_SET = "not set"


@dataclass(frozen=True)
class Switch:
    """One setting.

    Attributes:
        read: what is in force; None where this torch does not have the switch.
        wanted: what it is set to.
        fine: the values that need no setting, `wanted` among them.
        own: what is to be put back, where that is not what is in force (a setting that follows another).
        once: it can be set once in a process, and is not put back.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    wanted: Any
    fine: tuple[Any, ...] = ()
    own: Callable[[], Any] | None = None
    once: bool = False

    def is_right(self, value: Any) -> bool:
        """Whether `value`, as `read` gave it, is to be left as it is."""
        return value in (self.wanted, *self.fine, None, fp32.UNREADABLE)


def checked_mode(what: str, mode: Any) -> Mode:
    """`mode`, if it is False, True or "warn".

    Raises:
        TypeError: it is neither a bool nor a string.
        ValueError: it is another string.
    """
    if isinstance(mode, bool) or mode == "warn":
        return mode  # type: ignore[no-any-return]
    kind = ValueError if isinstance(mode, str) else TypeError
    raise kind(f'{what} must be False, True or "warn", got {mode!r} of type {type(mode).__name__}')


def _checked_bool(what: str, value: Any, *, or_none: bool = True) -> None:
    if not (isinstance(value, bool) or (or_none and value is None)):
        allowed = "True, False or None (left as it is)" if or_none else "True or False"
        raise TypeError(f"{what} must be {allowed}, got {value!r} of type {type(value).__name__}")


def chosen_switches(
    mode: Mode,
    *,
    tf32: bool | None,
    fill_memory: bool | None,
    cublas: bool,
    cudnn: bool | None = None,
    threads: int | None = None,
) -> list[Switch]:
    """The switches to set, in the order in which they are set and put back."""
    checked_mode("mode", mode)
    for what, value in (("tf32", tf32), ("fill_memory", fill_memory), ("cudnn", cudnn)):
        _checked_bool(what, value)
    _checked_bool("cublas", cublas, or_none=False)
    switches = [*_algorithm_switches(mode)]
    if cudnn is not None:
        switches.append(_attribute("torch.backends.cudnn", torch.backends.cudnn, "enabled", cudnn))
    if threads is not None:
        number = positive_int("threads", threads)
        switches.append(Switch("torch.get_num_threads", torch.get_num_threads, torch.set_num_threads, number))
        switches.append(
            Switch("torch.get_num_interop_threads", torch.get_num_interop_threads, _write_interop, number, once=True)
        )
    if mode is False:
        return switches
    if cublas:
        switches.append(_cublas_switch())
    if fill_memory is not None:
        switches.append(
            _attribute("torch.utils.deterministic", memory_filling, "fill_uninitialized_memory", fill_memory)
        )
    if tf32 is not None:
        switches += _tf32_switches(tf32)
    return switches


def _write_interop(number: int) -> None:
    try:
        torch.set_num_interop_threads(number)
    except RuntimeError:  # once in a process, and before the first parallel work
        logger.warning(
            "torch has %d threads between operations, and no longer takes another number: set threads=%d earlier",
            torch.get_num_interop_threads(),
            number,
        )


def _algorithm_switches(mode: Mode) -> list[Switch]:
    cudnn, mkldnn = torch.backends.cudnn, torch.backends.mkldnn
    if mode is False:  # choices by timing stay off
        return [
            _attribute("torch.backends.cudnn", cudnn, "deterministic", False),
            Switch("torch.use_deterministic_algorithms", _read_algorithms, _write_algorithms, False),
            Switch("torch._inductor.config.deterministic", _read_inductor, _write_inductor, False),
            _attribute("torch.backends.mkldnn", mkldnn, "deterministic", False),
        ]
    return [
        _attribute("torch.backends.cudnn", cudnn, "deterministic", True),
        _attribute("torch.backends.cudnn", cudnn, "benchmark", False),
        Switch("torch.use_deterministic_algorithms", _read_algorithms, _write_algorithms, mode),
        # After the one above, which sets it too in newer releases, whatever it was before.
        Switch("torch._inductor.config.deterministic", _read_inductor, _write_inductor, True),
        _attribute("torch.backends.mkldnn", mkldnn, "deterministic", True),
        Switch("torch.cuda.tunable", _read_tunable, _write_tunable, False),
    ]


def _attribute(where: str, place: Any, attribute: str, wanted: Any) -> Switch:
    def read() -> Any:
        try:
            return getattr(place, attribute)
        except AttributeError:  # this torch does not have it
            return None

    return Switch(f"{where}.{attribute}", read, partial(setattr, place, attribute), wanted)


def _read_algorithms() -> Mode:
    if not torch.are_deterministic_algorithms_enabled():
        return False
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else True


def _write_algorithms(mode: Mode) -> None:
    torch.use_deterministic_algorithms(mode is not False, warn_only=mode == "warn")


def _read_inductor() -> bool | None:
    config = sys.modules.get("torch._inductor.config")
    if config is not None:
        return getattr(config, "deterministic", None)
    # Not loaded here: that takes seconds. It would start from this variable.
    return os.environ.get("TORCHINDUCTOR_DETERMINISTIC") == "1"


def _write_inductor(value: bool) -> None:
    config: Any = sys.modules.get("torch._inductor.config")
    if hasattr(config, "deterministic"):
        config.deterministic = value


def _read_tunable() -> bool | None:
    try:
        return bool(torch.cuda.tunable.is_enabled())
    except AttributeError:  # an older torch, or one that was built without CUDA
        return None


def _write_tunable(value: bool) -> None:
    torch.cuda.tunable.enable(value)


def _cublas_switch() -> Switch:
    return Switch(CUBLAS_VARIABLE, _read_cublas, _write_cublas, CUBLAS_CHOSEN, fine=CUBLAS_ALLOWED)


def _read_cublas() -> str:
    return os.environ.get(CUBLAS_VARIABLE, NOT_SET)


def _write_cublas(value: str) -> None:
    if value == NOT_SET:
        os.environ.pop(CUBLAS_VARIABLE, None)
    else:
        os.environ[CUBLAS_VARIABLE] = value


def _tf32_switches(tf32: bool) -> list[Switch]:
    """Matmul's flag before matmul's precision, which it overwrites, and the flags before `fp32_precision`, which they
    overwrite: set and put back in this order, each ends with its own value."""

    def flag(name: str, read: Callable[[], Any], write: Callable[[Any], None], wanted: Any, *fine: Any) -> Switch:
        return Switch(
            name, partial(fp32.read_flag, read), lambda value: fp32.quietly(partial(write, value)), wanted, fine
        )

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    switches = [
        flag(
            "torch.backends.cuda.matmul.allow_tf32",
            lambda: matmul.allow_tf32,
            lambda value: setattr(matmul, "allow_tf32", value),
            tf32,
        ),
        flag(
            "torch.get_float32_matmul_precision",
            torch.get_float32_matmul_precision,
            torch.set_float32_matmul_precision,
            "high" if tf32 else "highest",
            *(["medium"] if tf32 else []),
        ),
        flag(
            "torch.backends.cudnn.allow_tf32",
            lambda: cudnn.allow_tf32,
            lambda value: setattr(cudnn, "allow_tf32", value),
            tf32,
        ),
    ]
    if fp32.has_settings_per_operation():
        for backend, operation, name in fp32.OPERATIONS:
            read, write = partial(fp32.precision, backend, operation), partial(fp32.set_precision, backend, operation)
            wanted = "tf32" if tf32 else "ieee"
            fine: tuple[str, ...] = () if tf32 else ("none",)
            if tf32 and backend != "cuda":  # TF32 is NVIDIA's: not set, but put back, since the flags above reach it
                fine = ("none", "ieee", "bf16")
            switches.append(Switch(name, read, write, wanted, fine, partial(fp32.own_precision, backend, operation)))
    return switches
