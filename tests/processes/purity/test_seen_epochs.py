"""What an epoch is, for whatever is told of it, goes on through it, or ends in it."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

from detaug import DeterministicAugmenter, Skip
from detaug.errors import BatchError
from tests.processes.purity.ways import BATCHES, OneOf, Then, in_workers_too, listening, making, run_all_ways

# --- set_epoch that changes what it finds -------------------------------------------------------------------------------


class Fading:
    """``set_epoch`` multiplies what it finds: on a pristine copy that is one factor in every epoch."""

    def __init__(self) -> None:
        self.sigma = 1.0
        self.history: list[int] = []

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.75 / (1 + epoch)
        self.history.append(epoch)

    def __call__(self, data: Any, **others: Any) -> dict[str, Any]:
        assert len(self.history) == 1
        return {"data": data * self.sigma, **others}


class Constant(DataLoader):
    """Stateless; with transforms of its own, if it is given any."""

    def __init__(self, transforms: Any = None) -> None:
        super().__init__(list(range(9)), 2, infinite=True)
        self.indices = list(range(9))
        if transforms is not None:
            self.transforms = transforms

    def generate_train_batch(self) -> dict[str, Any]:
        batch = {"data": np.full(2, 100.0)}
        return self.transforms(**batch) if hasattr(self, "transforms") else batch


class FadingLoader(Constant):
    sigma = 1.0

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.75 / (1 + epoch)

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.full(2, 100.0) * self.sigma}


class FadingIterator:
    """Bound to its stream."""

    def __init__(self) -> None:
        self.sigma, self.number = 1.0, 0

    def set_epoch(self, epoch: int) -> None:
        self.sigma *= 0.75 / (1 + epoch)

    def __iter__(self) -> FadingIterator:
        return self

    def __next__(self) -> dict[str, Any]:
        self.number += 1
        return {"data": np.full(2, 100.0) * self.sigma, "number": self.number}


class FadingItems:
    def __init__(self) -> None:
        self.inner = FadingIterator()

    def __len__(self) -> int:
        return 3 * BATCHES

    def __getitem__(self, index: int) -> Any:
        return 100.0 * self.inner.sigma


class Passing(Then):
    """A composition that passes the epoch on by itself, once."""

    def set_epoch(self, epoch: int) -> None:
        for transform in self.transforms:
            if hasattr(transform, "set_epoch"):
                transform.set_epoch(epoch)


TOLD: dict[str, Any] = {
    "transform": lambda: making(Constant(), Fading()),
    "transform of an endless iterator": lambda: making(FadingIterator(), None, num_streams=2),
    "OneOf": lambda: making(Constant(), OneOf(Fading(), Fading(), Then(Fading()))),
    "passed on": lambda: making(Constant(), Passing(Then(Passing(Fading())))),
    "bound method": lambda: making(Constant(), Fading().__call__),
    "closure": lambda: making(Constant(), (lambda fade: lambda **batch: fade(**batch))(Fading())),
    "loader": lambda: making(FadingLoader()),
    "loader's transforms": lambda: making(Constant(Then(OneOf(Fading())))),
    "inside a data set": lambda: (
        lambda num_processes: DeterministicAugmenter.from_dataset(
            FadingItems(), 3, num_processes=num_processes, seed=4, collate_fn=lambda items: {"data": np.array(items)}
        )
    ),
}


#: Bound to their streams, stateless, and a data set: what workers are told by their loader in a way of its own.
OTHER_IN_WORKERS = ("transform of an endless iterator", "loader", "inside a data set")


@pytest.mark.parametrize(("where", "processes"), in_workers_too(TOLD, OTHER_IN_WORKERS))
def test_set_epoch_meets_a_pristine_copy_once(where: str, processes: tuple[int, ...]) -> None:
    found = run_all_ways(TOLD[where](), processes)
    found.assert_right()
    for way in found.batches:
        for epoch in (0, 2):
            for batch in found.epoch(way, epoch):
                np.testing.assert_allclose(batch["data"], 75.0 / (1 + epoch))


# --- endless loaders with state -----------------------------------------------------------------------------------------


class Deck(SlimDataLoaderBase):
    """Walks through its cases in an order of its own, and begins again with another one."""

    def __init__(self, cases: int) -> None:
        super().__init__(list(range(cases)), 1)
        self.rng = np.random.default_rng(3)
        self.order: list[int] = []

    def generate_train_batch(self) -> dict[str, Any]:
        if not self.order:
            self.order = self.rng.permutation(len(self._data)).tolist()
        return {"case": np.array([self.order.pop()])}


class Cases:
    """In one order for ever, with a counter."""

    def __init__(self, cases: int) -> None:
        self.cases, self.turn = cases, 0

    def __iter__(self) -> Cases:
        return self

    def __next__(self) -> dict[str, Any]:
        self.turn += 1
        return {"case": np.array([(7 * self.turn) % self.cases])}


def test_one_stream_goes_through_the_whole_deck_again_and_again() -> None:
    with DeterministicAugmenter(Deck(60), None, 1, seed=1, batches_per_epoch=24, num_streams=1) as augmenter:
        cases = [int(batch["case"][0]) for _ in range(5) for batch in augmenter]
    assert sorted(cases[:60]) == sorted(cases[60:]) == list(range(60))
    assert cases[:60] != cases[60:]


def test_it_is_the_same_wherever_one_enters() -> None:
    run_all_ways(making(Deck(50))).assert_right()
    run_all_ways(making(Cases(53), num_streams=1)).assert_right()


def test_streams_that_give_the_same_batches_are_told_of() -> None:
    class Samples(Cases):
        def __next__(self) -> dict[str, Any]:
            return {"data": np.arange(5) / 7 + super().__next__()["case"]}

    for num_processes in (0, 2):
        with (
            listening() as heard,
            making(Samples(1009), num_streams=4, batches_per_epoch=40)(num_processes=num_processes) as augmenter,
        ):
            for _ in augmenter:
                pass
        assert any("the same raw batches" in text for text in heard), heard


class Wrapping:
    """An iterator around a finite loader. Issue: every item came 12 times."""

    def __init__(self, items: int) -> None:
        self.inner = iter(range(items))

    def __iter__(self) -> Wrapping:
        return self

    def __next__(self) -> int:
        return next(self.inner)


def test_an_iterator_around_a_finite_loader_gives_every_item_once() -> None:
    found = run_all_ways(making(Wrapping(17), batches_per_epoch=None))
    told = ("finite", "ends", "passes", "gave no batch")  # a second pass of `Wrapping` is empty
    assert all(any(part in word for part in told) for word in found.words), found.words
    assert found.different() == []
    for way in ("0 workers", "2 workers"):
        assert sorted(map(int, found.epoch(way, 0))) == list(range(17))


class Searches:
    """``next(... for ...)`` finds nothing for one item. Issue: the epoch ended there without a word."""

    def __init__(self, items: int, matches: tuple[int, ...]) -> None:
        self.items, self.missing = items, matches

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, index: int) -> int:
        return next(item for item in range(self.items) if item == index and item not in self.missing)


def _collates_by_search(items: list[int]) -> int:
    return next(item for item in items if item != 13)


@pytest.mark.parametrize("num_processes", [0, pytest.param(2, marks=pytest.mark.slow)])  # in workers: the next test
@pytest.mark.parametrize(
    ("dataset", "options"),
    [
        (Searches(31, (13,)), {}),
        (Searches(31, ()), {"collate_fn": _collates_by_search, "batch_size": 1}),
        (
            Searches(31, ()),
            {"transform": lambda batch: next(item for item in batch if int(item) != 13), "batch_size": 1},
        ),
    ],
)
def test_a_search_without_a_match_is_an_error_and_not_the_end(dataset: Any, options: Any, num_processes: int) -> None:
    settings = {"batch_size": 2, "seed": 3, "num_processes": num_processes, **options}
    with (
        DeterministicAugmenter.from_dataset(dataset, **settings) as augmenter,
        pytest.raises(BatchError, match="StopIteration"),
    ):
        list(augmenter)
    with DeterministicAugmenter.from_dataset(dataset, on_error=Skip(), **settings) as augmenter:
        assert len(list(augmenter)) == len(augmenter) - 1


class SearchesInALoader(Constant):
    def generate_train_batch(self) -> dict[str, Any]:
        case = np.random.randint(6)
        return {"data": next(np.full(2, item) for item in range(1, 6) if item == case)}


def test_so_it_is_in_a_stateless_loader() -> None:
    with making(SearchesInALoader(), batches_per_epoch=60)(num_processes=1) as augmenter, pytest.raises(BatchError):
        list(augmenter)


class Streaming:
    """An endless iterator with a position that is an iterator's own."""

    def __init__(self) -> None:
        self.positions = itertools.cycle(range(11))
        self.items = iter(list(range(400)))

    def __iter__(self) -> Streaming:
        return self

    def __next__(self) -> list[int]:
        return [next(self.positions), next(self.items)]


def test_iterators_in_a_loader_are_copied_with_their_position() -> None:
    loader = Streaming()
    next(loader)
    found = run_all_ways(making(loader, num_streams=1))
    found.assert_right()
    assert found.epoch("2 workers", 0)[:2] == [[1, 1], [2, 2]]
    assert next(loader) == [1, 1]


class HoldsStreams:
    """Workers have others in the place of the program's."""

    epoch = 0

    def __init__(self) -> None:
        self.streams = (sys.stdout, sys.stderr)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, data: Any) -> dict[str, Any]:
        for stream in self.streams:
            stream.write("made ")
        return {"data": data + 10 * self.epoch}


def test_what_is_told_of_the_epoch_may_hold_standard_streams() -> None:
    found = run_all_ways(making(Constant(), HoldsStreams()))
    found.assert_right()
    assert float(found.epoch("2 workers", 2)[0]["data"].max()) == 120
