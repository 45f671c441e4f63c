"""Ranks that torchrun and Lightning start share the batches out, or are told that they would all have the same ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytorch_lightning")

PROGRAM = Path(__file__).with_name("launched_ranks.py")
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK", "MASTER_PORT", "DETAUG_SEED")


@pytest.mark.slow
@pytest.mark.parametrize("starts", ["torchrun", "ddp", "ddp_spawn"])
@pytest.mark.parametrize("how", ["plain", "from_torch_distributed"])
def test_ranks_share_the_batches_out_or_are_told(tmp_path: Path, starts: str, how: str) -> None:
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node=2"] if starts == "torchrun" else []
    path = os.pathsep.join([str(PROGRAM.parents[3]), os.environ.get("PYTHONPATH", "")])
    environment = {name: value for name, value in os.environ.items() if name not in LAUNCHED}
    done = subprocess.run(
        [sys.executable, *launcher, str(PROGRAM), str(tmp_path), starts, how],
        env={**environment, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    if how == "plain":
        for rank, text in enumerate(found):
            assert f"2 processes train together (this is rank {rank})" in text
            assert "from_torch_distributed(dataset, batch_size=" in text
    else:
        assert sorted(found[0] + found[1]) == list(range(12))
        assert len(found[0]) == len(found[1]) == 6
