"""Modules that are imported while batches are made: by a script's own import, or by a worker that looks for a class."""

from __future__ import annotations

import io
import pickle
import sys
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

_is_worker = False


def note_worker() -> None:
    """This process is a worker."""
    global _is_worker
    _is_worker = True


def check_not_imported_by_worker() -> None:
    """Raise a RuntimeError in a worker that has come to a training loop while it imported a module: each worker would start its
    own workers, without end."""
    if _is_worker and (module := next(_modules_being_imported(), None)) is not None:
        raise RuntimeError(
            f"the module {module!r} makes batches while it is imported, and a worker imports it to find its loader or "
            "transform. Put what makes the batches into a function that the program calls, or below "
            "\"if __name__ == '__main__':\"; with executor=LocalProcesses(start_method='fork') workers import nothing"
        )


def forget_imports_of_other_threads() -> None:
    """Have a forked process import again the modules that other threads of its parent were importing at the fork: their locks
    would never be released, and the modules never be complete."""
    # None where this Python keeps them elsewhere.
    locks = getattr(sys.modules["_frozen_importlib"], "_module_locks", None)
    if locks is not None and not locks:
        return  # Nobody was importing. To look at every module would write to all of them, and so copy their memory.
    for name in set(_incomplete_modules()).difference(_modules_being_imported()):
        del sys.modules[name]
    if locks is not None:
        locks.clear()


def is_anybody_importing() -> bool:
    """Whether a thread of this process is importing a module."""
    return bool(_incomplete_modules())


def _incomplete_modules() -> list[str]:
    # Not list(...items()): a collection while that goes on may run finalizers that import something.
    modules = sys.modules.copy().items()
    return [name for name, module in modules if _is_initializing(getattr(module, "__spec__", None))]


def _modules_being_imported() -> Iterator[str]:
    """By this thread, the innermost first."""
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == "<module>" and _is_initializing(frame.f_globals.get("__spec__")):
            yield str(frame.f_globals.get("__name__"))
        frame = frame.f_back


def _is_initializing(spec: Any) -> bool:
    return bool(getattr(spec, "_initializing", False))


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Without the import system where another thread is still importing the module: with a loop in ``train`` and ``python -c
        "import train"`` that thread waits for this very batch."""
        if not _is_initializing(getattr(sys.modules.get(module), "__spec__", None)):
            return super().find_class(module, name)
        found = named(module, name)
        if found is None:
            raise pickle.UnpicklingError(
                f"{module}.{name} is needed before the module has come to its definition: the module makes batches "
                "while it is imported. Put what makes them into a function that the program calls"
            )
        return found


def named(module: str, qualname: str) -> Any:
    """What stands under the name in a module that is there, None if nothing does."""
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found


def loads(pickled: Any, buffers: Iterable[Any] = ()) -> Any:
    """As `pickle.loads`, for threads that the importing one may be waiting for."""
    return _Unpickler(io.BytesIO(pickled), buffers=buffers).load()
