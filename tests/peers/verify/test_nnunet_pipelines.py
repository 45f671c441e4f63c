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
from detaug.verification import Cause, Result, verify
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


def found(result: Result, file: str) -> list[Cause]:
    return [cause for cause in result.causes if cause.site is not None and Path(cause.site.file).name == file]


def assert_the_faults_are_found(result: Result) -> None:
    assert result.ok, str(result)
    alone = {row.what: row.verdict for row in result.rows if row.what.startswith("the pipeline alone")}
    assert alone == {
        "the pipeline alone, after other batches": "differs; detaug repairs it",
        "the pipeline alone, another clock": "differs; detaug repairs it",
        "the pipeline alone, other random numbers from the operating system": "equal",
    }
    assert all(cause.repaired for cause in result.causes)
    (blur,) = found(result, "gaussian_blur.py")
    assert "clock (time.time)" in blur.what
    assert "GaussianBlurTransform" in str(blur.difference)
    for file, name in (
        ("random_binary_operator.py", "ApplyRandomBinaryOperatorTransform"),
        ("remove_connected_components.py", "RemoveRandomConnectedComponentFromOneHotEncodingTransform"),
    ):
        (shuffle,) = found(result, file)
        assert shuffle.what.startswith("`np.random.shuffle(self.channel_idx)` changes ")
        assert f"{name}.channel_idx" in shuffle.what
        assert name in str(shuffle.difference)


@pytest.mark.slow
def test_stock_pipelines_blur_by_timing_and_shuffles_in_place_are_found_and_shown_to_be_repaired(folder: Path) -> None:
    assert_the_faults_are_found(verified(partial(stock, folder, True), 4))


@pytest.mark.slow
def test_they_are_found_at_the_probabilities_that_nnunet_gives_them(folder: Path) -> None:
    assert_the_faults_are_found(verified(partial(stock, folder, False), 12))


@pytest.mark.slow
def test_detaugs_own_loader_and_transforms_are_equal_without_any_repair(folder: Path) -> None:
    result = verified(partial(ours, folder), 4)
    assert result.ok, str(result)
    assert {row.verdict for row in result.rows} == {"equal"}
    assert result.causes == ()
    assert result.stateless.allowed


@pytest.mark.slow
def test_the_demos_pipeline_on_real_mri_is_equal_but_for_the_process_number_that_it_shows() -> None:
    result = verified(demo, 6)
    assert not result.ok
    assert "os.getpid" in str(result.cause)
    assert result.cause is not None
    assert str(result.cause.difference).startswith("the loader: ['pid'] differs")
    assert verified(partial(demo, shown=False), 6).ok


def demo(shown: bool = True) -> Any:
    from detaug.demo.loader import MRIPatchLoader, enlarged, training_transforms
    from detaug.demo.mri import load_cases

    class WithoutProcess(MRIPatchLoader):
        def generate_train_batch(self) -> dict[str, Any]:
            batch = super().generate_train_batch()
            del batch["pid"]
            return batch

    kind = MRIPatchLoader if shown else WithoutProcess
    return kind(load_cases(), 2, enlarged((24, 24, 24))), training_transforms((24, 24, 24))
