"""`PatchSource` against nnU-Net's own loader on cases that nnU-Net planned and preprocessed:
regions, an ignore label, anisotropic voxels. The same patches from the same params; the same
distribution where both draw.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.label_handling.label_handling import LabelManager
from scipy.stats import chi2_contingency, chisquare, ks_2samp

from detaug import SeedTree
from detaug.nnunet import validation_transforms
from detaug.nnunet.loading import PatchSource
from tests.peers.nnunet.trainers.small_datasets import ANNOTATED, KINDS, SCRIBBLED

pytest.importorskip("nibabel")
pytest.importorskip("nilearn")

REGIONS = LabelManager(SCRIBBLED, [1, 2])
PLAIN = LabelManager({"background": 0, "grey": 1, "white": 2}, None)
FINAL, PATCH = (8, 16, 18), (10, 24, 26)
SCALES_3D = [[1, 1, 1], [0.5, 0.5, 0.5]]
CONFIGURATIONS = {"3d_fullres": (PATCH, FINAL), "2d": (PATCH[1:], FINAL[1:])}


@pytest.fixture(scope="module")
def preprocessed(nnunet_kind: Callable[[str], Path]) -> Path:
    """Five cases of MRI, 3 mm planes, of which only the front is annotated."""
    return nnunet_kind("scribbles") / "preprocessed" / KINDS["scribbles"].name


def dataset(preprocessed: Path, configuration: str = "3d_fullres") -> nnUNetDatasetBlosc2:
    return nnUNetDatasetBlosc2(str(preprocessed / f"nnUNetPlans_{configuration}"))


class RecordingStock(nnUNetDataLoader):
    """nnU-Net's loader, and where it cut; at a place that is given, if one is."""

    def __init__(self, *args: Any, at: Sequence[int] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.starts: list[list[int]] = []
        self.at = at

    def get_bbox(self, *args: Any, **options: Any) -> Any:
        starts, stops = super().get_bbox(*args, **options)
        if self.at is not None:
            starts, stops = (
                list(self.at),
                [a + n for a, n in zip(self.at, self.patch_size, strict=True)],
            )
        self.starts.append([int(start) for start in starts])
        return starts, stops


class RecordingSource(PatchSource):
    """Where patches would be cut; nothing is read."""

    starts: list[Sequence[int]]

    def patch(self, case: Any, start: Sequence[int]) -> Any:
        self.starts.append(list(start))
        return {}


NAMES = [f"brain_{number:03d}" for number in range(5)]
BATCH = 10  # of which the last three show foreground


def our_places(
    preprocessed: Path,
    samples: int,
    configuration: str = "3d_fullres",
    labels: LabelManager = PLAIN,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """First voxels of patches, (batches, position in the batch, axis), and the names of their
    cases.
    """
    arguments = (
        dataset(preprocessed, configuration),
        BATCH,
        *CONFIGURATIONS[configuration],
        labels,
    )
    source, tree = RecordingSource(*arguments, **options), SeedTree(12)
    source.starts = []
    order = [(number, n) for number in range(samples // BATCH) for n in range(BATCH)]
    names = [source.sample(tree.generator(0, number, sample=n), n)["key"] for number, n in order]
    return np.array(source.starts).reshape(-1, BATCH, 3), np.array(names)


def places(
    preprocessed: Path,
    samples: int,
    configuration: str = "3d_fullres",
    labels: LabelManager = PLAIN,
    **options: Any,
) -> list[np.ndarray]:
    """Ours and nnU-Net's places, our names and theirs."""
    ours, names = our_places(preprocessed, samples, configuration, labels, **options)
    arguments = (
        dataset(preprocessed, configuration),
        BATCH,
        *CONFIGURATIONS[configuration],
        labels,
    )
    stock = RecordingStock(*arguments, **options)
    np.random.seed(11)
    their_names = [stock.generate_train_batch()["keys"] for _ in range(samples // BATCH)]
    return [ours, np.array(stock.starts).reshape(-1, BATCH, 3), names, np.concatenate(their_names)]


def assert_alike(ours: np.ndarray, theirs: np.ndarray) -> None:
    for axis in range(3):
        assert ks_2samp(ours[..., axis].ravel(), theirs[..., axis].ravel()).pvalue > 1e-4
        assert abs(ours[..., axis].min() - theirs[..., axis].min()) <= 1
        assert abs(ours[..., axis].max() - theirs[..., axis].max()) <= 1


@pytest.mark.parametrize("labels", [REGIONS, PLAIN], ids=["ignore label", "no ignore label"])
@pytest.mark.parametrize(
    ("configuration", "probabilistic"), [("3d_fullres", False), ("3d_fullres", True), ("2d", False)]
)
def test_places_are_nnunets_for_both_kinds_of_oversampling_and_in_planes(
    preprocessed: Path, labels: LabelManager, configuration: str, probabilistic: bool
) -> None:
    options = {"oversample_foreground_percent": 0.5 if probabilistic else 0.33}
    options["probabilistic_oversampling"] = probabilistic
    ours, theirs, *_ = places(preprocessed, 600, configuration, labels, **options)
    groups = [slice(None)] if probabilistic else [slice(0, 7), slice(7, None)]
    for group in groups:
        assert_alike(ours[:, group], theirs[:, group])
    # with an ignore label no patch lies about a voxel that is not annotated
    assert (ours[..., 1].max() < ANNOTATED - PATCH[1] // 2) == (labels is REGIONS)


def test_further_padding_lets_patches_reach_as_far_as_nnunets(preprocessed: Path) -> None:
    near, _ = our_places(preprocessed, 600)
    far, theirs, *_ = places(preprocessed, 600, pad_sides=(4, 10, 8))
    assert_alike(far, theirs)
    reach = far.reshape(-1, 3).min(0) - near.reshape(-1, 3).min(0)
    assert reach.tolist() == [-2, -5, -4]


def test_cases_are_drawn_with_the_given_probabilities(preprocessed: Path) -> None:
    shares = (0.5, 0.2, 0.1, 0.1, 0.1)
    *_, ours, theirs = places(preprocessed, 600, sampling_probabilities=shares)
    counts = [[int((names == name).sum()) for name in NAMES] for names in (ours, theirs)]
    assert chisquare(counts[0], 600 * np.array(shares)).pvalue > 1e-4
    assert chi2_contingency(counts).pvalue > 1e-4
    _, ours = our_places(preprocessed, 600)
    assert chisquare([int((ours == name).sum()) for name in NAMES]).pvalue > 1e-4


STARTS = [(2, 8, 5), (-1, -4, 13), (5, 20, -6), (4, -2, -3)]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_regions_and_the_ignore_label_come_out_as_nnunets(
    preprocessed: Path, configuration: str, start: tuple[int, ...]
) -> None:
    """A patch of the third case at a given place."""
    patch, final = CONFIGURATIONS[configuration]
    scales = [scale[: len(patch)] for scale in SCALES_3D]
    arguments = {"regions": REGIONS.foreground_regions, "ignore_label": REGIONS.ignore_label}
    theirs = nnUNetTrainer.get_validation_transforms(scales, **arguments)
    start = (abs(start[0]), *start[1:]) if configuration == "2d" else start
    cases, third = dataset(preprocessed, configuration), (0, 0, 1, 0, 0)
    stock = RecordingStock(
        cases, 1, patch, final, REGIONS, 0.33, third, transforms=theirs, at=start
    )
    expected = stock.generate_train_batch()
    assert list(expected["keys"]) == ["brain_002"]
    source = PatchSource(cases, 1, patch, final, REGIONS)
    volumes = source.patch(source.cases.open("brain_002"), start)
    result = validation_transforms(scales, **arguments)(rng=SeedTree(0).generator(0), **volumes)
    assert np.array_equal(result["image"], expected["data"][0].numpy())
    assert len(result["segmentation"]) == len(expected["target"]) == 2
    for ours, level in zip(result["segmentation"], expected["target"], strict=True):
        assert level.shape[1] == 3
        assert torch.from_numpy(ours).dtype == level.dtype
        assert np.array_equal(ours, level[0].numpy())
