"""Several ranks share one stream, and a training that is killed and continued is the same one.

nnU-Net's own start of ranks requires NCCL and CUDA; here processes of a gloo group train on the
CPU.
"""

from __future__ import annotations

import sys
from itertools import product
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
    straight = fold_in(tmp_path / "straight")
    killed = fold_in(tmp_path / "killed")
    assert set(checkpoints(straight)) == {"checkpoint_best.pth", "checkpoint_final.pth"}
    assert checkpoints(straight) == checkpoints(killed)
    ledgers = sorted(straight.glob("ledger_train*.jsonl"))
    assert len(ledgers) == world_size
    for rank, ledger in enumerate(ledgers):
        # Rank r of R takes the steps r, r + R, ...
        own_steps = (rank, rank + world_size)
        assert steps(ledger) == [*product((0, 1), own_steps)]


def fold_in(results: Path) -> Path:
    """Return the folder of the only fold in a results folder."""
    (fold,) = results.glob("*/*/fold_0")
    return fold
