"""`verify` on nnU-Net's own loader and transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")

from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetNumpy

from detaug.verification import verify
from tests.peers.acceptance import nnunet_pipeline as pipeline


@pytest.mark.parametrize(
    ("always", "num_batches"), [(True, 4), pytest.param(False, 12, marks=pytest.mark.slow)]
)
def test_blur_by_timing_and_shuffles_in_place_are_equal_with_detaugs_repairs(
    always: bool, num_batches: int, tmp_path: Path
) -> None:
    """The pipeline is that of a cascade's second stage.

    Args:
        always: whether its rarer transforms are applied to every sample.
        num_batches: number of batches that are compared.
        tmp_path: where the data set is written.
    """
    transforms = pipeline.transforms(cascade=True)
    if always:
        transforms = pipeline.always(transforms, (*pipeline.CASCADE, GaussianBlurTransform))
    loader = stock_loader(pipeline.write_dataset(tmp_path), transforms)

    def factory() -> tuple[Any, None]:
        return loader, None

    result = verify(factory, batches=num_batches, processes=[2], start_methods=["fork"])
    assert {row.verdict for row in result.rows} == {"equal"}, str(result)
    assert result.causes == (), str(result)


def stock_loader(folder: Path, transforms: Any) -> nnUNetDataLoader:
    """Return nnU-Net's loader of a data set that has segmentations of a previous stage."""
    previous = str(folder / "previous")
    dataset = nnUNetDatasetNumpy(str(folder), folder_with_segs_from_previous_stage=previous)
    return nnUNetDataLoader(
        dataset,
        2,
        pipeline.LARGER_PATCH,
        pipeline.PATCH,
        pipeline.label_manager(),
        0.33,
        None,
        None,
        transforms=transforms,
    )
