"""replay makes batch (epoch, step) again, in the calling process, without disturbing anything."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import Noise, RandomSampler, Walker
from tests.support.witness import WITNESS, assert_made_by_workers

OPTIONS: dict[str, Any] = {"seed": 12, "num_streams": 3, "batches_per_epoch": 7}


@pytest.mark.parametrize("loader", [RandomSampler, Walker])
@pytest.mark.parametrize("n", [0, 2])
def test_replay_gives_the_same_bytes_in_any_order(make: Maker, mark: str, loader: type, n: int) -> None:
    augmenter = make(loader(), Noise(), n, **OPTIONS)
    epochs = [list(augmenter) for _ in range(2)]
    if n:
        assert_made_by_workers("fork", epochs[0])
    for epoch, step in [(1, 6), (0, 0), (1, 0), (0, 6), (0, 3), (0, 3)]:
        again = augmenter.replay(epoch, step)
        assert prints([again]) == prints([epochs[epoch][step]])
        assert again[WITNESS]["pid"] == os.getpid()


@pytest.mark.parametrize("loader", [RandomSampler, Walker])
@pytest.mark.parametrize("n", [0, 2])
def test_running_stream_does_not_notice_a_replay(make: Maker, loader: type, n: int) -> None:
    expected = make(loader(), Noise(), 0, **OPTIONS)
    expected_prints = [prints(expected) for _ in range(2)]
    augmenter = make(loader(), Noise(), n, **OPTIONS)
    got: list[str] = []
    for step in range(7):
        got += prints([next(augmenter)])
        position = (augmenter.epoch, augmenter.step)
        augmenter.replay(0, 6 - step)
        augmenter.replay(5, step)
        assert (augmenter.epoch, augmenter.step) == position
    assert got == expected_prints[0]
    assert prints(augmenter) == expected_prints[1]


def test_replay_needs_no_batch_before_it_and_no_worker(make: Maker) -> None:
    expected = prints(make(Walker(), Noise(), 0, **OPTIONS))
    augmenter = make(Walker(), Noise(), 2, **OPTIONS)
    assert prints([augmenter.replay(0, 5)]) == [expected[5]]
    assert (augmenter.epoch, augmenter.step) == (0, 0)
    assert prints(augmenter) == expected


@pytest.mark.parametrize(
    ("epoch", "step"), [(-1, 0), (0, -1), (0, 7), (2**32, 0), (0, 2**80), ("0", 0), (0, 1.5), (None, 0)]
)
def test_replay_of_a_batch_that_does_not_exist_is_refused(make: Maker, epoch: Any, step: Any) -> None:
    with pytest.raises((ValueError, IndexError, TypeError)):
        make(RandomSampler(), None, 0, **OPTIONS).replay(epoch, step)


@pytest.mark.parametrize("rank", [0, 1])
def test_steps_of_replay_are_those_of_the_global_stream(make: Maker, rank: int) -> None:
    augmenter = make(RandomSampler(), None, 0, seed=1, rank=rank, world_size=2)
    first, second = take(augmenter, 2)
    assert prints([augmenter.replay(0, rank)]) == prints([first])
    assert prints([augmenter.replay(0, rank + 2)]) == prints([second])
