"""Removing labels, joining them to regions, masking by them, deep supervision's smaller copies."""

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug.transforms.labels import (
    ConvertSegmentationToRegions,
    DownsampleSegForDS,
    MaskImage,
    RemoveLabel,
    nearest,
)

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
SHAPES = ((2, 5, 6, 7), (3, 8, 9), (2, 1, 40, 1))
RNG = np.random.default_rng(0)


def labels(shape, dtype, lowest=-1):
    return torch.from_numpy(np.random.default_rng(1).integers(lowest, 4, shape)).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_those_of_batchgeneratorsv2(dtype):
    pytest.importorskip("batchgeneratorsv2")
    from batchgeneratorsv2.transforms.utils.deep_supervision_downsampling import (
        DownsampleSegForDSTransform,
    )
    from batchgeneratorsv2.transforms.utils.nnunet_masking import MaskImageTransform
    from batchgeneratorsv2.transforms.utils.remove_label import RemoveLabelTransform
    from batchgeneratorsv2.transforms.utils.seg_to_regions import (
        ConvertSegmentationToRegionsTransform,
    )

    for shape in SHAPES:
        scales = [1, [1] * (len(shape) - 1), 0.8]
        if shape[1] > 1:
            scales += [0.5, (0.5, 1, 0.3)[: len(shape) - 1]]
        pairs = [
            (
                RemoveLabel(2, -1 if dtype in SIGNED else 0),
                RemoveLabelTransform(2, -1 if dtype in SIGNED else 0),
            ),
            (RemoveLabel(1, 7, [-1, 0]), RemoveLabelTransform(1, 7, [-1, 0])),
            (RemoveLabel(0, 3, 1), RemoveLabelTransform(0, 3, 1)),
            (
                ConvertSegmentationToRegions([(1, 2, 3), 2, [3]], 1),
                ConvertSegmentationToRegionsTransform([(1, 2, 3), 2, [3]], 1),
            ),
            (MaskImage([1, -2], 1, -0.5), MaskImageTransform([1, -2], 1, -0.5)),
            (DownsampleSegForDS(scales), DownsampleSegForDSTransform(scales)),
        ]
        given = {
            "segmentation": labels(shape, dtype, -1 if dtype in SIGNED else 0),
            "image": torch.randn(shape),
        }
        for ours, theirs in pairs:
            result = ours(rng=RNG, **given)
            expected = theirs(**{key: value.clone() for key, value in given.items()})
            assert fingerprint(result) == fingerprint(expected)


def test_smaller_copies_take_the_voxels_that_torch_takes():
    for length in range(1, 70):
        for size in range(1, length + 1):
            axis = torch.arange(length, dtype=torch.float32)[None, None, None]
            expected = torch.nn.functional.interpolate(axis, (1, size), mode="nearest-exact")[
                0, 0, 0
            ]
            np.testing.assert_array_equal(nearest(length, size), expected.numpy())


def test_the_copy_at_scale_one_is_the_segmentation_itself():
    given = labels((1, 6, 6), torch.int16).numpy()
    result = DownsampleSegForDS([1, 0.5])(segmentation=given, rng=RNG)["segmentation"]
    assert result[0] is given
    assert result[1].shape == (1, 3, 3)


def test_labels_beyond_float32_are_kept_exactly():
    given = np.full((1, 4, 4), 2**24 + 1, np.int64)
    assert (
        DownsampleSegForDS([0.5])(segmentation=given, rng=RNG)["segmentation"][0] == 2**24 + 1
    ).all()


def test_a_label_that_the_dtype_cannot_hold_is_nowhere():
    given = np.full((1, 4, 4), 255, np.uint8)
    assert RemoveLabel(-1, 0)(segmentation=given, rng=RNG)["segmentation"] is given
    assert not ConvertSegmentationToRegions([(-1, 256), []])(segmentation=given, rng=RNG)[
        "segmentation"
    ].any()
    with pytest.raises(ValueError, match="set_to is -1"):
        RemoveLabel(0, -1)(segmentation=given, rng=RNG)


def test_boolean_segmentations_work():
    seg = np.array([[[True, False]]])
    np.testing.assert_array_equal(
        RemoveLabel(1, 0)(segmentation=seg, rng=RNG)["segmentation"], [[[False, False]]]
    )
