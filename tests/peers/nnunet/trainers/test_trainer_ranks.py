"""Several ranks: each takes its own part of one stream, and a training that is killed and continued is the same one.

nnU-Net's own start wants NCCL and CUDA; here processes of a gloo group train on the CPU."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed

from detaug import fingerprint
from detaug.nnunet import DeterministicTraining
from tests.peers.nnunet.trainers.command_line import REPOSITORY, checkpoints
from tests.peers.nnunet.trainers.in_process import new_trainer
from tests.peers.nnunet.trainers.ranks import RankDetAug, RankDeterministic

WORLD_SIZE = 2


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("localhost", 0))
        return int(listening.getsockname()[1])


def rank_main(rank: int, port: int, root: str, trainer: type[DeterministicTraining], answers: Any) -> None:
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=WORLD_SIZE)
    try:
        made = new_trainer(Path(root), trainer)
        assert made.is_ddp
        assert made.configuration_manager.batch_size == WORLD_SIZE
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
    found: list[dict[str, Any]] = []
    try:
        while len(found) < len(ranks):
            assert all(each.exitcode in (None, 0) for each in ranks), "a rank failed"
            with contextlib.suppress(queue.Empty):  # however long the machine takes
                found.append(answers.get(timeout=1))
        return sorted(found, key=lambda each: each["rank"])
    finally:
        for each in ranks:
            each.join(30)
            each.kill()


@pytest.mark.slow
@pytest.mark.timeout(3600)
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
    assert len(drawn) == 8
    # ranks that repeat each other have 4; samples that no transform has changed are alike now and then
    assert len(set(drawn)) > 5
    for found in (one, other):
        assert found["steps"] == found["train 0"], "rank r takes steps r, r + 2, ..."
        assert found["keys"] == 1, "nnU-Net divides the batch"
    monkeypatch.setenv("DETAUG_SEED", str(one["seed"]))
    monkeypatch.setenv("nnUNet_n_proc_DA", "2")
    assert run_ranks(nnunet_environment, trainer) == [one, other], "again, with worker processes"


def killed_and_continued(root: Path, folder: Path, trainer: str, world_size: int) -> tuple[dict[str, bytes], ...]:
    """The checkpoints of a training straight through, and of one whose ranks all got SIGKILL in its second epoch."""
    command = [
        sys.executable,
        "-m",
        "tests.peers.nnunet.trainers.ranks",
        str(root),
        str(folder),
        trainer,
        str(world_size),
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return tuple(
        checkpoints(next((folder / f"{world_size}" / name).glob("*/*/fold_0"))) for name in ("straight", "killed")
    )


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("world_size", [2, 3, 4])
@pytest.mark.parametrize("trainer", ["RankDetAug", "RankDeterministic"])
def test_ranks_that_were_killed_and_continued_end_with_the_same_bytes(
    nnunet_environment: Path, tmp_path: Path, trainer: str, world_size: int
) -> None:
    straight, killed = killed_and_continued(nnunet_environment, tmp_path, trainer, world_size)
    assert set(straight) == {"checkpoint_best.pth", "checkpoint_final.pth"}
    assert straight == killed
