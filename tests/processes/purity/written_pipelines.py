"""Pipelines for test_written_pipelines, in a module of their own: fresh interpreters import it.

Each is written as people write them for volumes. `CORRECT` ones give the same bytes in all ways, without a word. `IMPURE` ones
depend on something besides (seed, epoch, step): they are made pure by construction, refused, or told of. Their state lies where
no copy of a pipeline reaches; what copies reach is in `fuzz_cells`.
"""

from __future__ import annotations

import atexit
import contextvars
import os
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.ndimage
import scipy.stats
import SimpleITK as sitk
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import DeterministicAugmenter

SHAPE = (1, 6, 6, 6)
Made = tuple[Any, Any, dict[str, Any]]


def volume(i: int) -> np.ndarray:
    return np.random.default_rng(int(i)).normal(size=SHAPE).astype(np.float32)


class Volumes:
    """Draws nothing."""

    def __init__(self, n: int = 60) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"data": volume(i), "case": int(i)}


class Patches(DataLoader):
    """batchgenerators' stateless form."""

    def __init__(self, **options: Any) -> None:
        super().__init__(list(range(20)), 2, infinite=True, **options)
        self.indices = list(range(20))

    def generate_train_batch(self) -> dict[str, Any]:
        chosen = self.get_indices()
        return {"data": np.stack([volume(i) for i in chosen]), "case": np.array(chosen)}


def augmenter(name: str, num_processes: int, **options: Any) -> DeterministicAugmenter:
    """One pipeline's, with the settings that a user gets by default."""
    source, transform, own = {**CORRECT, **IMPURE}[name]()
    options = {"seed": 5, "num_processes": num_processes, "batches_per_epoch": 24, **own, **options}
    if isinstance(source, Volumes):
        batch_size = options.pop("batch_size", 2)
        return DeterministicAugmenter.from_dataset(source, batch_size, transform=transform, **options)
    return DeterministicAugmenter(source, transform, **options)


# --- correct ------------------------------------------------------------------------------------------------------------


class FrozenDistribution:
    def __init__(self) -> None:
        self.of = scipy.stats.truncnorm(-1, 2)
        self.of.random_state = np.random.RandomState(3)
        self.by_default = scipy.stats.gamma(2.0)

    def __call__(self, data: Any, **others: Any) -> Any:
        return {"data": data * self.of.rvs(size=len(data))[:, None, None, None, None] + self.by_default.rvs(), **others}


class CachedInItsClass(Volumes):
    loaded: ClassVar[dict[int, Any]] = {}
    alive: ClassVar[Any] = weakref.WeakValueDictionary()

    def __getitem__(self, i: int) -> Any:
        case = self.loaded.setdefault(i % 7, volume(i % 7))
        other = self.alive.get(i % 3)
        if other is None:
            other = self.alive[i % 3] = torch.from_numpy(volume(i % 3))
        return {"data": case + other.numpy() * np.random.random()}


def nans_of_any_kind(data: Any, **others: Any) -> Any:
    data = data.copy()
    data[data > 1.2] = np.array(0x7FC00000 + os.getpid() % 1000, np.uint32).view(np.float32)
    return {"data": data, **others}


class OneBuffer(Volumes):
    """Every item lies in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.empty(SHAPE, np.float32)

    def __getitem__(self, i: int) -> Any:
        np.copyto(self.buffer, volume(i))
        return {"data": self.buffer}


class ThreadsOfItsOwn(Volumes):
    """Cases are read by threads, which draw nothing, and put in order. Each process has its own: forks inherit no threads."""

    pools: ClassVar[dict[int, Any]] = {}

    def __getitem__(self, i: int) -> Any:
        from multiprocessing.pool import ThreadPool

        if os.getpid() not in self.pools:
            self.pools[os.getpid()] = ThreadPool(2)
        return {"data": np.concatenate(self.pools[os.getpid()].map(volume, [i, i + 1])) * np.random.random()}


# --- impure -------------------------------------------------------------------------------------------------------------


STEP: contextvars.ContextVar[int] = contextvars.ContextVar("step", default=0)


def by_a_context_variable(data: Any, **others: Any) -> Any:
    STEP.set(STEP.get() + 1)
    return {"data": data + STEP.get()}


def by_the_environment(data: Any, **others: Any) -> Any:
    os.environ["AUGMENTED"] = str(int(os.environ.get("AUGMENTED", "0")) + 1)
    return {"data": data * float(os.environ["AUGMENTED"])}


class OnDisk:
    """Numbers its batches in a file, as those do that write previews."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="detaug")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def __call__(self, data: Any, **others: Any) -> Any:
        number = len(os.listdir(self.folder))
        Path(self.folder, uuid.uuid4().hex).touch()
        return {"data": data + number}


class Spawns(Volumes):
    def __init__(self) -> None:
        super().__init__()
        self.sequence = np.random.SeedSequence(7)

    def __getitem__(self, i: int) -> Any:
        return {"data": volume(i) + np.random.default_rng(self.sequence.spawn(1)[0]).random()}


class Node:
    def __init__(self, weight: float) -> None:
        self.weight = weight


def by_address(data: Any, **others: Any) -> Any:
    nodes = [Node(w) for w in (0.1, 0.2, 0.3, 0.4)]
    weights = [node.weight for node in {*nodes}]
    return {"data": data * np.float32(sum(w * 10**k for k, w in enumerate(weights)))}


def noise_by_the_clock(data: Any, **others: Any) -> Any:
    images = [sitk.AdditiveGaussianNoise(sitk.GetImageFromArray(x[0]), 1.0) for x in data]
    return {"data": np.stack([sitk.GetArrayFromImage(image) for image in images])}


CORRECT: dict[str, Callable[[], Made]] = {
    "SciPy's distributions with a state of their own": lambda: (Patches(), FrozenDistribution(), {}),
    "caches of what was read, in the class and weak": lambda: (CachedInItsClass(), None, {}),
    "NaNs whose other bits differ": lambda: (Patches(), nans_of_any_kind, {}),
    "a data set that gives one buffer again and again": lambda: (
        OneBuffer(),
        None,
        {"collate_fn": lambda items: items[0], "batch_size": 1},
    ),
    "threads that read in order": lambda: (ThreadsOfItsOwn(), None, {}),
}
IMPURE: dict[str, Callable[[], Made]] = {
    "a counter in a context variable": lambda: (Patches(), by_a_context_variable, {}),
    "a counter in the environment": lambda: (Patches(), by_the_environment, {}),
    "noise of ITK, seeded by the clock": lambda: (Patches(), noise_by_the_clock, {}),
    "a counter of files": lambda: (Patches(), OnDisk(), {}),
    "a seed sequence that counts its children": lambda: (Spawns(), None, {}),
    "objects in the order of their addresses": lambda: (Patches(), by_address, {}),
}
