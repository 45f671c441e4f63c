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
from collections.abc import Iterator
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


@dataclass(frozen=True)
class ProcessSettings:
    """The settings, by value. Contexts that the caller of ``next`` happens to be in count where they are given below.

    Attributes:
        dtype: torch's default dtype.
        device: torch's default device.
        denormals_flushed: `torch.set_flush_denormal`: numbers too small for a full mantissa become zero, in NumPy and
            Python as well. A property of the thread.
        deterministic: `torch.use_deterministic_algorithms`, and whether it only warns.
        matmul_precision: `torch.set_float32_matmul_precision`.
        onednn: whether torch uses oneDNN (its convolutions round in another way).
        einsum: torch.backends.opt_einsum's (enabled, strategy): the order of products.
        grad: whether torch records gradients.
        numpy_errors: `np.seterr`.
        numpy_buffer: `np.setbufsize`: sums over arrays that have to be cast go buffer by buffer.
        decimals: the thread's decimal context, without its flags.
        locale: `locale.setlocale`: the order of strings, the reading of numbers.
        recursion_limit: `sys.setrecursionlimit`.
        filters: `warnings.filters`, where one of them makes an error of a warning; else none.
    """

    dtype: torch.dtype
    device: str | None
    denormals_flushed: bool
    deterministic: tuple[bool, bool]
    matmul_precision: str
    onednn: bool
    einsum: tuple[bool, str | None]
    grad: bool
    numpy_errors: tuple[tuple[str, Any], ...]
    numpy_buffer: int
    decimals: tuple[Any, ...]
    locale: str
    recursion_limit: int
    filters: tuple[_Filter, ...]

    @staticmethod
    def here() -> ProcessSettings:
        """Those of the calling thread, now."""
        return ProcessSettings(
            dtype=torch.get_default_dtype(),
            device=_default_device(),
            denormals_flushed=denormals_are_flushed(),
            deterministic=(
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            matmul_precision=torch.get_float32_matmul_precision(),
            onednn=torch._C._get_mkldnn_enabled(),
            einsum=_einsum(),
            grad=torch.is_grad_enabled(),
            numpy_errors=tuple(np.geterr().items()),
            numpy_buffer=np.getbufsize(),
            decimals=_of_decimal_context(decimal.getcontext()),
            locale=locale.setlocale(locale.LC_ALL),
            recursion_limit=sys.getrecursionlimit(),
            filters=_filters_with_errors(),
        )

    def keep(self) -> None:
        """In a worker, for good, before the pipeline is there."""
        keep_one_thread()
        torch.set_autocast_enabled("cpu", False)  # the pipeline does not run under the user's ``with torch.autocast``
        self._apply(ProcessSettings.here())
        _fill_memory(False)
        sys.setrecursionlimit(self.recursion_limit)
        if locale.setlocale(locale.LC_ALL) != self.locale:
            locale.setlocale(locale.LC_ALL, self.locale)

    def renew(self) -> None:
        """In a worker before each batch: what the batch before it, or a library that it loaded, has changed."""
        renew_one_thread()
        if denormals_are_flushed() != self.denormals_flushed:  # libraries built with -ffast-math do that when loaded
            torch.set_flush_denormal(self.denormals_flushed)

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
            stack.callback(lambda: before._apply(ProcessSettings.here()))
            self._apply(before)
            _fill_memory(False)
            stack.enter_context(torch.autocast("cpu", enabled=False))
            yield

    def _apply(self, now: ProcessSettings) -> None:
        """Change what is `now` otherwise."""
        if now.dtype != self.dtype:
            torch.set_default_dtype(self.dtype)
        if now.device != self.device:
            torch.set_default_device(self.device)
        if now.denormals_flushed != self.denormals_flushed:
            torch.set_flush_denormal(self.denormals_flushed)
        if now.deterministic != self.deterministic:
            torch.use_deterministic_algorithms(self.deterministic[0], warn_only=self.deterministic[1])
        if now.matmul_precision != self.matmul_precision:
            torch.set_float32_matmul_precision(self.matmul_precision)
        if now.onednn != self.onednn:
            torch._C._set_mkldnn_enabled(self.onednn)
        if now.einsum != self.einsum:
            opt_einsum.enabled, opt_einsum.strategy = self.einsum
        if now.grad != self.grad:
            torch.set_grad_enabled(self.grad)
        if now.numpy_errors != self.numpy_errors:
            np.seterr(**dict(self.numpy_errors))
        if now.numpy_buffer != self.numpy_buffer:
            np.setbufsize(self.numpy_buffer)
        if now.decimals != self.decimals:
            decimal.setcontext(_decimal_context(self.decimals))


def denormals_are_flushed() -> bool:
    """Whether the calling thread's arithmetic makes zeros of denormal numbers."""
    return _smallest_normal * 0.5 == 0.0


def be_ready_to_fork() -> None:
    """Find out once what every forked worker needs to know: where libraries keep their threads and their random states."""
    look_for_libraries()
    with preserved_global_rngs():
        reseed_global_rngs(np.random.SeedSequence(0))


def _default_device() -> str | None:
    device = getattr(sys.modules.get("torch.utils._device"), "CURRENT_DEVICE", None)  # not loaded: none was ever set
    return None if device is None else str(device)


def _einsum() -> tuple[bool, str | None]:
    return opt_einsum.enabled, opt_einsum.strategy


def _fill_memory(fill: bool) -> None:
    torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def _of_decimal_context(context: decimal.Context) -> tuple[Any, ...]:
    traps = tuple(sorted(signal.__name__ for signal, on in context.traps.items() if on))
    return (
        context.prec,
        context.rounding,
        context.Emin,
        context.Emax,
        context.capitals,
        context.clamp,
        traps,
    )


def _decimal_context(values: tuple[Any, ...]) -> decimal.Context:
    prec, rounding, least, most, capitals, clamp, traps = values
    return decimal.Context(prec, rounding, least, most, capitals, clamp, [], [getattr(decimal, name) for name in traps])


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
