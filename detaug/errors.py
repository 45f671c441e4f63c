"""The exceptions that detaug raises, and their attributes."""

from __future__ import annotations

from typing import Any


class BatchError(RuntimeError):
    """The failure of a loader or transform on one batch.

    The object is an instance of this class *and*, if Python allows it, of the original exception's
    class, so that ``except ValueError`` around a training loop still works. If Python does not
    allow it, the original exception is ``__cause__``.

    Attributes:
        epoch, step, stream: of the batch.
        indices: the items of a data set in that batch, or the one item that failed; empty for other
            loaders.
        original: the original exception; None if it could not be sent from the worker.
        worker_traceback: the traceback as text, from the process in which it happened.
    """

    epoch: int = -1
    step: int = -1
    stream: int = -1
    indices: tuple[int, ...] = ()
    original: BaseException | None = None
    worker_traceback: str = ""

    def __str__(self) -> str:
        # Not by super(): KeyError and OSError, with which this class is combined, would change the
        # message.
        if not self.args:
            return ""
        return str(self.args[0])

    def __reduce__(self) -> Any:
        # Without the original's class, which another process may not have.
        error_class = WorkerDied if isinstance(self, WorkerDied) else BatchError
        attributes = {name: value for name, value in vars(self).items() if name in _PICKLED}
        return error_class, self.args, attributes


#: Attributes of a `BatchError` that are pickled; the original exception is not.
_PICKLED = ("epoch", "step", "stream", "indices", "worker_traceback", "exitcode")


class WorkerDied(BatchError):
    """The failure of a batch that killed its worker process again and again.

    Attributes:
        exitcode: the last exit code, or minus the number of the signal that ended the process; None
            for an actor of a cluster, which has no exit code.
    """

    exitcode: int | None = 0


class ReproducibilityError(RuntimeError):
    """The difference between a batch and its second making from a pristine copy of the pipeline.

    Attributes:
        epoch, step: of the batch.
        keys: the keys of the batch whose values differ.
    """

    epoch: int = -1
    step: int = -1
    keys: tuple[str, ...] = ()


class UnusableError(ValueError):
    """The refusal of a user's pipeline, ledger or training; the message is one line.

    Attributes:
        details: text that a command prints before the message; empty for most errors.
    """

    details: str = ""


class NotInstalled(ModuleNotFoundError):
    """A missing extra of detaug; the message says how to install it."""


class StateMismatch(ValueError):
    """A state dict of another pipeline, seed, seed scheme, numerics version or stream count."""


def batch_error(original: BaseException | None, message: str) -> BatchError:
    """Return a `BatchError` that, if possible, is also an instance of the original's class.

    It has the original's attributes (``errno``, ``filename``, the user's own), and prints
    `message`.
    """
    original_class = type(original)
    if not isinstance(original, Exception) or isinstance(original, BatchError):
        return BatchError(message)
    try:
        namespace: dict[str, Any] = {}
        # Built-in exceptions keep attributes outside ``__dict__``.
        for name in {*dir(original_class)} - {*dir(BatchError)}:
            namespace[name] = getattr(original, name, None)
        for name in ("__module__", "__str__", "__reduce__"):
            namespace[name] = vars(BatchError)[name]
        namespace["__init__"] = _set_args
        combined_class: Any = type("BatchError", (original_class, BatchError), namespace)
        error: BatchError = combined_class(message)
    except Exception:
        # Some metaclasses, memory layouts and signatures of __new__ cannot be combined.
        return BatchError(message)
    error.__dict__.update(vars(original))
    return error


def _set_args(self: BaseException, *args: Any) -> None:
    """Replace the original class's ``__init__``, whose parameters are not known."""
    self.args = args
