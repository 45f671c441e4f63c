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
CORRECT: dict[str, Callable[[], Made]] = {}
IMPURE: dict[str, Callable[[], Made]] = {}


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


def correct(make: Callable[[], Any]) -> Callable[[], Any]:
    CORRECT[make.__name__] = make
    return make


def impure(make: Callable[[], Any]) -> Callable[[], Any]:
    IMPURE[make.__name__] = make
    return make


def augmenter(name: str, num_processes: int, **options: Any) -> DeterministicAugmenter:
    """One pipeline's, with the settings that a user gets by default."""
    source, transform, own = {**CORRECT, **IMPURE}[name]()
    options = {"seed": 5, "num_processes": num_processes, "batches_per_epoch": 24, **own, **options}
    if isinstance(source, Volumes):
        batch_size = options.pop("batch_size", 2)
        return DeterministicAugmenter.from_dataset(source, batch_size, transform=transform, **options)
    return DeterministicAugmenter(source, transform, **options)


def on_data(function: Callable[[Any], Any]) -> Any:
    return OnData(function)


class OnData:
    """Changes what is in "data"."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "data": self.function(batch["data"])}


# --- correct ------------------------------------------------------------------------------------------------------------


class FrozenDistribution:
    def __init__(self) -> None:
        self.of = scipy.stats.truncnorm(-1, 2)
        self.of.random_state = np.random.RandomState(3)
        self.by_default = scipy.stats.gamma(2.0)

    def __call__(self, data: Any, **others: Any) -> Any:
        return {"data": data * self.of.rvs(size=len(data))[:, None, None, None, None] + self.by_default.rvs(), **others}


@correct
def scipys_distributions_with_a_state_of_their_own() -> Made:
    return Patches(), FrozenDistribution(), {}


class CachedInItsClass(Volumes):
    loaded: ClassVar[dict[int, Any]] = {}
    alive: ClassVar[Any] = weakref.WeakValueDictionary()

    def __getitem__(self, i: int) -> Any:
        case = self.loaded.setdefault(i % 7, volume(i % 7))
        other = self.alive.get(i % 3)
        if other is None:
            other = self.alive[i % 3] = torch.from_numpy(volume(i % 3))
        return {"data": case + other.numpy() * np.random.random()}


@correct
def caches_of_what_was_read_in_the_class_and_weak() -> Made:
    return CachedInItsClass(), None, {}


def nans_of_any_kind(data: Any) -> Any:
    data = data.copy()
    data[data > 1.2] = np.array(0x7FC00000 + os.getpid() % 1000, np.uint32).view(np.float32)
    return data


@correct
def nans_whose_other_bits_differ() -> Made:
    return Patches(), on_data(nans_of_any_kind), {}


class OneBuffer(Volumes):
    """Every item lies in the same memory."""

    def __init__(self) -> None:
        super().__init__()
        self.buffer = np.empty(SHAPE, np.float32)

    def __getitem__(self, i: int) -> Any:
        np.copyto(self.buffer, volume(i))
        return {"data": self.buffer}


@correct
def a_data_set_that_gives_one_buffer_again_and_again() -> Made:
    return OneBuffer(), None, {"collate_fn": lambda items: items[0], "batch_size": 1}


class ThreadsOfItsOwn(Volumes):
    """Cases are read by threads, which draw nothing, and put in order. Each process has its own: forks inherit no threads."""

    pools: ClassVar[dict[int, Any]] = {}

    def __getitem__(self, i: int) -> Any:
        from multiprocessing.pool import ThreadPool

        if os.getpid() not in self.pools:
            self.pools[os.getpid()] = ThreadPool(2)
        return {"data": np.concatenate(self.pools[os.getpid()].map(volume, [i, i + 1])) * np.random.random()}


@correct
def threads_that_read_in_order() -> Made:
    return ThreadsOfItsOwn(), None, {}


# --- impure -------------------------------------------------------------------------------------------------------------


STEP: contextvars.ContextVar[int] = contextvars.ContextVar("step", default=0)


def by_a_context_variable(data: Any) -> Any:
    STEP.set(STEP.get() + 1)
    return data + STEP.get()


@impure
def a_counter_in_a_context_variable() -> Made:
    return Patches(), on_data(by_a_context_variable), {}


def by_the_environment(data: Any) -> Any:
    os.environ["AUGMENTED"] = str(int(os.environ.get("AUGMENTED", "0")) + 1)
    return data * float(os.environ["AUGMENTED"])


@impure
def a_counter_in_the_environment() -> Made:
    return Patches(), on_data(by_the_environment), {}


@impure
def noise_of_itk_seeded_by_the_clock() -> Made:
    def noisy(data: Any) -> Any:
        return np.stack(
            [sitk.GetArrayFromImage(sitk.AdditiveGaussianNoise(sitk.GetImageFromArray(x[0]), 1.0)) for x in data]
        )

    return Patches(), on_data(noisy), {}


class OnDisk:
    """Numbers its batches in a file, as those do that write previews."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="detaug")
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def __call__(self, data: Any, **others: Any) -> Any:
        number = len(os.listdir(self.folder))
        Path(self.folder, uuid.uuid4().hex).touch()
        return {"data": data + number}


@impure
def a_counter_of_files() -> Made:
    return Patches(), OnDisk(), {}


class Spawns(Volumes):
    def __init__(self) -> None:
        super().__init__()
        self.sequence = np.random.SeedSequence(7)

    def __getitem__(self, i: int) -> Any:
        return {"data": volume(i) + np.random.default_rng(self.sequence.spawn(1)[0]).random()}


@impure
def a_seed_sequence_that_counts_its_children() -> Made:
    return Spawns(), None, {}


class OneSeedForAll:
    def __call__(self, data: Any, **others: Any) -> Any:
        torch.manual_seed(0)
        return {"data": torch.as_tensor(data) * 0 + torch.rand(SHAPE)}


@impure
def one_seed_for_every_batch() -> Made:
    return Patches(), OneSeedForAll(), {}


class Sobol:
    def __init__(self) -> None:
        self.points = scipy.stats.qmc.Sobol(3, scramble=True, rng=np.random.default_rng(1))

    def __call__(self, data: Any, **others: Any) -> Any:
        return {"data": data + self.points.random(1).sum()}


@impure
def points_of_a_sequence_in_a_transform() -> Made:
    return Patches(), Sobol(), {}


class Node:
    def __init__(self, weight: float) -> None:
        self.weight = weight


def by_address(data: Any) -> Any:
    nodes = [Node(w) for w in (0.1, 0.2, 0.3, 0.4)]
    weights = [node.weight for node in {*nodes}]
    return data * np.float32(sum(w * 10**k for k, w in enumerate(weights)))


@impure
def objects_in_the_order_of_their_addresses() -> Made:
    return Patches(), on_data(by_address), {}
