"""`python -m benchmarks.order_picture FILE.png`: the picture on the front page, measured anew.

Two runs of the stock augmenter and two of detaug's with one seed, on the demo's real MRI, as contact sheets in the order in which
the batches arrive; and how long a training loop waits for each.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from detaug import DeterministicAugmenter, fingerprint
from detaug.demo.loader import MRIPatchLoader, enlarged, native_transforms, training_transforms
from detaug.demo.mri import load_cases
from detaug.demo.run import OURS, STOCK, _StockAugmenter

PATCH, PROCESSES, SEED, SHOWN = (64, 64, 64), 2, 1234, 10
#: Seconds of the training step that the loop stands for, and how long it runs.
STEP, SECONDS = 0.06, 12.0
RED, BLUE = "#D55E00", "#0072B2"  # of Okabe and Ito's palette, which the colour-blind can tell apart


def _augmenter(name: str, transform: Any) -> Any:
    loader = MRIPatchLoader(load_cases(), 2, enlarged(PATCH))
    if name == STOCK:
        return _StockAugmenter(loader, transform, PROCESSES, SEED)
    return DeterministicAugmenter(loader, transform, PROCESSES, num_cached=4, seed=SEED)


def _run(name: str, kill: bool) -> list[tuple[str, np.ndarray[Any, Any]]]:
    """(fingerprint, a plane of the first sample) of each batch, as they arrive."""
    shown = []
    with closing(_augmenter(name, training_transforms(PATCH))) as augmenter:
        for number in range(SHOWN):
            batch = next(augmenter)
            pid = batch.pop("pid")
            if kill and number == 3:
                os.kill(pid, signal.SIGKILL)
            shown.append((fingerprint(batch), np.array(batch["data"][0, 0, PATCH[0] // 2])))
    return shown


def _waited(name: str) -> float:
    """Per cent of a training loop's time, each with the transforms it comes with."""
    transform = (training_transforms if name == STOCK else native_transforms)(PATCH)
    with closing(_augmenter(name, transform)) as augmenter:
        for _ in range(10):
            next(augmenter)
            time.sleep(STEP)
        waited, began = 0.0, time.perf_counter()
        while (now := time.perf_counter()) - began < SECONDS:
            next(augmenter)
            waited += time.perf_counter() - now
            time.sleep(STEP)
        return 100 * waited / (time.perf_counter() - began)


def draw(file: Path) -> None:
    """Measure, and write the picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [
        (f"{STOCK}, run 1", _run(STOCK, kill=False)),
        ("run 2, same seeds", _run(STOCK, kill=False)),
        (f"detaug's {OURS}, run 1", _run(OURS, kill=False)),
        ("run 2, same seed, a worker killed at batch 4", _run(OURS, kill=True)),
    ]
    waited = {name: _waited(name) for name in (STOCK, OURS)}
    figure = pyplot.figure(figsize=(10, 6.6), facecolor="white", layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=[5.3, 1.2])
    sheets = above.subfigures(4, 1, hspace=0.02)
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
    axes = below.subplots()
    axes.barh([STOCK, "detaug, its own transforms"], list(waited.values()), color=[RED, BLUE], height=0.6)
    for place, value in enumerate(waited.values()):
        axes.text(value + 1, place, f"{value:.0f} %", va="center", fontsize=11)
    axes.set(xlim=(0, 100), xticks=[])
    axes.invert_yaxis()
    axes.tick_params(length=0, labelsize=11)
    axes.spines[:].set_visible(False)
    axes.set_title(
        f"share of its time that a training loop with a step of {STEP * 1e3:.0f} ms waits for two workers",
        fontsize=11,
        loc="left",
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    print({title: [print_[:8] for print_, _ in batches] for title, batches in rows}, waited)


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
