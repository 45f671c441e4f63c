"""Channels that move between image, segmentation and regression target."""

import numpy as np
import pytest
import torch

from detaug import fingerprint
from detaug.transforms.channels import MoveChannels, MoveSegAsOneHotToData
from detaug.transforms.compose import Compose
from detaug.transforms.labels import RemoveLabel

RNG = np.random.default_rng(0)


def sample(shape=(5, 6, 7), channels=(3, 2), dtype=torch.int16):
    rng = np.random.default_rng(1)
    return {
        "image": torch.from_numpy(rng.standard_normal((channels[0], *shape)).astype(np.float32)),
        "segmentation": torch.from_numpy(rng.integers(0, 4, (channels[1], *shape))).to(dtype),
    }


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.float32])
def test_moved_channels_are_those_of_batchgeneratorsv2(dtype):
    module = pytest.importorskip("batchgeneratorsv2.transforms.utils.move_channels")
    for arguments in (
        (1, "image", "segmentation"),
        ((2, 0), "image", "regression_target"),
        ((0, 1, 2), "image", "regression_target"),
        ((0,), "segmentation", "image"),
        ((0, 1), "segmentation", "image"),
    ):
        ours, given = MoveChannels(*arguments), sample(dtype=dtype)
        result = ours(**given, rng=RNG)
        assert fingerprint(result) == fingerprint(
            module.MoveChannelsTransform(*arguments)(**sample(dtype=dtype))
        )


def test_labels_that_become_an_image_are_floating_point():
    given = {"segmentation": sample()["segmentation"].numpy()}
    result = MoveChannels(0, "segmentation", "image")(**given, rng=RNG)
    assert result["image"].dtype == np.float32
    np.testing.assert_array_equal(result["image"], given["segmentation"][:1])


def test_the_rest_of_the_segmentation_is_never_written_into_while_it_is_the_callers():
    given = sample()
    before = given["segmentation"].clone()
    both = Compose([MoveSegAsOneHotToData(1, (1,)), RemoveLabel(2, 0)])
    result = both(**given, rng=RNG)
    assert torch.equal(given["segmentation"], before)
    assert not (result["segmentation"] == 2).any()
