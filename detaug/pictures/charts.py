"""Small charts: as parts of one PNG, and each as an SVG whose colours are those of the page around it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from detaug.pictures.requirements import require_matplotlib

#: What is drawn in which colour: on a light page, and on a dark one. The first three are systems, in their order.
SERIES = ("series1", "series2", "series3")
LIGHT = {
    "series1": "#0072B2",
    "series2": "#D98E00",
    "series3": "#009E73",
    "ink": "#202124",
    "pale": "#6b7075",
    "grid": "#e3e5e8",
}
DARK = {
    "series1": "#56B4E9",
    "series2": "#E69F00",
    "series3": "#2BC49A",
    "ink": "#e8eaed",
    "pale": "#a3a9b0",
    "grid": "#34383d",
}

#: Stand in for the page's colours while an SVG is drawn.
_STANDINS = {name: f"#0102{number:02x}" for number, name in enumerate(LIGHT)}

#: Of a chart, in inches; letters are as large beside it as in the page's text.
_WIDTH, _HEIGHT = 4.6, 3.1


@dataclass(frozen=True)
class Chart:
    """A chart.

    Attributes:
        title: above it.
        words: below it, for the page; and what someone hears who cannot see it.
        draw: draws into matplotlib's axes with these colours.
        height: over the usual height.
    """

    title: str
    words: str
    draw: Callable[[Any, Mapping[str, str]], None]
    height: float = 1.0

    def svg(self) -> str:
        """For a page: colours are CSS variables (``--ink``, ``--series1`` ...), letters are text.

        Raises:
            NotInstalled: matplotlib is not.
        """
        from matplotlib import rc_context

        with rc_context(_style(_STANDINS, **{"svg.fonttype": "none", "svg.hashsalt": self.title})):
            figure = _figure(_WIDTH, _HEIGHT * self.height)
            self.draw(figure.subplots(), _STANDINS)
            file = io.StringIO()
            figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
        return _for_page(file.getvalue(), self.title)


def png_of(title: str, charts: Sequence[Chart]) -> bytes:
    """All charts in two columns, as a file.

    Raises:
        NotInstalled: matplotlib is not.
    """
    require_matplotlib()
    from matplotlib import rc_context

    rows = [charts[n : n + 2] for n in range(0, len(charts), 2)]
    heights = [max(chart.height for chart in row) * _HEIGHT for row in rows]
    with rc_context(_style(LIGHT)):
        figure = _figure(2 * _WIDTH, sum(heights) + 0.5)
        figure.suptitle(title, x=0.01, ha="left", fontsize=14, fontweight="bold")
        parts = figure.subfigures(len(rows), 2, height_ratios=heights, squeeze=False)
        for n, chart in enumerate(charts):
            part = parts[n // 2, n % 2]
            part.suptitle(chart.title, x=0.02, ha="left", fontsize=11, fontweight="bold")
            chart.draw(part.subplots(), LIGHT)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150, metadata={"Software": None})
    return file.getvalue()


def _figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _style(colours: Mapping[str, str], **more: str) -> Any:
    return {
        **more,
        "font.family": "DejaVu Sans",
        "font.size": 10,
        "text.color": colours["ink"],
        "axes.labelcolor": colours["pale"],
        "axes.edgecolor": colours["grid"],
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": colours["grid"],
        "grid.linewidth": 0.8,
        "xtick.color": colours["grid"],
        "ytick.color": colours["grid"],
        "xtick.labelcolor": colours["ink"],
        "ytick.labelcolor": colours["ink"],
        "legend.frameon": False,
        "legend.fontsize": 9.5,
    }


def _for_page(svg: str, title: str) -> str:
    """The element alone, as wide as there is room, with the page's colours and names of its own."""
    svg = svg[svg.index("<svg") :]
    for name, colour in _STANDINS.items():
        svg = svg.replace(colour, f"var(--{name})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'(<svg[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1), count=1
    )
    prefix = re.sub(r"\W+", "-", title.lower())
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'href="#', f'href="#{prefix}-', svg)
    svg = re.sub(r"url\(#", f"url(#{prefix}-", svg)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{title}" ', 1)
