"""Wrong use that is refused: unknown keys, missing channel axes, angles in degrees.

Also `keys`, by which a caller's own names get a role.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug import transforms as t
from detaug.nnunet import TRAINING_TRANSFORMS, training_transforms, validation_transforms
from tests.support.transforms.generators import rng

SPACE = (12, 10, 8)
IMAGE = rng().standard_normal((1, *SPACE)).astype(np.float32)
LABELS = rng(1).integers(0, 3, (1, *SPACE)).astype(np.int16)
IMAGES = IMAGE[None]
LABELS_OF_BATCH = LABELS[None]
SHARED = {
    "patch_size": SPACE,
    "rotation": (-0.5, 0.5),
    "ds_scales": None,
    "mirror_axes": (0, 1, 2),
    "do_dummy_2d": False,
}
LABEL_KEYS = {"image": "image", "label": "segmentation"}


def mirror(**options: Any) -> t.Compose:
    return t.Compose([t.Mirror((0, 1, 2))], **options)


PIPELINES: dict[str, Any] = {
    "Compose": mirror,
    "validation_transforms": partial(validation_transforms, None),
}
for trainer, build_transforms in TRAINING_TRANSFORMS.items():
    PIPELINES[trainer] = partial(build_transforms, **SHARED)


def keys_of(sample: dict[str, Any]) -> str:
    return "+".join(sample)


def kind_of(pipeline: t.Transform) -> str:
    return type(pipeline).__name__


@pytest.mark.parametrize("name", PIPELINES)
def test_unknown_key_of_the_images_spatial_shape_is_an_error_in(name: str) -> None:
    with pytest.raises(ValueError, match="mask") as caught:
        PIPELINES[name]()(image=IMAGE, mask=LABELS, rng=rng())
    message = str(caught.value)
    assert "image, regression_target, segmentation. Say" in message
    assert 'keys={"mask": "segmentation"}' in message
    with pytest.raises(ValueError, match=r"Known keys are data, seg, target"):
        PIPELINES[name]()(data=IMAGES, label=LABELS_OF_BATCH, rng=rng())


@pytest.mark.parametrize("name", PIPELINES)
def test_keys_give_names_their_roles_in(name: str) -> None:
    expected = PIPELINES[name]()(image=IMAGE, segmentation=LABELS, rng=rng())
    named = PIPELINES[name](keys=LABEL_KEYS)(image=IMAGE, label=LABELS, rng=rng())
    assert list(named) == ["image", "label"]
    assert fingerprint(named["image"]) == fingerprint(expected["image"])
    assert fingerprint(named["label"]) == fingerprint(expected["segmentation"])


UNKNOWN_KEYS: list[dict[str, Any]] = [
    {"image": IMAGE, "mask": LABELS[0]},
    {"image": IMAGE, "masks": [LABELS[0], LABELS[0]]},
    {"image": IMAGE, "label": torch.from_numpy(LABELS)},
    {"image": IMAGE, "seg": LABELS},
    {"image": IMAGE[0], "mask": LABELS[0, 0]},
    {"img": IMAGE, "segmentation": LABELS},
    {"img": IMAGE[0]},
]
UNKNOWN_KEYS_OF_BATCHES: list[dict[str, Any]] = [
    {"data": [IMAGE], "label": LABELS_OF_BATCH},
    {"data": torch.from_numpy(IMAGES), "masks": torch.from_numpy(LABELS_OF_BATCH)},
    {"data": IMAGES, "seg": LABELS_OF_BATCH, "previous": LABELS_OF_BATCH},
]


@pytest.mark.parametrize("sample", UNKNOWN_KEYS + UNKNOWN_KEYS_OF_BATCHES, ids=keys_of)
def test_such_a_key_is_an_error(sample: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keys=\{"):
        t.OneOf([t.Mirror((0,))])(**sample, rng=rng())


@pytest.mark.parametrize("sample", UNKNOWN_KEYS, ids=keys_of)
def test_such_a_key_is_an_error_of_given_params(sample: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keys=\{"):
        t.Mirror((0,)).apply(sample, {})


#: Samples and batches with entries that cannot be images.
NO_IMAGES: list[dict[str, Any]] = [
    {
        "image": IMAGE,
        "affine": np.eye(4),
        "spacing": (1.0, 1.0, 2.0),
        "name": "case_1",
        "label": np.array([0, 1]),
    },
    {
        "image": IMAGE,
        "label": 3,
        "meta": {"affine": np.eye(4)},
        "history": [1, 2],
        "absent": None,
    },
    {
        "image": IMAGE,
        "keypoints": np.ones((4, 3)),
        "bbox": np.ones((2, 6)),
        "bbox_labels": np.ones(2, int),
    },
    {
        "segmentation": LABELS,
        "affine": np.eye(4),
    },
    {
        "data": IMAGES,
        "seg": LABELS_OF_BATCH,
        "keys": np.array(["case_1"]),
        "properties": [{"spacing": [1.0, 1.0, 1.0]}],
    },
    {
        "data": IMAGES,
        "seg": None,
        "age": np.array([[63.0]]),
        "class": np.array([1]),
        "affine": np.eye(4)[None],
    },
]
ROLES = {"image", "segmentation", "data", "seg", "target"}


@pytest.mark.parametrize("sample", NO_IMAGES, ids=keys_of)
def test_such_keys_are_not_refused(sample: dict[str, Any]) -> None:
    result = t.RemoveLabel(-1, 0)(**sample, rng=rng())
    assert list(result) == list(sample)
    for name in sample.keys() - ROLES:
        assert fingerprint(result[name]) == fingerprint(sample[name])


NOISE_OR_TURN = t.OneOf([t.RandomApply(t.Rot90(1), 0), t.InvertImage(1)])
#: Pipelines that move voxels, or may do so.
MOVING = [
    t.Mirror((0,)),
    t.CenterCrop((5, 5, 5)),
    t.SpatialTransform(SPACE, 0, False),
    t.Compose([t.GaussianNoise(), NOISE_OR_TURN]),
    t.ForeignTransform(dict),
    training_transforms(**{**SHARED, "do_dummy_2d": True}),
]


@pytest.mark.parametrize("key", ["keypoints", "bbox", "bboxes"])
@pytest.mark.parametrize("pipeline", MOVING, ids=kind_of)
def test_points_and_boxes_are_refused_where_voxels_move(pipeline: t.Transform, key: str) -> None:
    message = f"{key} would stay where they are while .*: detaug transforms no points"
    sample = {"image": IMAGE, key: np.ones((2, 3))}
    with pytest.raises(ValueError, match=message):
        pipeline(**sample, rng=rng())
    with pytest.raises(ValueError, match=message):
        pipeline(**{"data": IMAGES, key: [[(1, 2, 3)]]}, rng=rng())
    with pytest.raises(ValueError, match=f"{key} would stay"):
        pipeline.apply(sample, {})


@pytest.mark.parametrize("role", ["keypoints", "bbox", "bboxes"])
def test_points_and_boxes_are_no_roles(role: str) -> None:
    with pytest.raises(ValueError, match="which is no role"):
        mirror(keys={"points": role})


def test_points_that_are_to_stay_are_passed() -> None:
    pipeline = mirror(keys={"keypoints": None})
    result = pipeline(image=IMAGE, keypoints=[1], bbox=None, rng=rng())
    assert result["keypoints"] == [1]
    assert result["bbox"] is None


@pytest.mark.parametrize(
    ("keys", "image_key", "label_key"),
    [
        ({"data": "image", "label": "segmentation"}, "data", "label"),
        ({"label": "segmentation"}, "data", "label"),
        ({"label": "seg"}, "data", "label"),
        ({"image": "data", "mask": "target"}, "image", "mask"),
    ],
)
def test_keys_of_batches(keys: dict[str, str], image_key: str, label_key: str) -> None:
    images = np.stack([IMAGE, IMAGE + 1])
    labels = np.stack([LABELS, LABELS])
    expected = mirror()(data=images, seg=labels, rng=rng())
    batch = {image_key: images, label_key: labels, "case": ["a", "b"]}
    result = mirror(keys=keys)(**batch, rng=rng())
    assert list(result) == [image_key, label_key, "case"]
    assert fingerprint(result[image_key]) == fingerprint(expected["data"])
    assert fingerprint(result[label_key]) == fingerprint(expected["seg"])


@pytest.mark.parametrize(
    ("keys", "batch"),
    [
        ({"image": "data", "data": None}, {"data": np.zeros(5), "image": IMAGES}),
        ({"image": "data"}, {"image": None, "data": IMAGES}),
        ({}, {"data": None, "seg": LABELS_OF_BATCH}),
    ],
)
def test_the_samples_of_a_batch_are_counted_in_an_array_with_a_role(
    keys: dict[str, Any], batch: dict[str, Any]
) -> None:
    result = mirror(keys=keys)(**batch, rng=rng())
    assert list(result) == list(batch)
    for name, value in batch.items():
        has_role = value is not None and keys.get(name, name) is not None
        assert (result[name] is value) != has_role
        assert np.shape(result[name]) == np.shape(value)


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ({"data": IMAGES[:0], "case": []}, "the batch is empty: data has no samples"),
        ({"data": IMAGES[:0], "mask": IMAGES[:0]}, "the batch is empty: data has no samples"),
        ({"data": None, "seg": None}, "the batch has no arrays: data, seg are None"),
        (
            {"seg": np.concatenate([LABELS_OF_BATCH] * 2), "data": IMAGES},
            "data has 1 samples, but seg has 2",
        ),
    ],
)
def test_a_batch_whose_samples_cannot_be_counted_is_an_error(
    batch: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        mirror()(**batch, rng=rng())


def test_several_images_of_one_shape_are_transformed_alike() -> None:
    keys = {"t1": "image", "t2": "image", "label": "segmentation", "previous": "segmentation"}
    options = {**SHARED, "rotation": 0.4, "ds_scales": [1, 0.5]}
    images = np.concatenate([IMAGE, IMAGE + 1, 2 - IMAGE])
    labels = np.concatenate([LABELS, LABELS])
    expected = training_transforms(**options)(image=images, segmentation=labels, rng=rng())
    result = training_transforms(**options, keys=keys)(
        previous=LABELS,
        label=torch.from_numpy(LABELS),
        t2=images[1:].astype(np.float16),
        t1=IMAGE,
        rng=rng(),
    )
    assert list(result) == ["previous", "label", "t2", "t1"]
    assert result["t1"].dtype == np.float32
    assert result["t2"].dtype == np.float16
    assert np.array_equal(result["t1"], expected["image"][:1])
    assert np.allclose(result["t2"], expected["image"][1:], atol=0.02)
    for level, of_level in enumerate(expected["segmentation"]):
        label = result["label"][level]
        assert isinstance(label, torch.Tensor)
        assert np.array_equal(label.numpy(), of_level[:1])
        assert np.array_equal(result["previous"][level], of_level[1:])


def test_several_arrays_of_one_role_that_cannot_be_joined_are_an_error() -> None:
    pipeline = mirror(keys={"t1": "image", "t2": "image", "a": "segmentation", "b": "segmentation"})
    with pytest.raises(
        ValueError,
        match=r"one spatial shape.* t1 float32 \(1, 12, 10, 8\), t2 float32 \(1, 11, 10, 8\)",
    ):
        pipeline(t1=IMAGE, t2=IMAGE[:, 1:], rng=rng())
    move = t.Compose([t.MoveSegAsOneHotToData(0, [1, 2])], keys={"t1": "image", "t2": "image"})
    with pytest.raises(
        ValueError, match="t1, t2 are all image, 2 channels together, and the pipeline made 4"
    ):
        move(t1=IMAGE, t2=IMAGE, segmentation=np.concatenate([LABELS, LABELS]), rng=rng())


def test_none_leaves_an_array_as_it_is() -> None:
    pipeline = mirror(keys={"dose": None, "segmentation": None})
    result = pipeline(image=IMAGE, dose=IMAGE, segmentation=LABELS, rng=rng())
    assert result["dose"] is IMAGE
    assert result["segmentation"] is LABELS
    assert result["image"] is not IMAGE


def first_channel_as_target(image: torch.Tensor, **_: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"image": image, "regression_target": image[:1]}


MAKES_A_TARGET = t.ForeignTransform(first_channel_as_target)


def test_what_a_pipeline_makes_takes_no_other_arrays_name() -> None:
    pipeline = t.Compose([MAKES_A_TARGET], keys={"regression_target": None})
    with pytest.raises(ValueError, match="makes regression_target, and another array has that"):
        pipeline(image=IMAGE, regression_target=LABELS, rng=rng())


def test_what_a_pipeline_makes_where_none_was_given_is_of_the_images_kind() -> None:
    image = torch.from_numpy(np.concatenate([IMAGE, IMAGE]))
    target = MAKES_A_TARGET(image=image, regression_target=None, rng=rng())["regression_target"]
    assert isinstance(target, torch.Tensor)
    assert torch.equal(target, image[:1])
    batch = MAKES_A_TARGET(data=image[None], regression_target=None, rng=rng())
    assert [*batch] == ["data", "regression_target"]
    assert torch.equal(batch["regression_target"][0], image[:1])


def test_roles_that_there_are_not_and_keys_that_are_no_mapping_are_refused() -> None:
    with pytest.raises(ValueError, match="Roles are image, regression_target, segmentation"):
        mirror(keys={"label": "labels"})
    with pytest.raises(TypeError, match="keys must map names to roles"):
        mirror(keys=["image", "label"])


def test_keys_belong_to_the_outermost_pipeline() -> None:
    with pytest.raises(ValueError, match="outermost"):
        t.Compose([mirror(keys=LABEL_KEYS)])


#: Pipelines for samples with three axes only.
IN_3D: list[t.Transform] = [
    t.Compose([t.Mirror((0, 1)), t.SpatialTransform(SPACE, 0, False)]),
    t.Compose([t.Mirror((0, 1))], dim=3),
    t.Compose([t.Mirror((0, 1)), t.DownsampleSegForDS([(1, 1, 1), (1, 0.5, 0.5)])]),
    training_transforms(**SHARED),
    training_transforms(**{**SHARED, "do_dummy_2d": True}),
    TRAINING_TRANSFORMS["nnUNetTrainerDA5"](**SHARED, keys={"x": None}),
]


@pytest.mark.parametrize("pipeline", IN_3D)
@pytest.mark.parametrize(
    "sample", [{"image": IMAGE[0]}, {"segmentation": LABELS[0]}, {"data": IMAGE}], ids=keys_of
)
def test_volume_without_channel_axis_is_an_error_where_the_dimension_is_known(
    pipeline: t.Transform, sample: dict[str, Any]
) -> None:
    with pytest.raises(ValueError, match=r"made for 3-D samples; if its channel axis is missing"):
        pipeline(**sample, rng=rng())


def test_arrays_of_one_sample_have_as_many_axes() -> None:
    with pytest.raises(
        ValueError,
        match=r"segmentation of shape \(12, 10, 8\).*image has 3 spatial "
        r"axes.*segmentation\[None\]",
    ):
        t.GaussianNoise()(image=IMAGE, segmentation=LABELS[0], rng=rng())


def test_batch_of_planes_is_not_taken_for_a_volume_by_a_pipeline_for_planes() -> None:
    pipeline = t.Compose([t.SpatialTransform((10, 8), 0, False)])
    with pytest.raises(ValueError, match=r'made for 2-D samples.*keys=\{"image": "data"\}'):
        pipeline(image=np.zeros((4, 1, 10, 8), np.float32), rng=rng())


def thirty() -> float:
    return 30.0


@pytest.mark.parametrize("angle", [30, (-30, 30), (-0.5, 6.4), -7.0, 2 * math.pi + 0.01])
def test_angles_beyond_a_full_turn_are_refused_as_degrees(angle: Any) -> None:
    with pytest.raises(ValueError, match=r"rotation must be in radians.*these are degrees"):
        t.SpatialTransform(SPACE, 0, False, p_rotation=1, rotation=angle)
    for build in TRAINING_TRANSFORMS.values():
        with pytest.raises(ValueError, match="these are degrees"):
            build(**{**SHARED, "rotation": angle})
    drawn = t.SpatialTransform(SPACE, 0, False, p_rotation=1, rotation=thirty)
    with pytest.raises(ValueError, match="these are degrees"):
        drawn(image=IMAGE, rng=rng())


@pytest.mark.parametrize("angle", [2 * math.pi, float(np.float32(2 * math.pi)), (0, 2 * math.pi)])
def test_angles_of_up_to_a_full_turn_are_allowed(angle: Any) -> None:
    t.SpatialTransform(SPACE, 0, False, p_rotation=1, rotation=angle)(image=IMAGE, rng=rng())
