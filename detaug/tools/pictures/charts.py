"""Charts: matplotlib's figures in one style."""

from __future__ import annotations

import importlib.util
from typing import Any

from detaug.errors import NotInstalled

#: Colours of Okabe and Ito's palette, which colour-blind readers tell apart.
COLOURS = ("#0072B2", "#D98E00", "#009E73")


def require_matplotlib() -> None:
    """Raise unless pictures can be drawn.

    Raises:
        NotInstalled: they cannot; the message says what to install.
    """
    if importlib.util.find_spec("matplotlib") is None or importlib.util.find_spec("PIL") is None:
        raise NotInstalled(
            "pictures are drawn with matplotlib, which is not installed here: pip install"
            " 'detaug[plots]'"
        )


def figure_of(title: str, width: float, height: float) -> Any:
    """Return an empty figure.

    Args:
        title: above it.
        width, height: in inches.

    Raises:
        NotInstalled: matplotlib is not.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    # Not by pyplot, which keeps every figure and sets a back end for the user's session.
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure
