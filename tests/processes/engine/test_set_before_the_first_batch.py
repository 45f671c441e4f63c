"""Processes and batches ahead that a program sets before the first batch are those that there are."""

from __future__ import annotations

import os

from detaug import DeterministicAugmenter
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import RandomLoader
from tests.support.witness import WITNESS


def test_workers_that_are_set_before_the_first_batch_make_the_batches() -> None:
    expected = fingerprints_of(take(DeterministicAugmenter(RandomLoader(), None, 0, seed=1), 4))
    with DeterministicAugmenter(RandomLoader(), None, 0, seed=1) as augmenter:
        augmenter.num_processes = 2
        augmenter.num_cached = 3
        batches = take(augmenter, 4)
    assert fingerprints_of(batches) == expected
    assert os.getpid() not in {batch[WITNESS]["pid"] for batch in batches}
