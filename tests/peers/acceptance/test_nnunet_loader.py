"""nnU-Net's own loader with its own transforms and with detaug's."""

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
    return pipeline.write_dataset(tmp_path_factory.mktemp("nnunet"))


def build(folder: Path, kind: str) -> Any:
    cascade = "cascade" in kind
    scales = [[1, 1, 1], [0.5, 0.5, 0.5]]
    if kind == "detaug's validation":
        transforms: Any = validation_transforms(scales)
    elif kind.startswith("detaug's"):
        regions = {"is_cascaded": True, "foreground_labels": pipeline.LABELS} if cascade else {}
        transforms = training_transforms(
            np.array(pipeline.PATCH), (-0.5, 0.5), scales, (0, 1, 2), False, **regions
        )
    else:
        transforms = pipeline.transforms(cascade)
    if kind == "cascade":
        transforms = pipeline.always(transforms, pipeline.CASCADE)
    if kind == "timed blur":
        transforms = pipeline.LyingClock(pipeline.always(transforms, (GaussianBlurTransform,)))
    return pipeline.loader(
        folder, transforms, cascade, probabilistic_oversampling=kind == "oversampling"
    )


KINDS = [
    "plain", "oversampling", "cascade", "timed blur", "detaug's training", "detaug's validation", "detaug's cascade",
]  # fmt: skip


#: What workers might change: transforms that shuffle in place or choose by timing, and detaug's.
IN_WORKERS = ("cascade", "timed blur", "detaug's training")


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_the_same_in_all_ways(folder: Path, kind: str) -> None:
    loader = build(folder, kind)
    loader.slow = 0.02
    found = run_all_ways(making(loader, check=False), with_workers(kind, IN_WORKERS))
    for batches in found.batches.values():
        batches.update({key: without_witness(batch) for key, batch in batches.items()})
    assert not [words for words in found.words if "switched benchmark=True off" not in words]
    assert found.different() == []
    made = [*found.batches["0 workers"].values()]
    assert len(set(fingerprints_of(made))) == len(made)
    size = pipeline.LARGER_PATCH if "validation" in kind else pipeline.PATCH
    assert made[0]["data"].shape == (2, 4 if "cascade" in kind else 1, *size)
    scales = 2 if kind.startswith("detaug's") else 3
    assert [t.shape[2] for t in made[0]["target"]] == [
        size[0] // 2**scale for scale in range(scales)
    ]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_batches_are_the_same_under_every_start_method(
    make: Maker, mark: str, folder: Path, method: str
) -> None:
    expected = fingerprints_of(take(make(build(folder, "cascade"), None, 0, seed=4), 12))
    batches = take(
        make(
            build(folder, "cascade"), None, 2, seed=4, executor=LocalProcesses(start_method=method)
        ),
        12,
    )
    assert_made_by_workers(method, batches)
    assert fingerprints_of(batches) == expected


def test_objects_of_the_user_keep_their_settings(make: Maker, folder: Path) -> None:
    transforms = pipeline.transforms()
    inner = [getattr(each, "transform", None) for each in transforms.transforms]
    blurs = [each for each in inner if isinstance(each, GaussianBlurTransform)]
    assert [blur.benchmark for blur in blurs] == [True]
    take(make(pipeline.loader(folder, transforms), None, 0, seed=4), 2)
    assert [blur.benchmark for blur in blurs] == [True]
    assert [blur.benchmark_use_fft for blur in blurs] == [{}]
