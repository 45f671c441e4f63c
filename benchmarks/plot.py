"""The ratios as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.report import Row


def plot(rows: Sequence[Row], title: str, file: Path) -> None:
    """Draw a bar for each comparison, with its range over the rounds, on a logarithmic axis.

    Where less is better (memory, time to the first batch) the inverse is drawn, so that to the right of 1 detaug is ahead in
    every row. Rows that are compared with nothing are left out.

    Args:
        rows: what was measured.
        title: above it.
        file: where to; its suffix is the format.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    bars = []
    for row in rows:
        for check in row.checks:
            if check.theirs is None:
                continue
            values = [check.spread[0], check.value, check.spread[1]]
            low, middle, high = values if check.relation == ">=" else [1 / value for value in reversed(values)]
            bars.append((f"{row.name}\nagainst {check.against}", low, middle, high))
    figure, axes = pyplot.subplots(figsize=(9, 1.4 + 0.5 * len(bars)), layout="constrained")
    places = range(len(bars))
    middles = [bar[2] for bar in bars]
    axes.barh(
        places,
        [middle - 1 for middle in middles],
        left=1,
        xerr=[[bar[2] - bar[1] for bar in bars], [bar[3] - bar[2] for bar in bars]],
        color=["tab:green" if middle >= 1 else "tab:red" for middle in middles],
        ecolor="0.3",
        capsize=3,
        height=0.6,
    )
    axes.set_yticks(places, [bar[0] for bar in bars], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xticks(ticks := _ticks([value for bar in bars for value in bar[1:]]), [f"{tick:g}×" for tick in ticks])
    axes.minorticks_off()
    axes.axvline(1, color="0.3", linewidth=1)
    axes.set_xlabel("detaug over the other; right of 1×: detaug is faster, or needs less")
    axes.set_title(title, fontsize=9, wrap=True)
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def _ticks(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times powers of ten, as far as the values go, and one more on each side."""
    steps = [factor * 10.0**power for power in range(-4, 6) for factor in (1, 2, 5)]
    inside = [i for i, step in enumerate(steps) if min(*values, 1) <= step <= max(*values, 1)]
    return steps[max(0, inside[0] - 1) : inside[-1] + 2]
