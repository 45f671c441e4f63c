"""`PatchSource` against nnU-Net's own loader on cases that nnU-Net planned and preprocessed: regions, an ignore label,
anisotropic voxels. The same patches from the same params; the same distribution where both draw."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform as TheirSpatialTransform
from batchgeneratorsv2.transforms.utils.pseudo2d import Convert2DTo3DTransform, Convert3DTo2DTransform
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.label_handling.label_handling import LabelManager
from nnunetv2.utilities.plans_handling.plans_handler import PlansManager
from scipy.stats import chi2_contingency, chisquare, ks_2samp

from detaug import SeedTree
from detaug.demo.mri import load_template
from detaug.demo.nnunet_dataset import nnunet_folders, plan_and_preprocess
from detaug.nnunet import validation_transforms
from detaug.nnunet.loading import PatchSource
from detaug.transforms import Compose, Convert2DTo3D, Convert3DTo2D, SpatialTransform
from tests.peers.nnunet.trainers.small_datasets import threads_for_processes
from tests.support.transforms.spatial_reference import label_weights_in_float64, reference_params

nibabel = pytest.importorskip("nibabel")
pytest.importorskip("nilearn")

DATASET = "Dataset007_Scribbles"
LABELS = {"background": 0, "brain": [1, 2], "white": 2, "ignore": 3}
REGIONS = LabelManager(LABELS, [1, 2])
PLAIN = LabelManager({"background": 0, "grey": 1, "white": 2}, None)
SPACE = (14, 40, 36)
ANNOTATED = 24  # voxels along axis 1
FINAL, PATCH = (8, 16, 18), (10, 24, 26)
SCALES_3D = [[1, 1, 1], [0.5, 0.5, 0.5]]
CONFIGURATIONS = {"3d_fullres": (PATCH, FINAL), "2d": (PATCH[1:], FINAL[1:])}


@pytest.fixture(scope="module")
def preprocessed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three cases of MRI, 3 mm planes, of which only the front is annotated."""
    root = tmp_path_factory.mktemp("nnunet")
    head = load_template()
    with nnunet_folders(root), threads_for_processes():
        folder = root / "raw" / DATASET
        for sub in ("imagesTr", "labelsTr"):
            (folder / sub).mkdir(parents=True)
        for number in range(3):
            box = tuple(slice(a, a + n) for a, n in zip((20 + 30 * number, 2, 60), SPACE, strict=True))
            image, labels = head.image[box] - head.image.min(), head.labels[box].astype(np.uint8)
            labels[:, ANNOTATED - 2 * number :] = 3
            for name, array in (("imagesTr", image), ("labelsTr", labels)):
                ending = "_0000.nii.gz" if name == "imagesTr" else ".nii.gz"
                # nibabel's affine is in (x, y, z), which nnU-Net reads backwards
                volume = nibabel.Nifti1Image(array.transpose(2, 1, 0), np.diag([1, 1, 3, 1]))
                nibabel.save(volume, folder / name / f"case_{number}{ending}")
        description = {
            "channel_names": {"0": "T1"}, "labels": LABELS, "regions_class_order": [1, 2], "numTraining": 3,
            "file_ending": ".nii.gz",
        }  # fmt: skip
        (folder / "dataset.json").write_text(json.dumps(description))
        plan_and_preprocess(7, ())
        return _each_case_preprocessed(root, description)


def _each_case_preprocessed(root: Path, description: dict[str, Any]) -> Path:
    """What nnU-Net's preprocessor does to each case, without the processes that it starts for that."""
    target = root / "preprocessed" / DATASET
    plans = PlansManager(str(target / "nnUNetPlans.json"))
    raw = root / "raw" / DATASET
    for name in CONFIGURATIONS:
        configuration = plans.get_configuration(name)
        (target / configuration.data_identifier).mkdir()
        for number in range(3):
            configuration.preprocessor_class(verbose=False).run_case_save(
                str(target / configuration.data_identifier / f"case_{number}"),
                [str(raw / "imagesTr" / f"case_{number}_0000.nii.gz")],
                str(raw / "labelsTr" / f"case_{number}.nii.gz"),
                plans, configuration, description,
            )  # fmt: skip
    return target


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
            starts, stops = list(self.at), [a + n for a, n in zip(self.at, self.patch_size, strict=True)]
        self.starts.append([int(start) for start in starts])
        return starts, stops


class RecordingSource(PatchSource):
    """Where patches would be cut; nothing is read."""

    starts: list[Sequence[int]]

    def patch(self, case: Any, start: Sequence[int]) -> Any:
        self.starts.append(list(start))
        return {}


BATCH = 10  # of which the last three show foreground


def our_places(
    preprocessed: Path, samples: int, configuration: str = "3d_fullres", labels: LabelManager = PLAIN, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """First voxels of patches, (batches, position in the batch, axis), and the names of their cases."""
    arguments = (dataset(preprocessed, configuration), BATCH, *CONFIGURATIONS[configuration], labels)
    source, tree = RecordingSource(*arguments, **options), SeedTree(12)
    source.starts = []
    order = [(number, n) for number in range(samples // BATCH) for n in range(BATCH)]
    names = [source.sample(tree.generator(0, number, sample=n), n)["key"] for number, n in order]
    return np.array(source.starts).reshape(-1, BATCH, 3), np.array(names)


def places(
    preprocessed: Path, samples: int, configuration: str = "3d_fullres", labels: LabelManager = PLAIN, **options: Any
) -> list[np.ndarray]:
    """Ours and nnU-Net's places, our names and theirs."""
    ours, names = our_places(preprocessed, samples, configuration, labels, **options)
    arguments = (dataset(preprocessed, configuration), BATCH, *CONFIGURATIONS[configuration], labels)
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
@pytest.mark.parametrize("probabilistic", [False, True])
def test_places_are_nnunets_for_both_kinds_of_oversampling(
    preprocessed: Path, labels: LabelManager, probabilistic: bool
) -> None:
    share = 0.5 if probabilistic else 0.33
    ours, theirs, *_ = places(
        preprocessed, 600, labels=labels, oversample_foreground_percent=share, probabilistic_oversampling=probabilistic
    )
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


def test_planes_are_cut_where_nnunet_cuts_them(preprocessed: Path) -> None:
    ours, theirs, *_ = places(preprocessed, 600, "2d", oversample_foreground_percent=0.33)
    assert_alike(ours[:, :7], theirs[:, :7])
    assert_alike(ours[:, 7:], theirs[:, 7:])


def test_cases_are_drawn_with_the_given_probabilities(preprocessed: Path) -> None:
    shares = (0.6, 0.3, 0.1)
    *_, ours, theirs = places(preprocessed, 600, sampling_probabilities=shares)
    counts = [[int((names == f"case_{n}").sum()) for n in range(3)] for names in (ours, theirs)]
    assert chisquare(counts[0], 600 * np.array(shares)).pvalue > 1e-4
    assert chi2_contingency(counts).pvalue > 1e-4
    _, ours = our_places(preprocessed, 600)
    assert chisquare([int((ours == f"case_{n}").sum()) for n in range(3)]).pvalue > 1e-4


def case_number_one(preprocessed: Path, configuration: str, start: Sequence[int], transforms: Any) -> dict[str, Any]:
    """nnU-Net's own batch of one patch at a given place."""
    patch, final = CONFIGURATIONS[configuration]
    stock = RecordingStock(
        dataset(preprocessed, configuration), 1, patch, final, REGIONS, 0.33, (0, 1, 0), transforms=transforms, at=start
    )
    batch: dict[str, Any] = stock.generate_train_batch()
    assert list(batch["keys"]) == ["case_1"]
    return batch


def our_volumes(preprocessed: Path, configuration: str, start: Sequence[int]) -> dict[str, Any]:
    patch, final = CONFIGURATIONS[configuration]
    source = PatchSource(dataset(preprocessed, configuration), 1, patch, final, REGIONS)
    return source.patch(source.cases.open("case_1"), start)


STARTS = [(2, 8, 5), (-1, -4, 13), (5, 20, -6), (4, -2, -3)]


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_regions_and_the_ignore_label_come_out_as_nnunets(
    preprocessed: Path, configuration: str, start: tuple[int, ...]
) -> None:
    scales = [scale[: len(CONFIGURATIONS[configuration][0])] for scale in SCALES_3D]
    arguments = {"regions": REGIONS.foreground_regions, "ignore_label": REGIONS.ignore_label}
    theirs = nnUNetTrainer.get_validation_transforms(scales, **arguments)
    start = (abs(start[0]), *start[1:]) if configuration == "2d" else start
    expected = case_number_one(preprocessed, configuration, start, theirs)
    result = validation_transforms(scales, **arguments)(
        rng=SeedTree(0).generator(0), **our_volumes(preprocessed, configuration, start)
    )
    assert np.array_equal(result["image"], expected["data"][0].numpy())
    assert len(result["segmentation"]) == len(expected["target"]) == 2
    for ours, level in zip(result["segmentation"], expected["target"], strict=True):
        assert level.shape[1] == 3
        assert torch.from_numpy(ours).dtype == level.dtype
        assert np.array_equal(ours, level[0].numpy())


class Given:
    """batchgeneratorsv2's spatial transform with params that are given instead of drawn."""

    def __init__(self, options: dict[str, Any], ours: SpatialTransform, params: Any) -> None:
        self.transform, self.ours, self.params = TheirSpatialTransform(**options), ours, params

    def __call__(self, image: torch.Tensor, segmentation: torch.Tensor) -> dict[str, torch.Tensor]:
        given = reference_params(self.ours, self.params, tuple(image.shape[1:]))
        return {
            "image": self.transform._apply_to_image(image, **given),
            "segmentation": self.transform._apply_to_segmentation(segmentation, **given),
        }


class AsPlanes:
    """Between nnU-Net's conversions to planes and back."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self, **arrays: Any) -> dict[str, Any]:
        planes = Convert3DTo2DTransform()(**arrays)
        planes |= self.inner(planes["image"], planes["segmentation"])
        volumes: dict[str, Any] = Convert2DTo3DTransform()(**planes)
        return volumes


def spatial_options(patch: Sequence[int]) -> dict[str, Any]:
    """As in nnU-Net's pipeline, but always turned, enlarged beyond what is read, and deformed."""
    return {
        "patch_size": patch, "patch_center_dist_from_border": 0, "random_crop": False, "p_elastic_deform": 1,
        "elastic_deform_scale": (0.1, 0.2), "elastic_deform_magnitude": (1.0, 2.0), "p_rotation": 1,
        "rotation": (-0.8, 0.8), "p_scaling": 1, "scaling": (1.2, 1.6), "p_synchronize_scaling_across_axes": 1,
        "bg_style_seg_sampling": False, "border_mode_seg": "constant", "padding_value_seg": -1,
    }  # fmt: skip


def assert_same_patch(
    result: dict[str, Any], expected: dict[str, Any], spatial: SpatialTransform, params: Any, labels: np.ndarray
) -> None:
    """As tests/unit/transforms/test_spatial.py has it: what they decide otherwise is a tie to their float16 weights."""
    image, theirs = result["image"], expected["data"][0].numpy()
    assert image.shape == theirs.shape
    assert np.abs(image - theirs).max() < 5e-4 * theirs.std()
    segmentation, their_labels = result["segmentation"], expected["target"][0].numpy()
    planes = [array.reshape(-1, *spatial.patch_size) for array in (segmentation, their_labels)]
    sources = labels.reshape(-1, *labels.shape[-len(spatial.patch_size) :])
    for channel, (mine, other) in enumerate(zip(*planes, strict=True)):
        _, weights = label_weights_in_float64(spatial, params, sources[channel])
        if len(weights) > 1:
            best, second = np.sort(weights, axis=0)[::-1][:2]
            assert ((best - second)[mine != other] < 2e-3).all()
        else:
            assert np.array_equal(mine, other)


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("dummy_2d", [False, True])
def test_turned_scaled_and_deformed_patches_are_nnunets_and_padded_where_it_stops_reading(
    preprocessed: Path, start: tuple[int, ...], dummy_2d: bool
) -> None:
    patch = FINAL[1:] if dummy_2d else FINAL
    options = spatial_options(patch)
    spatial = SpatialTransform(**options)
    volumes = our_volumes(preprocessed, "3d_fullres", start)
    whole = {key: volume.read_all() for key, volume in volumes.items()}
    assert (whole["segmentation"] >= 0).mean() > 0.2
    for seed in range(3):
        rng = SeedTree(seed).generator(0)
        params = spatial.sample(rng, {"image": (1, *(PATCH[1:] if dummy_2d else PATCH))})
        given: Any = Given(options, spatial, params)
        if dummy_2d:
            counts = {"nchannels_img": 1, "nchannels_seg": 1}
            ours = Compose([Convert3DTo2D(), spatial, Convert2DTo3D()])
            result = ours.apply(volumes, {"transforms": [{}, params, counts]})
            given = AsPlanes(given)
        else:
            result = spatial.apply(volumes, params)
        expected = case_number_one(preprocessed, "3d_fullres", start, given)
        assert_same_patch(result, expected, spatial, params, whole["segmentation"])
