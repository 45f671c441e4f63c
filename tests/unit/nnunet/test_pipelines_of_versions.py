"""Pipelines of nnU-Net's earlier versions."""

from __future__ import annotations

from typing import Any

import pytest

from detaug.nnunet import TRAINING_TRANSFORMS
from detaug.nnunet.variants import pipelines_of
from detaug.transforms import ApplyRandomBinaryOperator, RandomApply, SpatialTransform


@pytest.mark.parametrize(
    ("version", "padding", "per_label"),
    [
        ((2, 5), ("zeros", 0), 1),
        ((2, 6), ("zeros", 0), 1),
        ((2, 7), ("constant", -1), 0.5),
        ((2, 8), ("constant", -1), 0.5),
    ],
)
def test_the_default_pipeline_is_the_versions(version: Any, padding: Any, per_label: float) -> None:
    build = pipelines_of(version)["nnUNetTrainer"]
    made = build((8, 8, 8), (-0.5, 0.5), None, (0, 1, 2), False, is_cascaded=True, foreground_labels=[1, 2])
    spatial = next(each for each in made.transforms if isinstance(each, SpatialTransform))
    assert (spatial.border_mode_seg, spatial.padding_value_seg) == padding
    applied = [each.transform for each in made.transforms if isinstance(each, RandomApply)]
    operator = next(each for each in applied if isinstance(each, ApplyRandomBinaryOperator))
    assert operator.p_per_label == per_label


def test_other_pipelines_of_earlier_versions_are_left_to_nnunet() -> None:
    assert set(pipelines_of((2, 7))) == {"nnUNetTrainer"}
    assert pipelines_of((2, 8)) is TRAINING_TRANSFORMS
