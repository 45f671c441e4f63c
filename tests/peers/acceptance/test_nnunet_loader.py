"""nnU-Net's own loader with its own transforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

nnunet = pytest.importorskip("nnunetv2.training.nnUNetTrainer.nnUNetTrainer")

from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform  # noqa: E402

from detaug import LocalProcesses  # noqa: E402
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
