"""What follows a checkpoint is what the uninterrupted run would have given, and so is a replay; another pipeline's is refused."""

from __future__ import annotations

from typing import Any

import pytest

from detaug import DeterministicAugmenter, LocalProcesses
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take, through_json
from tests.support.loaders import Noise, OtherNoise, RandomLoader, RandomSampler, Walker
from tests.support.witness import assert_made_by_workers

BATCHES = 6
OPTIONS: dict[str, Any] = {"seed": 77, "num_streams": 4, "batches_per_epoch": BATCHES}


def three_epochs(make: Maker, loader: Any) -> list[str]:
    augmenter = make(loader, Noise(), 0, **OPTIONS)
    return [p for _ in range(3) for p in prints(augmenter)]


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
    assert prints(batches) == whole[2:BATCHES]


@pytest.mark.parametrize("n", [0, 2])
def test_resumed_training_loop_of_the_design_sees_the_same_batches(make: Maker, n: int) -> None:
    def train(
        augmenter: DeterministicAugmenter, stop_after: int | None = None
    ) -> list[tuple[int, str]]:
        seen: list[tuple[int, str]] = []
        for epoch in range(augmenter.epoch, 3):
            augmenter.set_epoch(epoch)
            for batch in augmenter:
                seen += [(epoch, p) for p in prints([batch])]
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
    assert prints(take(again, 2)) == whole[12:14]

    again.load_state_dict(state)
    next(again)
    again.set_epoch(1)
    assert prints(take(again, 2)) == whole[6:8]


def test_stateless_source_resumes_at_a_late_step_without_making_the_earlier_ones(
    make: Maker,
) -> None:
    # No measure of speed: a million batches of 20 ms would take hours.
    late = make(RandomSampler(delay=0.02), None, 0, seed=1, num_streams=4)
    late.load_state_dict({**late.state_dict(), "step": 1_000_000})
    batch = next(late)
    assert batch["where"] == (0, 1_000_000)
    assert prints([late.replay(0, 1_000_000)]) == prints([batch])


@pytest.mark.parametrize(
    ("epoch", "step"),
    [(-1, 0), (0, -1), (0, 7), (2**32, 0), (0, 2**80), ("0", 0), (0, 1.5), (None, 0)],
)
def test_replay_of_a_batch_that_does_not_exist_is_refused(
    make: Maker, epoch: Any, step: Any
) -> None:
    with pytest.raises((ValueError, IndexError, TypeError)):
        make(RandomSampler(), None, 0, **OPTIONS).replay(epoch, step)


@pytest.mark.parametrize("rank", [0, 1])
def test_steps_of_replay_are_those_of_the_global_stream(make: Maker, rank: int) -> None:
    augmenter = make(RandomSampler(), None, 0, seed=1, rank=rank, world_size=2)
    first, second = take(augmenter, 2)
    assert prints([augmenter.replay(0, rank)]) == prints([first])
    assert prints([augmenter.replay(0, rank + 2)]) == prints([second])


PIPELINE: dict[str, Any] = {"seed": 5, "num_streams": 4, "batches_per_epoch": 8, "version": "a"}


def state(make: Maker, loader: Any = None, transform: Any = None, **options: Any) -> dict[str, Any]:
    augmenter = make(loader or RandomLoader(), transform or Noise(), 0, **{**PIPELINE, **options})
    take(augmenter, 3)
    return augmenter.state_dict()


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize(
    ("words", "loader", "transform", "options"),
    [
        (("RandomLoader", "RandomSampler"), RandomSampler(), None, {}),
        (("Noise", "OtherNoise"), None, OtherNoise(), {}),
        (("batch_size", "2", "3"), RandomLoader(batch_size=3), None, {}),
        (("scale", "1.0", "2.0"), None, Noise(scale=2.0), {}),
        (("num_streams", "4", "2"), None, None, {"num_streams": 2}),
        (("batches_per_epoch", "8", "9"), None, None, {"batches_per_epoch": 9}),
        (("version", "a", "b"), None, None, {"version": "b"}),
        (("seed", "5", "6"), None, None, {"seed": 6}),
        (("name", "val"), None, None, {"name": "val"}),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_state_of_another_pipeline_is_refused(
    make: Maker,
    words: tuple[str, ...],
    loader: Any,
    transform: Any,
    options: dict[str, Any],
    n: int,
) -> None:
    other = state(make, loader, transform, **options)
    here = make(RandomLoader(), Noise(), n, **PIPELINE)
    expected = prints(make(RandomLoader(), Noise(), 0, **PIPELINE))
    take(here, 2)
    with pytest.raises(ValueError, match=words[0]) as caught:
        here.load_state_dict(other)
    for word in words:
        assert word in str(caught.value)
    assert prints(here) == expected[2:], "a refused state leaves the stream where it was"


@pytest.mark.parametrize("word", ["seed_scheme", "numerics"])
def test_state_of_another_seed_scheme_or_numerics_version_is_refused_with_both_versions(
    make: Maker, word: str
) -> None:
    good = state(make)
    with pytest.raises(ValueError, match=word.split("_")[-1]):
        make(RandomLoader(), Noise(), 0, **PIPELINE).load_state_dict({**good, word: good[word] + 1})


@pytest.mark.parametrize(
    "rubbish", [{}, {"epoch": 0, "step": 3}, {"model": {}, "optimizer": {}}, None, 3, "state", []]
)
def test_state_from_elsewhere_is_refused(make: Maker, rubbish: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        make(RandomLoader(), Noise(), 0, **PIPELINE).load_state_dict(rubbish)


@pytest.mark.parametrize("key", ["epoch", "step"])
@pytest.mark.parametrize("value", [-1, 2**70, 1.5, "3", None])
def test_state_with_an_impossible_position_is_refused(make: Maker, key: str, value: Any) -> None:
    good = state(make)
    assert key in good
    with pytest.raises((ValueError, TypeError)):
        make(RandomLoader(), Noise(), 0, **PIPELINE).load_state_dict({**good, key: value})


def test_delays_caches_and_processes_are_no_part_of_the_pipeline(make: Maker) -> None:
    augmenter = make(RandomLoader(), Noise(), 2, 7, None, False, 0.5, **PIPELINE)
    augmenter.load_state_dict(state(make))
    assert (augmenter.epoch, augmenter.step) == (0, 3)


def test_state_made_under_old_style_seeds_needs_the_same_seeds(make: Maker) -> None:
    def new(seeds: list[int]) -> Any:
        return make(RandomLoader(), None, len(seeds), 2, seeds)

    other = new([1, 2]).state_dict()
    new([1, 2]).load_state_dict(other)
    with pytest.raises(ValueError, match="seed"):
        new([1, 3]).load_state_dict(other)
