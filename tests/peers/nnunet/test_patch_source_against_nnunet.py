"""`PatchSource` agrees with nnU-Net's own loader on cases that nnU-Net preprocessed.

The cases have regions, an ignore label and anisotropic voxels. The same params give the same
patches; where both loaders draw, the distributions are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
#: Shape of a patch after the transforms, and as it is cut, in voxels.
FINAL = (8, 16, 18)
PATCH = (10, 24, 26)
SCALES_3D = [[1, 1, 1], [0.5, 0.5, 0.5]]
#: Shape of a patch as it is cut, and after the transforms, by configuration.
CONFIGURATIONS = {"3d_fullres": (PATCH, FINAL), "2d": (PATCH[1:], FINAL[1:])}
NAMES = [f"brain_{index:03d}" for index in range(5)]
#: Samples of a batch; the last three show foreground.
BATCH = 10


@pytest.fixture(scope="module")
def preprocessed(nnunet_kind: Callable[[str], Path]) -> Path:
    """Return the folder of five MRI cases with planes of 3 mm; only their front is annotated."""
    return nnunet_kind("scribbles") / "preprocessed" / KINDS["scribbles"].name


def dataset(preprocessed: Path, configuration: str = "3d_fullres") -> nnUNetDatasetBlosc2:
    """Return nnU-Net's data set of a configuration."""
    return nnUNetDatasetBlosc2(str(preprocessed / f"nnUNetPlans_{configuration}"))


class RecordingStock(nnUNetDataLoader):
    """nnU-Net's loader, which records where it cuts.

    Args:
        start: first voxel of all patches, or None to let nnU-Net draw it.
    """

    def __init__(self, *args: Any, start: Sequence[int] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.starts: list[list[int]] = []
        self.start = start

    def get_bbox(self, *args: Any, **options: Any) -> Any:
        starts, stops = super().get_bbox(*args, **options)
        if self.start is not None:
            starts = list(self.start)
            stops = [first + n for first, n in zip(starts, self.patch_size, strict=True)]
        self.starts.append([int(start) for start in starts])
        return starts, stops


class RecordingSource(PatchSource):
    """A `PatchSource` that records where it would cut, and reads nothing."""

    starts: list[Sequence[int]]

    def patch(self, case: Any, start: Sequence[int]) -> Any:
        self.starts.append(list(start))
        return {}


class Draws(NamedTuple):
    """What a loader has drawn.

    Attributes:
        starts: first voxels of patches, (batches, position in the batch, axis).
        names: of the patches' cases.
    """

    starts: np.ndarray
    names: np.ndarray


def draws_of_detaug(
    preprocessed: Path,
    num_samples: int,
    configuration: str = "3d_fullres",
    labels: LabelManager = PLAIN,
    **options: Any,
) -> Draws:
    """Return what `PatchSource` draws for the first samples of epoch 0.

    Args:
        preprocessed: folder of the cases.
        num_samples: a multiple of BATCH.
        configuration: nnU-Net's name.
        labels: of the data set.
        options: of both loaders, by nnU-Net's names.
    """
    cases = dataset(preprocessed, configuration)
    patch, final = CONFIGURATIONS[configuration]
    source = RecordingSource(cases, BATCH, patch, final, labels, **options)
    source.starts = []
    tree = SeedTree(12)
    names = []
    for step in range(num_samples // BATCH):
        for sample in range(BATCH):
            rng = tree.generator(0, step, sample=sample)
            names.append(source.sample(rng, sample)["key"])
    return Draws(np.array(source.starts).reshape(-1, BATCH, 3), np.array(names))


def draws_of_nnunet(
    preprocessed: Path,
    num_samples: int,
    configuration: str = "3d_fullres",
    labels: LabelManager = PLAIN,
    **options: Any,
) -> Draws:
    """Return what nnU-Net's loader draws, for the arguments of `draws_of_detaug`."""
    cases = dataset(preprocessed, configuration)
    patch, final = CONFIGURATIONS[configuration]
    loader = RecordingStock(cases, BATCH, patch, final, labels, **options)
    np.random.seed(11)
    names = []
    for _ in range(num_samples // BATCH):
        names.extend(loader.generate_train_batch()["keys"])
    return Draws(np.array(loader.starts).reshape(-1, BATCH, 3), np.array(names))


def assert_alike(one: np.ndarray, other: np.ndarray) -> None:
    """Check that first voxels have the same distribution and range along each axis."""
    for axis in range(3):
        first = one[..., axis].ravel()
        second = other[..., axis].ravel()
        assert ks_2samp(first, second).pvalue > 1e-4
        assert abs(first.min() - second.min()) <= 1
        assert abs(first.max() - second.max()) <= 1


@pytest.mark.parametrize("labels", [REGIONS, PLAIN], ids=["ignore label", "no ignore label"])
@pytest.mark.parametrize(
    ("configuration", "probabilistic"), [("3d_fullres", False), ("3d_fullres", True), ("2d", False)]
)
def test_places_are_nnunets_for_both_kinds_of_oversampling_and_in_planes(
    preprocessed: Path, labels: LabelManager, configuration: str, probabilistic: bool
) -> None:
    percent = 0.33
    groups = [slice(0, 7), slice(7, None)]
    if probabilistic:
        percent = 0.5
        groups = [slice(None)]
    options = {
        "oversample_foreground_percent": percent,
        "probabilistic_oversampling": probabilistic,
    }
    result = draws_of_detaug(preprocessed, 600, configuration, labels, **options)
    expected = draws_of_nnunet(preprocessed, 600, configuration, labels, **options)
    for group in groups:
        assert_alike(result.starts[:, group], expected.starts[:, group])
    # With an ignore label no patch is centred on a voxel that is not annotated.
    avoids_unannotated = result.starts[..., 1].max() < ANNOTATED - PATCH[1] // 2
    assert avoids_unannotated == (labels is REGIONS)


def test_further_padding_lets_patches_reach_as_far_as_nnunets(preprocessed: Path) -> None:
    near = draws_of_detaug(preprocessed, 600).starts
    far = draws_of_detaug(preprocessed, 600, pad_sides=(4, 10, 8)).starts
    expected = draws_of_nnunet(preprocessed, 600, pad_sides=(4, 10, 8)).starts
    assert_alike(far, expected)
    reach = far.reshape(-1, 3).min(0) - near.reshape(-1, 3).min(0)
    assert reach.tolist() == [-2, -5, -4]


def counts_of(names: np.ndarray) -> list[int]:
    """Return how often each case occurs."""
    return [int((names == name).sum()) for name in NAMES]


def test_cases_are_drawn_with_the_given_probabilities(preprocessed: Path) -> None:
    shares = (0.5, 0.2, 0.1, 0.1, 0.1)
    result = draws_of_detaug(preprocessed, 600, sampling_probabilities=shares)
    expected = draws_of_nnunet(preprocessed, 600, sampling_probabilities=shares)
    counts = counts_of(result.names)
    assert chisquare(counts, 600 * np.array(shares)).pvalue > 1e-4
    assert chi2_contingency([counts, counts_of(expected.names)]).pvalue > 1e-4
    uniform = draws_of_detaug(preprocessed, 600)
    assert chisquare(counts_of(uniform.names)).pvalue > 1e-4


STARTS = [(2, 8, 5), (-1, -4, 13), (5, 20, -6), (4, -2, -3)]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_regions_and_the_ignore_label_come_out_as_nnunets(
    preprocessed: Path, configuration: str, start: tuple[int, ...]
) -> None:
    """Both loaders cut a patch of the third case that begins at `start`."""
    patch, final = CONFIGURATIONS[configuration]
    scales = [scale[: len(patch)] for scale in SCALES_3D]
    label_options = {"regions": REGIONS.foreground_regions, "ignore_label": REGIONS.ignore_label}
    if configuration == "2d":
        start = (abs(start[0]), *start[1:])
    cases = dataset(preprocessed, configuration)

    third_only = (0, 0, 1, 0, 0)
    transforms = nnUNetTrainer.get_validation_transforms(scales, **label_options)
    loader = RecordingStock(
        cases, 1, patch, final, REGIONS, 0.33, third_only, transforms=transforms, start=start
    )
    expected = loader.generate_train_batch()
    assert list(expected["keys"]) == ["brain_002"]

    source = PatchSource(cases, 1, patch, final, REGIONS)
    volumes = source.patch(source.cases.open("brain_002"), start)
    transform = validation_transforms(scales, **label_options)
    result = transform(rng=SeedTree(0).generator(0), **volumes)
    assert np.array_equal(result["image"], expected["data"][0].numpy())
    assert len(result["segmentation"]) == len(expected["target"]) == 2
    for level, expected_level in zip(result["segmentation"], expected["target"], strict=True):
        assert expected_level.shape[1] == 3
        assert torch.from_numpy(level).dtype == expected_level.dtype
        assert np.array_equal(level, expected_level[0].numpy())
