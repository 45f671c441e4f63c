"""State dicts name classes by ``module.qualname``, so these names must stay when classes move."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from hashlib import blake2b
from pathlib import Path

import pytest

from detaug import transforms
from detaug.nnunet import training_transforms, validation_transforms
from detaug.nnunet.transforms import Arguments, default_pipeline
from detaug.nnunet.variants import da5_transforms, no_da_transforms, seg_ord0_transforms
from detaug.objects.description import describe
from tests.support.public_names import assert_found_under_their_own_names
from tests.support.transforms.every_transform import EVERY

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "state_dict_names.json").read_text())
ARGUMENTS = ((16, 16, 16), (-0.5, 0.5), [[1, 1, 1], [0.5, 0.5, 0.5]], (0, 1, 2), False)

NEAREST = {"mode_image": "nearest", "mode_seg": "nearest"}

PIPELINES: dict[str, Callable[[], object]] = {
    "training": partial(
        training_transforms,
        *ARGUMENTS,
        use_mask_for_norm=[True],
        is_cascaded=True,
        foreground_labels=[1, 2],
        regions=[[1, 2], [1]],
        ignore_label=3,
    ),
    "validation": partial(validation_transforms, ARGUMENTS[2]),
    "DA5": partial(da5_transforms, *ARGUMENTS),
    "no DA": partial(no_da_transforms, *ARGUMENTS),
    "ord0": partial(default_pipeline, Arguments(*ARGUMENTS), 1, **NEAREST),
    "seg ord0": partial(seg_ord0_transforms, *ARGUMENTS),
}
for transform, make in EVERY.items():
    # TimedCompose is another name of Compose now; in the golden file it is a class of its own.
    if transform != "TimedCompose":
        PIPELINES[transform] = partial(make, 3)


def texts() -> dict[str, str]:
    """Return what belongs into the golden file: the digest of each pipeline's description."""
    return {name: _digest(describe(make(), "transform")) for name, make in PIPELINES.items()}


def _digest(lines: list[str]) -> str:
    """Return a digest of the lines that describe a pipeline in a state dict."""
    return blake2b("\n".join(lines).encode(), digest_size=8).hexdigest()


@pytest.mark.parametrize("name", PIPELINES)
def test_a_state_dict_describes_a_pipeline_as_before(name: str) -> None:
    lines = describe(PIPELINES[name](), "transform")
    assert _digest(lines) == GOLDEN[name], "\n".join(lines)


@pytest.mark.parametrize("module", ["detaug", "detaug.transforms"])
def test_public_classes_are_found_under_their_own_names(module: str) -> None:
    assert_found_under_their_own_names(module)


def test_seed_trees_and_base_classes_have_public_homes() -> None:
    from detaug import SeedTree

    assert SeedTree.__module__ == "detaug.seeding"
    assert transforms.Transform.__module__ == "detaug.transforms"
    assert transforms.ImageTransform.__module__ == "detaug.transforms"
