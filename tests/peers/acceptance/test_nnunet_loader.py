"""nnU-Net's own loader with its own transforms."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

nnunet = pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")

from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform  # noqa: E402

from detaug import DeterministicAugmenter, LocalProcesses, SeedTree  # noqa: E402
from tests.peers.acceptance import nnunet_pipeline as pipeline  # noqa: E402
from tests.support.augmenters import Maker  # noqa: E402
from tests.support.comparing import prints, take  # noqa: E402
from tests.support.witness import assert_made_by_workers  # noqa: E402

N = 12


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipeline.write_dataset(tmp_path_factory.mktemp("nnunet"))


def build(folder: Path, kind: str) -> Any:
    cascade = kind == "cascade"
    transforms = pipeline.transforms(cascade)
    if cascade:
        transforms = pipeline.always(transforms, pipeline.CASCADE)
    if kind == "timed blur":
        transforms = pipeline.LyingClock(pipeline.always(transforms, (GaussianBlurTransform,)))
    return pipeline.loader(folder, transforms, cascade, probabilistic_oversampling=kind == "oversampling")


KINDS = ["plain", "oversampling", "cascade", "timed blur"]


@pytest.fixture(scope="module")
def expected(folder: Path) -> dict[str, list[str]]:
    found = {}
    for kind in KINDS:
        maker = Maker()
        batches = take(maker(build(folder, kind), None, 0, seed=4), N)
        maker.close()
        assert batches[0]["data"].shape == (2, 4 if kind == "cascade" else 1, *pipeline.PATCH)
        assert [tuple(t.shape[2:]) for t in batches[0]["target"]] == [(16,) * 3, (8,) * 3, (4,) * 3]
        found[kind] = prints(batches)
        assert len(set(found[kind])) == N
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_batches_are_the_same_for_any_number_of_processes(
    make: Maker, mark: str, folder: Path, expected: dict[str, list[str]], kind: str, n: int
) -> None:
    loader = build(folder, kind)
    loader.slow = 0.02
    batches = take(make(loader, None, n, seed=4), N)
    if n:
        assert_made_by_workers("fork", batches)
    assert prints(batches) == expected[kind]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_batches_are_the_same_under_every_start_method(
    make: Maker, mark: str, folder: Path, expected: dict[str, list[str]], method: str
) -> None:
    batches = take(make(build(folder, "cascade"), None, 2, seed=4, executor=LocalProcesses(start_method=method)), N)
    assert_made_by_workers(method, batches)
    assert prints(batches) == expected["cascade"]


@pytest.mark.parametrize("kind", KINDS)
def test_single_batches_replay_and_resume(make: Maker, folder: Path, expected: dict[str, list[str]], kind: str) -> None:
    augmenter = make(build(folder, kind), None, 2, seed=4)
    assert prints([augmenter.replay(0, 9)]) == [expected[kind][9]]
    take(augmenter, 5)
    resumed = make(build(folder, kind), None, 2, seed=4)
    resumed.load_state_dict(augmenter.state_dict())
    assert prints(take(resumed, N - 5)) == expected[kind][5:]


def test_tensors_stay_tensors_with_their_types(make: Maker, folder: Path) -> None:
    batch = next(make(build(folder, "plain"), None, 1, seed=4))
    assert isinstance(batch["data"], torch.Tensor)
    assert batch["data"].dtype == torch.float32
    assert isinstance(batch["target"], list)
    assert {t.dtype for t in batch["target"]} == {torch.int16}
    assert all(isinstance(key, str) for key in batch["keys"])


def test_objects_of_the_user_keep_their_settings(make: Maker, folder: Path) -> None:
    transforms = pipeline.transforms()
    inner = [getattr(each, "transform", None) for each in transforms.transforms]
    blurs = [each for each in inner if isinstance(each, GaussianBlurTransform)]
    assert [blur.benchmark for blur in blurs] == [True]
    take(make(pipeline.loader(folder, transforms), None, 0, seed=4), 2)
    assert [blur.benchmark for blur in blurs] == [True]
    assert [blur.benchmark_use_fft for blur in blurs] == [{}]


def trainer_that_has(folder: Path) -> Any:
    """What nnUNetTrainer.get_dataloaders asks of its trainer, without a plan and a network."""
    stub = types.SimpleNamespace(
        dataset_class=pipeline.nnUNetDatasetNumpy,
        preprocessed_dataset_folder=str(folder),
        configuration_manager=types.SimpleNamespace(patch_size=pipeline.PATCH, use_mask_for_norm=[False]),
        label_manager=pipeline.label_manager(),
        is_cascaded=False,
        batch_size=2,
        oversample_foreground_percent=0.33,
        probabilistic_oversampling=False,
        device=torch.device("cpu"),
        _get_deep_supervision_scales=lambda: [[1, 1, 1], [0.5, 0.5, 0.5]],
        configure_rotation_dummyDA_mirroring_and_inital_patch_size=lambda: (
            (-0.5, 0.5), False, np.array(pipeline.LARGER_PATCH), (0, 1, 2)),
        get_training_transforms=nnunet.nnUNetTrainer.get_training_transforms,
        get_validation_transforms=nnunet.nnUNetTrainer.get_validation_transforms,
    )  # fmt: skip
    stub.get_tr_and_val_datasets = lambda: (
        pipeline.nnUNetDatasetNumpy(str(folder), [f"case_{i}" for i in range(4)]),
        pipeline.nnUNetDatasetNumpy(str(folder), ["case_4"]),
    )
    return stub


def test_unmodified_nnunet_takes_the_augmenter_in_place_of_its_own(
    make: Maker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nnunet, "NonDetMultiThreadedAugmenter", DeterministicAugmenter)
    monkeypatch.setenv("DETAUG_SEED", "5")
    runs = []
    for processes in ("1", "2"):
        monkeypatch.setenv("nnUNet_n_proc_DA", processes)
        train, validation = nnunet.nnUNetTrainer.get_dataloaders(trainer_that_has(folder))
        make.keep(train)
        make.keep(validation)
        assert isinstance(train, nnunet.NonDetMultiThreadedAugmenter)
        runs.append(prints([next(train) for _ in range(4)]) + prints([next(validation) for _ in range(4)]))
        train._finish()
        validation._finish()
    assert runs[0] == runs[1]


def test_nnunet_pipeline_draws_from_torch_differently_in_every_batch(make: Maker, folder: Path) -> None:
    batches = take(make(build(folder, "plain"), None, 3, seed=4), N)
    assert len(set(prints({"data": b["data"]} for b in batches))) == N


def test_seed_tree_of_the_run_gives_an_int_to_whoever_wants_one() -> None:
    assert SeedTree(4).child("split").integer() != SeedTree(5).child("split").integer()
