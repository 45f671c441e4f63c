"""Several ranks: each takes its own part of one stream. nnU-Net's own start wants NCCL and CUDA; here the mixin's loaders are
drawn from in processes of a gloo group."""

from __future__ import annotations

import multiprocessing
import os
import socket
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed

from detaug import DeterministicAugmenter, fingerprint
from detaug.nnunet import DeterministicTraining
from tests.peers.nnunet.trainers.in_process import Short, ShortDetAug, ShortDeterministic, new_trainer

WORLD_SIZE = 2


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return int(listening.getsockname()[1])


class _OnCPU(Short):
    """nnU-Net puts every rank on a GPU of its own; this one computes on the CPU."""

    def __init__(self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = None):
        super().__init__(plans, configuration, fold, dataset_json, torch.device("cpu"))
        self.device = torch.device("cpu")


class RankDetAug(ShortDetAug, _OnCPU):
    pass


class RankDeterministic(ShortDeterministic, _OnCPU):
    pass


def rank_main(rank: int, port: int, root: str, trainer: type[DeterministicTraining], answers: Any) -> None:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=WORLD_SIZE)
    try:
        made = new_trainer(Path(root), trainer)
        assert made.is_ddp
        made._set_batch_size_and_oversample()
        train, val = made.get_dataloaders()
        found: dict[str, Any] = {"seed": made.run_seed, "rank": made.local_rank, "length": len(train)}
        for epoch in range(2):
            for loader in (train, val):
                loader.set_epoch(epoch)
            found[f"train {epoch}"] = [fingerprint(next(train)) for _ in range(made.num_iterations_per_epoch)]
            found[f"val {epoch}"] = [fingerprint(next(val)) for _ in range(made.num_val_iterations_per_epoch)]
        found["steps"] = [fingerprint(train.replay(0, rank + WORLD_SIZE * turn)) for turn in range(2)]
        found["keys"] = train.replay(0, rank)["data"].shape[0]
        train.close()
        val.close()
        answers.put(found)
    finally:
        torch.distributed.destroy_process_group()


def run_ranks(root: Path, trainer: type) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    answers, port = context.Queue(), free_port()
    ranks = [
        context.Process(target=rank_main, args=(rank, port, str(root), trainer, answers)) for rank in range(WORLD_SIZE)
    ]
    for each in ranks:
        each.start()
    try:
        return sorted((answers.get(timeout=240) for _ in ranks), key=lambda found: found["rank"])
    finally:
        for each in ranks:
            each.join(30)
            each.kill()


@pytest.mark.slow
@pytest.mark.parametrize("trainer", [RankDetAug, RankDeterministic])
def test_every_rank_takes_its_own_part_of_one_stream(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, trainer: type
) -> None:
    monkeypatch.delenv("DETAUG_SEED")
    one, other = run_ranks(nnunet_environment, trainer)
    assert one["seed"] == other["seed"], "rank 0's, which drew it"
    assert one["length"] == other["length"] == 2
    # (validation patches are as large as the cases: they have but one place)
    drawn = [each for found in (one, other) for epoch in range(2) for each in found[f"train {epoch}"]]
    assert len(drawn) == len(set(drawn)) == 8
    for found in (one, other):
        assert found["steps"] == found["train 0"], "rank r takes steps r, r + 2, ..."
        assert found["keys"] == 1, "nnU-Net divides the batch"
    monkeypatch.setenv("DETAUG_SEED", str(one["seed"]))
    monkeypatch.setenv("nnUNet_n_proc_DA", "2")
    assert run_ranks(nnunet_environment, trainer) == [one, other], "again, with worker processes"


def test_the_same_seed_on_ranks_that_know_nothing_of_each_other_would_repeat_samples(nnunet_environment: Path) -> None:
    """Without rank and world size in the loaders, as two trainers that are each the only one."""
    drawn = []
    for _ in range(2):
        made = new_trainer(nnunet_environment, ShortDetAug)
        made.initialize()
        train, _ = made.get_dataloaders()
        assert isinstance(train, DeterministicAugmenter)
        drawn.append(fingerprint(next(train)))
    assert drawn[0] == drawn[1]
