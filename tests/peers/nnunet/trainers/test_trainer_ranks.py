"""Several ranks: each takes its own part of one stream, and a training that is killed and continued
is the same one.

nnU-Net's own start wants NCCL and CUDA; here processes of a gloo group train on the CPU.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.peers.nnunet.trainers.command_line import REPOSITORY, checkpoints
from tests.support.ledgers.runs import steps
from tests.support.waiting import run_program


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_ranks_that_were_killed_and_continued_end_with_the_same_bytes(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, world_size: int
) -> None:
    monkeypatch.setenv("DETAUG_LEDGER", "1")
    module = "tests.peers.nnunet.trainers.ranks"
    command = [
        sys.executable,
        "-m",
        module,
        str(nnunet_environment),
        str(tmp_path),
        str(world_size),
    ]
    done = run_program(command, timeout=3500, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr[-3000:]
    straight, killed = (
        next((tmp_path / name).glob("*/*/fold_0")) for name in ("straight", "killed")
    )
    assert set(checkpoints(straight)) == {"checkpoint_best.pth", "checkpoint_final.pth"}
    ledgers = sorted(straight.glob("ledger_train*.jsonl"))
    assert [steps(each) for each in ledgers] == [
        [(epoch, rank + world_size * turn) for epoch in range(2) for turn in range(2)]
        for rank in range(world_size)
    ], "rank r of R takes steps r, r + R, ..."
    assert checkpoints(straight) == checkpoints(killed)
