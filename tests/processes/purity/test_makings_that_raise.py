"""A batch that is made a second time and raises: an error with its cause, or a word where only one
copy can be.
"""

from __future__ import annotations

import fcntl
import gc
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from detaug import DeterministicAugmenter, ReproducibilityError, current


class OneAtATime:
    """A data set that opens a store on first use, as LMDB's are opened: no second copy may do so."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.file: Any = None

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        if self.file is None:
            self.file = self.store.open("a")
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return {"data": np.random.random(4), "index": index}


class OncePerBatch:
    """Writes a file for each batch, which must not be there yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, **batch: Any) -> dict[str, Any]:
        (self.folder / str(current().step)).touch(exist_ok=False)
        return batch


@pytest.fixture
def dataset(tmp_path: Path) -> OneAtATime:
    return OneAtATime(tmp_path / "store")


def augmenter(dataset: Any, processes: int, **options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter.from_dataset(
        dataset, 2, num_processes=processes, seed=8, **options
    )


def test_what_only_one_copy_can_open_is_not_checked_in_this_process_and_that_is_said(
    dataset: OneAtATime, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "detaug"), augmenter(dataset, 0) as made:
        assert len(list(made)) == 6
        assert len(list(made)) == 6
    (record,) = caplog.records
    assert "BlockingIOError" in record.message
    assert "opened only once in a process" in record.message
    assert "num_processes=1" in record.message
    assert made.stats()["mismatches"] == 0


def test_a_replay_beside_the_only_copy_raises_what_it_meets_and_says_why(
    dataset: OneAtATime,
) -> None:
    with augmenter(dataset, 0, check=False) as made:
        next(made)
        with pytest.raises(BlockingIOError) as caught:
            made.replay(0, 3)
    assert "opened only once in a process" in "".join(caught.value.__notes__)


class DrawsOnFirstUse:
    """A data set whose samples depend on which of them was read first."""

    def __init__(self) -> None:
        self.offset: float | None = None

    def __len__(self) -> int:
        return 30

    def __getitem__(self, index: int) -> np.ndarray:
        if self.offset is None:
            self.offset = np.random.random()
        return np.full(3, index + self.offset)


@pytest.mark.parametrize("check", [100, 1])
@pytest.mark.parametrize("replayed", [[], [0]])
def test_a_copy_that_is_kept_hides_no_state_of_the_data_set(
    check: int, replayed: list[int]
) -> None:
    with augmenter(DrawsOnFirstUse(), 0, check=check) as made:
        for step in replayed:
            made.replay(0, step)
        with pytest.raises(ReproducibilityError):
            list(made)


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.usefixtures("without_collector")
def test_replays_before_a_run_take_nothing_from_it(dataset: OneAtATime, processes: int) -> None:
    with augmenter(dataset, processes, check=False) as made:
        replayed = made.replay(0, 4)["data"].tolist()
        assert [batch["data"].tolist() for batch in made][4] == replayed


def test_replays_use_one_copy(dataset: OneAtATime) -> None:
    made = augmenter(dataset, 1, check=False)
    first = [made.replay(0, step)["data"] for step in (3, 1, 3)]
    assert (first[0] == first[2]).all()
    assert not (first[0] == first[1]).any()


@pytest.fixture
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.usefixtures("without_collector")
def test_what_a_copy_has_open_is_closed_with_its_augmenter(
    dataset: OneAtATime, processes: int
) -> None:
    first = augmenter(dataset, processes, check=False)
    expected = [batch["data"].tolist() for batch in first]
    first.close()
    assert first.replay(0, 2)["data"].tolist() == expected[2]
    first.close()
    second = augmenter(dataset, 0, check=False)
    assert next(second)["data"].tolist() == expected[0]
    del second
    third = augmenter(dataset, 0, check=False)
    assert next(third)["data"].tolist() == expected[0]


class WithEpochs(OneAtATime):
    """Is told the epoch, for which a copy begins anew."""

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


@pytest.mark.usefixtures("without_collector")
def test_a_data_set_that_is_told_the_epoch_has_one_copy_at_a_time(dataset: OneAtATime) -> None:
    with augmenter(WithEpochs(dataset.store), 0, check=False) as made:
        assert [len(list(made)) for _ in range(3)] == [6, 6, 6]


def test_a_second_making_that_raises_in_a_worker_is_reported_with_its_cause(
    tmp_path: Path,
) -> None:
    made = augmenter([{"x": np.ones(3)}] * 80, 1, transform=OncePerBatch(tmp_path))
    with made, pytest.raises(ReproducibilityError, match="FileExistsError") as caught:
        list(made)
    assert isinstance(caught.value.__cause__, FileExistsError)
    assert "(self.folder / str(current().step)).touch(exist_ok=False)" in str(caught.value)
    assert "''" not in str(caught.value)
    assert caught.value.keys == ()
