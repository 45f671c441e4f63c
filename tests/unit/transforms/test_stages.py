"""Descriptions of pipelines and params as text, and the stages of a pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detaug import fingerprint
from detaug import transforms as t
from detaug.transforms.building.stages import observe_transforms
from detaug.transforms.building.workspace import Workspace
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.generators import rng
from tests.support.transforms.golden import sample


def pipeline() -> t.Compose:
    spatial = t.SpatialTransform((14, 12, 10), 0, False, p_rotation=0.2, rotation=(-0.5, 0.5))
    noise = t.RandomApply(t.GaussianNoise((0, 0.1)), 0.3)
    mirror_or_inversion = t.OneOf([t.Mirror((0, 1)), t.InvertImage(1)])
    return t.Compose([spatial, noise, mirror_or_inversion])


def test_a_pipeline_is_written_with_its_transforms_and_their_arguments() -> None:
    composed = t.Compose([t.RandomApply(t.Mirror((0, 1)), 0.3)])
    inside = "RandomApply(transform=Mirror(allowed_axes=(0, 1)), apply_probability=0.3)"
    assert repr(composed) == f"Compose(transforms=[{inside}])"


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


def tenth_for_any_image(image: np.ndarray) -> float:
    return 0.1


def test_what_will_be_drawn_from_the_image_is_said() -> None:
    transform = t.GaussianNoise(tenth_for_any_image)
    params = transform.sample(rng(), {"image": (1, 8, 8)})
    assert transform.describe(params) == "GaussianNoise: drawn from the image when it is there"


@pytest.mark.parametrize("name", EVERY)
def test_stages_one_after_another_are_the_pipeline(name: str) -> None:
    pipeline = t.Compose([EVERY[name](2), t.InvertImage(1)])
    arrays = sample(1, (24, 24))
    expected = fingerprint(pipeline(**arrays, rng=rng()))
    stages = []

    def observer(root: t.Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        for stage in root.stages(params):
            stages.append(stage)
            stage.transform.apply_in(workspace, stage.params)

    with observe_transforms(observer):
        assert fingerprint(pipeline(**arrays, rng=rng())) == expected
    places = [stage.place for stage in stages]
    assert places == sorted(places)
    for stage in stages:
        assert not isinstance(stage.transform, (t.Compose, t.RandomApply, t.OneOf))
    assert stages[-1].transform is pipeline.transforms[1]


class Twice(t.Compose):
    """A composition that applies its transforms twice."""

    def change(self, workspace: Workspace, params: dict[str, Any]) -> None:
        super().change(workspace, params)
        super().change(workspace, params)


def test_composition_that_does_something_else_besides_is_one_stage() -> None:
    pipeline = t.Compose([Twice([t.InvertImage(1)])])
    params = pipeline.sample(rng(), {"image": (1, 8, 8)})
    (stage,) = pipeline.stages(params)
    assert stage.place == (0,)
    assert type(stage.transform) is Twice


def test_pipeline_that_an_observer_calls_is_not_observed() -> None:
    calls = []
    image = np.ones((1, 4, 4), np.float32)

    def observer(root: t.Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        calls.append(root)
        t.InvertImage(1)(image=image, rng=rng())
        root.apply_in(workspace, params)

    mirror = t.Mirror((0,))
    with observe_transforms(observer):
        mirror(image=image, rng=rng())
    mirror(image=image, rng=rng())
    assert calls == [mirror]
