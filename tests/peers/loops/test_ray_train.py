"""detaug.DataLoader in Ray Train."""

from __future__ import annotations

import pytest

from tests.peers.loops.table import CLAIMS, measure_ray
from tests.support.numbers import epochs

pytest.importorskip("ray")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_claim_of_the_table_holds() -> None:
    assert measure_ray() == dict.fromkeys(CLAIMS, "yes")


@pytest.mark.slow
def test_ranks_that_ray_would_give_a_sampler_of_its_own_are_an_error() -> None:
    from tests.peers.loops.ray_train import run

    with pytest.raises(RuntimeError, match=r"shard=True"):
        run(2, 0, shard=False)


@pytest.mark.slow
def test_ranks_share_the_batches_of_one() -> None:
    from tests.peers.loops.ray_train import run

    lines = run(2, 0)
    whole = [batch for epoch in epochs(3, name="shuffled") for batch in epoch]
    for rank, found in enumerate(lines):
        seen = [line.split(":")[0] for line in found if line.startswith("slices")]
        assert seen == [f"slices {batch}" for batch in whole[rank::2]]
