"""`nnUNetv2_train -tr ...`, unmodified, writes the same files from the same seed.

Trainings are killed and continued, and have different numbers of processes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
import SimpleITK
import torch

from tests.peers.nnunet.trainers.command_line import Run, checkpoints
from tests.peers.nnunet.trainers.small_datasets import RESIDUAL_ENCODER

#: Trainings take long on a slow machine, but one of two hours hangs on any.
pytestmark = pytest.mark.timeout(7200)

TRAINERS = ["ShortDetAug", "ShortDeterministic"]


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_killed_and_continued_is_as_if_nothing_had_happened(
    nnunet_root: Path, tmp_path: Path, trainer: str
) -> None:
    straight = Run(nnunet_root, tmp_path / "straight", trainer=trainer)
    printed = straight.train("--npz", processes=2)
    assert "seed 1" in printed
    killed = Run(nnunet_root, tmp_path / "killed", trainer=trainer)
    children = killed.train_until_killed(2, processes=3)
    assert children, "the training had workers"
    _, remaining = psutil.wait_procs(children, timeout=20)
    assert remaining == []
    printed = killed.train("--c", "--npz", seed=None, processes=0)
    assert "seed 1, from the checkpoint" in printed
    assert set(checkpoints(straight.folder)) == {"checkpoint_best.pth", "checkpoint_final.pth"}
    assert checkpoints(straight.folder) == checkpoints(killed.folder)
    assert summary(straight) == summary(killed)
    predicted = straight.folder / "validation" / "brain_000.nii.gz"
    other = killed.folder / "validation" / "brain_000.nii.gz"
    assert np.array_equal(voxels(predicted), voxels(other))
    assert np.array_equal(probabilities(straight), probabilities(killed))

    # A finished training can still be validated.
    checkpoints_before = checkpoints(straight.folder)
    predicted.unlink()
    straight.train("--val", processes=1, seed=None)
    assert predicted.exists()
    assert checkpoints(straight.folder) == checkpoints_before


def summary(run: Run) -> str:
    """Return the summary of the final validation, without the path of the results."""
    text = (run.folder / "validation" / "summary.json").read_text()
    return text.replace(str(run.results), "")


def probabilities(run: Run) -> np.ndarray:
    """Return the probabilities that the final validation predicted."""
    return np.load(run.folder / "validation" / "brain_000.npz")["probabilities"]


def voxels(file: Path) -> np.ndarray:
    """Return the voxels of an image."""
    return SimpleITK.GetArrayFromImage(SimpleITK.ReadImage(file))


@pytest.mark.slow
def test_compiled_networks_train_to_the_same_bytes_and_are_continued(
    nnunet_root: Path, tmp_path: Path
) -> None:
    def compiled(name: str) -> Run:
        environment = {
            # Each run compiles: code from a shared cache would be the same in any case.
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"compiled_{name}"),
            "SHORT_VALIDATION": "0",
        }
        return Run(
            nnunet_root, tmp_path / name, trainer="ShortDetAugCompiled", environment=environment
        )

    straight = compiled("straight")
    killed = compiled("killed")
    assert "Using torch.compile..." in straight.train()
    killed.train_until_killed(2, processes=1)
    killed.train("--c", processes=0, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "compiled_once_more"))
    assert checkpoints(straight.folder) == checkpoints(killed.folder)


GPUS = torch.cuda.device_count()
needs_gpu = pytest.mark.skipif(GPUS < 1, reason="no GPU that torch can use here")


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("device", "compiled"),
    [
        pytest.param("cpu", "false", marks=pytest.mark.slow),
        pytest.param("cuda", "true", marks=needs_gpu),
        pytest.param("cuda", "false", marks=needs_gpu),
    ],
)
@pytest.mark.parametrize(
    ("kind", "configuration", "plans"),
    [
        ("plain", "2d", "nnUNetPlans"),
        ("plain", "3d_fullres", RESIDUAL_ENCODER),
        ("flat", "3d_fullres", "nnUNetPlans"),
        ("regions", "3d_fullres", "nnUNetPlans"),
        ("ignore", "3d_fullres", "nnUNetPlans"),
        ("ignore", "2d", "nnUNetPlans"),
    ],
)
def test_every_kind_of_data_set_trains_to_the_same_bytes(
    nnunet_kind: Callable[[str], Path],
    tmp_path: Path,
    kind: str,
    configuration: str,
    plans: str,
    device: str,
    compiled: str,
    trainer: str,
) -> None:
    straight = Run(
        nnunet_kind(kind),
        tmp_path / "straight",
        kind=kind,
        trainer=trainer,
        configuration=configuration,
        environment={"SHORT_EPOCHS": "3", "nnUNet_compile": compiled},
        plans=plans,
        device=device,
    )
    straight.train(processes=2)
    assert (straight.folder / "validation" / "summary.json").exists()
    if plans == RESIDUAL_ENCODER:
        log = next(straight.folder.glob("training_log*")).read_text()
        assert "AvgPool3d" in log, "its pooling was replaced"
    killed = replace(straight, results=tmp_path / "killed")
    killed.train_until_killed(2, processes=1)
    killed.train("--c", processes=0, SHORT_VALIDATION="0")
    assert checkpoints(straight.folder) == checkpoints(killed.folder)


@pytest.mark.skipif(GPUS < 2, reason="fewer than two GPUs here")
def test_two_gpus_train_to_the_same_bytes(nnunet_root: Path, tmp_path: Path) -> None:
    variables = {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}
    one = Run(nnunet_root, tmp_path / "one", environment=variables, device="cuda")
    one.train("-num_gpus", "2", processes=2)
    other = replace(one, results=tmp_path / "other")
    other.train("-num_gpus", "2", processes=1)
    assert checkpoints(one.folder) == checkpoints(other.folder)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_cascade_trains_to_the_same_bytes(
    nnunet_kind: Callable[[str], Path], tmp_path: Path, trainer: str
) -> None:
    second_stage = Run(
        nnunet_kind("cascade"), tmp_path / "alone", "cascade", trainer, "3d_cascade_fullres"
    )
    alone = second_stage.attempt()
    assert alone.returncode != 0
    assert "train that stage first" in alone.stdout
    final = []
    for name, processes in (("one", 2), ("other", 0)):
        first, second = stages_of_a_cascade(second_stage, tmp_path / name)
        first.train(processes=processes)
        second.train(processes=processes)
        final.append(checkpoints(second.folder))
    assert final[0]["checkpoint_final.pth"]
    assert final[0] == final[1]


def stages_of_a_cascade(second_stage: Run, results: Path) -> tuple[Run, Run]:
    """Return the runs of both stages, with results of their own."""
    second = replace(second_stage, results=results, environment={"SHORT_EPOCHS": "2"})
    # The second stage reads predictions for all cases. Fold "all" makes them for all.
    first = replace(second, configuration="3d_lowres", fold="all")
    return first, second


@pytest.mark.slow
def test_a_cluster_trains_to_the_same_bytes(nnunet_root: Path, tmp_path: Path) -> None:
    """The variable ``DETAUG_EXECUTOR`` is enough for a Ray cluster to make the batches.

    A training that was killed there continues without a cluster.
    """
    pytest.importorskip("ray")
    straight = Run(nnunet_root, tmp_path / "straight", environment={"SHORT_EPOCHS": "3"})
    straight.train(processes=0, SHORT_VALIDATION="0")
    cluster = {
        "DETAUG_EXECUTOR": "ray://local?num_actors=2&num_cpus=0.25",
        "RAY_AUTH_MODE": "disabled",
    }
    moved = replace(straight, results=tmp_path / "moved")
    in_cluster = replace(moved, environment={"SHORT_EPOCHS": "3", **cluster})
    children = in_cluster.train_until_killed(2, processes=1)
    names = [child.name() for child in children if child.is_running()]
    assert any("ray" in name for name in names), "a cluster of the training's own"
    moved.train("--c", seed=None, processes=1, SHORT_VALIDATION="0")
    assert checkpoints(straight.folder) == checkpoints(moved.folder)
    _, remaining = psutil.wait_procs(children, timeout=240)
    assert remaining == []
