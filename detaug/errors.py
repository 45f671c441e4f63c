"""The errors that detaug raises, and their attributes."""

from __future__ import annotations

from typing import Any


class BatchError(RuntimeError):
    """A loader or transform failed while it made one batch.

    The raised object is an instance of this class *and*, where Python allows it, of the class of
    the original exception, so that ``except ValueError`` around a training loop still works. Where
    Python does not allow it, the original exception is ``__cause__``.

    Attributes:
        epoch, step, stream: which batch failed.
        indices: of a data set, the items of that batch; the one that failed, where one did. Else
            empty.
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
        # Some classes (KeyError, OSError) print their arguments in their own way; the message is to
        # be read as it is.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> Any:
        # Without the original's class, which another process may not have.
        kind = WorkerDied if isinstance(self, WorkerDied) else BatchError
        return (
            kind,
            self.args,
            {name: value for name, value in vars(self).items() if name in _CARRIED},
        )


_CARRIED = ("epoch", "step", "stream", "indices", "worker_traceback", "exitcode")


class WorkerDied(BatchError):
    """The same batch killed its worker process again and again.

    Attributes:
        exitcode: the last exit code; minus the signal's number where a signal ended the process;
            None of an actor of a cluster, which leaves none.
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
    """What was handed in (a pipeline, a ledger, a training ...) cannot be used here; the message
    says why, in one line.

    Attributes:
        details: what a command prints before the message; mostly nothing.
    """

    details: str = ""


class NotInstalled(ModuleNotFoundError):
    """An extra of detaug's is not installed; the message says how to install it."""


class StateMismatch(ValueError):
    """A state dict belongs to another pipeline, seed, seed scheme, numerics version or stream
    count.
    """


def batch_error(original: BaseException | None, message: str) -> BatchError:
    """A `BatchError` that is also an instance of the original exception's class, where the two can
    be combined.

    It shows the original's attributes (``errno``, ``filename``, the user's own), but prints
    `message`.
    """
    kind = type(original)
    if not isinstance(original, Exception) or isinstance(original, BatchError):
        return BatchError(message)
    try:
        # Built-in exceptions keep attributes outside ``__dict__``.
        own = {name: getattr(original, name, None) for name in {*dir(kind)} - {*dir(BatchError)}}
        ours = {name: vars(BatchError)[name] for name in ("__module__", "__str__", "__reduce__")}
        combined: Any = type("BatchError", (kind, BatchError), {**own, **ours, "__init__": _init})
        made: BatchError = combined(message)
    except Exception:  # exotic metaclasses, layouts and __new__ signatures cannot be combined
        return BatchError(message)
    made.__dict__.update(vars(original))
    return made


def _init(self: BaseException, *args: Any) -> None:
    self.args = args
