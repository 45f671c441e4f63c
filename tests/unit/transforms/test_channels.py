"""Labels that become channels of the image."""

import numpy as np
import torch

from detaug.transforms.channels import MoveSegAsOneHotToData
from detaug.transforms.compose import Compose
from detaug.transforms.labels import RemoveLabel

RNG = np.random.default_rng(0)


def sample(shape=(5, 6, 7), channels=(3, 2), dtype=torch.int16):
    rng = np.random.default_rng(1)
    return {
        "image": torch.from_numpy(rng.standard_normal((channels[0], *shape)).astype(np.float32)),
        "segmentation": torch.from_numpy(rng.integers(0, 4, (channels[1], *shape))).to(dtype),
    }


def test_the_rest_of_the_segmentation_is_never_written_into_while_it_is_the_callers():
    given = sample()
    before = given["segmentation"].clone()
    both = Compose([MoveSegAsOneHotToData(1, (1,)), RemoveLabel(2, 0)])
    result = both(**given, rng=RNG)
    assert torch.equal(given["segmentation"], before)
    assert not (result["segmentation"] == 2).any()
