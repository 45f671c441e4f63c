"""on_error="skip" leaves failing steps out: the same ones every run, each logged."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from .comparing import prints, take
from .conftest import Maker
from .faults import RaisesAt, TransformRaisesAt
from .loaders import RandomLoader

BAD = (0, 3, 4, 9)
OPTIONS: dict[str, Any] = {"seed": 1, "batches_per_epoch": 12, "on_error": "skip", "start_method": "fork"}


def steps(batches: list[Any]) -> list[int]:
    return [batch["where"][1] for batch in batches]


@pytest.mark.parametrize("n", [0, 1, 2])
@pytest.mark.parametrize("stateless", [True, False])
def test_failing_steps_are_left_out_and_the_others_are_unchanged(make: Maker, n: int, stateless: bool) -> None:
    good = prints(make(RandomLoader(), None, 0, seed=1, batches_per_epoch=12))
    for _ in range(2):
        batches = list(make(RaisesAt(BAD), None, n, stateless=stateless, **OPTIONS))
        assert steps(batches) == [1, 2, 5, 6, 7, 8, 10, 11]
        assert prints(batches) == [p for step, p in enumerate(good) if step not in BAD]


@pytest.mark.parametrize("n", [0, 2])
def test_each_skipped_step_is_logged_with_its_error(make: Maker, n: int, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        list(make(RandomLoader(), TransformRaisesAt(BAD), n, **OPTIONS))
    said = [r.getMessage() + (r.exc_text or "") for r in caplog.records]
    for step in BAD:
        assert sum(f"epoch 0, step {step} " in text and "voxel spacing is zero" in text for text in said) == 1


@pytest.mark.parametrize("n", [0, 2])
def test_epoch_in_which_every_step_fails_is_empty_and_ends(make: Maker, n: int) -> None:
    augmenter = make(RaisesAt(tuple(range(12)), epochs=(0,)), None, n, **OPTIONS)
    assert list(augmenter) == []
    assert len(list(augmenter)) == 12


@pytest.mark.parametrize("n", [0, 2])
def test_replay_of_a_skipped_step_raises_its_error(make: Maker, n: int) -> None:
    augmenter = make(RaisesAt(BAD), None, n, **OPTIONS)
    take(augmenter, 3)
    with pytest.raises(ValueError, match="voxel spacing is zero"):
        augmenter.replay(0, 3)


@pytest.mark.parametrize("n", [0, 2])
def test_state_between_skipped_steps_resumes_with_the_same_batches(make: Maker, n: int) -> None:
    expected = prints(make(RaisesAt(BAD), None, 0, **OPTIONS))
    for k in range(len(expected) + 1):
        first = make(RaisesAt(BAD), None, n, **OPTIONS)
        begun = prints(take(first, k))
        second = make(RaisesAt(BAD), None, n, **OPTIONS)
        second.load_state_dict(first.state_dict())
        assert begun + prints(take(second, len(expected) - k)) == expected
        make.close()
