"""nnU-Net's own loader, with its own transforms and with detaug's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

nnunet = pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")

from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform  # noqa: E402

from detaug import LocalProcesses  # noqa: E402
from detaug.nnunet import training_transforms, validation_transforms  # noqa: E402
from tests.peers.acceptance import nnunet_pipeline as pipeline  # noqa: E402
from tests.processes.purity.ways import making, run_all_ways, with_workers  # noqa: E402
from tests.support.augmenters import Maker  # noqa: E402
from tests.support.comparing import fingerprints_of, take  # noqa: E402
from tests.support.witness import assert_made_by_workers, without_witness  # noqa: E402


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a data set."""
    return pipeline.write_dataset(tmp_path_factory.mktemp("nnunet"))


SCALES = [[1, 1, 1], [0.5, 0.5, 0.5]]


def detaugs_training(**options: Any) -> Any:
    """Return detaug's training transforms."""
    patch = np.array(pipeline.PATCH)
    return training_transforms(patch, (-0.5, 0.5), SCALES, (0, 1, 2), False, **options)


def transforms_of(kind: str) -> Any:
    """Return the transforms of one of `KINDS`."""
    if kind == "detaug's validation":
        return validation_transforms(SCALES)
    if kind == "detaug's training":
        return detaugs_training()
    if kind == "detaug's cascade":
        return detaugs_training(is_cascaded=True, foreground_labels=pipeline.LABELS)
    if kind == "cascade":
        return pipeline.always(pipeline.transforms(cascade=True), pipeline.CASCADE)
    if kind == "timed blur":
        always_blurring = pipeline.always(pipeline.transforms(), (GaussianBlurTransform,))
        return pipeline.LyingClock(always_blurring)
    return pipeline.transforms()


def build(folder: Path, kind: str) -> Any:
    """Return nnU-Net's loader with the transforms of one of `KINDS`."""
    return pipeline.loader(
        folder,
        transforms_of(kind),
        cascade="cascade" in kind,
        probabilistic_oversampling=kind == "oversampling",
    )


KINDS = [
    "plain",
    "oversampling",
    "cascade",
    "timed blur",
    "detaug's training",
    "detaug's validation",
    "detaug's cascade",
]
#: Kinds that workers might change: transforms that shuffle in place or choose by timing, detaug's.
IN_WORKERS = ("cascade", "timed blur", "detaug's training")


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_the_same_in_all_ways(folder: Path, kind: str) -> None:
    loader = build(folder, kind)
    loader.slow = 0.02
    findings = run_all_ways(making(loader, check=False), with_workers(kind, IN_WORKERS))
    for batches_of_way in findings.batches.values():
        for key, batch in batches_of_way.items():
            batches_of_way[key] = without_witness(batch)
    assert not [words for words in findings.words if "switched benchmark=True off" not in words]
    assert findings.different() == []
    batches = list(findings.batches["0 workers"].values())
    assert len(set(fingerprints_of(batches))) == len(batches)

    first = batches[0]
    size = pipeline.LARGER_PATCH if "validation" in kind else pipeline.PATCH
    num_channels = 4 if "cascade" in kind else 1
    assert first["data"].shape == (2, num_channels, *size)
    num_levels = 2 if kind.startswith("detaug's") else 3
    expected_lengths = [size[0] // 2**level for level in range(num_levels)]
    assert [level.shape[2] for level in first["target"]] == expected_lengths


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_batches_are_the_same_under_every_start_method(
    make: Maker, mark: str, folder: Path, method: str
) -> None:
    expected = fingerprints_of(take(make(build(folder, "cascade"), None, 0, seed=4), 12))
    executor = LocalProcesses(start_method=method)
    batches = take(make(build(folder, "cascade"), None, 2, seed=4, executor=executor), 12)
    assert_made_by_workers(method, batches)
    assert fingerprints_of(batches) == expected


def test_objects_of_the_user_keep_their_settings(make: Maker, folder: Path) -> None:
    transforms = pipeline.transforms()
    inner = [getattr(transform, "transform", None) for transform in transforms.transforms]
    (blur,) = [transform for transform in inner if isinstance(transform, GaussianBlurTransform)]
    assert blur.benchmark is True
    take(make(pipeline.loader(folder, transforms), None, 0, seed=4), 2)
    assert blur.benchmark is True
    assert blur.benchmark_use_fft == {}
