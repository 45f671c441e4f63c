"""Charts: matplotlib's figures in one style."""

from __future__ import annotations

from typing import Any

from detaug.pictures.requirements import require_matplotlib

#: Of Okabe and Ito's palette, which colour-blind readers tell apart.
COLOURS = ("#0072B2", "#D98E00", "#009E73")


def figure_of(title: str, width: float, height: float) -> Any:
    """An empty figure (inches) with a title.

    Raises:
        NotInstalled: matplotlib is not.
    """
    require_matplotlib()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontsize=12)
    return figure
