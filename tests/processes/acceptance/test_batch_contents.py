"""A batch may be any picklable object, and comes back as what it was, wherever its arrays were
made.
"""

from __future__ import annotations

import collections
import os
import pathlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoader

import detaug
from detaug.ledger.comparing import compare
from detaug.objects.batch_pickling import pack
from tests.support.augmenters import Maker, workers
from tests.support.comparing import fingerprints_of, take
from tests.support.faults import Chatty
from tests.support.processes import own_processes
from tests.support.waiting import exit_code
from tests.unit.engine.test_transfer import BATCHES, BULKY


def sent(content: Any) -> tuple[bytes, list[bytes]]:
    """What is sent of it, which says all: classes, dtypes, shapes, bytes."""
    packed = pack(content)
    return packed.pickled, [bytes(buffer.reshape(-1).view(np.uint8)) for buffer in packed.buffers]


#: Beside arrays and tensors of every class, which are those of `test_transfer`.
CONTENTS: dict[str, Callable[[], Any]] = {
    "an int": lambda: 3,
    "None": lambda: None,
    "a string": lambda: "Größe ✓",
    "a path": partial(pathlib.PurePosixPath, "a/b"),
    "a nested dict of lists": lambda: {
        "a": [{"b": np.arange(3.0)}, torch.ones(2)],
        3: ("x", None, 2.5),
    },
    "a default dict": lambda: collections.defaultdict(list, a=[np.arange(2.0)]),
    "an object array": lambda: np.array([1, "two", None, 3.0], dtype=object),
    "a date array": lambda: np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
    "an array of nan and minus zero": lambda: np.array([np.nan, -0.0, np.inf]),
    "an empty array": partial(np.zeros, (0, 3), np.float32),
    "an array with 40 million bytes": partial(np.arange, 10_000_000, dtype=np.int32),
    "a tensor of 0 dimensions": partial(torch.tensor, 2.5),
    "a dtype and a size": lambda: [torch.float32, torch.Size([1, 2]), np.dtype("i4")],
    "a thousand small arrays": lambda: [np.full(3, i) for i in range(1000)],
    **{name: lambda name=name: BATCHES[name] for name in BATCHES},
    **{name: lambda name=name: BULKY[name] for name in BULKY},
}


class InTurn:
    """Gives each of these contents twice, `nested` in a dict."""

    def __init__(self, nested: bool) -> None:
        self.nested = nested

    def __iter__(self) -> Iterator[Any]:
        for make in CONTENTS.values():
            for content in (make(), make()):
                yield {"data": [content], "last": np.ones(1)} if self.nested else content


@pytest.mark.parametrize("nested", [False, True])
def test_batches_of_a_worker_are_each_twice_in_a_row(make: Maker, nested: bool) -> None:
    augmenter = make(InTurn(nested), None, 1, seed=1, num_streams=1)
    for name in CONTENTS:
        for batch in (next(augmenter), next(augmenter)):
            assert sent(batch["data"][0] if nested else batch) == sent(CONTENTS[name]()), name
    assert own_processes()
    with pytest.raises(StopIteration):
        next(augmenter)


OWN_CLASSES = """
import dataclasses, enum, sys
import numpy as np, torch
from detaug import DeterministicAugmenter, LocalProcesses

@dataclasses.dataclass
class Sample:
    image: np.ndarray
    name: str = "case_1"
    tags: list = dataclasses.field(default_factory=list)
    mode = "train"

@dataclasses.dataclass(frozen=True, slots=True)
class Spacing:
    x: float
    y: float = 2.0

class Side(enum.Enum):
    LEFT = 1

class Outer:
    class Inner:
        value = 3

class Inner:  # another one
    pass

class Image(torch.Tensor):
    pass

class Loader:
    instances, mode = [], "train"

    def __init__(self):
        Loader.instances.append(1)

    def __iter__(self):
        return self

    def __next__(self):
        image = torch.ones(5000).as_subclass(Image)
        image.note = "n"
        return {"sample": Sample(np.zeros(5000, np.float32)), "list": [Sample(np.ones(3)), {"deep": (Spacing(1.0),)}],
                "side": Side.LEFT, "inner": Outer.Inner(), "image": image,
                "class": Sample,
                "fields": [field.name for field in dataclasses.fields(Sample)]}
"""

THEIR_BATCHES = """
main = sys.modules["__main__"]
number = int(sys.argv[2])
executor = LocalProcesses(sys.argv[1]) if number else None
loader = Loader()
with DeterministicAugmenter(loader, None, number, seed=1, executor=executor) as augmenter:
    for i in range(3):
        batch = next(augmenter)
        assert isinstance(batch["sample"], main.Sample) and batch["sample"].image.sum() == 0
        assert isinstance(batch["list"][0], Sample) and isinstance(batch["list"][1]["deep"][0], Spacing)
        assert batch["side"] is Side.LEFT and type(batch["inner"]) is Outer.Inner
        assert type(batch["image"]) is Image and batch["image"].note == "n" and batch["image"].sum() == 5000
        assert batch["class"] is Sample
        own = [field.name for field in dataclasses.fields(Sample)]
        assert batch["fields"] == own == ["image", "name", "tags"], own
        assert Sample.mode == ("train" if i == 0 else "val"), "a batch undid what the program did to its class"
        Sample.mode = Loader.mode = "val"
        augmenter.replay(0, 2)
        assert Loader.mode == loader.mode == "val" and type(loader) is Loader and Loader.instances == [1]
print("as they were")
"""


@pytest.mark.parametrize("n", ["0", "1"])
def test_the_scripts_own_classes_come_back_as_themselves(
    script: Callable[..., Any], start_method: str, n: str
) -> None:
    run = script(THEIR_BATCHES, start_method, n, prelude=OWN_CLASSES)
    run.finish()
    assert run.lines[-1:] == ["as they were"], run.err


@pytest.mark.parametrize("n", [0, 2])
def test_batch_that_cannot_be_pickled_is_named_by_key(
    make: Maker, n: int, start_method: str
) -> None:
    with pytest.raises(RuntimeError, match=r"batch\['handle'\] of type lock cannot be pickled"):
        next(make(Chatty(), None, n, seed=1, executor=workers(n, start_method)))


@pytest.mark.parametrize("word", ["end", ""])
def test_batches_that_stock_augmenters_take_for_the_end_are_batches(make: Maker, word: str) -> None:
    for n in (0, 1):
        assert list(make([word, 1, word], None, n, seed=1, num_streams=1)) == [word, 1, word]


SIDES = (2, 1, 20, 30, 40)


class InTheSlot(DataLoader):
    """Fills arrays of `current().empty`, or with `ordinary` those of NumPy."""

    def __init__(self, ordinary: bool = False) -> None:
        super().__init__(None, 2, infinite=True)
        self.ordinary = ordinary

    def array(self, dtype: Any) -> np.ndarray[Any, Any]:
        return np.empty(SIDES, dtype) if self.ordinary else detaug.current().empty(SIDES, dtype)

    def generate_train_batch(self) -> dict[str, Any]:
        now = detaug.current()
        data, target = self.array(np.float32), self.array(np.int16)
        data[...] = now.generator.random(SIDES, dtype=np.float32)
        target[...] = now.generator.integers(0, 4, SIDES)
        return {"data": data, "target": torch.from_numpy(target), "number": now.step}


class InPlace:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        batch["data"] *= 2.0
        batch["target"] += 1
        return batch


@pytest.mark.parametrize("transform", [None, InPlace()], ids=["no transform", "in place"])
def test_batches_are_those_of_ordinary_arrays(make: Maker, transform: Any) -> None:
    options: dict[str, Any] = {"seed": 11, "batches_per_epoch": 12, "check": True}
    expected = fingerprints_of(take(make(InTheSlot(ordinary=True), transform, 0, **options), 12))
    assert fingerprints_of(take(make(InTheSlot(), transform, 2, **options), 12)) == expected


class Forks(DataLoader):
    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        mine = detaug.current().empty(SIDES)
        pid = os.fork()
        if pid == 0:
            theirs = detaug.current().empty(SIDES)
            theirs[...] = 1.0
            os._exit(int(not theirs.flags.owndata))
        mine[...] = exit_code(pid, "the child has looked at its memory")
        return {"data": mine}


def test_a_process_that_the_loader_forks_has_memory_of_its_own(make: Maker) -> None:
    for batch in take(make(Forks(), None, 1, seed=1), 3):
        assert (batch["data"] == 0).all()


class Tables:
    """A data set whose samples are what torch cannot collate."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        values = np.random.random(3)
        table = pandas.DataFrame({"age": values, "site": ["a", "b", None]})
        objects = np.array([{"case": index}, table], dtype=object)
        sparse = torch.from_numpy(values).to_sparse()
        return {"table": table, "objects": objects, "sparse": sparse}


def test_objects_that_the_check_compares_have_fingerprints_in_a_ledger(tmp_path: Path) -> None:
    for name in ("one", "two"):
        options = {"collate_fn": list, "check": 1, "ledger": tmp_path / name}
        with detaug.DeterministicAugmenter.from_dataset(
            Tables(), 2, seed=3, **options
        ) as augmenter:
            assert len(list(augmenter)) == 6
            assert augmenter.stats()["mismatches"] == 0
    assert compare(tmp_path / "one", tmp_path / "two").counts == {"equal": 6}
