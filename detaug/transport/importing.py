"""Modules that are imported while batches are made."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


def refuse_while_importing() -> None:
    """Raise a RuntimeError in a thread that has come to a training loop while it imports a module: the workers would wait for
    that import to end, or import the module as well, and each start workers of its own, without end."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_initializing(frame.f_globals.get("__spec__")):
            raise RuntimeError(
                f"the module {frame.f_globals.get('__name__')!r} makes batches while it is imported, and its loader or transform "
                "cannot be found by others before that has ended. Put what makes the batches into a function that the program "
                "calls, or below \"if __name__ == '__main__':\""
            )
        frame = frame.f_back


def forget_imports_of_other_threads() -> None:
    """Have a forked process import again the modules that other threads of its parent were importing at the fork: their locks
    would never be released, and the modules never be complete."""
    # None where this Python keeps them elsewhere.
    locks = getattr(sys.modules["_frozen_importlib"], "_module_locks", None)
    if locks is not None and not locks:
        return  # Nobody was importing. To look at every module would write to all of them, and so copy their memory.
    for name, module in sys.modules.copy().items():
        if _is_initializing(getattr(module, "__spec__", None)):
            del sys.modules[name]
    if locks is not None:
        locks.clear()


def _is_initializing(spec: Any) -> bool:
    return bool(getattr(spec, "_initializing", False))
