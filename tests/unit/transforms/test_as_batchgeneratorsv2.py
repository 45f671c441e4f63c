"""Transforms whose results have the same bytes as batchgeneratorsv2's for the same params.

Other transforms differ from batchgeneratorsv2 by float32 rounding. Their tests also compare them
with the formula in float64, and are in the files of those formulas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug import transforms as t
from tests.support.transforms.generators import generator, noise

Sample = dict[str, torch.Tensor]
Samples = Callable[[], Iterator[Sample]]

SIGNED = (
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
)
DTYPES = (*SIGNED, torch.uint8)
#: Radii of the ball of a binary operator, in voxels.
RADII = (0, 0.2, 0.5, 0.9, 1, 1.2, 1.5, 1.7, 2, 2.5, 3, 5, 7, 8, 10, (1, 10))


def images(*shapes: tuple[int, ...]) -> Samples:
    """Return a function that yields ten samples per shape, with the image also as int16 labels."""

    def samples() -> Iterator[Sample]:
        for shape in shapes:
            for seed in range(10):
                image = torch.from_numpy(100 * noise(shape, seed))
                yield {"image": image, "segmentation": image.to(torch.int16)}

    return samples


def labelled(*shapes: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = DTYPES) -> Samples:
    """Return a function that yields a sample per shape and dtype of labels.

    Labels are from -1 to 3; unsigned ones from 0.
    """

    def samples() -> Iterator[Sample]:
        for shape in shapes:
            for dtype in dtypes:
                least = 0 if dtype is torch.uint8 else -1
                labels = torch.from_numpy(generator(1).integers(least, 4, shape)).to(dtype)
                yield {"image": torch.from_numpy(noise(shape)), "segmentation": labels}

    return samples


def one_hot() -> Iterator[Sample]:
    """Yield small and large, sparse and dense images of two values, in 2-D and 3-D."""
    for seed in range(8):
        rng = generator(seed)
        dims = int(rng.integers(2, 4))
        if seed % 3 == 0:
            shape = rng.integers(50, 140, 2)
        else:
            shape = rng.integers(1, 16, dims)
        channels = rng.random((3, *shape)) < rng.choice([0.01, 0.1, 0.5, 0.9])
        value = np.float32(0.5 if seed % 4 == 0 else 1)
        yield {"image": torch.from_numpy(channels.astype(np.float32) * value)}


def of_all_roles() -> Iterator[Sample]:
    """Yield a sample with an array of every role."""
    yield {
        "image": torch.from_numpy(noise((2, 4, 5, 6), 1)),
        "segmentation": torch.from_numpy(generator(1).integers(-1, 3, (2, 4, 5, 6))),
        "regression_target": torch.from_numpy(noise((3, 4, 5, 6))),
    }


SPACES = ((2, 5, 6, 7), (3, 8, 9), (2, 1, 40, 1))
PLANES = ((2, 8, 9),)
VOLUMES = ((3, 5, 6, 7),)

#: detaug's class, batchgeneratorsv2's module and class, the arguments of both, and samples.
Case = tuple[type[t.Transform], str, tuple[Any, ...], Samples]
CASES: list[Case] = [
    (t.Mirror, "spatial.mirroring.MirrorTransform", ((0, 1, 2),), images((1, 4, 5, 6))),
    (t.Rot90, "spatial.rot90.Rot90Transform", ((0, 4),), images((2, 5, 5, 5), (1, 4, 5, 6))),
    (
        t.TransposeAxes,
        "spatial.transpose.TransposeAxesTransform",
        ((0, 2),),
        images((2, 5, 5, 5)),
    ),
    (
        t.BlankRectangle,
        "noise.blank_rectangle.BlankRectangleTransform",
        ([[2, 6]] * 2, -7.5, (1, 5)),
        images((2, 20, 30)),
    ),
    (
        t.BlankRectangle,
        "noise.blank_rectangle.BlankRectangleTransform",
        ([[2, 6]] * 3, -7.5, (1, 5)),
        images((3, 12, 14, 16), (1, 6, 6, 6)),
    ),
    (
        t.MaskImage,
        "utils.nnunet_masking.MaskImageTransform",
        ([1, -2], 1, -0.5),
        labelled(*SPACES),
    ),
    (t.Convert3DTo2D, "utils.pseudo2d.Convert3DTo2DTransform", (), of_all_roles),
    (
        t.RemoveLabel,
        "utils.remove_label.RemoveLabelTransform",
        (2, -1),
        labelled(*SPACES, dtypes=SIGNED),
    ),
    (
        t.ConvertSegmentationToRegions,
        "utils.seg_to_regions.ConvertSegmentationToRegionsTransform",
        ([(1, 2, 3), 2, [3]], 1),
        labelled(*SPACES),
    ),
]
CASES += [
    (t.RemoveLabel, "utils.remove_label.RemoveLabelTransform", arguments, labelled(*SPACES))
    for arguments in ((2, 0), (1, 7, [-1, 0]), (0, 3, 1))
]
CASES += [
    (
        t.DownsampleSegForDS,
        "utils.deep_supervision_downsampling.DownsampleSegForDSTransform",
        ([1, 0.8, *scales],),
        labelled(shape),
    )
    for shape, scales in zip(
        SPACES,
        ([[1, 1, 1], 0.5, (0.5, 1, 0.3)], [[1, 1], 0.5, (0.5, 1)], [[1, 1, 1]]),
        strict=True,
    )
]
CASES += [
    (
        t.MoveSegAsOneHotToData,
        "nnunet.seg_to_onehot.MoveSegAsOneHotToDataTransform",
        arguments,
        labelled(*PLANES, *VOLUMES),
    )
    for arguments in ((1, (1, 2, 3), True), (0, [2], False), (0, (3, 9), True))
]
CASES += [
    (
        t.ApplyRandomBinaryOperator,
        "nnunet.random_binary_operator.ApplyRandomBinaryOperatorTransform",
        ([-3, -1], t.binary_operators.OPERATORS, radius),
        one_hot,
    )
    for radius in RADII
]


@pytest.mark.parametrize(
    ("cls", "original_name", "arguments", "samples"),
    CASES,
    ids=[case[0].__name__ for case in CASES],
)
def test_results_are_batchgeneratorsv2s(
    cls: type[t.Transform], original_name: str, arguments: tuple[Any, ...], samples: Samples
) -> None:
    pytest.importorskip("batchgeneratorsv2.transforms.base")
    module_name, _, class_name = original_name.rpartition(".")
    module = import_module(f"batchgeneratorsv2.transforms.{module_name}")
    transform = cls(*arguments)
    original = getattr(module, class_name)(*arguments)
    for seed, sample in enumerate(samples()):
        shapes = {key: tuple(array.shape) for key, array in sample.items()}
        params = transform.sample(generator(seed), shapes)
        result = transform.apply(sample, params)
        copy = {key: array.clone() for key, array in sample.items()}
        expected = original.apply(copy, **as_params_of_original(params, module))
        assert fingerprint(result) == fingerprint(expected), (seed, shapes, params)


def as_params_of_original(params: dict[str, Any], module: Any) -> dict[str, Any]:
    """Return params with batchgeneratorsv2's functions in place of the names of operators."""
    if "operators" not in params:
        return params
    functions = [getattr(module, f"binary_{name}_torch") for name in params["operators"]]
    return {**params, "operators": functions}
