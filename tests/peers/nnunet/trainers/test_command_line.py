"""`nnUNetv2_train -tr ...`, unmodified: the same files from the same seed, whatever happened on the
way.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
import SimpleITK
import torch

from tests.peers.nnunet.trainers.command_line import Run, checkpoints
from tests.peers.nnunet.trainers.small_datasets import RESIDUAL_ENCODER

#: Trainings take as long as the machine lets them: two hours is a hang on any.
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
    assert children, "there were workers to leave behind"
    assert psutil.wait_procs(children, timeout=20)[1] == []
    printed = killed.train("--c", "--npz", seed=None, processes=0)
    assert "seed 1, from the checkpoint" in printed
    assert set(checkpoints(straight.folder)) == {"checkpoint_best.pth", "checkpoint_final.pth"}
    assert checkpoints(straight.folder) == checkpoints(killed.folder)
    folders = [run.folder / "validation" for run in (straight, killed)]
    one, other = (
        (each / "summary.json").read_text().replace(str(each.parents[3]), "") for each in folders
    )
    assert one == other
    images = (SimpleITK.ReadImage(each / "brain_000.nii.gz") for each in folders)
    assert np.array_equal(*map(SimpleITK.GetArrayFromImage, images))
    assert np.array_equal(*(np.load(each / "brain_000.npz")["probabilities"] for each in folders))

    # what a finished training still allows
    before = checkpoints(straight.folder)
    (straight.folder / "validation" / "brain_000.nii.gz").unlink()
    straight.train("--val", processes=1, seed=None)
    assert (straight.folder / "validation" / "brain_000.nii.gz").exists()
    assert checkpoints(straight.folder) == before


@pytest.mark.slow
def test_compiled_networks_train_to_the_same_bytes_and_are_continued(
    nnunet_root: Path, tmp_path: Path
) -> None:
    straight, killed = (
        Run(
            nnunet_root,
            tmp_path / name,
            trainer="ShortDetAugCompiled",
            # each compiles anew: what lies in a cache is the same for sure
            environment={
                "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / f"compiled_{name}"),
                "SHORT_VALIDATION": "0",
            },
        )
        for name in ("straight", "killed")
    )
    assert "Using torch.compile..." in straight.train()
    killed.train_until_killed(2, processes=1)
    killed.train("--c", processes=0, TORCHINDUCTOR_CACHE_DIR=str(tmp_path / "compiled_once_more"))
    assert checkpoints(straight.folder) == checkpoints(killed.folder)


GPUS = torch.cuda.device_count()


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("device", "compiled"),
    [
        pytest.param("cpu", "false", marks=pytest.mark.slow),
        *(
            pytest.param(
                "cuda",
                each,
                marks=pytest.mark.skipif(GPUS < 1, reason="no GPU that torch can use here"),
            )
            for each in ("true", "false")
        ),
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
    root, environment = nnunet_kind(kind), {"SHORT_EPOCHS": "3", "nnUNet_compile": compiled}
    runs = [
        Run(root, tmp_path / name, kind, trainer, configuration, environment, plans, device)
        for name in ("straight", "killed")
    ]
    runs[0].train(processes=2)
    assert (runs[0].folder / "validation" / "summary.json").exists()
    if plans == RESIDUAL_ENCODER:
        assert "AvgPool3d" in next(runs[0].folder.glob("training_log*")).read_text(), (
            "its pooling was swapped"
        )
    runs[1].train_until_killed(2, processes=1)
    runs[1].train("--c", processes=0, SHORT_VALIDATION="0")
    assert checkpoints(runs[0].folder) == checkpoints(runs[1].folder)


@pytest.mark.skipif(GPUS < 2, reason="fewer than two GPUs here")
def test_two_gpus_train_to_the_same_bytes(nnunet_root: Path, tmp_path: Path) -> None:
    variables = {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}
    runs = [
        Run(nnunet_root, tmp_path / name, environment=variables, device="cuda")
        for name in ("one", "other")
    ]
    for run, processes in zip(runs, (2, 1), strict=True):
        run.train("-num_gpus", "2", processes=processes)
    assert checkpoints(runs[0].folder) == checkpoints(runs[1].folder)


@pytest.mark.slow
@pytest.mark.parametrize("trainer", TRAINERS)
def test_a_cascade_trains_to_the_same_bytes(
    nnunet_kind: Callable[[str], Path], tmp_path: Path, trainer: str
) -> None:
    root = nnunet_kind("cascade")
    alone = Run(root, tmp_path / "alone", "cascade", trainer, "3d_cascade_fullres").attempt()
    assert alone.returncode != 0
    assert "train that stage first" in alone.stdout
    final = []
    for name, processes in (("one", 2), ("other", 0)):
        for configuration in ("3d_lowres", "3d_cascade_fullres"):
            run = Run(
                root, tmp_path / name, "cascade", trainer, configuration, {"SHORT_EPOCHS": "2"}
            )
            # every case needs a prediction of the first stage: fold "all" predicts all of them
            run.fold = "all" if configuration == "3d_lowres" else "0"
            run.train(processes=processes)
        final.append(checkpoints(run.folder))
    assert final[0]["checkpoint_final.pth"]
    assert final[0] == final[1]


@pytest.mark.slow
def test_a_cluster_trains_to_the_same_bytes(nnunet_root: Path, tmp_path: Path) -> None:
    """``DETAUG_EXECUTOR`` alone has a Ray cluster make the batches; killed there, the training goes
    on without one.
    """
    pytest.importorskip("ray")
    straight = Run(nnunet_root, tmp_path / "straight", environment={"SHORT_EPOCHS": "3"})
    straight.train(processes=0, SHORT_VALIDATION="0")
    moved = Run(nnunet_root, tmp_path / "moved", environment={"SHORT_EPOCHS": "3"})
    cluster = {
        "DETAUG_EXECUTOR": "ray://local?num_actors=2&num_cpus=0.25",
        "RAY_AUTH_MODE": "disabled",
    }
    moved.environment |= cluster
    children = moved.train_until_killed(2, processes=1)
    living = [each.name() for each in children if each.is_running()]
    assert any("ray" in name for name in living), "a cluster of the training's own"
    for name in cluster:
        del moved.environment[name]
    moved.train("--c", seed=None, processes=1, SHORT_VALIDATION="0")
    assert checkpoints(straight.folder) == checkpoints(moved.folder)
    assert psutil.wait_procs(children, timeout=240)[1] == []
