"""How epochs begin, end and follow each other."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.augmenters import Maker, cases_with_workers
from tests.support.comparing import fingerprints_of, take
from tests.support.faults import RaisesAt, Recorder
from tests.support.loaders import (
    IndexLoader,
    Noise,
    RandomLoader,
    RandomSampler,
    Samples,
)
from tests.support.processes import wait_until
from tests.support.witness import assert_made_by_workers

OPTIONS: dict[str, Any] = {"seed": 3, "batches_per_epoch": 5}


def where(batches: list[Any]) -> list[tuple[int, int]]:
    return [tuple(batch["where"]) for batch in batches]


class Pass:
    """Four batches per pass, and nothing says so."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


#: A loader of four batches per epoch, options, and what makes (epoch, step) out of the batches of
#: all epochs.
OF_FOUR: dict[str, tuple[Any, dict[str, Any]]] = {
    "a number of batches": (RandomSampler, {"batches_per_epoch": 4}),
    "a number of batches, goes on": (RandomLoader, {"batches_per_epoch": 4}),
    "a finite DataLoader": (partial(IndexLoader, 8, 2), {}),
    "a finite DataLoader, three streams": (partial(IndexLoader, 8, 2, 3), {}),
    "no length": (Pass, {}),
    "no length, a larger number of batches": (Pass, {"batches_per_epoch": 9}),
    "a list": (lambda: [3, 1, 2, 5], {}),
}


def next_calls(augmenter: Any) -> list[Any]:
    """As Lightning and Ignite take an epoch: the end is never seen."""
    iterator = iter(augmenter)
    return [next(iterator) for _ in range(4)]


def break_at_the_last(augmenter: Any) -> list[Any]:
    batches = []
    for batch in augmenter:
        batches.append(batch)
        if len(batches) == 4:
            break
    return batches


def begun_and_ended(augmenter: Any) -> list[Any]:
    return take(augmenter, 2) + [batch for _, batch in zip(range(2), augmenter, strict=False)]


LOOPS: dict[str, Callable[[Any], list[Any]]] = {
    "next()": next_calls,
    "islice": lambda augmenter: take(augmenter, 4),
    "break": break_at_the_last,
    "enumerate": lambda augmenter: [batch for _, batch in enumerate(augmenter)],
    "for": list,
    "in two parts": begun_and_ended,
}


#: Those that workers make in the two ways there are: any batch, or their own streams'.
BY_WORKERS = {"a number of batches", "a finite DataLoader, three streams"}


@pytest.mark.parametrize(("loader", "n"), cases_with_workers(OF_FOUR, 3, BY_WORKERS))
def test_no_epoch_is_empty_however_it_is_taken(make: Maker, loader: str, n: int) -> None:
    make_loader, options = OF_FOUR[loader]

    def new(processes: int) -> Any:
        return make(make_loader(), None, processes, seed=3, **options)

    expected = new(0)
    epochs = [fingerprints_of(expected) for _ in range(len(LOOPS) + 1)]
    augmenter = new(n)
    for epoch, loop in zip(epochs, LOOPS, strict=False):
        assert fingerprints_of(LOOPS[loop](augmenter)) == epoch, loop
    assert fingerprints_of(augmenter) == epochs[-1]


@pytest.mark.parametrize(("loader", "n"), cases_with_workers(OF_FOUR, 2, BY_WORKERS))
def test_iter_at_an_unseen_end_after_resume(make: Maker, loader: str, n: int) -> None:
    make_loader, options = OF_FOUR[loader]

    def new() -> Any:
        return make(make_loader(), None, n, seed=3, **options)

    first = new()
    take(first, 4)
    assert first.epoch == 0
    state = first.state_dict()
    second = fingerprints_of(first)
    goes_on = new()
    goes_on.load_state_dict(state)
    assert fingerprints_of(goes_on) == second
    told = new()
    told.load_state_dict(state)
    told.set_epoch(0)
    assert list(told) == [], "the rest of the epoch that was asked for"
    assert fingerprints_of(told) == second


@pytest.mark.parametrize("loader", ["a number of batches", "no length"])
@pytest.mark.parametrize("n", [0, 2])
def test_iter_in_mid_epoch_loses_no_batch_and_epoch_and_step_name_the_one_that_is_due(
    make: Maker, loader: str, n: int
) -> None:
    make_loader, options = OF_FOUR[loader]
    expected = fingerprints_of(make(make_loader(), None, 0, seed=3, **options))
    augmenter = make(make_loader(), None, n, seed=3, **options)
    for step in range(4):
        iter(augmenter)
        assert (augmenter.epoch, augmenter.step) == (0, step)
        assert fingerprints_of([next(augmenter)]) == expected[step : step + 1]
    with pytest.raises(StopIteration):
        next(augmenter)
    assert (augmenter.epoch, augmenter.step) == (1, 0)


@pytest.mark.parametrize("n", [0, 2])
def test_a_failure_that_iter_meets_is_raised_by_next(make: Maker, n: int) -> None:
    augmenter = make(RaisesAt((2,)), None, n, seed=3)
    take(augmenter, 2)
    iterator = iter(augmenter)
    assert augmenter.step == 2
    with pytest.raises(ValueError, match="voxel spacing"):
        next(iterator)


def test_an_epoch_without_a_batch_for_every_rank_is_refused(make: Maker) -> None:
    for number in (1, 2):
        with pytest.raises(
            ValueError,
            match=rf"epoch of {number} batches .*world_size=3.*batches_per_epoch.*at least 3",
        ):
            make(RandomSampler(), None, 0, seed=3, batches_per_epoch=number, world_size=3)
    with pytest.raises(ValueError, match=r"epoch of 2 batches .*world_size=3"):
        make.from_dataset(Samples(8), 4, num_processes=0, seed=3, world_size=3)
    with pytest.raises(ValueError, match=r"epoch of 2 batches .*world_size=3"):
        make(IndexLoader(4, 2), None, 0, seed=3, world_size=3)


@pytest.mark.parametrize("n", [0, 2])
def test_next_goes_on_for_ever_in_the_epoch_of_an_endless_loader(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, seed=3)
    assert where(take(augmenter, 60)) == [(0, step) for step in range(60)]
    with pytest.raises(TypeError):
        len(augmenter)


@pytest.mark.parametrize("n", [0, 2])
def test_set_epoch_goes_to_the_first_step_of_that_epoch_from_anywhere(make: Maker, n: int) -> None:
    reference = make(RandomSampler(), Noise(), 0, **OPTIONS)
    expected = [fingerprints_of(reference) for _ in range(4)]
    augmenter = make(RandomSampler(), Noise(), n, **OPTIONS)
    augmenter.set_epoch(3)
    assert fingerprints_of(augmenter) == expected[3]
    augmenter.set_epoch(1)
    assert fingerprints_of(take(augmenter, 2)) == expected[1][:2]
    augmenter.set_epoch(1)
    assert fingerprints_of(augmenter) == expected[1]
    assert fingerprints_of(augmenter) == expected[2], "the epoch after the one that was set"
    augmenter.set_epoch(0)
    augmenter.set_epoch(0)
    assert fingerprints_of(augmenter) == expected[0]


@pytest.mark.parametrize("ends", [False, True])
def test_first_batches_of_the_next_epoch_are_prefetched_and_kept(
    make: Maker, mark: str, tmp_path: Path, ends: bool
) -> None:
    augmenter = make(Recorder(str(tmp_path)), None, 2, check=False, **OPTIONS)
    batches = list(augmenter) if ends else take(augmenter, 5)
    assert_made_by_workers("fork", batches)
    wait_until(
        lambda: bool(list(tmp_path.glob("1-0-*"))), "step 0 of epoch 1 is made before anybody asks"
    )
    for epoch in (1, 2):
        augmenter.set_epoch(epoch)
        list(augmenter)
    for epoch in range(3):
        for step in range(5):
            assert len(list(tmp_path.glob(f"{epoch}-{step}-*"))) == 1, "and it is not made again"


@pytest.mark.parametrize(
    ("loader", "options", "count"),
    [
        (RandomSampler, {}, 1),
        (RandomLoader, {}, 1),
        (RandomLoader, {"batches_per_epoch": 3}, 0),
        (partial(IndexLoader, 8, 2), {}, 0),
        (Pass, {}, 0),
    ],
)
def test_a_loop_that_never_ends_is_logged_once(
    make: Maker,
    caplog: pytest.LogCaptureFixture,
    loader: Callable[[], Any],
    options: dict[str, Any],
    count: int,
) -> None:
    caplog.set_level(logging.INFO, "detaug")
    augmenter = make(loader(), None, 0, seed=1, **options)
    next(augmenter)
    assert "never ends" not in caplog.text, "next() asks for no loop"
    for _ in range(2):
        for _ in augmenter:
            break
    assert caplog.text.count("a for loop over this augmenter never ends") == count
