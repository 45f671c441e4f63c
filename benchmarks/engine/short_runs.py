"""Short runs, with their start and their end: what a program of a few batches pays.

The check's share of a run is largest here: some of what it does, it does once in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, closing
from itertools import islice
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader
from torch.utils.data import DataLoader as TorchDataLoader

from benchmarks.calls import Stopwatch
from benchmarks.engine.loaders import SYSTEMS, TORCH, detaug
from benchmarks.report import OURS
from benchmarks.settings import SEED, WORKERS, Settings
from detaug import DataLoader as OurDataLoader
from detaug import DeterministicAugmenter
from detaug.tools.bench.timing import Meter

UNCHECKED = "check=False"
#: Batches of 200 kB, and of two volumes of 64³ with transforms of MONAI's.
SMALL_BATCHES = 300
MONAIS_BATCHES = 32
#: The same, of a run in which the start and the end hardly count.
MORE_BATCHES = 320


class SmallLoader(DataLoader):
    """Draws a batch of 200 kB."""

    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the batch."""
        return {"data": np.random.standard_normal((1, 1, 50, 1000)).astype(np.float32)}


def volumes(number: int) -> Any:
    """Return a MONAI data set of volumes of 64³, with random transforms."""
    from monai.data import Dataset
    from monai.transforms import Compose, RandAffined, RandFlipd, RandGaussianNoised

    generator = np.random.default_rng(0)
    items = [{"image": generator.random((1, 64, 64, 64), dtype=np.float32)} for _ in range(number)]
    affine = RandAffined(
        "image", prob=1.0, rotate_range=0.3, scale_range=0.1, padding_mode="border"
    )
    flip = RandFlipd("image", prob=0.5, spatial_axis=0)
    noise = RandGaussianNoised("image", prob=0.5)
    return Dataset(items, Compose([flip, affine, noise]))


def one_batch(_: Settings, system: str) -> float:
    """Return the CPU seconds of a run of one small batch."""
    meter = Meter()
    _run(_small(system), 1)
    return meter.read().cpu


def small_batches(_: Settings, system: str) -> float:
    """Return the wall-clock seconds of a run of small batches."""
    watch = Stopwatch()
    with watch:
        _run(_small(system), SMALL_BATCHES)
    return watch.wall


def short_epoch(_: Settings, system: str) -> float:
    """Return the CPU seconds of a short epoch of a data set, by `DeterministicAugmenter`."""
    dataset = volumes(2 * MONAIS_BATCHES)
    meter = Meter()
    if system == TORCH:
        _consume(_of_torch(dataset))
    else:
        with DeterministicAugmenter.from_dataset(
            dataset, 2, num_processes=WORKERS.processes, seed=SEED, check=system == OURS
        ) as augmenter:
            _consume(augmenter)
    return meter.read().cpu


def data_loader(settings: Settings, system: str) -> float:
    """Return the CPU seconds of an epoch of a data set, by `detaug.DataLoader`."""
    dataset = volumes(2 * settings.batches(MORE_BATCHES))
    meter = Meter()
    if system == TORCH:
        _consume(_of_torch(dataset))
    else:
        loader: OurDataLoader[Any] = OurDataLoader(
            dataset, 2, shuffle=True, num_workers=WORKERS.processes, seed=SEED
        )
        with closing(loader):
            _consume(loader)
    return meter.read().cpu


def _small(system: str) -> AbstractContextManager[Iterator[Any]]:
    loader = SmallLoader()
    if system == UNCHECKED:
        return detaug(loader, WORKERS, check=False)
    return SYSTEMS[system](loader, WORKERS)


def _run(running: AbstractContextManager[Iterator[Any]], batches: int) -> None:
    with running as iterator:
        _consume(islice(iterator, batches))


def _of_torch(dataset: Any) -> Iterable[Any]:
    return TorchDataLoader(dataset, 2, shuffle=True, num_workers=WORKERS.processes)


def _consume(batches: Iterable[Any]) -> None:
    for _ in batches:
        pass
