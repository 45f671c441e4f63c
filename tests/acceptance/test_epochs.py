"""How epochs begin, end and follow each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .comparing import prints, take
from .conftest import Maker
from .faults import Recorder
from .loaders import EpochReporter, EpochReportingTransform, IndexLoader, Noise, RandomLoader, RandomSampler
from .processes import wait_until
from .witness import assert_made_by_workers

OPTIONS: dict[str, Any] = {"seed": 3, "batches_per_epoch": 5, "start_method": "fork"}


def where(batches: list[Any]) -> list[tuple[int, int]]:
    return [tuple(batch["where"]) for batch in batches]


@pytest.mark.parametrize("n", [0, 2])
def test_each_for_loop_runs_one_epoch(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, **OPTIONS)
    assert len(augmenter) == 5
    for epoch in range(3):
        assert where(list(augmenter)) == [(epoch, step) for step in range(5)]


@pytest.mark.parametrize("n", [0, 2])
def test_iter_never_moves_the_position(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, **OPTIONS)
    assert iter(augmenter) is not None
    assert where([next(augmenter)]) == [(0, 0)]
    iter(augmenter)
    assert (augmenter.epoch, augmenter.step) == (0, 1)
    for batch in augmenter:
        assert where([batch]) == [(0, 1)]
        break
    assert where(list(augmenter)) == [(0, 2), (0, 3), (0, 4)]


@pytest.mark.parametrize("n", [0, 2])
def test_next_goes_on_for_ever_in_the_epoch_of_an_endless_loader(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, seed=3, start_method="fork")
    assert where(take(augmenter, 60)) == [(0, step) for step in range(60)]
    with pytest.raises(TypeError):
        len(augmenter)


@pytest.mark.parametrize("n", [0, 2])
def test_epoch_and_step_name_the_batch_that_is_due(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, **OPTIONS)
    for step in range(5):
        assert (augmenter.epoch, augmenter.step) == (0, step)
        assert where([next(augmenter)]) == [(0, step)]
    with pytest.raises(StopIteration):
        next(augmenter)
    assert (augmenter.epoch, augmenter.step) == (1, 0)


@pytest.mark.parametrize("n", [0, 2])
def test_set_epoch_goes_to_the_first_step_of_that_epoch_from_anywhere(make: Maker, n: int) -> None:
    reference = make(RandomSampler(), Noise(), 0, **OPTIONS)
    expected = [prints(reference) for _ in range(4)]
    augmenter = make(RandomSampler(), Noise(), n, **OPTIONS)
    augmenter.set_epoch(3)
    assert prints(augmenter) == expected[3]
    augmenter.set_epoch(1)
    assert prints(take(augmenter, 2)) == expected[1][:2]
    augmenter.set_epoch(1)
    assert prints(augmenter) == expected[1]
    assert prints(augmenter) == expected[2], "the epoch after the one that was set"
    augmenter.set_epoch(0)
    augmenter.set_epoch(0)
    assert prints(augmenter) == expected[0]


@pytest.mark.parametrize("n", [0, 2])
def test_usual_training_loop_runs_every_epoch_once(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, **OPTIONS)
    seen = []
    for epoch in range(augmenter.epoch, 3):
        augmenter.set_epoch(epoch)
        seen += where(list(augmenter))
    assert seen == [(epoch, step) for epoch in range(3) for step in range(5)]


@pytest.mark.parametrize("n", [0, 2])
def test_fixed_number_of_next_calls_per_epoch_works_as_in_nnunet(make: Maker, n: int) -> None:
    augmenter = make(RandomSampler(), None, n, seed=3, start_method="fork")
    seen = []
    for epoch in range(3):
        augmenter.set_epoch(epoch)
        seen += where([next(augmenter) for _ in range(4)])
    assert seen == [(epoch, step) for epoch in range(3) for step in range(4)]


def test_first_batches_of_the_next_epoch_are_prefetched_and_kept(make: Maker, mark: str, tmp_path: Path) -> None:
    augmenter = make(Recorder(str(tmp_path)), None, 2, **OPTIONS)
    batches = take(augmenter, 5)
    assert_made_by_workers("fork", batches)
    wait_until(lambda: bool(list(tmp_path.glob("1-0-*"))), "step 0 of epoch 1 is made before anybody asks")
    augmenter.set_epoch(1)
    list(augmenter)
    assert len(list(tmp_path.glob("1-0-*"))) == 1, "and it is not made again"


def test_prefetched_batches_are_kept_when_the_epoch_is_ended_by_stop_iteration(make: Maker, tmp_path: Path) -> None:
    augmenter = make(Recorder(str(tmp_path)), None, 2, **OPTIONS)
    for epoch in range(3):
        augmenter.set_epoch(epoch)
        list(augmenter)
    for epoch in range(3):
        for step in range(5):
            assert len(list(tmp_path.glob(f"{epoch}-{step}-*"))) == 1


def test_no_more_than_the_window_is_made_ahead(make: Maker, tmp_path: Path) -> None:
    augmenter = make(Recorder(str(tmp_path)), None, 2, 3, seed=3, start_method="fork")
    take(augmenter, 4)
    wait_until(lambda: len(list(tmp_path.glob("0-8-*"))) == 1, "the window of 2 + 3 steps fills up")
    # What would be made too many cannot be waited for; the files are looked at twice, some batches later.
    assert max(int(p.name.split("-")[1]) for p in tmp_path.iterdir()) <= 9
    take(augmenter, 3)
    assert max(int(p.name.split("-")[1]) for p in tmp_path.iterdir()) <= 12


@pytest.mark.parametrize("n", [0, 1, 2])
def test_loader_and_transform_with_set_epoch_are_told_before_their_first_batch(make: Maker, mark: str, n: int) -> None:
    augmenter = make(EpochReporter(), EpochReportingTransform(), n, **OPTIONS)
    batches = [batch for _ in range(3) for batch in augmenter]
    if n:
        assert_made_by_workers("fork", batches)
    for epoch in (7, 2):
        augmenter.set_epoch(epoch)
        batches += augmenter
    assert [b["where"][0] for b in batches] == [0] * 5 + [1] * 5 + [2] * 5 + [7] * 5 + [2] * 5
    for batch in batches:
        assert batch["loader"] == batch["transform"] == batch["where"][0]


@pytest.mark.parametrize("n", [0, 2])
def test_replay_tells_the_epoch_too_and_tells_it_back(make: Maker, n: int) -> None:
    augmenter = make(EpochReporter(), EpochReportingTransform(), n, **OPTIONS)
    take(augmenter, 2)
    batch = augmenter.replay(4, 1)
    assert batch["loader"] == batch["transform"] == 4
    batch = next(augmenter)
    assert batch["loader"] == batch["transform"] == 0


@pytest.mark.parametrize("n", [0, 2])
def test_finite_loader_shorter_than_batches_per_epoch_ends_the_epoch(make: Maker, n: int) -> None:
    augmenter = make(IndexLoader(6, 2, shuffle=False), None, n, seed=1, batches_per_epoch=50, start_method="fork")
    assert list(augmenter) == [[0, 1], [2, 3], [4, 5]]
    assert list(augmenter) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("n", [0, 2])
def test_batches_per_epoch_cuts_a_longer_finite_loader(make: Maker, n: int) -> None:
    augmenter = make(IndexLoader(20, 2, shuffle=False), None, n, seed=1, batches_per_epoch=3, start_method="fork")
    assert len(augmenter) == 3
    assert list(augmenter) == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("epoch", [-1, 2**32, 2**64])
def test_epoch_out_of_range_is_refused(make: Maker, epoch: int) -> None:
    with pytest.raises(ValueError, match=str(epoch)):
        make(RandomLoader(), None, 0, **OPTIONS).set_epoch(epoch)


@pytest.mark.parametrize("epoch", [1.0, "1", None])
def test_epoch_that_is_no_integer_is_refused(make: Maker, epoch: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        make(RandomLoader(), None, 0, **OPTIONS).set_epoch(epoch)


def test_last_epoch_there_is_can_be_run(make: Maker) -> None:
    augmenter = make(RandomLoader(), None, 0, **OPTIONS)
    augmenter.set_epoch(2**32 - 1)
    assert where(take(augmenter, 5)) == [(2**32 - 1, step) for step in range(5)]
