"""Pipelines and params as text and as JSON: what was done to a sample can be read, kept and done again."""

from __future__ import annotations

from typing import Any

import pytest

from detaug import fingerprint
from detaug import transforms as t
from tests.support.transforms import every_transform
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.generators import rng
from tests.support.transforms.golden import sample

SHAPES = {2: (24, 24), 3: (18, 18, 14)}
each_transform = pytest.mark.parametrize(
    ("make", "dims"),
    [pytest.param(make, dims, id=f"{name}, {dims}-D") for name, make in EVERY.items() for dims in SHAPES],
)


def pipeline() -> t.Compose:
    return t.Compose(
        [
            t.SpatialTransform((14, 12, 10), 0, False, p_rotation=0.2, rotation=(-0.5, 0.5)),
            t.RandomApply(t.GaussianNoise((0, 0.1)), 0.3),
            t.OneOf([t.Mirror((0, 1)), t.InvertImage(1)]),
        ]
    )


def test_a_pipeline_is_written_on_several_lines_without_defaults() -> None:
    assert (
        repr(pipeline())
        == """\
Compose(
    transforms=[
        SpatialTransform(
            patch_size=(14, 12, 10),
            patch_center_dist_from_border=[0.0, 0.0, 0.0],
            random_crop=False,
            p_rotation=0.2,
            rotation=(-0.5, 0.5)
        ),
        RandomApply(transform=GaussianNoise(), apply_probability=0.3),
        OneOf(list_of_transforms=[Mirror(allowed_axes=(0, 1)), InvertImage(p_invert_image=1.0)])
    ]
)"""
    )


@each_transform
def test_what_is_written_makes_the_same_transform(make: Any, dims: int) -> None:
    transform = make(dims)
    again = eval(repr(transform), {**vars(t), **vars(every_transform)})
    assert repr(again) == repr(transform)
    given = sample(1, SHAPES[dims])
    assert fingerprint(again(**given, rng=rng())) == fingerprint(transform(**given, rng=rng()))


def test_functions_are_written_by_name_without_an_address() -> None:
    assert repr(t.Gamma(of_channel, 0, False, 1, 1)).startswith("Gamma(\n    gamma=of_channel,\n")
    assert "0x" not in repr(t.SpatialTransform((8, 8), 0, False, p_rotation=1, rotation=lambda rng: rng.random()))


def of_channel(channel: int) -> float:
    return 1.0 + channel


def test_params_are_described_line_by_line() -> None:
    transform = pipeline()
    params = transform.sample(rng(), {"image": (1, 20, 20, 20)})
    params["transforms"][1] = {
        "apply_transform": True,
        "params": {"apply_to_channel": [0], "sigmas": [0.0123456789], "key": 7},
    }
    params["transforms"][2] = {"chosen": 0, "params": {"axes": [1]}}
    first, *others = transform.describe(params).splitlines()
    assert first.startswith("   1  SpatialTransform: affine=")
    assert others == [
        "   2  GaussianNoise: apply_to_channel=[0], sigmas=[0.0123457], key=7",
        " 3.1  Mirror: axes=[1]",
    ]
    params["transforms"][1] = {"apply_transform": False}
    nested = t.Compose([transform]).describe({"transforms": [params]}).splitlines()
    assert [line[:11] for line in nested] == [" 1.1  Spati", "1.3.1  Mirr"]


def test_what_will_be_drawn_from_the_image_is_said() -> None:
    transform = t.GaussianNoise(lambda image: 0.1)
    params = transform.sample(rng(), {"image": (1, 8, 8)})
    assert transform.describe(params) == "GaussianNoise: drawn from the image when it is there"
