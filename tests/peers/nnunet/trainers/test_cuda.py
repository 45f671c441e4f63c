"""The same on a GPU, where there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.peers.nnunet.trainers.command_line import Run, checkpoints
from tests.peers.nnunet.trainers.small_datasets import RESIDUAL_ENCODER

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use here"),
    pytest.mark.timeout(1800),
]


@pytest.mark.parametrize("compiled", ["true", "false"])
@pytest.mark.parametrize("plans", ["nnUNetPlans", RESIDUAL_ENCODER])
@pytest.mark.parametrize(
    ("kind", "configuration"), [("plain", "3d_fullres"), ("plain", "2d"), ("regions", "3d_fullres")]
)
def test_killed_and_continued_is_as_if_nothing_had_happened(
    nnunet_kind: Callable[[str], Path], tmp_path: Path, kind: str, configuration: str, plans: str, compiled: str
) -> None:
    root = nnunet_kind(kind)
    runs = [
        Run(root, tmp_path / name, kind, "ShortDetAug", configuration, {"nnUNet_compile": compiled}, plans, "cuda")
        for name in ("straight", "killed")
    ]
    runs[0].train(processes=2)
    runs[1].train_until_killed(2, processes=1)
    runs[1].train("--c", processes=0)
    assert checkpoints(runs[0].folder) == checkpoints(runs[1].folder)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two GPUs here")
def test_two_gpus_train_to_the_same_bytes(nnunet_root: Path, tmp_path: Path) -> None:
    variables = {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}
    runs = [Run(nnunet_root, tmp_path / name, environment=variables, device="cuda") for name in ("one", "other")]
    for run, processes in zip(runs, (2, 1), strict=True):
        run.train("-num_gpus", "2", processes=processes)
    assert checkpoints(runs[0].folder) == checkpoints(runs[1].folder)
