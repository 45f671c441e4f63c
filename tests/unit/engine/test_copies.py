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

from detaug import DeterministicAugmenter
from detaug.nnunet.trainers.late_augmenter import LateAugmenter
from tests.support.ledgers.runs import Draws


def in_a_torch_checkpoint(augmenter: Any) -> None:
    torch.save({"data": augmenter}, io.BytesIO())


def within_a_trainers_loaders(augmenter: Any) -> None:
    copy.deepcopy({"train": [augmenter]})


@pytest.mark.parametrize(
    "take",
    [
        copy.copy,
        copy.deepcopy,
        within_a_trainers_loaders,
        pickle.dumps,
        pickle._dumps,  # type: ignore[attr-defined]
        lambda augmenter: pickle.dumps(augmenter, protocol=0),
        cloudpickle.dumps,
        lambda augmenter: cloudpickle.dumps(lambda: augmenter),
        in_a_torch_checkpoint,
    ],
)
@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("kind", [DeterministicAugmenter, LateAugmenter])
def test_every_copy_is_refused_with_what_to_save(
    kind: type[DeterministicAugmenter], started: bool, take: Callable[[Any], Any]
) -> None:
    with kind(Draws(), None, 0, seed=1, batches_per_epoch=4) as augmenter:
        if started:
            next(augmenter)
        with pytest.raises(TypeError, match=rf"a {kind.__name__} can be neither .* save aug.state_dict\(\)"):
            take(augmenter)
        assert next(augmenter)["at"] == (0, int(started)), "the refusal changes nothing"
