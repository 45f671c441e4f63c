"""Transforms that give batchgeneratorsv2's results to the byte for the same params.

Those that are compared within float32 rounding, beside the formula in float64, have their tests
beside that formula.
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
RADII = (0, 0.2, 0.5, 0.9, 1, 1.2, 1.5, 1.7, 2, 2.5, 3, 5, 7, 8, 10, (1, 10))


def images(*shapes: tuple[int, ...]) -> Samples:
    """Ten samples of each shape, with an image and the same as int16 labels."""

    def samples() -> Iterator[Sample]:
        for shape in shapes:
            for seed in range(10):
                image = torch.from_numpy(100 * noise(shape, seed))
                yield {"image": image, "segmentation": image.to(torch.int16)}

    return samples


def labelled(*shapes: tuple[int, ...], dtypes: tuple[torch.dtype, ...] = DTYPES) -> Samples:
    """A sample of each shape and dtype of labels from -1, or 0 where unsigned, to 3."""

    def samples() -> Iterator[Sample]:
        for shape in shapes:
            for dtype in dtypes:
                least = 0 if dtype is torch.uint8 else -1
                labels = torch.from_numpy(generator(1).integers(least, 4, shape)).to(dtype)
                yield {"image": torch.from_numpy(noise(shape)), "segmentation": labels}

    return samples


def one_hot() -> Iterator[Sample]:
    """Small volumes and planes and large planes, sparse and dense, of 1 and of 0.5."""
    for seed in range(8):
        rng = generator(seed)
        dims = int(rng.integers(2, 4))
        shape = rng.integers(50, 140, 2) if seed % 3 == 0 else rng.integers(1, 16, dims)
        channels = rng.random((3, *shape)) < rng.choice([0.01, 0.1, 0.5, 0.9])
        value = 0.5 if seed % 4 == 0 else 1
        yield {"image": torch.from_numpy(channels.astype(np.float32) * np.float32(value))}


def of_all_roles() -> Iterator[Sample]:
    yield {
        "image": torch.from_numpy(noise((2, 4, 5, 6), 1)),
        "segmentation": torch.from_numpy(generator(1).integers(-1, 3, (2, 4, 5, 6))),
        "regression_target": torch.from_numpy(noise((3, 4, 5, 6))),
    }


SPACES = ((2, 5, 6, 7), (3, 8, 9), (2, 1, 40, 1))
PLANES, VOLUMES = ((2, 8, 9),), ((3, 5, 6, 7),)

# ours, batchgeneratorsv2's module and class, the arguments of both, samples
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
    ("ours", "theirs", "arguments", "samples"), CASES, ids=[case[0].__name__ for case in CASES]
)
def test_results_are_batchgeneratorsv2s(
    ours: type[t.Transform], theirs: str, arguments: tuple[Any, ...], samples: Samples
) -> None:
    pytest.importorskip("batchgeneratorsv2.transforms.base")
    place, _, name = theirs.rpartition(".")
    module = import_module(f"batchgeneratorsv2.transforms.{place}")
    transform, original = ours(*arguments), getattr(module, name)(*arguments)
    for seed, given in enumerate(samples()):
        shapes = {key: tuple(array.shape) for key, array in given.items()}
        params = transform.sample(generator(seed), shapes)
        result = transform.apply(given, params)
        copy = {key: array.clone() for key, array in given.items()}
        expected = original.apply(copy, **as_theirs(params, module))
        assert fingerprint(result) == fingerprint(expected), (seed, shapes, params)


def as_theirs(params: dict[str, Any], module: Any) -> dict[str, Any]:
    """Return params whose operators are batchgeneratorsv2's functions instead of their names."""
    if "operators" not in params:
        return params
    functions = [getattr(module, f"binary_{name}_torch") for name in params["operators"]]
    return {**params, "operators": functions}
