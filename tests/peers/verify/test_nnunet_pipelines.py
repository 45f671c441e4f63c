"""nnU-Net's stock loader with its stock transforms."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")

from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetNumpy

from detaug.verification import verify
from tests.peers.acceptance import nnunet_pipeline as pipeline


@pytest.mark.parametrize(
    ("always", "batches"), [(True, 4), pytest.param(False, 12, marks=pytest.mark.slow)]
)
def test_blur_by_timing_and_shuffles_in_place_are_equal_with_detaugs_repairs(
    always: bool, batches: int, tmp_path: Path
) -> None:
    """Of a cascade's second stage; `always`: its rarer transforms happen to every sample."""
    transforms = pipeline.transforms(cascade=True)
    if always:
        transforms = pipeline.always(transforms, (*pipeline.CASCADE, GaussianBlurTransform))
    folder = pipeline.write_dataset(tmp_path)
    dataset = nnUNetDatasetNumpy(
        str(folder), folder_with_segs_from_previous_stage=str(folder / "previous")
    )
    sizes = (pipeline.LARGER_PATCH, pipeline.PATCH)
    loader = nnUNetDataLoader(
        dataset, 2, *sizes, pipeline.label_manager(), 0.33, None, None, transforms=transforms
    )
    result = verify(lambda: (loader, None), batches=batches, processes=[2], start_methods=["fork"])
    assert ({row.verdict for row in result.rows}, result.causes) == ({"equal"}, ()), str(result)
