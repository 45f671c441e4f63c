"""How long epochs are, as far as that is known before they end."""

from __future__ import annotations

from typing import Any

import pytest

from detaug.engine.epoch_lengths import EpochLengths
from detaug.sources import Source


class Loader(Source):
    """A source of which only the attributes count."""

    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    def make(self, batch: Any) -> Any:
        raise AssertionError("no batch is made")


def lengths(source: Source, limit: int | None = None, **others: Any) -> EpochLengths:
    source.batches_per_epoch = limit
    return EpochLengths(source, limit, **{"num_streams": 2, "rank": 0, "world_size": 1, "tail": "drop", **others})


@pytest.mark.parametrize(("limit", "num_steps", "total"), [(None, None, None), (7, None, 7), (None, 9, 9), (7, 9, 7)])
def test_total_is_the_smaller_of_what_the_user_and_the_loader_say(
    limit: int | None, num_steps: int | None, total: int | None
) -> None:
    assert lengths(Loader(num_steps=num_steps), limit).total == total


def test_behind_the_limit_of_an_endless_loader_the_next_epoch_begins() -> None:
    assert lengths(Loader(endless=True), 7).known_steps() == 7


def test_behind_the_limit_of_a_stateless_loader_an_epoch_has_more_steps() -> None:
    assert lengths(Loader(stateless=True), 7).known_steps() is None
    assert lengths(Loader(stateless=True), 7).known_steps(limit=7) == 7


def test_epochs_that_go_beyond_the_limit_end_with_the_loader_alone() -> None:
    assert lengths(Loader(endless=True), 7, go_beyond=True).known_steps(limit=7) is None
    assert lengths(Loader(num_steps=9), 7, go_beyond=True).known_steps(limit=7) == 9


def test_the_window_has_what_is_made_and_what_is_kept_ready_and_one_step_without_workers() -> None:
    assert lengths(Loader()).schedule(num_workers=3, num_cached=2, max_skips=None).window == 5
    assert lengths(Loader()).schedule(num_workers=0, num_cached=2, max_skips=None).window == 1


def test_padded_epochs_wrap_at_their_length() -> None:
    padded = lengths(Loader(stateless=True, num_steps=5), world_size=2, tail="pad").schedule(1, 1, None)
    assert [padded.plan.made_at(place) for place in range(6)] == [0, 1, 2, 3, 4, 0]


def test_a_next_epoch_begins_in_mid_pass_only_where_copies_go_on_and_nobody_says_how_many_batches() -> None:
    assert lengths(Loader()).end_in_mid_pass
    assert not lengths(Loader(), 7).end_in_mid_pass
    assert not lengths(Loader(restarts=True)).end_in_mid_pass
    assert not lengths(Loader(pass_per_epoch=True)).end_in_mid_pass
