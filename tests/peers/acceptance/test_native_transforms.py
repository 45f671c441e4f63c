"""detaug's own transforms, as an augmenter's transform over batches and inside nnU-Net's loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

from detaug import SeedTree
from detaug.nnunet import training_transforms, validation_transforms
from detaug.transforms import Compose, GaussianNoise, Mirror, RandomApply, SpatialTransform
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import dawdle

PATCH = (12, 12, 12)


class Volumes(SlimDataLoaderBase):
    """Patches of one fixed volume with its labels, in batchgenerators' format."""

    def __init__(self, labels_key: str = "seg", torch_arrays: bool = False, delay: float = 0.0) -> None:
        super().__init__(np.random.default_rng(0).normal(size=(1, 24, 24, 24)).astype(np.float32), 3)
        self._key, self._torch, self._delay = labels_key, torch_arrays, delay

    def generate_train_batch(self) -> dict[str, Any]:
        dawdle(self._delay)
        corners = np.random.randint(0, 8, (self.batch_size, 3))
        data = np.stack([self._data[:, x : x + 16, y : y + 16, z : z + 16] for x, y, z in corners])
        batch = {"data": data, self._key: (data > 0).astype(np.int16), "names": [str(c) for c in corners]}
        return {k: torch.from_numpy(v) if self._torch and k != "names" else v for k, v in batch.items()}


def pipeline() -> Compose:
    return Compose(
        [
            SpatialTransform(PATCH, 0, False, p_rotation=0.7, rotation=(-0.5, 0.5), p_scaling=0.5),
            RandomApply(GaussianNoise((0, 0.1)), 0.5),
            Mirror((0, 1, 2)),
        ]
    )


@pytest.mark.parametrize("torch_arrays", [False, True])
@pytest.mark.parametrize("key", ["seg", "target"])
def test_each_sample_of_a_batch_is_augmented_from_its_own_generator(make: Maker, key: str, torch_arrays: bool) -> None:
    raw = take(make(Volumes(key, torch_arrays), None, 0, seed=3, num_streams=4), 6)
    batches = take(make(Volumes(key, torch_arrays), pipeline(), 2, seed=3, num_streams=4), 6)
    for step, (given, made) in enumerate(zip(raw, batches, strict=True)):
        assert made["names"] == given["names"]
        assert isinstance(made["data"], torch.Tensor if torch_arrays else np.ndarray)
        for sample in range(3):
            alone = pipeline()(
                image=given["data"][sample],
                segmentation=given[key][sample],
                rng=SeedTree(3).generator(0, step, num_streams=4, sample=sample),
            )
            assert np.array_equal(np.asarray(made["data"][sample]), np.asarray(alone["image"]))
            assert np.array_equal(np.asarray(made[key][sample]), np.asarray(alone["segmentation"]))


def native(kind: str) -> Any:
    from tests.peers.acceptance import nnunet_pipeline as parts

    scales = [[1, 1, 1], [0.5, 0.5, 0.5]]
    cascade = {"is_cascaded": True, "foreground_labels": parts.LABELS} if kind == "cascade" else {}
    if kind == "validation":
        return validation_transforms(scales)
    return training_transforms(np.array(parts.PATCH), (-0.5, 0.5), scales, (0, 1, 2), False, **cascade)


@pytest.mark.parametrize("kind", ["training", "validation", "cascade"])
def test_nnunets_loader_runs_them(make: Maker, tmp_path: Path, kind: str) -> None:
    pytest.importorskip("nnunetv2")
    from tests.peers.acceptance import nnunet_pipeline as parts

    folder = parts.write_dataset(tmp_path)
    runs = [
        take(make(parts.loader(folder, native(kind), kind == "cascade"), None, processes, seed=5), 6)
        for processes in (0, 2)
    ]
    assert prints(runs[0]) == prints(runs[1])
    assert len(set(prints(runs[0]))) == 6
    size = parts.LARGER_PATCH if kind == "validation" else parts.PATCH
    assert tuple(runs[0][0]["data"].shape[2:]) == size
    assert [t.shape[2] for t in runs[0][0]["target"]] == [size[0], size[0] // 2]
