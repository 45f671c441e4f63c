"""Keys that a pipeline does not know, names of the caller's own, missing channel axes, angles in
degrees.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug import transforms as t
from detaug.nnunet import TRAINING_TRANSFORMS, training_transforms, validation_transforms
from tests.support.transforms.generators import rng

SPACE = (12, 10, 8)
IMAGE = np.random.default_rng(0).standard_normal((1, *SPACE)).astype(np.float32)
LABELS = np.random.default_rng(1).integers(0, 3, (1, *SPACE)).astype(np.int16)
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
    "validation_transforms": lambda **options: validation_transforms(None, **options),
    **{
        name: lambda build=build, **options: build(**SHARED, **options)
        for name, build in TRAINING_TRANSFORMS.items()
    },
}


@pytest.mark.parametrize("name", PIPELINES)
def test_unknown_key_of_the_images_spatial_shape_is_an_error_in(name: str) -> None:
    with pytest.raises(ValueError, match="mask") as caught:
        PIPELINES[name]()(image=IMAGE, mask=LABELS, rng=rng())
    message = str(caught.value)
    assert "image, regression_target, segmentation. Say" in message
    assert 'keys={"mask": "segmentation"}' in message
    with pytest.raises(ValueError, match=r"Known keys are data, seg, target"):
        PIPELINES[name]()(data=IMAGE[None], label=LABELS[None], rng=rng())


@pytest.mark.parametrize("name", PIPELINES)
def test_keys_give_names_their_roles_in(name: str) -> None:
    expected = PIPELINES[name]()(image=IMAGE, segmentation=LABELS, rng=rng())
    named = PIPELINES[name](keys=LABEL_KEYS)(image=IMAGE, label=LABELS, rng=rng())
    assert list(named) == ["image", "label"]
    assert fingerprint(named["image"]) == fingerprint(expected["image"])
    assert fingerprint(named["label"]) == fingerprint(expected["segmentation"])


@pytest.mark.parametrize(
    "given",
    [
        {"image": IMAGE, "mask": LABELS[0]},
        {"image": IMAGE, "masks": [LABELS[0], LABELS[0]]},
        {"image": IMAGE, "label": torch.from_numpy(LABELS)},
        {"image": IMAGE, "seg": LABELS},
        {"image": IMAGE[0], "mask": LABELS[0, 0]},
        {"img": IMAGE, "segmentation": LABELS},
        {"img": IMAGE[0]},
        {"data": [IMAGE], "label": LABELS[None]},
        {"data": torch.from_numpy(IMAGE[None]), "masks": torch.from_numpy(LABELS[None])},
        {"data": IMAGE[None], "seg": LABELS[None], "previous": LABELS[None]},
    ],
    ids=lambda given: "+".join(given),
)  # fmt: skip
def test_such_a_key_is_an_error(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"keys=\{"):
        t.OneOf([t.Mirror((0,))])(**given, rng=rng())
    if "data" not in given:
        with pytest.raises(ValueError, match=r"keys=\{"):
            t.Mirror((0,)).apply(given, {})


@pytest.mark.parametrize(
    "given",
    [
        {"image": IMAGE, "affine": np.eye(4), "spacing": (1.0, 1.0, 2.0), "name": "case_1", "label": np.array([0, 1])},
        {"image": IMAGE, "label": 3, "meta": {"affine": np.eye(4)}, "history": [1, 2], "absent": None},
        {"image": IMAGE, "keypoints": np.ones((4, 3)), "bbox": np.ones((2, 6)), "bbox_labels": np.ones(2, int)},
        {"segmentation": LABELS, "affine": np.eye(4)},
        {"data": IMAGE[None], "seg": LABELS[None], "keys": np.array(["case_1"]), "properties": [{"spacing": [1.0, 1.0, 1.0]}]},
        {"data": IMAGE[None], "seg": None, "age": np.array([[63.0]]), "class": np.array([1]), "affine": np.eye(4)[None]},
    ],
    ids=lambda given: "+".join(given),
)  # fmt: skip
def test_such_keys_are_not_refused(given: dict[str, Any]) -> None:
    made = t.RemoveLabel(-1, 0)(**given, rng=rng())
    assert list(made) == list(given)
    for name in given.keys() - {"image", "segmentation", "data", "seg", "target"}:
        assert fingerprint(made[name]) == fingerprint(given[name])


@pytest.mark.parametrize(
    "pipeline",
    [
        t.Mirror((0,)),
        t.CenterCrop((5, 5, 5)),
        t.SpatialTransform(SPACE, 0, False),
        t.Compose([t.GaussianNoise(), t.OneOf([t.RandomApply(t.Rot90(1), 0), t.InvertImage(1)])]),
        t.ForeignTransform(dict),
        training_transforms(**{**SHARED, "do_dummy_2d": True}),
    ],
    ids=lambda pipeline: type(pipeline).__name__,
)
def test_points_and_boxes_are_refused_where_voxels_move(pipeline: t.Transform) -> None:
    for key in ("keypoints", "bbox", "bboxes"):
        for given in (
            {"image": IMAGE, key: np.ones((2, 3))},
            {"data": IMAGE[None], key: [[(1, 2, 3)]]},
        ):
            with pytest.raises(
                ValueError,
                match=f"{key} would stay where they are while .*: detaug transforms no points",
            ):
                pipeline(**given, rng=rng())
        with pytest.raises(ValueError, match=f"{key} would stay"):
            pipeline.apply({"image": IMAGE, key: np.ones((2, 3))}, {})
        with pytest.raises(ValueError, match="which is no role"):
            mirror(keys={"points": key})
    passed = mirror(keys={"keypoints": None})(image=IMAGE, keypoints=[1], bbox=None, rng=rng())
    assert (passed["keypoints"], passed["bbox"]) == ([1], None)


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ({"data": "image", "label": "segmentation"}, ("data", "label")),
        ({"label": "segmentation"}, ("data", "label")),
        ({"label": "seg"}, ("data", "label")),
        ({"image": "data", "mask": "target"}, ("image", "mask")),
    ],
)
def test_keys_of_batches(keys: dict[str, str], names: tuple[str, str]) -> None:
    images, labels = np.stack([IMAGE, IMAGE + 1]), np.stack([LABELS, LABELS])
    expected = mirror()(data=images, seg=labels, rng=rng())
    made = mirror(keys=keys)(
        **dict(zip(names, (images, labels), strict=True)), case=["a", "b"], rng=rng()
    )
    assert list(made) == [*names, "case"]
    for name, theirs in zip(names, ("data", "seg"), strict=True):
        assert fingerprint(made[name]) == fingerprint(expected[theirs])


def test_several_images_of_one_shape_are_transformed_alike() -> None:
    keys = {"t1": "image", "t2": "image", "label": "segmentation", "previous": "segmentation"}
    pipeline = training_transforms(**{**SHARED, "rotation": 0.4, "ds_scales": [1, 0.5]}, keys=keys)
    both = np.concatenate([IMAGE, IMAGE + 1, 2 - IMAGE])
    expected = training_transforms(**{**SHARED, "rotation": 0.4, "ds_scales": [1, 0.5]})(
        image=both, segmentation=np.concatenate([LABELS, LABELS]), rng=rng()
    )
    made = pipeline(
        previous=LABELS, label=torch.from_numpy(LABELS), t2=both[1:].astype(np.float16), t1=IMAGE, rng=rng(),
    )  # fmt: skip
    assert list(made) == ["previous", "label", "t2", "t1"]
    assert made["t1"].dtype == np.float32
    assert made["t2"].dtype == np.float16
    assert np.array_equal(made["t1"], expected["image"][:1])
    assert np.allclose(made["t2"], expected["image"][1:], atol=0.02)
    assert isinstance(made["label"][1], torch.Tensor)
    for level in range(2):
        assert np.array_equal(made["label"][level].numpy(), expected["segmentation"][level][:1])
        assert np.array_equal(made["previous"][level], expected["segmentation"][level][1:])


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
    made = mirror(keys={"dose": None, "segmentation": None})(
        image=IMAGE, dose=IMAGE, segmentation=LABELS, rng=rng()
    )
    assert made["dose"] is IMAGE
    assert made["segmentation"] is LABELS
    assert made["image"] is not IMAGE


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


@pytest.mark.parametrize(
    "make",
    [
        lambda: t.Compose([t.Mirror((0, 1)), t.SpatialTransform(SPACE, 0, False)]),
        lambda: t.Compose([t.Mirror((0, 1))], dim=3),
        lambda: t.Compose([t.Mirror((0, 1)), t.DownsampleSegForDS([(1, 1, 1), (1, 0.5, 0.5)])]),
        lambda: training_transforms(**SHARED),
        lambda: training_transforms(**{**SHARED, "do_dummy_2d": True}),
        lambda: TRAINING_TRANSFORMS["nnUNetTrainerDA5"](**SHARED, keys={"x": None}),
    ],
)
def test_volume_without_channel_axis_is_an_error_where_the_dimension_is_known(make: Any) -> None:
    for given in ({"image": IMAGE[0]}, {"segmentation": LABELS[0]}, {"data": IMAGE}):
        with pytest.raises(
            ValueError, match=r"made for 3-D samples; if its channel axis is missing"
        ):
            make()(**given, rng=rng())


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


@pytest.mark.parametrize("angle", [30, (-30, 30), (-0.5, 6.4), -7.0, 2 * math.pi + 0.01])
def test_angles_beyond_a_full_turn_are_refused_as_degrees(angle: Any) -> None:
    with pytest.raises(ValueError, match=r"rotation must be in radians.*these are degrees"):
        t.SpatialTransform(SPACE, 0, False, p_rotation=1, rotation=angle)
    for build in TRAINING_TRANSFORMS.values():
        with pytest.raises(ValueError, match="these are degrees"):
            build(**{**SHARED, "rotation": angle})
    drawn = t.SpatialTransform(SPACE, 0, False, p_rotation=1, rotation=lambda: 30.0)
    with pytest.raises(ValueError, match="these are degrees"):
        drawn(image=IMAGE, rng=rng())


@pytest.mark.parametrize("angle", [2 * math.pi, float(np.float32(2 * math.pi)), (0, 2 * math.pi)])
def test_angles_of_up_to_a_full_turn_are_allowed(angle: Any) -> None:
    t.SpatialTransform(SPACE, 0, False, p_rotation=1, rotation=angle)(image=IMAGE, rng=rng())
