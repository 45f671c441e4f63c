"""matplotlib, or how to get it."""

from __future__ import annotations

import importlib.util


class NotInstalled(ModuleNotFoundError):
    """What draws pictures is not installed."""


def require_matplotlib() -> None:
    """See that pictures can be drawn.

    Raises:
        NotInstalled: they cannot; the message says what to install.
    """
    if importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("PIL") is None:
        raise NotInstalled(
            "pictures are drawn with matplotlib, which is not installed here: pip install 'detaug[plots]'"
        )
