"""Settings of the program that can change the bytes of a batch, and that a new interpreter lacks.

They are read when the engine starts and sent to every worker, so that fork, spawn, forkserver and
the calling process itself make the same bytes, whatever the program sets later. The hash seed is
sent in the environment (`detaug.system.interpreters`); the number of threads is one everywhere
(`detaug.system.threads`).
"""

from __future__ import annotations

import locale
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from detaug.seeding.generators import preserved_global_rngs, reseed_global_rngs
from detaug.system.threads import (
    keep_one_thread,
    look_for_libraries,
    one_thread,
    renew_one_thread,
)

_smallest_normal = sys.float_info.min


def _read_deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )


def _write_deterministic(values: tuple[bool, bool]) -> None:
    is_on, warns_only = values
    torch.use_deterministic_algorithms(is_on, warn_only=warns_only)


def _write_numpy_errors(values: dict[str, Any]) -> None:
    np.seterr(**values)


def _read_locale() -> str:
    return locale.setlocale(locale.LC_ALL)


def _write_locale(name: str) -> None:
    locale.setlocale(locale.LC_ALL, name)


def _read_device() -> str | None:
    # Not loaded: no device was ever set.
    module = sys.modules.get("torch.utils._device")
    device = getattr(module, "CURRENT_DEVICE", None)
    if device is None:
        return None
    return str(device)


def _read_meta_tensors() -> bool:
    # Not loaded: nobody has switched it off.
    module = sys.modules.get("monai.data.meta_obj")
    return module is None or bool(module.get_track_meta())


def _write_meta_tensors(is_on: bool) -> None:
    from monai.data.meta_obj import set_track_meta

    set_track_meta(is_on)


def denormals_are_flushed() -> bool:
    """Return True if the calling thread's arithmetic makes zeros of denormal numbers."""
    return _smallest_normal * 0.5 == 0.0


#: The functions that read and write each setting that changes bytes.
_SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "device": (_read_device, torch.set_default_device),
    # Of the thread; in NumPy and Python as well.
    "denormals": (denormals_are_flushed, torch.set_flush_denormal),
    "deterministic": (_read_deterministic, _write_deterministic),
    "matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    # Its convolutions round in another way.
    "onednn": (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    "grad": (torch.is_grad_enabled, torch.set_grad_enabled),
    "numpy_errors": (np.geterr, _write_numpy_errors),
    # The order of strings, the reading of numbers.
    "locale": (_read_locale, _write_locale),
    # MONAI's transforms return tensors of another class.
    "meta_tensors": (_read_meta_tensors, _write_meta_tensors),
    "recursion_limit": (sys.getrecursionlimit, sys.setrecursionlimit),
}


#: Names, for messages, of the settings that a batch may leave changed. (A library that a batch
#: imports may set the others for good: they are put back silently, or change no byte.)
_NAMES = {
    "dtype": "torch's default dtype",
    "device": "torch's default device",
    "deterministic": "torch's deterministic algorithms",
    "matmul_precision": "torch's float32 matmul precision",
    "onednn": "torch's use of oneDNN",
    "grad": "torch's grad mode",
    "numpy_errors": "NumPy's handling of floating-point errors",
    "locale": "the locale",
    "meta_tensors": "MONAI's tracking of meta data",
}
#: Those that decide what a resumed program's batches are, and are no matter of a context.
_OF_A_RUN = ("dtype", "meta_tensors")


@dataclass(frozen=True)
class ProcessSettings:
    """The values of the settings, by their names in `_SETTINGS`.

    Contexts that the caller of ``next`` happens to be in are no part of them, unless they are
    there.
    """

    values: dict[str, Any]

    @staticmethod
    def here() -> ProcessSettings:
        """Return the settings of the calling thread, now."""
        return ProcessSettings({name: read() for name, (read, _) in _SETTINGS.items()})

    def keep(self) -> None:
        """Apply the settings permanently, in a worker, before its first batch."""
        keep_one_thread()
        # A fork inherits the user's ``with torch.autocast``; other interpreters would not have it.
        torch.set_autocast_enabled("cpu", False)
        self._apply()

    def renew(self) -> None:
        """Apply the settings again that the batch before it has changed, in a worker.

        A library that the batch loaded may have changed them, too.
        """
        renew_one_thread()
        # Libraries that are built with -ffast-math change it when they are loaded.
        if denormals_are_flushed() != self.values["denormals"]:
            torch.set_flush_denormal(self.values["denormals"])

    def put_back(self, log: Callable[[str], None]) -> None:
        """Restore the settings that a batch has left changed, and log them."""
        for name, text in _NAMES.items():
            read, write = _SETTINGS[name]
            value = read()
            if value != self.values[name]:
                write(self.values[name])
                log(
                    f"a batch changed {text} from {self.values[name]} to {value}, and left it so."
                    " It is put back after every batch: set it before the augmenter starts, or in"
                    " the transform for as long as that needs it"
                )

    @staticmethod
    def changed_by(function: Callable[[], None]) -> ProcessSettings:
        """Call a function, reset the settings that it has changed, and return its values."""
        before = {name: _SETTINGS[name][0]() for name in _NAMES}
        function()
        changed = {}
        for name, value in before.items():
            read, write = _SETTINGS[name]
            new_value = read()
            if new_value != value:
                changed[name] = new_value
                write(value)
        return ProcessSettings(changed)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Have these settings inside the block, and those of before afterwards."""
        before = ProcessSettings({name: _SETTINGS[name][0]() for name in self.values})
        self._apply()
        try:
            yield
        finally:
            before._apply()

    @contextmanager
    def applied(self, log: Callable[[str], None]) -> Iterator[None]:
        """Have a worker's settings inside the block, and the user's own afterwards.

        Args:
            log: logs a message about each setting that is left changed inside.
        """
        before = ProcessSettings.here()
        with one_thread(), torch.autocast("cpu", enabled=False):
            self._apply()
            try:
                yield
            finally:
                self.put_back(log)
                before._apply()

    def _apply(self) -> None:
        """Set the settings whose present values differ."""
        for name, value in self.values.items():
            read, write = _SETTINGS[name]
            # Some setters load a module, or take longer than a small batch.
            if read() != value:
                write(value)


def settings_of_a_run() -> dict[str, str]:
    """Return the settings that a resumed program has to have as well, by name, as texts."""
    return {_NAMES[name]: str(_SETTINGS[name][0]()) for name in _OF_A_RUN}


def be_ready_to_fork() -> None:
    """Find the libraries' threads and random states once, so that forked workers need not."""
    # Before any work of torch's: its other threads did not survive the fork of this process.
    torch.set_num_threads(1)
    with preserved_global_rngs():
        reseed_global_rngs(np.random.SeedSequence(0))
    # Last: it may start OpenBLAS's threads, which take the cores until a worker is forked.
    look_for_libraries()
