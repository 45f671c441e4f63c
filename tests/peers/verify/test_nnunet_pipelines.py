"""nnU-Net's stock loader with its stock transforms, and detaug's own in their place."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")

from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetNumpy

from detaug.nnunet import training_transforms
from detaug.nnunet.loading import PatchSource
from detaug.verification import Result, verify
from tests.peers.acceptance import nnunet_pipeline as pipeline

ALWAYS = (*pipeline.CASCADE, GaussianBlurTransform)
SCALES = [[1, 1, 1], [0.5, 0.5, 0.5]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pipeline.write_dataset(tmp_path_factory.mktemp("nnunet"))


def stock(folder: Path, always: bool) -> Any:
    """nnU-Net's own loader and transforms of a cascade's second stage; `always`: for the rarer ones to happen."""
    transforms = pipeline.transforms(cascade=True)
    if always:
        transforms = pipeline.always(transforms, ALWAYS)
    dataset = nnUNetDatasetNumpy(str(folder), folder_with_segs_from_previous_stage=str(folder / "previous"))
    sizes = (pipeline.LARGER_PATCH, pipeline.PATCH)
    return nnUNetDataLoader(dataset, 2, *sizes, pipeline.label_manager(), 0.33, None, None, transforms=transforms), None


def ours(folder: Path) -> Any:
    transforms = training_transforms(pipeline.PATCH, (-0.5, 0.5), SCALES, (0, 1, 2), False)
    dataset = nnUNetDatasetNumpy(str(folder))
    sizes = (pipeline.LARGER_PATCH, pipeline.PATCH)
    return PatchSource(dataset, 2, *sizes, pipeline.label_manager(), 0.33, None, None, transforms=transforms), None


def verified(factory: Any, batches: int) -> Result:
    return verify(factory, batches=batches, processes=[2], start_methods=["fork"], hash_seeds=())


@pytest.mark.slow
@pytest.mark.parametrize("always", [True, False])
def test_stock_pipelines_blur_by_timing_and_shuffles_in_place_are_equal_with_detaugs_repairs(
    folder: Path, always: bool
) -> None:
    result = verified(partial(stock, folder, always), 4 if always else 12)
    assert {row.verdict for row in result.rows} == {"equal"}, str(result)


@pytest.mark.slow
def test_detaugs_own_loader_and_transforms_are_equal(folder: Path) -> None:
    result = verified(partial(ours, folder), 4)
    assert result.ok, str(result)
    assert {row.verdict for row in result.rows} == {"equal"}
    assert result.causes == ()
