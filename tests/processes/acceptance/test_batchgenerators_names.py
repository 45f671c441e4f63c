"""Programs written for batchgenerators' augmenters run with `detaug.batchgenerators` once one
import is changed.
"""

from __future__ import annotations

import gc
import inspect
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from batchgenerators.dataloading.multi_threaded_augmenter import (
    MultiThreadedAugmenter as StockMulti,
)
from batchgenerators.dataloading.nondet_multi_threaded_augmenter import (
    NonDetMultiThreadedAugmenter as StockNonDet,
)
from batchgenerators.dataloading.single_threaded_augmenter import (
    SingleThreadedAugmenter as StockSingle,
)
from batchgenerators.examples import multithreaded_dataloading
from batchgenerators.examples.multithreaded_dataloading import DummyDL

from detaug import DeterministicAugmenter
from detaug.batchgenerators import (
    MultiThreadedAugmenter,
    NonDetMultiThreadedAugmenter,
    SingleThreadedAugmenter,
)
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import IndexLoader, RandomSampler
from tests.support.processes import own_processes, wait_until, worker_pids

pytestmark = pytest.mark.timeout(120)
#: batchgenerators' own thread may lose a queue that is being closed, and says so.
runs_theirs = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")

# --- three programs
# ---------------------------------------------------------------------------------------------------

#: As in the tests of batchgenerators: a finite loader, passed through several times.
PASSES = """
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter
from batchgenerators.dataloading.data_loader import DataLoader

class Indices(DataLoader):
    def __init__(self, data, batch_size, threads):
        super().__init__(data, batch_size, threads, 1, return_incomplete=True, shuffle=False)
        self.indices = data

    def generate_train_batch(self):
        return self.get_indices()

def augmenter(processes):
    return MultiThreadedAugmenter(Indices(list(range(23)), 3, 2), None, processes, 1, None, False, wait_time=0)

def loop(aug):
    for epoch in range(3):
        for batch in aug:
            yield batch
"""

#: As in the tests of batchgenerators: images drawn for ever, transformed, and asked for by next().
IMAGES = """
from batchgenerators.dataloading.multi_threaded_augmenter import MultiThreadedAugmenter
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from batchgenerators.transforms.abstract_transforms import Compose
from batchgenerators.transforms.channel_selection_transforms import DataChannelSelectionTransform
from batchgenerators.transforms.spatial_transforms import MirrorTransform, TransposeAxesTransform
import numpy as np

class Images(SlimDataLoaderBase):
    def generate_train_batch(self):
        chosen = np.random.choice(len(self._data), self.batch_size)
        return {"data": self._data[chosen]}

transforms = Compose([MirrorTransform(), TransposeAxesTransform(transpose_any_of_these=(0, 1), p_per_sample=0.5)])

def augmenter(processes):
    data = np.random.RandomState(1).rand(5, 1, 16, 16).astype(np.float32)
    return MultiThreadedAugmenter(Images(data, 4, 2), transforms, processes, 1, None, False)

def loop(aug):
    for _ in range(20):
        yield aug.next()
"""

#: As nnU-Net v1 trains: one batch to begin with, then N + 1 batches an epoch by next(), which never
#: end.
TRAINING = """
from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter
from batchgenerators.dataloading.data_loader import DataLoader
from batchgenerators.transforms.abstract_transforms import Compose
from batchgenerators.transforms.noise_transforms import GaussianNoiseTransform
from batchgenerators.transforms.spatial_transforms import MirrorTransform
from batchgenerators.transforms.utility_transforms import NumpyToTensor
import numpy as np

class Patches(DataLoader):
    def __init__(self, cases):
        super().__init__(cases, 2, 1, None, infinite=True)
        self.indices = list(range(len(cases)))

    def generate_train_batch(self):
        chosen = self.get_indices()
        data = np.stack([self._data[i] for i in chosen])
        return {"data": data, "seg": (data > 0.5).astype(np.int16), "keys": [f"case{i}" for i in chosen]}

def augmenter(processes):
    cases = np.random.RandomState(1).rand(6, 1, 8, 8, 8).astype(np.float32)
    transforms = [MirrorTransform(), GaussianNoiseTransform(), NumpyToTensor(["data", "seg"], "float")]
    return NonDetMultiThreadedAugmenter(Patches(cases), Compose(transforms), processes, 3, seeds=None, pin_memory=False)

def loop(aug):
    yield next(aug)
    for epoch in range(3):
        for _ in range(5 + 1):
            yield next(aug)
"""
PROGRAMS = {"passes": PASSES, "images": IMAGES, "training": TRAINING}


def changed(program: str) -> str:
    """Return the program with one import changed."""
    lines = []
    for line in program.split("\n"):
        names = line.partition(" import ")[2]
        is_augmenters = line.startswith("from batchgenerators") and names.endswith("Augmenter")
        lines.append(f"from detaug.batchgenerators import {names}" if is_augmenters else line)
    pairs = zip(program.split("\n"), lines, strict=True)
    assert sum(before != after for before, after in pairs) == 1
    return "\n".join(lines)


class Program:
    """A program that was run: its augmenter, and the batches of its loop."""

    def __init__(self, text: str, processes: int = 2) -> None:
        names: dict[str, Any] = {}
        exec(text, names)
        self.augmenter = names["augmenter"](processes)
        self.loop: Callable[[Any], Iterator[Any]] = names["loop"]

    def batches(self) -> list[Any]:
        try:
            return list(self.loop(self.augmenter))
        finally:
            self.augmenter._finish()


def form(value: Any) -> Any:
    """What a batch is made of: keys in their order, types, dtypes, shapes."""
    if isinstance(value, dict):
        return {key: form(item) for key, item in value.items()}
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return type(value), str(value.dtype), tuple(value.shape)
    return type(value), len(value)


@pytest.fixture(autouse=True)
def seed_from_outside(monkeypatch: pytest.MonkeyPatch, no_seed_from_outside: None) -> None:
    """The programs pass no seed."""
    monkeypatch.setenv("DETAUG_SEED", "1")


@runs_theirs
def test_batchgenerators_example_prints_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    program = inspect.getsource(multithreaded_dataloading)
    said = []
    for text in (program, changed(program)):
        names = {"__name__": "__main__"}
        exec(compile(text, "example", "exec"), names)
        names["mt"]._finish()  # type: ignore[attr-defined]
        names.clear()
        gc.collect()  # the one before it, which nobody ended
        said.append(capsys.readouterr().out)
    assert said[0] == said[1]
    assert said[0].count("\n") == 300 + 3


@runs_theirs
@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_are_of_the_same_form_and_number(name: str) -> None:
    theirs = Program(PROGRAMS[name]).batches()
    ours = Program(changed(PROGRAMS[name])).batches()
    assert [form(batch) for batch in ours] == [form(batch) for batch in theirs]
    if name == "passes":
        assert ours == theirs, "what is not shuffled comes in their order"


@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_of_workers_give_the_same_batches(name: str) -> None:
    text = changed(PROGRAMS[name])
    expected = fingerprints_of(Program(text, 0).batches())
    assert fingerprints_of(Program(text, 3).batches()) == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_killed_worker_changes_nothing(name: str) -> None:
    text = changed(PROGRAMS[name])
    expected = fingerprints_of(Program(text, 0).batches())
    program = Program(text)
    batches = []
    for batch in program.loop(program.augmenter):
        batches.append(batch)
        if len(batches) == 3:
            os.kill(worker_pids()[0], signal.SIGKILL)
    wait_until(lambda: program.augmenter.stats()["restarts"] == 1, "the worker is replaced")
    program.augmenter._finish()
    assert fingerprints_of(batches) == expected


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_run_is_resumed_with_other_workers(name: str) -> None:
    text = changed(PROGRAMS[name])
    expected = fingerprints_of(Program(text, 0).batches())
    first = Program(text)
    begun = take(first.loop(first.augmenter), 3)
    state = first.augmenter.state_dict()
    first.augmenter._finish()
    rest = Program(text, 1)
    rest.augmenter.load_state_dict(state)
    with rest.augmenter:
        continued = [next(rest.augmenter) for _ in range(4)]
    assert fingerprints_of(begun + continued) == expected[:7]


# --- what the classes are
# ---------------------------------------------------------------------------------------------

KINDS = [
    (NonDetMultiThreadedAugmenter, StockNonDet),
    (MultiThreadedAugmenter, StockMulti),
    (SingleThreadedAugmenter, StockSingle),
]


#: Attributes of theirs that are queues, processes and threads.
MACHINERY: dict[type, set[str]] = {
    NonDetMultiThreadedAugmenter: {
        "_processes",
        "_queue",
        "abort_event",
        "pause_event",
        "results_loop_queue",
        "results_loop_thread",
    },
    MultiThreadedAugmenter: {
        "_end_ctr",
        "_processes",
        "_queue_ctr",
        "_queues",
        "abort_event",
        "pause_event",
        "pin_memory_queue",
        "pin_memory_thread",
    },
    SingleThreadedAugmenter: set(),
}


def some(kind: type, **options: Any) -> Any:
    if kind is SingleThreadedAugmenter:
        return SingleThreadedAugmenter(RandomSampler(), None, **options)
    return kind(RandomSampler(), None, 2, **options)


@pytest.mark.parametrize(("kind", "stock"), KINDS)
def test_each_is_a_deterministic_augmenter_and_of_the_class_it_stands_for(
    kind: type, stock: type
) -> None:
    augmenter = some(kind)
    assert isinstance(augmenter, DeterministicAugmenter)
    assert isinstance(augmenter, stock)
    assert kind.__name__ == stock.__name__


@pytest.mark.parametrize(("kind", "stock"), KINDS)
def test_arguments_are_the_originals_and_further_ones_by_keyword(kind: type, stock: type) -> None:
    theirs = list(inspect.signature(stock).parameters.values())
    ours = list(inspect.signature(kind).parameters.values())
    assert [(each.name, each.default) for each in ours[: len(theirs)]] == [
        (each.name, each.default) for each in theirs
    ]
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert not [each for each in ours[len(theirs) :] if each.kind is positional]
    augmenter = some(kind, seed=3, name="train", batches_per_epoch=2)
    assert (augmenter.seed, augmenter.name, len(augmenter)) == (3, "train", 2)


@pytest.mark.parametrize(("kind", "stock"), KINDS)
def test_attributes_are_theirs_but_for_queues_and_processes(kind: type, stock: type) -> None:
    loader = RandomSampler()
    arguments = (loader, None) if kind is SingleThreadedAugmenter else (loader, None, 2)
    ours = kind(*arguments)
    theirs = stock(*arguments)
    missing = {name for name in vars(theirs) if not hasattr(ours, name)}
    assert missing == MACHINERY[kind]
    for name in missing:
        with pytest.raises(AttributeError, match=rf"no {name}: .*aug\.stats\(\)"):
            getattr(ours, name)
    for name in set(vars(theirs)) - missing:
        assert getattr(ours, name) == getattr(theirs, name), name


def test_what_nobody_has_is_an_ordinary_attribute_error() -> None:
    with pytest.raises(
        AttributeError, match="'MultiThreadedAugmenter' object has no attribute 'x'"
    ):
        some(MultiThreadedAugmenter).x  # noqa: B018


def test_whether_it_runs_is_told_by_their_names() -> None:
    nondet = some(NonDetMultiThreadedAugmenter)
    multi = some(MultiThreadedAugmenter)
    for augmenter, name in ((nondet, "initialized"), (multi, "was_initialized")):
        assert not getattr(augmenter, name)
        augmenter._start()
        assert getattr(augmenter, name)
        augmenter._finish(timeout=2)
        assert not getattr(augmenter, name)
        assert not own_processes()


def test_batches_are_cached_for_each_process() -> None:
    augmenter = some(MultiThreadedAugmenter, num_cached_per_queue=3)
    assert augmenter.num_cached == 6
    augmenter.num_processes = 4
    augmenter.num_cached_per_queue = 1
    assert augmenter.num_cached == 4
    with pytest.raises(AttributeError, match="num_cached_per_queue"):
        augmenter.num_cached = 8
    next(augmenter)
    with pytest.raises(AttributeError, match="num_cached_per_queue cannot be set now"):
        augmenter.num_cached_per_queue = 2
    augmenter.close()


def test_the_single_threaded_ones_data_loader_is_its_generator() -> None:
    augmenter = SingleThreadedAugmenter(RandomSampler(), None)
    augmenter.data_loader = RandomSampler(batch_size=5)
    assert augmenter.generator is augmenter.data_loader
    assert not own_processes()
    assert len(augmenter.next()["indices"]) == 5


@pytest.mark.parametrize(("kind", "stock"), KINDS)
def test_a_constructor_that_fails_leaves_nothing_to_be_said(
    kind: type, stock: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    unraised: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", unraised.append)
    with pytest.raises(TypeError):
        some(kind, seed="no number")
    gc.collect()
    assert not unraised


@pytest.mark.parametrize("kind", [NonDetMultiThreadedAugmenter, MultiThreadedAugmenter])
def test_workers_end_with_their_augmenter(kind: type) -> None:
    augmenter = some(kind)
    next(augmenter)
    assert own_processes()
    del augmenter
    gc.collect()
    wait_until(lambda: not own_processes(), "the workers have ended")


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        (NonDetMultiThreadedAugmenter, None),
        (NonDetMultiThreadedAugmenter, range(2)),
        (MultiThreadedAugmenter, [3, 4]),
        (MultiThreadedAugmenter, [None, None]),
    ],
    ids=["None", "range", "list", "list of None"],
)
def test_seeds_are_as_theirs(
    kind: type, seeds: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("DETAUG_SEED")
    augmenter = some(kind, seeds=seeds)
    is_given = seeds is not None and None not in seeds
    assert augmenter.seeds == (list(seeds) if is_given else [None, None])
    assert ("drew seed" in caplog.text) != is_given
    with augmenter:
        first = fingerprints_of(take(augmenter, 3))
        augmenter.restart()
        assert (fingerprints_of(take(augmenter, 3)) == first) == is_given


# --- what ends
# --------------------------------------------------------------------------------------------------------


def test_nondet_refuses_a_finite_data_loader_as_theirs_does() -> None:
    with pytest.raises(ValueError, match=r"infinite=True.*MultiThreadedAugmenter"):
        NonDetMultiThreadedAugmenter(IndexLoader(10, 2), None, 2)


@pytest.mark.parametrize("n", [0, 2])
def test_nondet_never_stops_an_iteration_because_its_loader_ends(n: int) -> None:
    with NonDetMultiThreadedAugmenter(DummyDL(2), None, n) as augmenter:
        assert [next(augmenter) for _ in range(100)] == list(range(100))
        with pytest.raises(RuntimeError, match="the loader has ended"):
            next(augmenter)


def test_nondet_has_epochs_where_their_length_is_passed() -> None:
    augmenter = NonDetMultiThreadedAugmenter(RandomSampler(), None, 0, batches_per_epoch=3)
    assert len(list(augmenter)) == 3
    assert len(list(augmenter)) == 3


# --- subclasses
# -------------------------------------------------------------------------------------------------------


class LimitedLenWrapper(NonDetMultiThreadedAugmenter):
    """As in nnU-Net."""

    def __init__(self, my_imaginary_length: int, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.len = my_imaginary_length

    def __len__(self) -> int:
        return self.len


class FixedLength(MultiThreadedAugmenter):
    """As in nnDetection."""

    def __len__(self) -> int:
        return len(self.generator)


class Sized(SlimDataLoaderBase):
    def __len__(self) -> int:
        return 7

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.random.rand(self.batch_size, 1)}


def test_subclasses_of_theirs_are_subclasses_of_these() -> None:
    limited = LimitedLenWrapper(
        250, data_loader=Sized([0], 2), transform=None, num_processes=2, num_cached=6, seeds=None
    )
    fixed = FixedLength(
        data_loader=Sized([0], 2),
        transform=None,
        num_processes=2,
        num_cached_per_queue=4,
        seeds=None,
        pin_memory=True,
    )
    for augmenter, length in ((limited, 250), (fixed, 7)):
        assert len(augmenter) == length
        assert len([next(augmenter) for _ in range(9)]) == 9
        assert [batch["data"].shape for batch in take(augmenter, 3)] == [(2, 1)] * 3
        augmenter._finish()
