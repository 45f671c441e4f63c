"""`python -m benchmarks.order_picture FILE.png`: the front page's picture of the order in which batches arrive.

Two runs of the stock augmenter and two of detaug's with one seed, on the demo's real MRI.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import numpy as np

from detaug import fingerprint
from detaug.demo.run import OURS, STOCK, augmenter_of
from detaug.pictures.charts import figure_of

PATCH, PROCESSES, SHOWN = 64, 2, 10
RED, BLUE = (
    "#D55E00",
    "#0072B2",
)  # of Okabe and Ito's palette, which the colour-blind can tell apart


def _run(name: str, kill: bool) -> list[tuple[str, np.ndarray]]:
    """(fingerprint, a plane of the first sample) of each batch, as they arrive."""
    shown = []
    with augmenter_of(name, PROCESSES, PATCH) as augmenter:
        for number in range(SHOWN):
            batch = next(augmenter)
            pid = batch.pop("pid")
            if kill and number == 3:
                os.kill(pid, signal.SIGKILL)
            shown.append((fingerprint(batch), np.array(batch["data"][0, 0, PATCH // 2])))
    return shown


def draw(file: Path) -> None:
    """Make the batches, and write the picture."""
    rows = [
        (f"{STOCK}, run 1", _run(STOCK, kill=False)),
        ("run 2, same seeds", _run(STOCK, kill=False)),
        (f"detaug's {OURS}, run 1", _run(OURS, kill=False)),
        ("run 2, same seed, a worker killed at batch 4", _run(OURS, kill=True)),
    ]
    figure = figure_of("", 10, 5.3)
    sheets = figure.subfigures(4, 1, hspace=0.02)
    for index, (sheet, (title, batches)) in enumerate(zip(sheets, rows, strict=True)):
        first = rows[index - index % 2][1]
        same = [mine[0] == theirs[0] for mine, theirs in zip(batches, first, strict=True)]
        color = "black"
        if index % 2:
            color = BLUE if all(same) else RED
            title += f": {sum(same)} of {len(same)} batches the same, byte for byte"
        sheet.suptitle(title, x=0.01, ha="left", fontsize=11, color=color)
        for axes, (_, plane), equal in zip(sheet.subplots(1, SHOWN), batches, same, strict=True):
            axes.imshow(plane, cmap="gray", vmin=-1.5, vmax=2)
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set(color=BLUE if equal else RED, linewidth=3, visible=index % 2 == 1)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
