"""A state dict of another pipeline, seed, scheme or numerics is refused, and the error says what differs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import Noise, OtherNoise, RandomLoader, RandomSampler

OPTIONS: dict[str, Any] = {"seed": 5, "num_streams": 4, "batches_per_epoch": 8, "version": "a"}


def state(make: Maker, loader: Any = None, transform: Any = None, **options: Any) -> dict[str, Any]:
    augmenter = make(loader or RandomLoader(), transform or Noise(), 0, **{**OPTIONS, **options})
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
    make: Maker, words: tuple[str, ...], loader: Any, transform: Any, options: dict[str, Any], n: int
) -> None:
    other = state(make, loader, transform, **options)
    here = make(RandomLoader(), Noise(), n, **OPTIONS)
    expected = prints(make(RandomLoader(), Noise(), 0, **OPTIONS))
    take(here, 2)
    with pytest.raises(ValueError, match=words[0]) as caught:
        here.load_state_dict(other)
    for word in words:
        assert word in str(caught.value)
    assert prints(here) == expected[2:], "a refused state leaves the stream where it was"


@pytest.mark.parametrize("word", ["seed_scheme", "numerics"])
def test_state_of_another_seed_scheme_or_numerics_version_is_refused_with_both_versions(make: Maker, word: str) -> None:
    good = state(make)
    with pytest.raises(ValueError, match=word.split("_")[-1]):
        make(RandomLoader(), Noise(), 0, **OPTIONS).load_state_dict({**good, word: good[word] + 1})


@pytest.mark.parametrize("rubbish", [{}, {"epoch": 0, "step": 3}, {"model": {}, "optimizer": {}}, None, 3, "state", []])
def test_state_from_elsewhere_is_refused(make: Maker, rubbish: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        make(RandomLoader(), Noise(), 0, **OPTIONS).load_state_dict(rubbish)


@pytest.mark.parametrize("key", ["epoch", "step"])
@pytest.mark.parametrize("value", [-1, 2**70, 1.5, "3", None])
def test_state_with_an_impossible_position_is_refused(make: Maker, key: str, value: Any) -> None:
    good = state(make)
    assert key in good
    with pytest.raises((ValueError, TypeError)):
        make(RandomLoader(), Noise(), 0, **OPTIONS).load_state_dict({**good, key: value})


def test_delays_caches_and_processes_are_no_part_of_the_pipeline(make: Maker) -> None:
    augmenter = make(RandomLoader(), Noise(), 2, 7, None, False, 0.5, **OPTIONS)
    augmenter.load_state_dict(state(make))
    assert (augmenter.epoch, augmenter.step) == (0, 3)


def test_state_made_under_old_style_seeds_needs_the_same_seeds(make: Maker) -> None:
    def new(seeds: list[int]) -> Any:
        return make(RandomLoader(), None, len(seeds), 2, seeds)

    other = new([1, 2]).state_dict()
    new([1, 2]).load_state_dict(other)
    with pytest.raises(ValueError, match="seed"):
        new([1, 3]).load_state_dict(other)
