"""The builders make, transform for transform and parameter for parameter, what nnU-Net's trainers
make.
"""

from __future__ import annotations

import inspect
import math
import pickle
import re
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from detaug import SeedTree
from detaug.nnunet import (
    TRAINING_TRANSFORMS,
    training_transforms,
    validation_transforms,
    variants,
)
from detaug.nnunet.compatibility import find_trainer, trainer_class
from detaug.transforms import bgv2 as ours

ANGLE = (-math.radians(30), math.radians(30))
SCALES = [[1.0, 1.0, 1.0], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]

# name -> positional arguments, keywords (nnU-Net's)
ARGUMENTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "3-D": (((128, 128, 128), ANGLE, SCALES, (0, 1, 2), False), {}),
    "2-D": (((64, 48), (-math.pi, math.pi), [s[:2] for s in SCALES], (0, 1), False), {}),
    "dummy 2-D": (((16, 64, 64), (-math.pi, math.pi), SCALES, (0, 1, 2), True), {}),
    "patch as an array": ((np.array([96, 64, 96]), ANGLE, SCALES, (0, 1, 2), False), {}),
    "three lengths": (((24, 64, 48), ANGLE, SCALES, (0, 1, 2), False), {}),
    "no deep supervision": (((64, 64, 64), ANGLE, None, (0, 1, 2), False), {}),
    "no mirroring": (((64, 64, 64), ANGLE, SCALES, None, False), {}),
    "mirroring along no axis": (((64, 64, 64), ANGLE, SCALES, (), False), {}),
    "masks": (
        ((64, 64, 64), ANGLE, SCALES, (0,), False),
        {"use_mask_for_norm": [True, False, True]},
    ),
    "no masks": (((64, 64, 64), ANGLE, SCALES, (0,), False), {"use_mask_for_norm": [False, False]}),
    "cascade": (
        ((64, 64, 64), ANGLE, SCALES, (0,), False),
        {"is_cascaded": True, "foreground_labels": [1, 2, 3]},
    ),
    "regions": (((64, 64, 64), ANGLE, SCALES, (0,), False), {"regions": [[1, 2, 3], (2, 3), 3]}),
    "ignore label": (
        ((64, 64), ANGLE, None, (1,), False),
        {"regions": [[1, 2], 2], "ignore_label": 3},
    ),
    "ignore label without regions": (((64, 64), ANGLE, None, (1,), False), {"ignore_label": 3}),
    "everything": (
        ((8, 64, 48), 0.5, SCALES, (1, 2), True),
        {
            "use_mask_for_norm": (True,),
            "is_cascaded": True,
            "foreground_labels": (1, 2),
            "regions": ((1, 2), (2,)),
            "ignore_label": 3,
        },
    ),
}
CASES = [
    pytest.param(positional, named, id=name) for name, (positional, named) in ARGUMENTS.items()
]


# attributes under another name there
STORED_AS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("BlankRectangle", "rectangle_value"): lambda transform: transform.color_fn.rectangle_value,
}


def differences(theirs: Any, own: Any, where: str = "") -> Iterator[str]:
    """What differs between two pipelines, a line each."""
    where = f"{where}/{type(own).__name__}"
    if getattr(ours, type(theirs).__name__, None) is not type(own):
        yield f"{where} stands for {type(theirs).__name__}"
        return
    for name in inspect.signature(type(theirs).__init__).parameters:
        if name == "self":
            continue
        there = STORED_AS.get(
            (type(own).__name__, name), lambda transform, name=name: getattr(transform, name)
        )(theirs)
        here = getattr(own, name)
        if name in ("transforms", "list_of_transforms"):
            if len(there) != len(here):
                yield f"{where} has {len(here)} transforms, there {len(there)}"
            for number, pair in enumerate(zip(there, here, strict=False)):
                yield from differences(*pair, f"{where}[{number}]")
        elif name == "transform":
            yield from differences(there, here, where)
        elif plain(there) != plain(here):
            yield f"{where}.{name} is {here!r}, there {there!r}"


def plain(value: Any) -> Any:
    """Comparable: sequences as lists, sets sorted, random contrasts as their ranges, callables as
    such.
    """
    if value is None or (isinstance(value, tuple) and not value):
        return None
    if isinstance(value, (set, frozenset)):
        return plain(sorted(value))
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(each) for each in value]
    if type(value).__name__ == "BGContrast":
        return ["BGContrast", plain(value.contrast_range)]
    if callable(value):
        operator = re.fullmatch(r"binary_(\w+)_torch", getattr(value, "__name__", ""))
        return operator[1] if operator else "callable"
    return value


@pytest.mark.parametrize(("positional", "named"), CASES)
@pytest.mark.parametrize("name", TRAINING_TRANSFORMS)
def test_pipeline_is_that_of_the_trainer(
    name: str, positional: tuple[Any, ...], named: dict[str, Any]
) -> None:
    theirs = find_trainer(name).get_training_transforms(*positional, **named)
    assert list(differences(theirs, TRAINING_TRANSFORMS[name](*positional, **named))) == []


@pytest.mark.parametrize(
    "named",
    [
        {"deep_supervision_scales": SCALES},
        {"deep_supervision_scales": None},
        {"deep_supervision_scales": SCALES, "is_cascaded": True, "foreground_labels": [1, 2]},
        {"deep_supervision_scales": None, "regions": [[1, 2], 2], "ignore_label": 3},
        {"deep_supervision_scales": None, "regions": [[1, 2], 2]},
    ],
)
def test_validation_is_that_of_the_trainer(named: dict[str, Any]) -> None:
    theirs = trainer_class().get_validation_transforms(**named)
    assert list(differences(theirs, validation_transforms(**named))) == []


def test_arguments_have_nnunets_order() -> None:
    theirs = list(inspect.signature(trainer_class().get_training_transforms).parameters)
    own = list(inspect.signature(training_transforms).parameters)
    from detaug.nnunet.transforms import NNUNET_NAMES

    assert [NNUNET_NAMES.get(name, name) for name in theirs] == own


@pytest.mark.parametrize("patch", [(16, 64, 64), (64, 64)], ids=str)
def test_every_trainer_of_nnunet_has_its_pipeline_in_the_loader(
    patch: tuple[int, ...],
) -> None:
    from detaug.nnunet import DetAugLoading
    from tests.peers.nnunet.trainers.in_process import every_trainer

    found = every_trainer()
    assert len(found) > 40
    for name, each in found.items():
        asked = each.__new__(each)
        asked.configuration_manager, asked.print_to_log_file = (
            SimpleNamespace(patch_size=patch),
            lambda *_: None,
        )
        _, dummy, _, axes = asked.configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        positional = (patch, ANGLE, SCALES, axes, dummy)
        theirs = each.get_training_transforms(*positional)

        class Loaded(DetAugLoading, each):
            pass

        assert list(differences(theirs, Loaded.get_training_transforms(*positional))) == [], name


def test_short_names_and_nnunets_make_one_pipeline_and_are_not_mixed() -> None:
    short = training_transforms(
        patch_size=(16, 16, 16),
        rotation=ANGLE,
        ds_scales=SCALES,
        mirror_axes=(0,),
        do_dummy_2d=False,
    )
    long = training_transforms(
        patch_size=(16, 16, 16),
        rotation_for_DA=ANGLE,
        deep_supervision_scales=SCALES,
        mirror_axes=(0,),
        do_dummy_2d_data_aug=False,
    )
    assert repr(short) == repr(long)
    with pytest.raises(TypeError, match="rotation and rotation_for_DA are one argument"):
        training_transforms(
            (16, 16),
            rotation=0.1,
            rotation_for_DA=0.1,
            ds_scales=None,
            mirror_axes=(),
            do_dummy_2d=0,
        )


def test_cascade_without_labels_is_refused() -> None:
    with pytest.raises(ValueError, match="foreground_labels"):
        training_transforms((16, 16), ANGLE, None, (), False, is_cascaded=True)
    with pytest.raises(ValueError, match="foreground_labels"):
        validation_transforms(None, is_cascaded=True)


@pytest.mark.parametrize("name", TRAINING_TRANSFORMS)
@pytest.mark.parametrize(
    ("patch", "dummy"), [((8, 16, 16), False), ((8, 16, 16), True), ((16, 16), False)]
)
def test_pipelines_can_be_pickled_and_give_the_patch_and_the_levels(
    name: str, patch: tuple[int, ...], dummy: bool
) -> None:
    builder = TRAINING_TRANSFORMS[name]
    scales = [scale[: len(patch)] for scale in SCALES]
    pipeline = pickle.loads(
        pickle.dumps(builder(patch, ANGLE, scales, tuple(range(len(patch))), dummy))
    )
    larger = (8 if dummy else 14, 25, 25)[-len(patch) :]
    size = patch if name == "nnUNetTrainerNoDA" else larger
    image = np.random.default_rng(0).normal(size=(1, *size)).astype(np.float32)
    labels = np.zeros((1, *size), np.int16)
    for step in range(12):
        made = pipeline(image=image, segmentation=labels, rng=SeedTree(1).generator(0, step))
        assert made["image"].shape == (1, *patch)
        assert np.isfinite(made["image"]).all()
        levels = [(1, *(length // factor for length in patch)) for factor in (1, 2, 4)]
        assert [level.shape for level in made["segmentation"]] == levels


def test_da5_draws_follow_nnunets() -> None:
    from scipy.stats import kstest, loguniform

    rng = np.random.default_rng(5)
    scales = [variants.gradient_scale(rng, (120, 30), 0) for _ in range(2000)]
    assert kstest(scales, loguniform(20, 120).cdf).pvalue > 1e-3
    strengths = np.array([variants.gradient_strength(rng) for _ in range(2000)])
    assert kstest(np.abs(strengths), lambda x: np.clip((x - 1) / 4, 0, 1)).pvalue > 1e-3
    assert abs((strengths > 0).mean() - 0.5) < 0.05
    gammas = np.array([variants.local_gamma(rng) for _ in range(2000)])
    below = gammas[gammas < 1]
    assert abs(len(below) / 2000 - 0.5) < 0.05
    assert kstest(below, lambda x: np.clip((x - 0.01) / 0.79, 0, 1)).pvalue > 1e-3
    assert kstest(gammas[gammas > 1], lambda x: np.clip((x - 1.5) / 2.5, 0, 1)).pvalue > 1e-3
    assert variants.gradient_scale(rng, (3,), 0) >= 1
