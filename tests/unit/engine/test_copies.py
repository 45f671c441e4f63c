"""An augmenter can be neither pickled nor copied, and says what to do instead."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import cloudpickle
import pytest
import torch

from detaug.nnunet.trainers.late_augmenter import LateAugmenter
from tests.support.ledgers.runs import Draws


def in_a_torch_checkpoint(augmenter: Any) -> None:
    torch.save({"data": augmenter}, io.BytesIO())


@pytest.mark.parametrize(
    "take",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        cloudpickle.dumps,
        in_a_torch_checkpoint,
    ],
)
def test_every_copy_is_refused_with_what_to_save(take: Callable[[Any], Any]) -> None:
    with LateAugmenter(Draws(), None, 0, seed=1, batches_per_epoch=4) as augmenter:
        with pytest.raises(TypeError, match=r"a LateAugmenter can be neither .* save aug.state_dict\(\)"):
            take(augmenter)
        assert next(augmenter)["at"] == (0, 0), "the refusal changes nothing"
