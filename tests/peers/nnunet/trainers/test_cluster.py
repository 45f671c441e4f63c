"""nnU-Net's trainers with ``DETAUG_EXECUTOR``."""

from __future__ import annotations

from pathlib import Path

import pytest

from detaug import fingerprint
from tests.peers.nnunet.trainers.in_process import ShortDetAug, ShortDeterministic, new_trainer
from tests.peers.ray.conftest import cluster

__all__ = ["cluster"]


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("trainer", [ShortDetAug, ShortDeterministic])
def test_a_cluster_makes_the_same_batches(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, trainer: type
) -> None:
    found = []
    for executor, processes in ((None, "0"), ("ray://?num_actors=2", "1")):
        if executor is not None:
            monkeypatch.setenv("DETAUG_EXECUTOR", executor)
        monkeypatch.setenv("nnUNet_n_proc_DA", processes)
        monkeypatch.setenv("DETAUG_SEED", "11")
        made = new_trainer(nnunet_environment, trainer)
        made.initialize()
        train, val = made.get_dataloaders()
        with train, val:
            assert (train.executor is None) is (executor is None)
            found.append([fingerprint(next(train)) for _ in range(2)] + [fingerprint(next(val))])
    assert found[0] == found[1]


def test_a_wrong_executor_is_named_with_its_variable(nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DETAUG_EXECUTOR", "ray://auto")
    made = new_trainer(nnunet_environment, ShortDetAug)
    made.initialize()
    with pytest.raises(ValueError, match="DETAUG_EXECUTOR: 'ray://auto' does not say how many actors"):
        made.get_dataloaders()
