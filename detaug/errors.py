"""The errors that detaug raises, and their attributes."""

from __future__ import annotations

import types
from typing import Any


class BatchError(RuntimeError):
    """A loader or transform failed while it made one batch.

    The raised object is an instance of this class *and*, where Python allows it, of the class of the original
    exception, so that ``except ValueError`` around a training loop still works. Where Python does not allow it, the
    original exception is ``__cause__``.

    Attributes:
        epoch, step, stream: which batch failed.
        indices: of a data set, the items of that batch; the one that failed, where one did. Else empty.
        original: the original exception, if it could be sent.
        worker_traceback: the traceback as text, from the process in which it happened.
    """

    epoch: int = -1
    step: int = -1
    stream: int = -1
    indices: tuple[int, ...] = ()
    original: BaseException | None = None
    worker_traceback: str = ""

    def __str__(self) -> str:
        # Some classes (KeyError, OSError) print their arguments in their own way; the message is to be read as it is.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> Any:
        return (_rebuild_batch_error, (self.args, {k: v for k, v in self.__dict__.items() if k in _CARRIED}))


_CARRIED = ("epoch", "step", "stream", "indices", "worker_traceback", "exitcode")


def _rebuild_batch_error(args: tuple[Any, ...], state: dict[str, Any]) -> BatchError:
    error = WorkerDied(*args) if "exitcode" in state else BatchError(*args)
    error.__dict__.update(state)
    return error


class WorkerDied(BatchError):
    """The same batch killed its worker process again and again.

    Attributes:
        exitcode: the last exit code; minus the signal's number where a signal ended the process; None of
            an actor of a cluster, which leaves none.
    """

    exitcode: int | None = 0


class ReproducibilityError(RuntimeError):
    """A batch was made a second time, from a pristine copy of the pipeline, and differs.

    Attributes:
        epoch, step: which batch.
        keys: in which of its keys.
    """

    epoch: int = -1
    step: int = -1
    keys: tuple[str, ...] = ()


class UnusableError(ValueError):
    """What was handed in (a pipeline, a ledger, a training ...) cannot be used here; the message says why, in one line.

    Attributes:
        details: what a command prints before the message; mostly nothing.
    """

    details: str = ""


class NotInstalled(ModuleNotFoundError):
    """An extra of detaug's is not installed; the message says how to install it."""


class StateMismatch(ValueError):
    """A state dict belongs to another pipeline, seed, seed scheme, numerics version or stream count."""


def batch_error(original: BaseException | None, message: str) -> BatchError:
    """A `BatchError` that is also an instance of the original exception's class, where the two can be combined.

    It shows the original's attributes (``errno``, ``filename``, the user's own), but prints `message`.
    """
    kind = type(original)
    if not isinstance(original, Exception) or isinstance(original, BatchError):
        return BatchError(message)
    try:
        namespace = {**_built_in_attributes(original), "__module__": BatchError.__module__, "__init__": _init}
        made = _new(type("BatchError", (BatchError, kind), namespace), kind, message)
    except Exception:  # exotic metaclasses, layouts and __new__ signatures cannot be combined
        return BatchError(message)
    made.args = (message,)
    made.__dict__.update(getattr(original, "__dict__", {}))
    return made


def _new(combined: Any, kind: Any, message: str) -> BatchError:
    """An instance, by the one of the two constructors that CPython finds safe for the combined layout."""
    try:
        made = combined.__new__(combined, message)
    except TypeError:
        made = kind.__new__(combined, message)
    return made  # type: ignore[no-any-return]


def _built_in_attributes(original: BaseException) -> dict[str, Any]:
    """What built-in exceptions keep outside ``__dict__``: it would need their own constructors to be set."""
    found = {}
    for owner in type(original).__mro__:
        for name, member in vars(owner).items():
            descriptor = isinstance(member, (types.MemberDescriptorType, types.GetSetDescriptorType))
            if descriptor and name != "args" and not name.startswith("__"):
                found[name] = getattr(original, name, None)
    return found


def _init(self: BaseException, *args: Any) -> None:
    self.args = args
