"""`detaug.DataLoader` in Ray Train, most of it in the local mode, which needs no cluster."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from tests.peers.loops.pages import table_of
from tests.peers.loops.ranks import epochs_of_ranks, run_on_two_ranks
from tests.peers.loops.table import CLAIMS, measure_ray
from tests.support.numbers import epochs, loader, seen

pytest.importorskip("ray", minversion="2.51", reason="needs Ray Train's local mode")


def trained(function: Any) -> Any:
    """Return the result of a training function in Ray Train's local mode."""
    from ray.train import ScalingConfig
    from ray.train.torch import TorchTrainer

    trainer = TorchTrainer(function, scaling_config=ScalingConfig(num_workers=0))
    return trainer.fit().return_value


@pytest.mark.parametrize("num_taken", [1, 3, 5, 6])
@pytest.mark.parametrize("of_augmenter", [False, True])
def test_a_state_is_that_of_the_loop_although_ray_reads_one_batch_ahead(
    num_taken: int, of_augmenter: bool
) -> None:
    def new_loader() -> Any:
        batches = loader()
        if of_augmenter:
            return batches.augmenter.loader()
        return batches

    def train() -> Any:
        from ray.train.torch import prepare_data_loader

        batches = new_loader()
        # Kept, since a pass that nobody holds is over.
        prepared = prepare_data_loader(batches)
        begun = seen(islice(prepared, num_taken))
        resumed = new_loader()
        resumed.load_state_dict(batches.state_dict())
        rest = seen(prepare_data_loader(resumed))
        following = seen(prepare_data_loader(resumed))
        return begun, rest, following

    first, second, third = epochs(3)
    begun, rest, following = trained(train)
    assert begun == first[:num_taken]
    if num_taken == 6:
        assert rest == second
        assert following == third
    else:
        assert rest == first[num_taken:]
        assert following == second


def test_a_state_of_an_epochs_last_batch_gives_no_batch_again() -> None:
    """The loop is ``for epoch in range(state["epoch"], epochs)`` and calls `set_epoch`."""

    def train() -> Any:
        from ray.train.torch import prepare_data_loader

        batches = loader()
        prepared = prepare_data_loader(batches)
        prepared.sampler.set_epoch(0)
        seen(islice(prepared, 6))
        resumed = loader()
        resumed.load_state_dict(batches.state_dict())
        rests = []
        for epoch in range(2):
            resumed.set_epoch(epoch)
            rests.append(seen(prepare_data_loader(resumed)))
        return rests

    assert trained(train) == [[], epochs(2)[1]]


@pytest.fixture(scope="module")
def ranks() -> list[dict[str, Any]]:
    """Return what each of two ranks of Ray Train's saw."""
    return run_on_two_ranks("tests.peers.loops.ray_ranks", library="ray.train.torch")


def test_ranks_share_the_batches_of_one(ranks: list[dict[str, Any]]) -> None:
    first, second = epochs(2)
    for rank, passes in enumerate(epochs_of_ranks(ranks, "passes")):
        assert passes == [first[rank::2], second[rank::2]]


def test_a_sampler_that_ray_adds_is_an_error(ranks: list[dict[str, Any]]) -> None:
    for results in ranks:
        assert "pass shard=True to detaug.DataLoader" in results["refusal"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_row_of_the_table() -> None:
    assert measure_ray() == table_of(*CLAIMS)["Ray Train"]
