"""A batch may be any picklable object, and comes back as what it was."""

from __future__ import annotations

import collections
import dataclasses
import enum
import pathlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from detaug import DeterministicAugmenter
from tests.support.augmenters import Maker
from tests.support.processes import descendants


@dataclasses.dataclass
class Case:
    name: str
    image: np.ndarray
    spacing: tuple[float, ...]


class Pair(NamedTuple):
    left: Any
    right: Any


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


class Tagged(np.ndarray):
    """A subclass of ndarray."""


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def structured() -> np.ndarray:
    return np.array([(1, 2.5, b"x"), (3, 4.5, b"yz")], dtype=[("a", "i4"), ("b", "f8"), ("c", "S3")])


def same(a: Any, b: Any) -> bool:
    """Equal types all the way down, equal dtypes, shapes and bytes."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        if (a.dtype, a.shape, a.layout, a.requires_grad) != (b.dtype, b.shape, b.layout, b.requires_grad):
            return False
        a, b = (t.detach().to_dense() if t.layout != torch.strided else t.detach() for t in (a, b))
        return torch.equal(
            a.resolve_conj().contiguous().view(torch.uint8) if a.ndim else a.reshape(1).view(torch.uint8),
            b.resolve_conj().contiguous().view(torch.uint8) if b.ndim else b.reshape(1).view(torch.uint8),
        )
    if isinstance(a, np.ma.MaskedArray):
        return same(a.filled(), b.filled()) and same(np.ma.getmaskarray(a), np.ma.getmaskarray(b))
    if isinstance(a, np.ndarray):
        if (a.dtype, a.shape) != (b.dtype, b.shape):
            return False
        if a.dtype.hasobject:
            return all(same(x, y) for x, y in zip(a.ravel().tolist(), b.ravel().tolist(), strict=True))
        return a.tobytes() == b.tobytes()
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if dataclasses.is_dataclass(a):
        return same(vars(a), vars(b))
    if isinstance(a, float) and a != a:
        return b != b
    return bool(a == b)


CONTENTS: dict[str, Callable[[], Any]] = {
    "an int": lambda: 3,
    "None": lambda: None,
    "a string": lambda: "Größe ✓",
    "a path": lambda: pathlib.PurePosixPath("a/b"),
    "an enum": lambda: Side.RIGHT,
    "an array": lambda: rng().random((3, 4)),
    "a list of arrays": lambda: [rng().random(3), rng().random(4)],
    "a nested dict of lists": lambda: {"a": [{"b": rng().random(3)}, torch.ones(2)], 3: ("x", None, 2.5)},
    "a named tuple": lambda: Pair(rng().random(3), torch.arange(3)),
    "a default dict": lambda: collections.defaultdict(list, a=[rng().random(2)]),
    "a dataclass": lambda: Case("case_1", rng().random((2, 2)), (1.0, 0.5)),
    "an array in F order": lambda: np.asfortranarray(rng().random((3, 4, 5))),
    "an array with gaps": lambda: rng().random((6, 6))[::2, 1::3],
    "a broadcast array": lambda: np.broadcast_to(np.arange(3.0), (4, 3)),
    "an array of 0 dimensions": lambda: np.array(3.5),
    "an empty array": lambda: np.zeros((0, 3), np.float32),
    "a bool array": lambda: rng().random(9) > 0.5,
    "a big-endian array": lambda: np.arange(4, dtype=">i4"),
    "an object array": lambda: np.array([1, "two", None, 3.0], dtype=object),
    "an object array of arrays": lambda: np.array([np.zeros(2), np.ones(3)], dtype=object),
    "a string array": lambda: np.array(["case_1", "x"]),
    "a date array": lambda: np.array(["2020-01-01", "NaT"], dtype="datetime64[D]"),
    "a structured array": structured,
    "a masked array": lambda: np.ma.masked_array(np.arange(4), mask=[0, 1, 0, 1]),
    "a subclass of ndarray": lambda: np.arange(6.0).view(Tagged),
    "a NumPy scalar": lambda: np.float32(1.5),
    "an array of nan and minus zero": lambda: np.array([np.nan, -0.0, np.inf]),
    "an array with 40 million bytes": lambda: np.arange(10_000_000, dtype=np.int32),
    "a tensor": lambda: torch.arange(12.0).reshape(3, 4),
    "a bfloat16 tensor": lambda: torch.arange(5).to(torch.bfloat16),
    "a bool tensor": lambda: torch.tensor([True, False]),
    "a complex tensor": lambda: torch.tensor([1 + 2j, 3j]),
    "a conjugated tensor": lambda: torch.tensor([1 + 2j, 3j]).conj(),
    "a tensor of 0 dimensions": lambda: torch.tensor(2.5),
    "an empty tensor": lambda: torch.zeros(2, 0, 3),
    "a transposed tensor": lambda: torch.arange(12.0).reshape(3, 4).t(),
    "an expanded tensor": lambda: torch.arange(3.0).expand(4, 3),
    "a slice of a tensor": lambda: torch.arange(100.0)[10:20:3],
    "a channels-last tensor": lambda: torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0)).to(
        memory_format=torch.channels_last),
    "a float8 tensor": lambda: torch.arange(4).to(torch.float8_e4m3fn),
    "a tensor that requires grad": lambda: torch.ones(3, requires_grad=True),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "a sparse tensor": lambda: torch.eye(3).to_sparse(),
    "a dtype and a size": lambda: [torch.float32, torch.Size([1, 2]), np.dtype("i4")],
    "a thousand small arrays": lambda: [np.full(3, i) for i in range(1000)],
}  # fmt: skip


class InTurn:
    """Gives these contents, each as often as asked for, and put into something if wanted."""

    def __init__(
        self, names: Iterable[str], times: int = 1, put: Callable[[Any], Any] = lambda content: content
    ) -> None:
        self.names, self.put = [name for name in names for _ in range(times)], put

    def __iter__(self) -> Iterator[Any]:
        return iter([self.put(CONTENTS[name]()) for name in self.names])


def in_a_dict(content: Any) -> dict[str, Any]:
    return {"data": [content], "first": torch.ones(1), "last": np.ones(1)}


@pytest.mark.parametrize("put", [lambda content: content, in_a_dict])
def test_batches_of_a_worker_are_each_twice_in_a_row(make: Maker, put: Callable[[Any], Any]) -> None:
    loader = InTurn(CONTENTS, 2, put)
    augmenter = make(loader, None, 1, seed=1, num_streams=1)
    for name in loader.names:
        assert same(next(augmenter), put(CONTENTS[name]())), name
    assert descendants()
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

class Image(torch.Tensor):
    pass

def local_class():
    @dataclasses.dataclass
    class Local:
        value: int
    return Local

Local = local_class()

class Loader:
    local = Local

    def __iter__(self):
        return self

    def __next__(self):
        image = torch.ones(5000).as_subclass(Image)
        image.note = "n"
        return {"sample": Sample(np.zeros(5000, np.float32)), "list": [Sample(np.ones(3)), {"deep": (Spacing(1.0),)}],
                "side": Side.LEFT, "inner": Outer.Inner(), "image": image,
                "local": self.local(5), "class": Sample,
                "fields": [field.name for field in dataclasses.fields(Sample)]}
"""

THEIR_BATCHES = """
main = sys.modules["__main__"]
number = int(sys.argv[2])
executor = LocalProcesses(sys.argv[1]) if number else None
with DeterministicAugmenter(Loader(), None, number, seed=1, executor=executor) as augmenter:
    for i in range(3):
        batch = next(augmenter)
        assert isinstance(batch["sample"], main.Sample) and batch["sample"].image.sum() == 0
        assert isinstance(batch["list"][0], Sample) and isinstance(batch["list"][1]["deep"][0], Spacing)
        assert batch["side"] is Side.LEFT and type(batch["inner"]) is Outer.Inner
        assert type(batch["image"]) is Image and batch["image"].note == "n" and batch["image"].sum() == 5000
        assert type(batch["local"]) is Local and batch["local"] == Local(5)
        assert batch["class"] is Sample
        own = [field.name for field in dataclasses.fields(Sample)]
        assert batch["fields"] == own == ["image", "name", "tags"], own
        assert Sample.mode == ("train" if i == 0 else "val"), "a batch undid what the program did to its class"
        Sample.mode = "val"
print("as they were")
"""


@pytest.mark.parametrize("n", ["0", "1"])
def test_the_scripts_own_classes_come_back_as_themselves(script: Callable[..., Any], start_method: str, n: str) -> None:
    run = script(THEIR_BATCHES, start_method, n, prelude=OWN_CLASSES)
    run.finish()
    assert run.lines[-1:] == ["as they were"], run.err


def _with_a_lambda(items: list[Any]) -> Any:
    return {"x": collections.defaultdict(lambda: 0, a=items[0])}


@pytest.mark.parametrize("num_processes", [0, 2])
def test_what_holds_a_lambda_is_refused_with_any_number_of_processes(num_processes: int) -> None:
    with (
        DeterministicAugmenter.from_dataset(
            list(range(4)), 2, seed=1, collate_fn=_with_a_lambda, num_processes=num_processes, check=False
        ) as augmenter,
        pytest.raises(RuntimeError, match=r"batch\['x'\] of type defaultdict cannot be pickled"),
    ):
        next(augmenter)
