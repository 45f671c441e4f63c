"""The builders make the pipelines of nnU-Net's trainers, transform by transform.

All arguments of the transforms are compared as well.
"""

from __future__ import annotations

import inspect
import math
import pickle
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.stats import kstest

from detaug import SeedTree
from detaug.nnunet import (
    TRAINING_TRANSFORMS,
    training_transforms,
    validation_transforms,
    variants,
)
from detaug.nnunet.compatibility import find_trainer, trainer_class
from detaug.nnunet.transforms import NNUNET_NAMES
from detaug.transforms import bgv2

ANGLE = (-math.radians(30), math.radians(30))
SCALES = [[1.0, 1.0, 1.0], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]

PATCH = (64, 64, 64)
TWO_SCALES = [scale[:2] for scale in SCALES]


class Arguments(NamedTuple):
    """Arguments of nnU-Net's `get_training_transforms`.

    Attributes:
        positional: patch size, rotation, scales of deep supervision, axes of mirroring, dummy 2-D.
        named: the others.
    """

    positional: tuple[Any, ...]
    named: dict[str, Any]


ARGUMENTS = {
    "3-D": Arguments(((128, 128, 128), ANGLE, SCALES, (0, 1, 2), False), {}),
    "2-D": Arguments(((64, 48), (-math.pi, math.pi), TWO_SCALES, (0, 1), False), {}),
    "dummy 2-D": Arguments(((16, 64, 64), (-math.pi, math.pi), SCALES, (0, 1, 2), True), {}),
    "patch as an array": Arguments((np.array([96, 64, 96]), ANGLE, SCALES, (0, 1, 2), False), {}),
    "three lengths": Arguments(((24, 64, 48), ANGLE, SCALES, (0, 1, 2), False), {}),
    "no deep supervision": Arguments((PATCH, ANGLE, None, (0, 1, 2), False), {}),
    "no mirroring": Arguments((PATCH, ANGLE, SCALES, None, False), {}),
    "mirroring along no axis": Arguments((PATCH, ANGLE, SCALES, (), False), {}),
    "masks": Arguments(
        (PATCH, ANGLE, SCALES, (0,), False),
        {"use_mask_for_norm": [True, False, True]},
    ),
    "no masks": Arguments(
        (PATCH, ANGLE, SCALES, (0,), False),
        {"use_mask_for_norm": [False, False]},
    ),
    "cascade": Arguments(
        (PATCH, ANGLE, SCALES, (0,), False),
        {"is_cascaded": True, "foreground_labels": [1, 2, 3]},
    ),
    "regions": Arguments(
        (PATCH, ANGLE, SCALES, (0,), False),
        {"regions": [[1, 2, 3], (2, 3), 3]},
    ),
    "ignore label": Arguments(
        ((64, 64), ANGLE, None, (1,), False),
        {"regions": [[1, 2], 2], "ignore_label": 3},
    ),
    "ignore label without regions": Arguments(
        ((64, 64), ANGLE, None, (1,), False),
        {"ignore_label": 3},
    ),
    "everything": Arguments(
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


def argument_of(transform: Any, name: str) -> Any:
    """Return what nnU-Net's transform was made with."""
    # The only argument that is not stored under its own name.
    if name == "rectangle_value":
        return transform.color_fn.rectangle_value
    return getattr(transform, name)


def differences(original: Any, own: Any, path: str = "") -> Iterator[str]:
    """Yield a line for each difference between a pipeline of nnU-Net's and one of detaug's.

    Args:
        original: nnU-Net's transform.
        own: detaug's.
        path: names and indices of the transforms that contain it.
    """
    path = f"{path}/{type(own).__name__}"
    if getattr(bgv2, type(original).__name__, None) is not type(own):
        yield f"{path} stands for {type(original).__name__}"
        return
    for name in inspect.signature(type(original).__init__).parameters:
        if name == "self":
            continue
        expected = argument_of(original, name)
        value = getattr(own, name)
        if name in ("transforms", "list_of_transforms"):
            if len(expected) != len(value):
                yield f"{path} has {len(value)} transforms, nnU-Net's {len(expected)}"
            for index, pair in enumerate(zip(expected, value, strict=False)):
                yield from differences(*pair, f"{path}[{index}]")
        elif name == "transform":
            yield from differences(expected, value, path)
        elif plain(expected) != plain(value):
            yield f"{path}.{name} is {value!r}, nnU-Net's {expected!r}"


def plain(value: Any) -> Any:
    """Return a value in a form that can be compared.

    Sequences are lists, an empty tuple is None and sets are sorted. Random contrasts are their
    ranges, functions for two masks the names of the operators, and all other callables are equal.
    """
    if isinstance(value, tuple) and not value:
        return None
    if isinstance(value, (set, frozenset)):
        return plain(sorted(value))
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(item) for item in value]
    if type(value).__name__ == "BGContrast":
        return ["BGContrast", plain(value.contrast_range)]
    if callable(value):
        operator = re.fullmatch(r"binary_(\w+)_torch", getattr(value, "__name__", ""))
        return operator[1] if operator else "callable"
    return value


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("name", TRAINING_TRANSFORMS)
def test_pipeline_is_that_of_the_trainer(name: str, arguments: Arguments) -> None:
    original = find_trainer(name).get_training_transforms(*arguments.positional, **arguments.named)
    own = TRAINING_TRANSFORMS[name](*arguments.positional, **arguments.named)
    assert list(differences(original, own)) == []


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
    original = trainer_class().get_validation_transforms(**named)
    assert list(differences(original, validation_transforms(**named))) == []


def test_arguments_have_nnunets_order() -> None:
    names = inspect.signature(trainer_class().get_training_transforms).parameters
    own_names = inspect.signature(training_transforms).parameters
    assert [NNUNET_NAMES.get(name, name) for name in names] == list(own_names)


def print_nothing(*_: Any) -> None:
    """Do nothing, in place of a trainer's `print_to_log_file`."""


@pytest.mark.parametrize("patch", [(16, 64, 64), (64, 64)], ids=str)
def test_every_trainer_of_nnunet_has_its_pipeline_in_the_loader(
    patch: tuple[int, ...],
) -> None:
    from detaug.nnunet import DetAugLoading
    from tests.peers.nnunet.trainers.in_process import every_trainer

    trainers = every_trainer()
    assert len(trainers) > 40
    for name, kind in trainers.items():
        # Not made as usual: that would need plans and a data set.
        trainer = kind.__new__(kind)
        trainer.configuration_manager = SimpleNamespace(patch_size=patch)
        trainer.print_to_log_file = print_nothing
        _, dummy, _, axes = trainer.configure_rotation_dummyDA_mirroring_and_inital_patch_size()
        arguments = (patch, ANGLE, SCALES, axes, dummy)
        original = kind.get_training_transforms(*arguments)

        class Loading(DetAugLoading, kind):
            pass

        own = Loading.get_training_transforms(*arguments)
        assert list(differences(original, own)) == [], name


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
    axes = tuple(range(len(patch)))
    pipeline = pickle.loads(pickle.dumps(builder(patch, ANGLE, scales, axes, dummy)))
    depth = 8 if dummy else 14
    larger = (depth, 25, 25)[-len(patch) :]
    size = patch if name == "nnUNetTrainerNoDA" else larger
    image = np.random.default_rng(0).normal(size=(1, *size)).astype(np.float32)
    labels = np.zeros((1, *size), np.int16)
    first_level = np.array(patch)
    for step in range(12):
        rng = SeedTree(1).generator(0, step)
        result = pipeline(image=image, segmentation=labels, rng=rng)
        assert result["image"].shape == (1, *patch)
        assert np.isfinite(result["image"]).all()
        for level, factor in zip(result["segmentation"], (1, 2, 4), strict=True):
            assert level.shape == (1, *(first_level // factor))


def uniform(low: float, high: float) -> Any:
    """Return the cumulative distribution of uniform numbers."""
    return scipy.stats.uniform(low, high - low).cdf


def test_da5_draws_follow_nnunets() -> None:
    rng = np.random.default_rng(5)
    scales = [variants.gradient_scale(rng, (120, 30), 0) for _ in range(2000)]
    assert kstest(scales, scipy.stats.loguniform(20, 120).cdf).pvalue > 1e-3
    assert variants.gradient_scale(rng, (3,), 0) >= 1

    strengths = np.array([variants.gradient_strength(rng) for _ in range(2000)])
    assert kstest(np.abs(strengths), uniform(1, 5)).pvalue > 1e-3
    assert abs((strengths > 0).mean() - 0.5) < 0.05

    gammas = np.array([variants.local_gamma(rng) for _ in range(2000)])
    below = gammas[gammas < 1]
    above = gammas[gammas > 1]
    assert abs(len(below) / 2000 - 0.5) < 0.05
    assert kstest(below, uniform(0.01, 0.8)).pvalue > 1e-3
    assert kstest(above, uniform(1.5, 4)).pvalue > 1e-3
