"""`python -m docs.order_picture`: draw the front page's picture of the batches' order.

Two runs of the stock augmenter and two of detaug's over the same patches of an MRI. Each patch has
the number that the loader gives it, and the worker that made it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from batchgenerators.dataloading.nondet_multi_threaded_augmenter import (
    NonDetMultiThreadedAugmenter,
)
from batchgenerators.transforms.abstract_transforms import Compose
from batchgenerators.transforms.color_transforms import GammaTransform
from batchgenerators.transforms.noise_transforms import MedianFilterTransform

from detaug import DeterministicAugmenter, SeedTree, fingerprint
from detaug.demo.mri import turned_template
from detaug.tools.pictures.charts import figure_of

STOCK = "NonDetMultiThreadedAugmenter"
OURS = "DeterministicAugmenter"

SEED = 1234
PATCH = 96
PROCESSES = 2
#: Few, so that soon after the kill a batch comes that was not ready before it.
NUM_CACHED = 1
SHOWN = 10  # batches
#: After that many batches the worker that made the last of them is killed.
KILLED_AFTER = 4

#: Of Okabe and Ito's palette, which colour-blind readers can tell apart.
RED = "#D55E00"
BLUE = "#0072B2"


class NumberedPatches(SlimDataLoaderBase):  # type: ignore[misc]  # batchgenerators has no types
    """The patches of a list in its order, one a batch; workers split the list among themselves."""

    def __init__(self) -> None:
        self.image = turned_template().image
        generator = SeedTree(SEED).child("patches").generator(0, 0)
        last_starts = np.subtract(self.image.shape, PATCH)
        # More than are shown: the stock augmenter treats the end of the list as an error.
        starts = generator.integers(0, last_starts + 1, size=(10 * SHOWN, 3))
        super().__init__(starts, 1, number_of_threads_in_multithreaded=PROCESSES)
        self.turn = 0

    def generate_train_batch(self) -> dict[str, Any]:
        """Return the next patch as ``data`` (1, 1, D, H, W), with its ``number`` from 1 on."""
        index = self.thread_id + self.turn * PROCESSES
        if index >= len(self._data):
            raise StopIteration
        self.turn += 1
        window = tuple(slice(start, start + PATCH) for start in self._data[index])
        return {"data": self.image[window][None, None].copy(), "number": index + 1}


#: Both draw from NumPy, which the stock augmenter seeds, and leave every patch recognisable. What
#: differs is then the order alone. A median filter takes long, so batches differ in their times.
_AUGMENT = Compose(
    [
        MedianFilterTransform((2, 4), same_for_each_channel=True, p_per_sample=0.5),
        GammaTransform(gamma_range=(0.8, 1.3), retain_stats=True, p_per_sample=0.5),
    ]
)


def _transform(**batch: Any) -> dict[str, Any]:
    return {**_AUGMENT(**batch), "pid": os.getpid()}


@dataclass(frozen=True)
class Arrival:
    """A batch as it arrived.

    Attributes:
        number: of its patch.
        worker: that made it; workers are counted from 1 in the order of their first batches.
        fingerprint: of the batch.
        plane: a coronal plane (D, W) of the patch.
    """

    number: int
    worker: int
    fingerprint: str
    plane: np.ndarray


@contextmanager
def _augmenter(name: str) -> Iterator[Any]:
    if name == OURS:
        with DeterministicAugmenter(
            NumberedPatches(), _transform, PROCESSES, NUM_CACHED, seed=SEED, check=False
        ) as augmenter:
            yield augmenter
        return
    tree = SeedTree(SEED)
    seeds = [tree.child(f"stock/{worker}").integer(bits=32) for worker in range(PROCESSES)]
    # It ends its workers when it is collected.
    yield NonDetMultiThreadedAugmenter(
        NumberedPatches(), _transform, PROCESSES, NUM_CACHED, seeds=seeds
    )


def _run(name: str, kill: bool) -> list[Arrival]:
    """Return the batches in the order in which they arrive."""
    arrivals: list[Arrival] = []
    pids: list[int] = []
    with _augmenter(name) as augmenter:
        while len(arrivals) < SHOWN:
            batch = next(augmenter)
            pid = batch.pop("pid")
            if pid not in pids:
                pids.append(pid)
            plane = np.array(batch["data"][0, 0, :, PATCH // 2])
            arrivals.append(
                Arrival(batch["number"], pids.index(pid) + 1, fingerprint(batch), plane)
            )
            if kill and len(arrivals) == KILLED_AFTER:
                os.kill(pid, signal.SIGKILL)
    return arrivals


def draw(file: Path) -> None:
    """Make the batches, and write the picture."""
    figure = figure_of("", 10, 6.1)
    sheets = figure.subfigures(4, 1, hspace=0.02)
    first_stock = _run(STOCK, kill=False)
    _draw_run(sheets[0], f"{STOCK}, run 1", first_stock)
    _draw_second_run(sheets[1], "run 2, same seeds", first_stock, _run(STOCK, kill=False))
    first = _run(OURS, kill=False)
    _draw_run(sheets[2], f"detaug's {OURS}, run 1", first)
    second = _run(OURS, kill=True)
    _draw_second_run(sheets[3], "run 2, same seed, a worker killed", first, second)
    killed = second[KILLED_AFTER - 1].worker
    _mark_kill(sheets[3], f"SIGKILL to worker {killed}")
    figure.savefig(file, dpi=100)


def _draw_run(sheet: Any, title: str, arrivals: list[Arrival], colour: str = "black") -> None:
    """Draw a row of patches, each with its number and its worker."""
    sheet.suptitle(title, x=0.01, ha="left", fontsize=11, color=colour)
    for axes, arrival in zip(sheet.subplots(1, SHOWN), arrivals, strict=True):
        axes.imshow(arrival.plane, cmap="gray", vmin=-1.5, vmax=2, origin="lower")
        axes.set_xticks([])
        axes.set_yticks([])
        axes.spines[:].set_visible(False)
        axes.set_xlabel(f"worker {arrival.worker}", fontsize=8, labelpad=2)
        axes.text(
            0.04,
            0.95,
            str(arrival.number),
            transform=axes.transAxes,
            ha="left",
            va="top",
            fontsize=10,
            fontweight="bold",
            color="white",
            bbox={"facecolor": "#202124", "edgecolor": "none", "pad": 1.5},
        )


def _draw_second_run(sheet: Any, title: str, first: list[Arrival], second: list[Arrival]) -> None:
    """Draw a run with frames that show whether each batch is that of the first run."""
    equal = [a.fingerprint == b.fingerprint for a, b in zip(first, second, strict=True)]
    title += f": {sum(equal)} of {SHOWN} batches the same, byte for byte"
    _draw_run(sheet, title, second, BLUE if all(equal) else RED)
    for axes, is_equal in zip(sheet.axes, equal, strict=True):
        axes.spines[:].set(visible=True, color=BLUE if is_equal else RED, linewidth=3)


def _mark_kill(sheet: Any, text: str) -> None:
    """Mark the moment of the kill, in the gap after the last batch before it."""
    axes = sheet.axes[KILLED_AFTER - 1]
    label = axes.text(
        1.0,
        1.05,
        f"▼ {text}",
        transform=axes.transAxes,
        ha="left",
        va="bottom",
        fontsize=9,
        fontweight="bold",
        color=RED,
    )
    # Else the row would leave room for it between two patches.
    label.set_in_layout(False)


if __name__ == "__main__":
    draw(Path(__file__).parent / "images" / "order.png")
