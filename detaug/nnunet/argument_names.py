"""nnU-Net's names of arguments beside the short ones, and what every pipeline takes besides nnU-Net's arguments."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from detaug.transforms import Compose
from detaug.transforms.building.calls import Keys

#: nnU-Net's keyword -> the argument's name here.
NNUNET_NAMES = {
    "rotation_for_DA": "rotation",
    "deep_supervision_scales": "ds_scales",
    "do_dummy_2d_data_aug": "do_dummy_2d",
}


def either_spelling(build: Callable[..., Compose]) -> Callable[..., Compose]:
    """Let a builder take its keywords under nnU-Net's names as well, and ``keys=`` as `detaug.transforms.Compose` does.

    Raises (from the builder):
        TypeError: an argument is given under both names.
    """

    @functools.wraps(build)
    def builder(*positional: Any, keys: Keys | None = None, **named: Any) -> Compose:
        for theirs, ours in NNUNET_NAMES.items():
            if theirs in named:
                if ours in named:
                    raise TypeError(f"{ours} and {theirs} are one argument: pass it once")
                named[ours] = named.pop(theirs)
        pipeline = build(*positional, **named)
        return pipeline if keys is None else Compose(pipeline.transforms, keys=keys, dim=pipeline.dim)

    return builder
