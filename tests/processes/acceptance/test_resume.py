"""What follows a checkpoint is what the uninterrupted run would have given, and so is a replay."""

from __future__ import annotations

from typing import Any

import pytest

from detaug import DeterministicAugmenter, LocalProcesses, StateMismatch
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take, through_json
from tests.support.loaders import Noise, OtherNoise, RandomLoader, RandomSampler, Walker
from tests.support.witness import assert_made_by_workers

BATCHES = 6
OPTIONS: dict[str, Any] = {"seed": 77, "num_streams": 4, "batches_per_epoch": BATCHES}


def three_epochs(make: Maker, loader: Any) -> list[str]:
    augmenter = make(loader, Noise(), 0, **OPTIONS)
    return [p for _ in range(3) for p in fingerprints_of(augmenter)]


@pytest.mark.parametrize("loader", [RandomSampler, Walker])
def test_state_goes_from_any_number_of_processes_and_start_method_to_any_other(
    make: Maker, mark: str, loader: type, start_method: str
) -> None:
    whole = three_epochs(make, loader())
    first = make(loader(), Noise(), 0, **OPTIONS)
    take(first, 2)
    second = make(
        loader(), Noise(), 2, 5, executor=LocalProcesses(start_method=start_method), **OPTIONS
    )
    second.load_state_dict(first.state_dict())
    batches = take(second, 2)
    third = make(loader(), Noise(), 1, **OPTIONS)
    third.load_state_dict(second.state_dict())
    batches += take(third, 2)
    assert_made_by_workers(start_method, batches[:2])
    assert fingerprints_of(batches) == whole[2:BATCHES]


@pytest.mark.parametrize("n", [0, 2])
def test_resumed_training_loop_of_the_design_sees_the_same_batches(make: Maker, n: int) -> None:
    def train(
        augmenter: DeterministicAugmenter, stop_after: int | None = None
    ) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []
        for epoch in range(augmenter.epoch, 3):
            augmenter.set_epoch(epoch)
            for batch in augmenter:
                seen += [(epoch, p) for p in fingerprints_of([batch])]
                if len(seen) == stop_after:
                    return seen
        return seen

    options = {**OPTIONS}
    whole = train(make(RandomSampler(), Noise(), n, **options))
    assert len(whole) == 3 * BATCHES
    for k in (1, BATCHES, 2 * BATCHES + 3):
        first = make(RandomSampler(), Noise(), n, **options)
        begun = train(first, stop_after=k)
        second = make(RandomSampler(), Noise(), n, **options)
        second.load_state_dict(through_json(first.state_dict()))
        assert begun + train(second) == whole, f"stopped after {k} batches"
        make.close()


def test_set_epoch_after_loading_keeps_the_position_only_for_the_loaded_epoch_and_only_at_once(
    make: Maker,
) -> None:
    whole = three_epochs(make, RandomSampler())
    first = make(RandomSampler(), Noise(), 0, **OPTIONS)
    list(first)
    take(first, 4)
    state = first.state_dict()

    again = make(RandomSampler(), Noise(), 0, **OPTIONS)
    again.load_state_dict(state)
    assert (again.epoch, again.step) == (1, 4)
    again.set_epoch(1)
    assert (again.epoch, again.step) == (1, 4)

    again.load_state_dict(state)
    again.set_epoch(2)
    assert (again.epoch, again.step) == (2, 0)
    assert fingerprints_of(take(again, 2)) == whole[12:14]

    again.load_state_dict(state)
    next(again)
    again.set_epoch(1)
    assert fingerprints_of(take(again, 2)) == whole[6:8]


def test_stateless_source_resumes_at_a_late_step_without_making_the_earlier_ones(
    make: Maker,
) -> None:
    # No measure of speed: a million batches of 20 ms would take hours.
    late = make(RandomSampler(delay=0.02), None, 0, seed=1, num_streams=4)
    late.load_state_dict({**late.state_dict(), "step": 1_000_000})
    batch = next(late)
    assert batch["where"] == (0, 1_000_000)
    assert fingerprints_of([late.replay(0, 1_000_000)]) == fingerprints_of([batch])


@pytest.mark.parametrize("rank", [0, 1])
def test_steps_of_replay_are_those_of_the_global_stream(make: Maker, rank: int) -> None:
    augmenter = make(RandomSampler(), None, 0, seed=1, rank=rank, world_size=2)
    first, second = take(augmenter, 2)
    assert fingerprints_of([augmenter.replay(0, rank)]) == fingerprints_of([first])
    assert fingerprints_of([augmenter.replay(0, rank + 2)]) == fingerprints_of([second])


PIPELINE: dict[str, Any] = {"seed": 5, "num_streams": 4, "batches_per_epoch": 8, "version": "a"}


def test_delays_caches_and_processes_are_no_part_of_the_pipeline(make: Maker) -> None:
    other = make(RandomLoader(), Noise(), 0, **PIPELINE)
    take(other, 3)
    augmenter = make(RandomLoader(), Noise(), 2, 7, None, False, 0.5, **PIPELINE)
    augmenter.load_state_dict(other.state_dict())
    assert (augmenter.epoch, augmenter.step) == (0, 3)


def test_running_workers_go_on_after_a_state_that_was_refused(make: Maker) -> None:
    expected = fingerprints_of(make(RandomLoader(), Noise(), 0, **PIPELINE))
    running = make(RandomLoader(), Noise(), 2, **PIPELINE)
    take(running, 2)
    other = make(RandomLoader(), OtherNoise(), 0, **PIPELINE)
    with pytest.raises(StateMismatch, match="OtherNoise"):
        running.load_state_dict(other.state_dict())
    assert fingerprints_of(running) == expected[2:]
