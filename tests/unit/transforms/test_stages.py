"""A pipeline taken apart into the transforms that it applies: same bytes, and every place told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detaug import fingerprint
from detaug import transforms as t
from detaug.transforms.building.stages import observed
from detaug.transforms.building.workspace import Workspace
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.generators import rng
from tests.support.transforms.golden import sample


@pytest.mark.parametrize("name", EVERY)
def test_stages_one_after_another_are_the_pipeline(name: str) -> None:
    pipeline = t.Compose([EVERY[name](2), t.InvertImage(1)])
    given = sample(1, (24, 24))
    expected = fingerprint(pipeline(**given, rng=rng()))
    seen = []

    def observer(root: t.Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        for stage in root.stages(params):
            seen.append(stage)
            stage.transform.apply_in(workspace, stage.params)

    with observed(observer):
        assert fingerprint(pipeline(**given, rng=rng())) == expected
    assert [stage.place for stage in seen] == sorted(stage.place for stage in seen)
    assert not any(isinstance(stage.transform, (t.Compose, t.RandomApply, t.OneOf)) for stage in seen)
    assert seen[-1].transform is pipeline.transforms[1]


def test_places_are_the_same_whatever_is_applied() -> None:
    pipeline = t.Compose(
        [t.RandomApply(t.InvertImage(1), 0.5), t.OneOf([t.Mirror((0,)), t.GaussianNoise()]), t.RemoveLabel(-1, 0)]
    )
    found = set()
    for seed in range(20):
        params = pipeline.sample(rng(seed), {"image": (1, 8, 8)})
        found |= {(stage.place, type(stage.transform)) for stage in pipeline.stages(params)}
    assert found == {((0,), t.InvertImage), ((1, 0), t.Mirror), ((1, 1), t.GaussianNoise), ((2,), t.RemoveLabel)}


class Twice(t.Compose):
    def change(self, workspace: Workspace, params: dict[str, Any]) -> None:
        super().change(workspace, params)
        super().change(workspace, params)


def test_composition_that_does_something_else_besides_is_one_stage() -> None:
    pipeline = t.Compose([Twice([t.InvertImage(1)])])
    (stage,) = pipeline.stages(pipeline.sample(rng(), {"image": (1, 8, 8)}))
    assert (stage.place, type(stage.transform)) == ((0,), Twice)


def test_pipeline_that_an_observer_calls_is_not_observed() -> None:
    calls = []

    def observer(root: t.Transform, workspace: Workspace, params: dict[str, Any]) -> None:
        calls.append(root)
        t.InvertImage(1)(image=np.ones((1, 4, 4), np.float32), rng=rng())
        root.apply_in(workspace, params)

    mirror = t.Mirror((0,))
    with observed(observer):
        mirror(image=np.ones((1, 4, 4), np.float32), rng=rng())
    mirror(image=np.ones((1, 4, 4), np.float32), rng=rng())
    assert calls == [mirror]
