"""What a process has and a new interpreter lacks: settings of the program that can change the bytes of a batch.

They are taken down where the engine starts and travel to every worker, so that fork, spawn, forkserver and the calling
process itself make the same bytes, whatever the program sets later. The hash seed travels in the environment
(`detaug.processes.interpreters`), the number of threads is one everywhere (`detaug.processes.threads`).
"""

from __future__ import annotations

import decimal
import locale
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.backends import opt_einsum  # before torch 2.9, `import torch` alone leaves it out

from detaug.processes.threads import keep_one_thread, look_for_libraries, one_thread, renew_one_thread
from detaug.seeding.generators import preserved_global_rngs, reseed_global_rngs

#: action, message, module of the category, its name, module, line: as in `warnings.filters`.
_Filter = tuple[str, Any, str, str, Any, int]

_smallest_normal = sys.float_info.min


def _decimals() -> Any:
    context = decimal.getcontext().copy()
    context.clear_flags()
    return context.__reduce__()[1]  # contexts themselves are equal only to themselves


def _set_einsum(values: tuple[bool, str | None]) -> None:
    opt_einsum.enabled, opt_einsum.strategy = values


def _default_device() -> str | None:
    device = getattr(sys.modules.get("torch.utils._device"), "CURRENT_DEVICE", None)  # not loaded: none was ever set
    return None if device is None else str(device)


def denormals_are_flushed() -> bool:
    """Whether the calling thread's arithmetic makes zeros of denormal numbers."""
    return _smallest_normal * 0.5 == 0.0


#: What reads each setting that changes bytes, and what sets it.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "device": (_default_device, torch.set_default_device),
    # Of the thread; in NumPy and Python as well.
    "denormals": (denormals_are_flushed, torch.set_flush_denormal),
    "deterministic": (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda values: torch.use_deterministic_algorithms(values[0], warn_only=values[1]),
    ),
    "matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    # Its convolutions round in another way.
    "onednn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    # The order of products.
    "einsum": (lambda: (opt_einsum.enabled, opt_einsum.strategy), _set_einsum),
    "grad": (torch.is_grad_enabled, torch.set_grad_enabled),
    "numpy_errors": (np.geterr, lambda values: np.seterr(**values)),
    # Sums over arrays that have to be cast go buffer by buffer.
    "numpy_buffer": (np.getbufsize, np.setbufsize),
    "decimals": (_decimals, lambda values: decimal.setcontext(decimal.Context(*values))),
}


@dataclass(frozen=True)
class ProcessSettings:
    """The settings, by value. Contexts that the caller of ``next`` happens to be in count where they are given below.

    Attributes:
        values: of `_SETTINGS`.
        locale: `locale.setlocale`: the order of strings, the reading of numbers.
        recursion_limit: `sys.setrecursionlimit`.
        filters: `warnings.filters`, where one of them makes an error of a warning; else none.
    """

    values: dict[str, Any]
    locale: str
    recursion_limit: int
    filters: tuple[_Filter, ...]

    @staticmethod
    def here() -> ProcessSettings:
        """Those of the calling thread, now."""
        return ProcessSettings(
            {name: read() for name, (read, _) in _SETTINGS.items()},
            locale.setlocale(locale.LC_ALL),
            sys.getrecursionlimit(),
            _filters_with_errors(),
        )

    def keep(self) -> None:
        """In a worker, for good, before the pipeline is there."""
        keep_one_thread()
        torch.set_autocast_enabled("cpu", False)  # the pipeline does not run under the user's ``with torch.autocast``
        self._apply()
        _fill_memory(False)
        sys.setrecursionlimit(self.recursion_limit)
        if locale.setlocale(locale.LC_ALL) != self.locale:
            locale.setlocale(locale.LC_ALL, self.locale)

    def renew(self) -> None:
        """In a worker before each batch: what the batch before it, or a library that it loaded, has changed."""
        renew_one_thread()
        if denormals_are_flushed() != self.values["denormals"]:  # libraries built with -ffast-math do that when loaded
            torch.set_flush_denormal(self.values["denormals"])

    def keep_filters(self) -> None:
        """In a worker, once the pipeline is there: a library's own import may warn, and has not where it was forked."""
        if self.filters and self.filters != _filters_with_errors():
            warnings.filters[:] = _resolved(self.filters)  # type: ignore[index]
            warnings._filters_mutated()  # type: ignore[attr-defined]

    @contextmanager
    def applied(self) -> Iterator[None]:
        """In the user's process: the settings of a worker inside the block, and the user's own afterwards.

        Except those that change no bytes and only raise (limits, filters, locale).
        """
        before = ProcessSettings.here()
        fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
        with ExitStack() as stack:
            stack.enter_context(one_thread())
            stack.callback(_fill_memory, fill)
            stack.callback(before._apply)
            self._apply()
            _fill_memory(False)
            stack.enter_context(torch.autocast("cpu", enabled=False))
            yield

    def _apply(self) -> None:
        """Change what is otherwise now."""
        for name, (read, write) in _SETTINGS.items():
            if read() != self.values[name]:
                write(self.values[name])


def be_ready_to_fork() -> None:
    """Find out once what every forked worker needs to know: where libraries keep their threads and their random states."""
    look_for_libraries()
    with preserved_global_rngs():
        reseed_global_rngs(np.random.SeedSequence(0))


def _fill_memory(fill: bool) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def _filters_with_errors() -> tuple[_Filter, ...]:
    if not any(entry[0] == "error" for entry in warnings.filters):
        return ()
    entries: list[tuple[Any, ...]] = list(warnings.filters)
    return tuple(
        (action, message, category.__module__, category.__qualname__, module, line)
        for action, message, category, module, line in entries
    )


def _resolved(filters: tuple[_Filter, ...]) -> list[tuple[Any, ...]]:
    """Those of categories that this process has; warnings of other categories cannot occur here."""
    found: list[tuple[Any, ...]] = []
    for action, message, home, name, module, line in filters:
        category: Any = sys.modules.get(home)
        for part in name.split("."):
            category = getattr(category, part, None)
        if isinstance(category, type) and issubclass(category, Warning):
            found.append((action, message, category, module, line))
    return found
