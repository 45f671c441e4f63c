"""Another seed, name, epoch, step, stream or rank means other numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import Noise, RandomLoader
from tests.support.witness import assert_made_by_workers


def test_no_two_epochs_share_a_batch(make: Maker) -> None:
    augmenter = make(RandomLoader(), Noise(), 0, seed=1, batches_per_epoch=10)
    epochs = [set(prints(augmenter)) for _ in range(5)]
    assert len(set.union(*epochs)) == 50


@pytest.mark.parametrize("stateless", [True, False])
@pytest.mark.parametrize("library", ["python", "numpy", "torch", "own"])
def test_no_two_workers_draw_the_same_numbers(
    make: Maker, mark: str, tmp_path: Path, library: str, stateless: bool
) -> None:
    loader = RandomLoader(meeting=str(tmp_path), parties=3)
    batches = take(make(loader, None, 3, seed=1, stateless=stateless), 12)
    assert_made_by_workers("fork", batches, at_least=3)
    drawn = [str(batch[library]) for batch in batches]
    assert len(set(drawn)) == 12
