"""detaug.DataLoader in Ray Train. Its local mode needs no cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tests.peers.loops.pages import table_of
from tests.peers.loops.ranks import run_on_two_ranks
from tests.peers.loops.table import CLAIMS, measure_ray
from tests.support.numbers import epochs, loader, seen

pytest.importorskip("ray", minversion="2.51", reason="needs Ray Train's local mode")


def trained(function: Any) -> Any:
    """What a training function returns in Ray Train's local mode."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    return TorchTrainer(function, scaling_config=ScalingConfig(num_workers=0)).fit().return_value


@pytest.mark.parametrize("taken", [1, 3, 5, 6])
@pytest.mark.parametrize("of_augmenter", [False, True])
def test_a_state_is_that_of_the_loop_although_ray_reads_one_batch_ahead(
    taken: int, of_augmenter: bool
) -> None:
    def made() -> Any:
        batches = loader()
        return batches.augmenter.loader() if of_augmenter else batches

    def train() -> Any:
        from ray.train.torch import prepare_data_loader

        batches = made()
        prepared = iter(prepare_data_loader(batches))
        begun = seen(next(prepared) for _ in range(taken))
        again = made()
        again.load_state_dict(batches.state_dict())
        return begun, [seen(prepare_data_loader(again)) for _ in range(2)]

    whole = epochs(3)
    begun, (rest, following) = trained(train)
    assert begun == whole[0][:taken]
    assert [rest, following] == (
        [whole[1], whole[2]] if taken == 6 else [whole[0][taken:], whole[1]]
    )


def test_a_state_of_an_epochs_last_batch_gives_no_batch_again() -> None:
    """``for epoch in range(state["epoch"], epochs)``, which names each epoch."""

    def train() -> Any:
        from ray.train.torch import prepare_data_loader

        batches = loader()
        prepared = prepare_data_loader(batches)
        prepared.sampler.set_epoch(0)
        passing = iter(prepared)
        seen(next(passing) for _ in range(6))
        again = loader()
        again.load_state_dict(batches.state_dict())
        found = []
        for epoch in range(2):
            again.set_epoch(epoch)
            found.append(seen(prepare_data_loader(again)))
        return found

    assert trained(train) == [[], epochs(2)[1]]


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    return run_on_two_ranks("tests.peers.loops.ray_ranks", library="ray.train.torch")


def test_ranks_share_the_batches_of_one(ranks: list[dict[str, Any]]) -> None:
    for rank, found in enumerate(ranks):
        shares = [[list(batch) for batch in epoch[rank::2]] for epoch in epochs(2)]
        assert found["passes"] == shares


def test_a_sampler_that_ray_adds_is_an_error(ranks: list[dict[str, Any]]) -> None:
    for found in ranks:
        assert "pass shard=True to detaug.DataLoader" in found["refusal"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_row_of_the_table() -> None:
    assert measure_ray() == table_of(*CLAIMS)["Ray Train"]
