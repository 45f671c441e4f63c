"""`inverse` takes predictions back into the frame of the original sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage

from detaug import transforms as t
from detaug.nnunet import training_transforms
from tests.support.transforms.generators import generator

SPACES = {2: (24, 33), 3: (14, 19, 16)}


def sample_of(space: tuple[int, ...], seed: int = 0) -> dict[str, Any]:
    rng = generator(seed)
    inside = [np.sort(rng.uniform(2, n - 3, (5, 2)), axis=1) for n in space]
    return {
        "image": rng.random((2, *space)).astype(np.float32),
        "segmentation": rng.integers(0, 4, (1, *space)).astype(np.int16),
        "keypoints": np.stack([axis[:, 0] for axis in inside], axis=1).astype(np.float32),
        "bbox": np.stack([axis[:, end] for end in (0, 1) for axis in inside], axis=1).astype(np.float32),
    }


def there_and_back(transform: t.Transform, sample: dict[str, Any], seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    shapes = {key: value.shape for key, value in sample.items()}
    params = transform.sample(generator(seed), shapes)
    there = transform.apply(sample, params)
    return there, transform.inverse(params, shapes)(**there)


EXACT = {
    "mirror": lambda dims: t.Mirror(range(dims)),
    "quarter turns": lambda dims: t.Rot90(3, allowed_axes=range(dims)),
    "all of them": lambda dims: t.Compose(
        [
            t.RandomApply(t.Rot90(2, allowed_axes=range(dims)), 0.7),
            t.GaussianNoise((0.1, 0.2)),
            t.OneOf([t.Mirror(range(dims)), t.Mirror({0}), t.Gamma((0.7, 1.5), 0.0, False, 1.0, 0.0)]),
            t.Rot90(1, allowed_axes=range(dims)),
        ]
    ),
}


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", EXACT)
def test_axes_are_put_back_exactly(name: str, dims: int) -> None:
    sample = sample_of(SPACES[dims])
    for seed in range(12):
        _, back = there_and_back(EXACT[name](dims), sample, seed)
        assert np.array_equal(back["segmentation"], sample["segmentation"])
        assert np.allclose(back["keypoints"], sample["keypoints"], atol=1e-5)
        assert np.allclose(back["bbox"], sample["bbox"], atol=1e-5)
        if name != "all of them":  # there values are changed as well, and stay so
            assert np.array_equal(back["image"], sample["image"])


def test_exchanged_axes_are_put_back_and_need_no_shapes() -> None:
    sample = sample_of((9, 9, 9))
    for seed in range(8):
        transform = t.TransposeAxes({0, 1, 2})
        params = transform.sample(generator(seed), {"image": (2, 9, 9, 9)})
        there = transform.apply({"image": sample["image"]}, params)
        assert np.array_equal(transform.inverse(params)(**there)["image"], sample["image"])


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("kind", [t.CenterCrop, t.RandomCrop])
@pytest.mark.parametrize("larger", [False, True])
def test_crops_are_put_back_where_they_were(kind: Any, dims: int, larger: bool) -> None:
    space = SPACES[dims]
    size = tuple(n + 5 if larger and axis else n - 6 for axis, n in enumerate(space))
    sample = sample_of(space)
    sample["segmentation"] += 1
    for seed in range(6):
        there, back = there_and_back(kind(size, padding_value_seg=9), sample, seed)
        shown = back["segmentation"] > 0
        assert shown.sum() == np.prod([min(n, s) for n, s in zip(space, size, strict=True)])
        assert np.array_equal(back["segmentation"], np.where(shown, sample["segmentation"], 0))
        assert np.array_equal(back["image"], np.where(shown, sample["image"], 0))
        assert np.allclose(back["keypoints"], sample["keypoints"], atol=1e-5)
        assert there["segmentation"].shape[1:] == size


def smooth(space: tuple[int, ...], channels: int) -> np.ndarray:
    noise = generator(3).standard_normal((channels, *space))
    return np.stack([ndimage.gaussian_filter(each, 4) for each in noise]).astype(np.float32) * 10


SPATIAL: dict[str, dict[str, Any]] = {
    "scaled": {"p_scaling": 1, "scaling": (0.7, 1.4), "p_synchronize_scaling_across_axes": 0.5},
    "both, somewhere": {"p_rotation": 1, "rotation": (-3, 3), "p_scaling": 1, "random_crop": True},
    "as grid_sample aligns corners": {"p_rotation": 1, "rotation": (-0.6, 0.6), "align_corners": True},
}


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("name", SPATIAL)
def test_turned_and_scaled_patches_come_back(name: str, dims: int) -> None:
    space, size = ((60, 71), (51, 44)) if dims == 2 else ((40, 47, 44), (33, 28, 30))
    sample = {**sample_of(space), "image": smooth(space, 2)}
    sample["segmentation"] = ((sample["image"][:1] > 0) + 2).astype(np.int16)
    options = {"random_crop": False, "patch_center_dist_from_border": [n // 2 for n in size], **SPATIAL[name]}
    for seed in range(4):
        _, back = there_and_back(t.SpatialTransform(size, **options), sample, seed)
        assert back["image"].shape == sample["image"].shape
        assert np.allclose(back["keypoints"], sample["keypoints"], atol=1e-3)
        shown = back["segmentation"] > 0
        assert shown.mean() > 0.05
        core = ndimage.binary_erosion(shown[0], iterations=2)
        assert np.abs(back["image"] - sample["image"])[:, core].max() < 0.05 * np.ptp(sample["image"])
        assert (back["segmentation"] == sample["segmentation"])[:, core].mean() > 0.98
        assert (back["image"][:, ~ndimage.binary_dilation(shown[0], iterations=4)] == 0).all()


@pytest.mark.parametrize("dummy_2d", [False, True])
def test_a_whole_nnunet_pipeline_without_deformation_comes_back(dummy_2d: bool) -> None:
    space, size = (22, 41, 44), (22, 32, 30)
    pipeline = training_transforms(size, (-0.5, 0.5), None, (0, 1, 2), dummy_2d)
    image = smooth(space, 2)
    labels = ((image[:1] > 0) + 1).astype(np.int16)
    shapes = {"image": image.shape, "segmentation": labels.shape}
    for seed in range(6):
        params = pipeline.sample(generator(seed), shapes)
        there = pipeline.apply({"image": torch.from_numpy(image), "segmentation": torch.from_numpy(labels)}, params)
        # what a network predicts has other channels than its input
        predicted = {"image": torch.cat([there["segmentation"] == 1, there["segmentation"] == 2]).float()}
        back = pipeline.inverse(params, shapes)(**predicted)["image"].numpy()
        assert back.shape == (2, *space)
        shown = ndimage.binary_erosion(back.sum(0) > 0.99, iterations=2)
        assert shown.sum() > 0.05 * image[0].size
        assert (back.argmax(0) + 1 == labels[0])[shown].mean() > 0.97


def test_what_cannot_be_undone_is_said() -> None:
    shapes = {"image": (1, 30, 30)}
    deformed = t.SpatialTransform((20, 20), 0, False, p_elastic_deform=1)
    params = deformed.sample(generator(1), shapes)
    with pytest.raises(ValueError, match=r"elastic deformation is not undone.*p_elastic_deform=0"):
        deformed.inverse(params, shapes)
    crop = t.Compose([t.Mirror({0}), t.CenterCrop((8, 8))])
    params = crop.sample(generator(1), shapes)
    with pytest.raises(ValueError, match="pass its shapes"):
        crop.inverse(params)
    with pytest.raises(ValueError, match=r"\(9, 8\); the sample that is to be undone had \(8, 8\)"):
        crop.inverse(params, shapes)(image=np.zeros((4, 9, 8), np.float32))
    from_image = t.Rot90(lambda image: 1, allowed_axes={0, 1})
    with pytest.raises(ValueError, match="drawn from the image"):
        from_image.inverse(from_image.sample(generator(1), shapes), shapes)


def test_nothing_to_undo_leaves_arrays_as_they_are() -> None:
    transform = t.Compose([t.GaussianNoise((0.1, 0.2)), t.SimulateLowResolution((0.5, 0.9), False, False, None)])
    image = np.ones((1, 8, 9), np.float32)
    params = transform.sample(generator(1), {"image": image.shape})
    assert transform.inverse(params)(image=image)["image"] is image
