"""Labels that become channels of the image."""

import numpy as np
import torch

from detaug.transforms.channels import MoveSegAsOneHotToData
from detaug.transforms.compose import Compose
from detaug.transforms.labels import RemoveLabel

RNG = np.random.default_rng(0)


def test_the_rest_of_the_segmentation_is_never_written_into_while_it_is_the_callers():
    rng = np.random.default_rng(1)
    image = torch.from_numpy(rng.standard_normal((3, 5, 6, 7)).astype(np.float32))
    labels = torch.from_numpy(rng.integers(0, 4, (2, 5, 6, 7)).astype(np.int16))
    original = labels.clone()
    pipeline = Compose([MoveSegAsOneHotToData(1, (1,)), RemoveLabel(2, 0)])
    result = pipeline(image=image, segmentation=labels, rng=RNG)
    assert torch.equal(labels, original)
    assert not (result["segmentation"] == 2).any()
