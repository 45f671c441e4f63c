"""Fifty pipelines for test_fifty_more, in a module of their own: fresh interpreters import it.

Each is written as people write them for volumes. `CORRECT` ones give the same bytes in all ways, without a word. `IMPURE` ones
depend on something besides (seed, epoch, step): they are made pure by construction, refused, or told of.
"""

from __future__ import annotations

import atexit
import contextvars
import dataclasses
import datetime
import itertools
import logging
import os
import random
import shutil
import tempfile
import threading
import time
import uuid
import weakref
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import albumentations
import cv2
import monai.transforms as mt
import numba
import numpy as np
import pandas as pd
import scipy.ndimage
import scipy.stats
import SimpleITK as sitk
import skimage.util
import torch
import torchio as tio
from batchgenerators.dataloading.data_loader import DataLoader
from torchvision.transforms import v2

from detaug import DeterministicAugmenter, current

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


class WithMonai(Volumes):
    def __init__(self) -> None:
        super().__init__()
        self.transform = mt.Compose(
            [
                mt.RandAffined(["data"], prob=0.9, rotate_range=0.5, padding_mode="border"),
                mt.OneOf([mt.RandGaussianNoised(["data"], prob=1.0), mt.RandBiasFieldd(["data"], prob=1.0)]),
                mt.RandSpatialCropSamplesd(["data"], (4, 4, 4), num_samples=2, random_size=False),
            ]
        )

    def __getitem__(self, i: int) -> Any:
        return {"data": np.stack([np.asarray(each["data"]) for each in self.transform({"data": volume(i)})])}


@correct
def monai_crops_several_samples_of_a_case() -> Made:
    return WithMonai(), None, {"shuffle": True}


class WithTorchIO(Volumes):
    transform = tio.Compose(
        [tio.RandomMotion(num_transforms=1), tio.OneOf({tio.RandomBlur(): 0.4, tio.RandomNoise(): 0.6})]
    )

    def __getitem__(self, i: int) -> Any:
        return {"data": self.transform(tio.Subject(t1=tio.ScalarImage(tensor=torch.from_numpy(volume(i))))).t1.data}


@correct
def torchio_transforms_in_the_class() -> Made:
    return WithTorchIO(), None, {}


@correct
def albumentations_on_slices() -> Made:
    draw = albumentations.Compose([albumentations.D4(p=1), albumentations.GaussNoise(p=0.7)])
    return Patches(), on_data(lambda x: np.stack([draw(image=each[0].clip(0, 1))["image"] for each in x])), {}


@correct
def torchvision_erases_with_dropout() -> Made:
    erase = v2.Compose([v2.RandomErasing(p=0.8), v2.RandomAffine(20), torch.nn.Dropout(0.2)])
    return Volumes(), on_data(lambda x: erase(torch.as_tensor(x).flatten(1, 2))), {}


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


@lru_cache(maxsize=4)
def bump(size: int, sigma: float) -> np.ndarray:
    return np.exp(-((np.arange(size) - size / 2) ** 2) / (2 * sigma**2))


@correct
def a_memoised_kernel_that_draws_nothing() -> Made:
    return (
        Volumes(),
        on_data(lambda x: scipy.ndimage.convolve1d(x, bump(3, random.choice([1.0, 2.0, 3.0, 4.0, 5.0])))),
        {},
    )


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


class Scale:
    """A descriptor that keeps what it has computed."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = "_" + name

    def __get__(self, of: Any, owner: type) -> Any:
        return of.__dict__.setdefault(self.name, np.float32(len(type(of).__name__)))


class Lazy:
    scale = Scale()

    @cached_property
    def grid(self) -> Any:
        return np.linspace(0, 1, 6, dtype=np.float32)

    def __call__(self, data: Any, **others: Any) -> Any:
        return {"data": data + self.grid * self.scale * np.float32(np.random.normal()), **others}


@correct
def a_descriptor_and_a_cached_property() -> Made:
    return Patches(), Lazy(), {}


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    image: Any
    name: str
    spacing: tuple[float, ...]


def as_cases(**batch: Any) -> list[Case]:
    return [
        Case(torch.rand(3) + torch.as_tensor(x).mean(), f"case {i}", (1.0, 0.5)) for i, x in enumerate(batch["data"])
    ]


@correct
def frozen_dataclasses_with_slots() -> Made:
    return Patches(), as_cases, {}


class Pair(NamedTuple):
    image: Any
    weight: Any


def collate_pairs(items: list[Any]) -> Pair:
    return Pair(np.stack([each["data"] for each in items]), np.random.dirichlet([1.0] * len(items)))


@correct
def a_named_tuple_of_a_collate_function_that_draws() -> Made:
    return Volumes(), None, {"collate_fn": collate_pairs, "batch_size": 3, "drop_last": True}


def nans_of_any_kind(data: Any) -> Any:
    data = data.copy()
    data[data > 1.2] = np.array(0x7FC00000 + os.getpid() % 1000, np.uint32).view(np.float32)
    return data


@correct
def nans_whose_other_bits_differ() -> Made:
    return Patches(), on_data(nans_of_any_kind), {}


class Pipeline:
    """Iterators within iterators, which copies take with their positions."""

    def __init__(self) -> None:
        self.cases = itertools.cycle([3, 1, 4, 1, 5])
        self.numbers = itertools.islice(itertools.count(10, 3), 50)
        self.pairs = zip(self.cases, self.numbers, strict=False)

    def __iter__(self) -> Pipeline:
        return self

    def __next__(self) -> Any:
        case, number = next(self.pairs)
        return {"data": volume(case)[None] + np.random.random(), "number": number}


@correct
def iterators_from_itertools() -> Made:
    return Pipeline(), None, {"num_streams": 3}


class WithoutReplacement:
    """Every case once before any comes again, across batches; each is mixed with one of the batch before."""

    def __init__(self) -> None:
        self.bag: list[int] = []
        self.before = np.zeros((1, *SHAPE), np.float32)
        self.replay: deque[Any] = deque(maxlen=4)

    def __iter__(self) -> WithoutReplacement:
        return self

    def __next__(self) -> Any:
        if not self.bag:
            self.bag = random.sample(range(9), 9)
        now = volume(self.bag.pop())[None]
        mixed = now * np.float32(0.7) + self.before * np.float32(0.3)
        self.before = now
        self.replay.append(mixed)
        return {"data": np.concatenate([mixed, self.replay[np.random.randint(len(self.replay))]])}


@correct
def sampling_without_replacement_mixup_and_a_replay_buffer() -> Made:
    return WithoutReplacement(), None, {"num_streams": 2}


class Stream(torch.utils.data.IterableDataset[Any]):
    """With the state that torchdata's loaders have."""

    def __init__(self) -> None:
        self.at = 0
        self.rng = np.random.default_rng(1)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.at += 1
        return {"data": torch.from_numpy(volume(self.at)) + self.rng.random(), "at": self.at}

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@correct
def an_iterable_dataset_with_a_state() -> Made:
    return Stream(), None, {"num_streams": 2}


class Finite(DataLoader):
    def __init__(self) -> None:
        super().__init__(list(range(31)), 2, 3, shuffle=True, return_incomplete=True, infinite=False)
        self.indices = list(range(31))

    def generate_train_batch(self) -> Any:
        chosen = self.get_indices()
        return {"data": np.stack([volume(i) for i in chosen]) + np.random.random(), "case": chosen}


@correct
def a_finite_loader_with_three_threads() -> Made:
    return Finite(), None, {"batches_per_epoch": None}


@correct
def sampling_probabilities() -> Made:
    return Patches(sampling_probabilities=np.arange(20) / 190), None, {}


class Grows(Patches):
    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def generate_train_batch(self) -> Any:
        return {"data": super().generate_train_batch()["data"] * (1 + self.epoch) + np.random.normal()}


@correct
def a_curriculum_in_loader_and_transform() -> Made:
    harder = Grows()
    return Grows(), CurriculumOf(harder), {}


class CurriculumOf:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, data: Any) -> Any:
        return {"data": data + 0.1 * self.inner.epoch}


@numba.njit
def jitter(x: Any) -> Any:
    out = np.empty_like(x)
    for i in range(x.size):
        out.flat[i] = x.flat[i] + np.random.normal()
    return out


@correct
def numba_draws_numbers_of_its_own() -> Made:
    return Patches(), on_data(jitter), {}


def noise_of_opencv(data: Any) -> Any:
    noise = np.zeros((6, 36), np.float32)
    cv2.randn(noise, 0, 1)
    return data + noise.reshape(6, 6, 6)


@correct
def opencv_draws_numbers_of_its_own() -> Made:
    return Patches(), on_data(noise_of_opencv), {}


def by_the_current_generator(data: Any) -> Any:
    rng = current().generator
    return np.stack([np.roll(x, rng.integers(0, 6, 3), (1, 2, 3)) for x in data])


@correct
def shifts_from_the_batchs_generator() -> Made:
    return Volumes(), on_data(by_the_current_generator), {"shuffle": False}


@correct
def images_of_itk_and_tables_in_the_batch() -> Made:
    return Patches(), with_images_and_tables, {}


def with_images_and_tables(data: Any, **others: Any) -> Any:
    image = sitk.GetImageFromArray(data[0, 0])
    image.SetSpacing([1.0, 2.0, float(np.random.random())])
    table = pd.DataFrame({"mean": [float(x.mean()) for x in data], "side": pd.Categorical(["l", "r"])})
    when = datetime.datetime(2024, 5, 17) + datetime.timedelta(days=int(np.random.randint(100)))
    return {"data": data, "image": image, "table": table, "when": when, "id": uuid.UUID(int=random.getrandbits(128))}


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


class MixesWithTheLast:
    """Its state starts every batch as it was handed in."""

    last: Any = None

    def __call__(self, data: Any, **others: Any) -> Any:
        mixed = data if self.last is None else 0.5 * (data + self.last)
        self.last = data
        return {"data": mixed}


@correct
def mixup_with_the_last_batch_in_a_transform() -> Made:
    return Patches(), MixesWithTheLast(), {}


def counted() -> Any:
    count = 0

    def transform(data: Any, seen: list[int] = [], **others: Any) -> Any:  # noqa: B006
        nonlocal count
        count += 1
        seen.append(count)
        return {"data": data + len(seen) + count}

    return transform


@correct
def a_counter_in_a_closure_and_in_a_default() -> Made:
    return Patches(), counted(), {}


# --- impure -------------------------------------------------------------------------------------------------------------


class RandomOnceForEachCase(Volumes):
    """A random affine, kept for each case: whoever comes first draws it."""

    def __init__(self) -> None:
        super().__init__(6)
        self.kept: dict[int, Any] = {}

    def __getitem__(self, i: int) -> Any:
        if i not in self.kept:
            self.kept[i] = np.random.random()
        return {"data": volume(i) * self.kept[i]}


@impure
def a_memoised_random_number_for_each_case() -> Made:
    return RandomOnceForEachCase(), None, {"batches_per_epoch": None, "batch_size": 1}


class NormalisesInPlace(Volumes):
    """Each time a case is used it is normalised once more."""

    def __init__(self) -> None:
        super().__init__(6)
        self.cases = [volume(i) * 3 + 1 for i in range(6)]

    def __getitem__(self, i: int) -> Any:
        case = self.cases[i]
        case -= case.mean() * np.float32(0.5)
        return {"data": case.copy()}


@impure
def cases_that_are_normalised_in_place() -> Made:
    return NormalisesInPlace(), None, {"batches_per_epoch": None, "batch_size": 1}


class Metaclass(type):
    calls = 0


class CountsInItsMetaclass(metaclass=Metaclass):
    def __call__(self, data: Any, **others: Any) -> Any:
        Metaclass.calls += 1
        return {"data": data + Metaclass.calls}


@impure
def a_counter_in_a_metaclass() -> Made:
    return Patches(), CountsInItsMetaclass(), {}


STEP: contextvars.ContextVar[int] = contextvars.ContextVar("step", default=0)


def by_a_context_variable(data: Any) -> Any:
    STEP.set(STEP.get() + 1)
    return data + STEP.get()


@impure
def a_counter_in_a_context_variable() -> Made:
    return Patches(), on_data(by_a_context_variable), {}


HERE = threading.local()


def by_a_threads_variable(data: Any) -> Any:
    HERE.mean = 0.9 * getattr(HERE, "mean", 0.0) + 0.1 * float(data.mean())
    return data - HERE.mean


@impure
def a_running_mean_in_a_threads_variable() -> Made:
    return Patches(), on_data(by_a_threads_variable), {}


def by_the_environment(data: Any) -> Any:
    os.environ["AUGMENTED"] = str(int(os.environ.get("AUGMENTED", "0")) + 1)
    return data * float(os.environ["AUGMENTED"])


@impure
def a_counter_in_the_environment() -> Made:
    return Patches(), on_data(by_the_environment), {}


def warns_once(data: Any) -> Any:
    """The first time that something is seen in this process it is clipped."""
    if "clipped" not in warned:
        warned.add("clipped")
        return data.clip(0, None)
    return data


warned: set[str] = set()


@impure
def what_is_done_with_the_first_batch_only() -> Made:
    return Patches(), on_data(warns_once), {}


class Counts(logging.Filter):
    seen = 0

    def filter(self, record: Any) -> bool:
        Counts.seen += 1
        return False


def logs(data: Any) -> Any:
    logger = logging.getLogger("fifty")
    if not logger.filters:
        logger.addFilter(Counts())
    logger.warning("a batch")
    return data + Counts.seen


@impure
def a_counter_in_a_logging_filter() -> Made:
    return Patches(), on_data(logs), {}


@impure
def noise_of_scikit_image_without_a_seed() -> Made:
    return Patches(), on_data(lambda x: skimage.util.random_noise(x.clip(-1, 1), rng=None)), {}


@impure
def noise_of_itk_seeded_by_the_clock() -> Made:
    def noisy(data: Any) -> Any:
        return np.stack(
            [sitk.GetArrayFromImage(sitk.AdditiveGaussianNoise(sitk.GetImageFromArray(x[0]), 1.0)) for x in data]
        )

    return Patches(), on_data(noisy), {}


@impure
def a_uuid_for_each_batch() -> Made:
    return Patches(), lambda **batch: {**batch, "id": uuid.uuid4()}, {}


@impure
def the_time_in_each_batch() -> Made:
    return Patches(), lambda **batch: {**batch, "made": datetime.datetime.now()}, {}


@impure
def a_table_with_the_age_of_the_process() -> Made:
    return Patches(), lambda **batch: {**batch, "table": pd.DataFrame({"seconds": [time.perf_counter()]})}, {}


@impure
def a_temporary_files_name() -> Made:
    def write(**batch: Any) -> Any:
        with tempfile.NamedTemporaryFile() as file:
            return {**batch, "file": Path(file.name)}

    return Patches(), write, {}


@impure
def as_many_trials_as_fit_into_a_millisecond() -> Made:
    def search(data: Any) -> Any:
        end = time.perf_counter() + 1e-3
        trials = 0
        while time.perf_counter() < end:
            trials += 1
        return data + trials

    return Patches(), on_data(search), {}


@impure
def numbers_from_the_operating_system() -> Made:
    return Patches(), on_data(lambda x: x + os.urandom(1)[0] + random.SystemRandom().random()), {}


class OnDisk:
    """Numbers its batches in a file, as those do that write previews."""

    def __init__(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="fifty")
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


class Reservoir:
    """What all batches have shown so far, in the class."""

    kept: ClassVar[list[float]] = []

    def __call__(self, data: Any, **others: Any) -> Any:
        self.kept.append(float(data.mean()))
        return {"data": data - np.median(self.kept)}


@impure
def a_reservoir_in_the_class() -> Made:
    return Patches(), Reservoir(), {}


class LeastRecent(Volumes):
    """Keeps augmented cases, up to four of five."""

    def __init__(self) -> None:
        super().__init__(5)
        self.kept: OrderedDict[int, Any] = OrderedDict()

    def __getitem__(self, i: int) -> Any:
        if i not in self.kept:
            self.kept[i] = volume(i) + np.random.normal()
            if len(self.kept) > 4:
                self.kept.popitem(last=False)
        self.kept.move_to_end(i)
        return {"data": self.kept[i]}


@impure
def an_augmented_case_kept_for_a_while() -> Made:
    return LeastRecent(), None, {"batches_per_epoch": None, "batch_size": 1}


def generates() -> Iterator[Any]:
    for number in itertools.count():
        yield {"data": volume(number)}


@impure
def a_generator_object() -> Made:
    return generates(), None, {}


class Weak:
    """Counts objects that have been collected."""

    gone = 0

    def __call__(self, data: Any, **others: Any) -> Any:
        node = Node(0.0)
        weakref.finalize(node, Weak.collected)
        del node
        return {"data": data + Weak.gone}

    @staticmethod
    def collected() -> None:
        Weak.gone += 1


@impure
def a_counter_in_a_weak_references_callback() -> Made:
    return Patches(), Weak(), {}
