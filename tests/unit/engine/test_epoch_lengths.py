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


def test_the_window_has_what_is_made_and_what_is_kept_ready_and_one_step_without_workers() -> None:
    assert lengths(Loader(stateless=True)).schedule(num_workers=3, num_cached=2, max_skips=None).window == 5
    assert lengths(Loader(stateless=True)).schedule(num_workers=0, num_cached=2, max_skips=None).window == 1
