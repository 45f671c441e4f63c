"""Modules that are imported while workers start."""

from __future__ import annotations

import _imp
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: Seconds that the start of workers waits for other threads' imports.
_PATIENCE = 20.0
_INSTEAD = (
    'Put what makes the batches into a function that the program calls, or below "if '
    "__name__ == '__main__':\""
)


def refuse_while_importing() -> None:
    """Raise a RuntimeError in a thread that starts a training loop while it imports a module.

    The workers would wait for that import to end, or import the module as well, and each start
    workers of its own, without end.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        spec = frame.f_globals.get("__spec__")
        is_module = frame.f_code.co_name == "<module>"
        # The import system sets the attribute until the module's code has run. The script that was
        # started has no such spec.
        if is_module and getattr(spec, "_initializing", False):
            raise RuntimeError(
                f"the module {frame.f_globals.get('__name__')!r} makes batches while it is "
                "imported, and its loader or transform cannot be found by others before that has "
                f"ended. {_INSTEAD}"
            )
        frame = frame.f_back


@contextmanager
def no_imports_elsewhere() -> Iterator[None]:
    """Let no other thread import a module inside the block.

    In a process that is forked during an import, that import would never end. The forked process
    calls `continue_importing`.

    Raises:
        RuntimeError: an import has not ended in time; it may be waiting for these very batches.
    """
    deadline = time.monotonic() + _PATIENCE
    # Every thread needs this lock for a moment to begin an import.
    _imp.acquire_lock()
    try:
        while True:
            names = _imported_elsewhere()
            if not names:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(
                    "workers cannot start: another thread has been importing the module "
                    f"{names[0]!r} for {_PATIENCE:.0f} s. {_INSTEAD}"
                )
            # Imports that have begun need the lock to go on.
            _imp.release_lock()
            time.sleep(0.01)
            _imp.acquire_lock()
        yield
    finally:
        _imp.release_lock()


def continue_importing() -> None:
    """Let modules be imported, in a process that was forked inside `no_imports_elsewhere`."""
    # The child has the lock as its parent's thread held it.
    _imp.release_lock()


def _imported_elsewhere() -> list[str]:
    """Return the names of the modules that other threads import now."""
    # Only read; {} if a Python keeps the locks of its imports elsewhere.
    locks = dict(getattr(sys.modules["_frozen_importlib"], "_module_locks", {}))
    owners = {name: getattr(reference(), "owner", None) for name, reference in locks.items()}
    return [name for name, owner in owners.items() if owner not in (None, threading.get_ident())]
