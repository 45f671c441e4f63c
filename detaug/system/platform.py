"""The operating system's abilities. Windows can neither fork nor pass descriptors to processes.

Without these, batches are made in the calling process alone: no module may need them to be
imported.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

#: True if there can be worker processes.
HAS_WORKERS = hasattr(os, "fork") and hasattr(socket, "AF_UNIX") and hasattr(socket, "send_fds")


def refuse_workers(request: str) -> None:
    """Raise an error where there can be no worker processes.

    Args:
        request: what was asked for, as the user wrote it, such as ``num_processes=2``.

    Raises:
        RuntimeError: there can be none.
    """
    if not HAS_WORKERS:
        raise RuntimeError(
            f"{request} needs worker processes, which detaug does not have on this system "
            f"({sys.platform}): they are forked, and pass descriptors over Unix sockets. With "
            "num_processes=0 the same batches are made in the calling process. On Windows, WSL has "
            "all that workers need"
        )


def at_fork(
    before: Callable[[], Any] | None = None,
    after_in_parent: Callable[[], Any] | None = None,
    after_in_child: Callable[[], Any] | None = None,
) -> None:
    """Have functions called around every fork of this process, where it can be forked."""
    if not hasattr(os, "register_at_fork"):
        return
    hooks = {
        "before": before,
        "after_in_parent": after_in_parent,
        "after_in_child": after_in_child,
    }
    os.register_at_fork(**{name: hook for name, hook in hooks.items() if hook is not None})
