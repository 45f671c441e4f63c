"""`python -m benchmarks.ratio_picture FILE.png RESULTS.json ...`: the picture of the ratios on the front page.

It is drawn from what ``python -m benchmarks ... --json RESULTS.json`` wrote. What is drawn is kept beside the picture
(``FILE.json``), from which it can be drawn again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The rows that the front page has, in their order, by the name that they have in the results; and which of their comparisons.
ROWS = {
    "3d_fullres, 128³, batch 2, read and augment": ("nnU-Net's 3-D loader and transforms", "nnU-Net, CPU time"),
    "2d, 320², batch 32, read and augment": ("nnU-Net's 2-D loader and transforms", "nnU-Net, CPU time"),
    "nnU-Net's 3-D pipeline, mean per sample": ("its 3-D transforms alone", "batchgeneratorsv2"),
    "nnU-Net's 2-D pipeline, mean per sample": ("its 2-D transforms alone", "batchgeneratorsv2"),
    "transport": ("a ready 25 MB batch, between processes", "NonDetMultiThreadedAugmenter"),
}


@dataclass(frozen=True)
class Bar:
    """How many times as fast detaug is: the median over rounds, and the range."""

    name: str
    against: str
    ratio: float
    lowest: float
    highest: float


def picked(results: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of `ROWS` that are in results, in their order, with the one comparison that is drawn."""
    found = {row["name"]: row for result in results for row in result["rows"]}
    rows = []
    for name, (_, against) in ROWS.items():
        checks = [each for each in found.get(name, {}).get("checks", ()) if each["against"] == against]
        if checks:
            kept = {key: found[name][key] for key in ("name", "unit", "ours", "repeats", "settings", "cores_elsewhere")}
            rows.append({**kept, "checks": checks})
    return rows


def bars(rows: Sequence[dict[str, Any]]) -> list[Bar]:
    """One for each row."""
    return [
        Bar(ROWS[row["name"]][0], check["against"].split(",")[0], check["value"], *check["spread"])
        for row in rows
        for check in row["checks"]
    ]


def draw(drawn: Sequence[Bar], file: Path) -> None:
    """A bar for each, with its range over the rounds."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    blue, pale, ink = "#0072B2", "#6b7075", "#202124"
    figure, axes = pyplot.subplots(figsize=(10, 0.55 + 0.44 * len(drawn)), facecolor="white", layout="constrained")
    places = range(len(drawn))
    axes.barh(
        places,
        [bar.ratio for bar in drawn],
        xerr=[[bar.ratio - bar.lowest for bar in drawn], [bar.highest - bar.ratio for bar in drawn]],
        color=blue,
        ecolor=pale,
        capsize=3,
        height=0.62,
    )
    most = max(bar.highest for bar in drawn)
    for place, bar in enumerate(drawn):
        axes.text(bar.highest + 0.015 * most, place, f"{bar.ratio:.2g}×", va="center", fontsize=12, color=ink)
        axes.text(most * 1.13, place, f"against {bar.against}", va="center", fontsize=10, color=pale)
    axes.axvline(1, color=ink, linewidth=1)
    axes.set_yticks(places, [bar.name for bar in drawn], fontsize=11)
    axes.set(xlim=(0, most * 1.6), xticks=[])
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(
        "detaug: so many times as fast (the line is 1×; whiskers: the range over rounds)", fontsize=11, loc="left"
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    pyplot.close(figure)


def main(picture: Path, files: Sequence[Path]) -> None:
    """Draw the picture, and keep what it shows beside it."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    rows = picked(results)
    if not rows:
        raise SystemExit(f"none of the rows that are drawn is in {', '.join(map(str, files))}: {', '.join(ROWS)}")
    draw(bars(rows), picture)
    kept = {"environment": results[0]["environment"], "rows": rows}
    picture.with_suffix(".json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(each) for each in sys.argv[2:]])
