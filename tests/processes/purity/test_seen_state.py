"""Whatever carries state from batch to batch, in whatever it is kept: the same bytes, or a word."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import Check, DeterministicAugmenter
from detaug.errors import ReproducibilityError
from tests.processes.purity.ways import Make, check_every, run_all_ways

BATCHES = 7


class Noise(DataLoader):
    """Stateless: every batch is drawn anew."""

    def __init__(self) -> None:
        super().__init__(list(range(23)), 3, infinite=True)
        self.indices = list(range(23))

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.random.random((3, 2)), "index": np.array(self.get_indices())}


class Endless:
    """Keeps nothing, and does not say so."""

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.random.random((3, 2))}


def making(loader: Any, transform: Any = None, **options: Any) -> Make:
    settings: dict[str, Any] = {"seed": 19, "batches_per_epoch": BATCHES, **options}
    return lambda num_processes: DeterministicAugmenter(
        loader, transform, num_processes, **{"check": check_every(num_processes), **settings}
    )


# --- transforms ---------------------------------------------------------------------------------------------------------


class Step:
    """Adds what `draw` gives, which depends on what was drawn before."""

    def draw(self) -> float:
        raise NotImplementedError

    def __call__(self, data: Any, **others: Any) -> dict[str, Any]:
        return {"data": data + self.draw(), **others}


class InADeque(Step):
    def __init__(self) -> None:
        self.queue = deque([0.0], maxlen=5)

    def draw(self) -> float:
        self.queue.append(self.queue[-1] + 0.5)
        return self.queue[-1]


class InATensor(Step):
    def __init__(self) -> None:
        self.moments = torch.zeros(5)

    def draw(self) -> float:
        self.moments.add_(1.5)
        return float(self.moments[4])


class InSlots(Step):
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def draw(self) -> float:
        self.count += 3
        return float(self.count)


class InABuffer(torch.nn.Module):
    """Running statistics, as normalisation layers have them."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(2, 3))
        self.norm = torch.nn.BatchNorm1d(2, affine=False)

    def forward(self, data: Any, **others: Any) -> dict[str, Any]:
        with torch.no_grad():
            self.mean.mul_(0.9).add_(float(np.mean(data)))
            normed = self.norm(torch.as_tensor(data, dtype=torch.float32))
        return {"data": data + float(self.mean[1, 2]) + float(self.norm.running_mean[0]) + 0 * normed.numpy(), **others}


class InALargeArray(Step):
    def __init__(self) -> None:
        self.field = np.zeros((130, 130))  # 135 kB

    def draw(self) -> float:
        self.field += 0.25
        return float(self.field[129, 129])


class InAViewOfTensors(Step):
    def __init__(self) -> None:
        buffer = torch.zeros(30_000)
        self.written, self.read = buffer[10:], buffer[20_000:20_001].numpy()

    def draw(self) -> float:
        self.written += 1
        return float(self.read[0])


class WithAttributes(np.ndarray):
    pass


class InASubclassOfArrays(Step):
    def __init__(self) -> None:
        self.image = np.zeros(3).view(WithAttributes)
        self.image.info = {"calls": 0}

    def draw(self) -> float:
        self.image += 1
        self.image.info["calls"] += 1
        return float(self.image[0]) + self.image.info["calls"]


class InAGradient(Step):
    def __init__(self) -> None:
        self.weights = torch.zeros(3, requires_grad=True)
        self.weights.grad = torch.ones(3)

    def draw(self) -> float:
        assert self.weights.grad is not None
        self.weights.grad += 1
        return float(self.weights.grad[0])


class Inner:
    count = 0


class InAnotherObject(Step):
    """Passes all its attributes on, as wrappers of data sets and environments do."""

    def __init__(self) -> None:
        self.__dict__["inner"] = Inner()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def draw(self) -> float:
        self.count = self.count + 1
        return float(self.count)


class BesidesOddAttributes(Step):
    def __init__(self) -> None:
        self.calls = MappingProxyType({"all": [0]})
        self.out, self.sparse = sys.stderr, torch.eye(3).to_sparse()
        self.cached = lru_cache(maxsize=3)(lambda key: key + 1)

    def draw(self) -> float:
        assert self.out.writable()
        self.calls["all"][0] += self.cached(0)
        return float(self.calls["all"][0])


def in_a_closure() -> Callable[..., Any]:
    count = 0

    def transform(data: Any, **others: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return {"data": data + count, **others}

    return transform


def _add_next(history: list[int], data: Any, **others: Any) -> dict[str, Any]:
    history.append(len(history))
    return {"data": data + len(history), **others}


def in_a_partial() -> Callable[..., Any]:
    return partial(_add_next, [5, 5])


class Augmentation:
    def __init__(self) -> None:
        self.strength = 1.0

    def warm(self, data: Any, **others: Any) -> dict[str, Any]:
        self.strength *= 1.25
        return {"data": data * self.strength, **others}


def in_a_bound_method() -> Callable[..., Any]:
    return Augmentation().warm


def in_a_default(data: Any, seen: list[int] = [], **others: Any) -> dict[str, Any]:  # noqa: B006
    seen.append(1)
    return {"data": data + len(seen), **others}


def in_a_function(data: Any, **others: Any) -> dict[str, Any]:
    in_a_function.calls = getattr(in_a_function, "calls", 0) + 1  # type: ignore[attr-defined]
    return {"data": data + in_a_function.calls, **others}  # type: ignore[attr-defined]


class InACache(Step):
    """``lru_cache`` of a method whose result depends on when it was first called."""

    def __init__(self) -> None:
        self.count = 0

    @lru_cache(maxsize=99)  # noqa: B019
    def remembered(self, key: int) -> float:
        return random.random() + key

    def draw(self) -> float:
        return self.remembered(random.randrange(3))


@lru_cache(maxsize=99)
def remembered(key: int) -> float:
    return random.random() + key


class InAFunctionsCache(Step):
    def draw(self) -> float:
        return remembered(3)


class InTheClass(Step):
    count: ClassVar[int] = 0

    def draw(self) -> float:
        InTheClass.count += 1
        return float(self.count)


class InAListOfTheClass(Step):
    history: ClassVar[list[int]] = []

    def draw(self) -> float:
        self.history.append(1)
        return float(len(self.history))


RUNNING = {"mean": 0.0}


class InTheModule(Step):
    def draw(self) -> float:
        RUNNING["mean"] += 0.5
        return RUNNING["mean"]


class MadeWhenDrawnFrom(Step):
    def __init__(self) -> None:
        self.ready = False

    def draw(self) -> float:
        if not self.ready:
            self.rng = np.random.default_rng(8)
            self.ready = True
        return float(self.rng.random())


class OneOf:
    def __init__(self, *choices: Any) -> None:
        self.choices = choices

    def __call__(self, **batch: Any) -> Any:
        return self.choices[np.random.randint(len(self.choices))](**batch)


class Then:
    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, **batch: Any) -> Any:
        for transform in self.transforms:
            batch = transform(**batch)
        return batch


COPIED = {
    "deque": InADeque,
    "tensor": InATensor,
    "__slots__": InSlots,
    "nn.Module": InABuffer,
    "array of 135 kB": InALargeArray,
    "views of a tensor": InAViewOfTensors,
    "subclass of ndarray": InASubclassOfArrays,
    "gradient": InAGradient,
    "__getattr__": InAnotherObject,
    "odd attributes": BesidesOddAttributes,
    "closure": in_a_closure,
    "partial": in_a_partial,
    "bound method": in_a_bound_method,
    "default argument": lambda: in_a_default,
    "lru_cache of a method": InACache,
}
SHARED = {
    "attribute of a function": lambda: in_a_function,
    "class attribute": InTheClass,
    "list of the class": InAListOfTheClass,
    "module global": InTheModule,
}


@pytest.mark.parametrize("state", COPIED)
def test_a_transforms_state_starts_every_batch_as_it_was_handed_in(state: str) -> None:
    transform = COPIED[state]()
    processes = (0, 2) if state == "nn.Module" else (0,)  # the others are in the next test
    run_all_ways(making(Noise(), transform), processes, kill=False).assert_right()


def test_so_does_state_deep_in_a_composition() -> None:
    parts = [make() for make in COPIED.values() if make is not InABuffer]
    transform = Then([OneOf(parts[0], Then(parts[1:6])), OneOf(*parts[6:]), torch.nn.Sequential()])
    transform.transforms.pop()
    run_all_ways(making(Noise(), transform)).assert_right()


def test_what_was_handed_in_is_not_changed_in_the_calling_process() -> None:
    transforms = [make() for name, make in COPIED.items() if name not in ("nn.Module", "__getattr__")]
    before = [str(getattr(each, "__dict__", "")) for each in transforms]
    with making(Noise(), Then(transforms))(num_processes=0) as augmenter:
        next(augmenter)
        augmenter.replay(1, 4)
    assert [str(getattr(each, "__dict__", "")) for each in transforms] == before
    assert in_a_default.__defaults__ == ([],)


@pytest.mark.parametrize("num_processes", [0, 2])
@pytest.mark.parametrize("state", SHARED)
def test_state_that_no_copy_has_to_itself_is_an_error(state: str, num_processes: int) -> None:
    with making(Noise(), SHARED[state]())(num_processes=num_processes) as augmenter:
        with pytest.raises(ReproducibilityError) as raised:
            list(augmenter)
        assert augmenter.stats()["mismatches"] == 1
    assert raised.value.keys == ("data",)


def test_a_functions_cache_of_random_numbers_is_an_error() -> None:
    remembered.cache_clear()
    with (
        making(Noise(), InAFunctionsCache())(num_processes=1) as augmenter,
        pytest.raises(ReproducibilityError),
    ):
        list(augmenter)


def test_the_error_names_the_key_the_transform_and_the_variable() -> None:
    with (
        making(Noise(), Then([InADeque(), InTheModule()]))(num_processes=1) as augmenter,
        pytest.raises(ReproducibilityError, match=r"(?s)'data'.*InTheModule.*RUNNING\['mean'\]"),
    ):
        list(augmenter)


def test_keys_that_may_differ_and_going_on_nevertheless(caplog: pytest.LogCaptureFixture) -> None:
    with making(Noise(), InTheModule(), check=Check(ignore=("data",)))(num_processes=1) as augmenter:
        assert len(list(augmenter)) == BATCHES
        assert augmenter.stats()["mismatches"] == 0
    with making(Noise(), InTheModule(), check=Check(on_mismatch="warn"))(num_processes=0) as augmenter:
        assert len(list(augmenter)) == BATCHES
        assert augmenter.stats()["mismatches"] > 0
    assert "InTheModule" in caplog.text


class MadeFromTheBatch(MadeWhenDrawnFrom):
    """The same, done right."""

    def draw(self) -> float:
        if not self.ready:
            self.rng = np.random.default_rng(np.random.randint(2**31))
            self.old, self.torch = random.Random(random.random()), torch.Generator()
            self.torch.manual_seed(np.random.randint(2**31))
            self.ready = True
        return float(self.rng.random()) + self.old.random() + float(torch.rand((), generator=self.torch))


class MadeInOldWays(MadeWhenDrawnFrom):
    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__()
        self.make = make

    def draw(self) -> float:
        if not self.ready:
            self.rng, self.ready = {"inner": [self.make()]}, True
        rng = self.rng["inner"][0]
        return float(torch.rand((), generator=rng) if isinstance(rng, torch.Generator) else rng.random())


MADE: dict[str, Callable[[], Step]] = {
    "default_rng": MadeWhenDrawnFrom,
    "RandomState": lambda: MadeInOldWays(lambda: np.random.RandomState(6)),
    "Random": lambda: MadeInOldWays(lambda: random.Random(6)),
    "torch": lambda: MadeInOldWays(torch.Generator),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_generator_made_with_one_seed_in_every_batch_is_told_of(kind: str) -> None:
    """Issue: the same number in every batch, and called equal."""
    found = run_all_ways(making(Noise(), Then([MADE[kind]()])), kill=False)
    assert found.different() == []
    for way in ("0 workers", "2 workers"):
        assert any(word.startswith(way) and "transforms[0].rng" in word and "same seed" in word for word in found.words)


def test_a_generator_made_from_the_batchs_numbers_is_right() -> None:
    run_all_ways(making(Noise(), Then([MadeFromTheBatch()])), kill=False).assert_right()


class DrawsItself:
    """A data set that makes its generator on first use."""

    rng: Any = None

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> float:
        if self.rng is None:
            self.rng = np.random.default_rng(8)
        return float(self.rng.random())


@pytest.mark.parametrize("num_processes", [0, 2])
def test_so_is_one_that_a_data_set_makes_on_first_use(num_processes: int) -> None:
    with (
        DeterministicAugmenter.from_dataset(DrawsItself(), 2, seed=1, num_processes=num_processes) as augmenter,
        pytest.raises(ReproducibilityError),
    ):
        list(augmenter)


# --- loaders --------------------------------------------------------------------------------------------------------------


class ShufflesAList:
    """Issue: right with 1,000 items and wrong with 1,001."""

    def __init__(self, items: int) -> None:
        self.order: Any = list(range(items))

    def __iter__(self) -> ShufflesAList:
        return self

    def __next__(self) -> Any:
        random.shuffle(self.order)
        return np.array(self.order[:5])


class ShufflesAnArray(ShufflesAList):
    def __init__(self, items: int) -> None:
        self.order = np.arange(items)

    def __next__(self) -> Any:
        np.random.shuffle(self.order)
        return self.order[:5].copy()


class ShufflesATensor(ShufflesAnArray):
    def __init__(self, items: int) -> None:
        self.tensor = torch.arange(items)
        self.order = self.tensor.numpy()


class HandsOutWhatItShuffles(ShufflesAnArray):
    def __next__(self) -> Any:
        np.random.shuffle(self.order)
        return self.order[:5]


SHUFFLED = [
    (ShufflesAList, 1001),
    (ShufflesAnArray, 513),
    (ShufflesATensor, 60_000),
    (HandsOutWhatItShuffles, 60_000),
]


@pytest.mark.parametrize(("kind", "items"), SHUFFLED)
@pytest.mark.parametrize("num_streams", [1, 3])
def test_a_loader_may_shuffle_in_place_whatever_its_size(kind: Any, items: int, num_streams: int) -> None:
    make = making(kind(items), num_streams=num_streams)
    in_workers = num_streams == 3 and items in (1001, 60_000)
    run_all_ways(make, processes=(0, 2) if in_workers else (0,)).assert_right()


@pytest.mark.parametrize(("kind", "items"), SHUFFLED[::3])
def test_what_it_shuffles_is_its_copy(kind: Any, items: int) -> None:
    loader = kind(items)
    with making(loader)(num_processes=0) as augmenter:
        list(augmenter)
        augmenter.replay(2, 3)
    assert list(loader.order) == list(range(items))


class InAnInfiniteLoader(Noise):
    """Shuffles its indices in place, and counts as stateless by its class."""

    def __init__(self, items: int) -> None:
        super().__init__()
        self.cases = list(range(items))

    def generate_train_batch(self) -> dict[str, Any]:
        random.shuffle(self.cases)
        return {"data": np.array(self.cases[:3])}


@pytest.mark.parametrize("items", [7, 1003])
def test_a_loader_taken_for_stateless_that_is_not_is_told_of(items: int) -> None:
    for num_processes in (0, 2):
        with (
            making(InAnInfiniteLoader(items))(num_processes=num_processes) as augmenter,
            pytest.raises(ReproducibilityError, match="stateless=False"),
        ):
            list(augmenter)
    run_all_ways(making(InAnInfiniteLoader(items), stateless=False), processes=(0, 2), kill=False).assert_right()


class WithItsOwnTransforms(Noise):
    """As nnU-Net's loader: applies `transforms` to each sample."""

    def __init__(self, transforms: Any) -> None:
        super().__init__()
        self.transforms = transforms

    def generate_train_batch(self) -> dict[str, Any]:
        samples = []
        for _ in range(3):
            samples.append(self.transforms(data=np.random.random(2))["data"])
        return {"data": np.stack(samples)}


@pytest.mark.parametrize("state", ["deque", "tensor", "closure", "bound method", "nn.Module"])
def test_transforms_inside_a_loader_start_every_batch_pristine(state: str) -> None:
    if state == "nn.Module":
        loader = WithItsOwnTransforms(Then([InATensor(), InALargeArray()]))
    else:
        loader = WithItsOwnTransforms(COPIED[state]())
    run_all_ways(making(loader), processes=(0, 2) if state == "nn.Module" else (0,), kill=False).assert_right()


# --- what transforms and loader have in common ----------------------------------------------------------------------------


class WritesMetadata(Endless):
    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    def __next__(self) -> dict[str, Any]:
        self.metadata["spacing"] = float(np.random.randint(50))
        return {"data": np.zeros(2)}


class ReadsMetadata:
    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    def __call__(self, data: Any) -> dict[str, Any]:
        return {"data": data + self.metadata["spacing"]}


@pytest.mark.parametrize("deep", [False, True])
def test_a_transform_reads_what_the_loader_wrote_for_this_batch(deep: bool) -> None:
    metadata: dict[str, Any] = {}
    transform: Any = ReadsMetadata(metadata)
    found = run_all_ways(
        making(WritesMetadata(metadata), Then([Then([transform])]) if deep else transform, num_streams=2)
    )
    found.assert_right()
    assert len({float(batch["data"][0]) for batch in found.epoch("0 workers", 0)}) > 3
    assert metadata == {}


class StatelessMetadata(Noise):
    def __init__(self, metadata: dict[str, Any]) -> None:
        super().__init__()
        self.metadata = metadata

    def generate_train_batch(self) -> dict[str, Any]:
        self.metadata["spacing"] = float(np.random.randint(50))
        return {"data": np.zeros(2)}


def test_so_it_does_with_a_stateless_loader() -> None:
    metadata: dict[str, Any] = {}
    found = run_all_ways(making(StatelessMetadata(metadata), ReadsMetadata(metadata)))
    found.assert_right()
    assert len({float(batch["data"][0]) for batch in found.epoch("2 workers", 0)}) > 3
