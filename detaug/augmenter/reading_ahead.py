"""Libraries that read one batch more than the loop has got.

What `prepare_data_loader` of Ray Train returns requests the next batch before it gives the loop
the last one. The state of a loader must be that of the loop: in a checkpoint, the batch that was
read ahead would be lost. No argument of the library says so; the calling frame does.
"""

from __future__ import annotations

import inspect

#: Modules whose ``__iter__`` and ``__next__`` read one batch ahead.
_MODULES = frozenset({"ray.train.torch.train_loop_utils"})


def is_read_ahead() -> bool:
    """Return whether the ``__iter__`` that calls this was called by such a library's own.

    The ``__iter__`` of subclasses may lie between.
    """
    current = inspect.currentframe()
    assert current is not None
    frame = current.f_back
    while frame is not None and frame.f_code.co_name == "__iter__":
        if frame.f_globals.get("__name__") in _MODULES:
            return True
        frame = frame.f_back
    return False
