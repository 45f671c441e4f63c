"""nnUNetTrainerDetAugExt: nnU-Net's default pipeline with artefacts of MRI."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("nnunetv2")

from detaug.nnunet import extended_transforms, training_transforms
from detaug.transforms import Compose, OneOf, RandomApply

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "3-D": ((20, 18, 16), (-0.5, 0.5), [[1, 1, 1], [0.5, 0.5, 0.5]], (0, 1, 2), False),
    "2-D": ((40, 33), (-3, 3), [[1, 1], [0.5, 0.5]], (0, 1), False),
    "planes": ((6, 28, 24), (-3, 3), None, (1, 2), True),
}
OPTIONS: dict[str, Any] = {"use_mask_for_norm": [True], "is_cascaded": True, "foreground_labels": [1, 2]}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_samples_have_the_form_of_the_default_pipelines(name: str) -> None:
    size = ARGUMENTS[name][0]
    space = tuple(n + 7 if i or len(size) == 2 else n for i, n in enumerate(size))
    rng = np.random.default_rng(0)
    sample = {
        "image": rng.standard_normal((1, *space)).astype(np.float32),
        "segmentation": rng.integers(-1, 3, (2, *space)).astype(np.int16),
    }
    extended, default = (build(*ARGUMENTS[name], **OPTIONS) for build in (extended_transforms, training_transforms))
    expected = default(**sample, rng=np.random.default_rng(1))
    for seed in range(40):
        made = extended(**sample, rng=np.random.default_rng(seed))
        again = extended(**sample, rng=np.random.default_rng(seed))
        assert made.keys() == expected.keys()
        assert made["image"].shape == expected["image"].shape
        assert np.isfinite(made["image"]).all()
        assert np.array_equal(made["image"], again["image"])
        levels = made["segmentation"] if isinstance(made["segmentation"], list) else [made["segmentation"]]
        wanted = expected["segmentation"] if isinstance(expected["segmentation"], list) else [expected["segmentation"]]
        assert [each.shape for each in levels] == [each.shape for each in wanted]


def test_what_is_added_opens_as_often_as_is_documented() -> None:
    pipeline = extended_transforms(*ARGUMENTS["3-D"])
    assert isinstance(pipeline, Compose)
    shapes = {"image": (1, 27, 25, 23), "segmentation": (1, 27, 25, 23)}
    draws = [pipeline.sample(np.random.default_rng(seed), shapes)["transforms"] for seed in range(1500)]
    rates, chosen = {}, set()
    for number, transform in enumerate(pipeline.transforms):
        if isinstance(transform, RandomApply):
            inner = transform.transform
            rates[type(inner).__name__] = np.mean([draw[number]["apply_transform"] for draw in draws])
            if isinstance(inner, OneOf):
                chosen = {draw[number]["params"]["chosen"] for draw in draws if draw[number]["apply_transform"]}
    documented = {"BiasField": 0.2, "Anisotropy": 0.1, "OneOf": 0.2, "HistogramShift": 0.1, "CoarseDropout": 0.1}
    assert {name: round(float(rates[name]), 3) for name in documented} == pytest.approx(documented, abs=0.04)
    assert chosen == {0, 1, 2, 3}
