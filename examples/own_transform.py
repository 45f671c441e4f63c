"""A transform of one's own: params first, drawn from shapes alone; a batchgeneratorsv2 transform,
changed and as it is.

Nothing is needed but detaug (the last part asks for batchgeneratorsv2, and is left out without it).
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from typing import Any

import numpy as np

from detaug import SeedTree, fingerprint
from detaug.transforms import (
    Compose,
    ForeignTransform,
    GaussianNoise,
    ImageTransform,
    Mirror,
    Transform,
)


class Posterize(ImageTransform):
    """Rounds the image to steps of a random width."""

    def draw(self, rng: np.random.Generator, shapes: Any, context: Any) -> dict[str, Any]:
        return {"step": 0.1 + 0.4 * rng.random()}  # `random` is the method whose stream NumPy keeps

    def change(self, workspace: Any, params: dict[str, Any]) -> None:
        image = workspace.writable("image")  # float32 (C, X, Y[, Z]), copied if it is the caller's
        image[...] = np.floor(image / np.float32(params["step"])) * np.float32(params["step"])


class EveryOtherPlane(Transform):
    """Keeps the first axis' even planes: another shape, so it says which."""

    def change(self, workspace: Any, params: dict[str, Any]) -> None:
        for key in ("image", "segmentation"):
            if key in workspace:
                workspace.put(
                    key, workspace[key][:, ::2].copy()
                )  # an array that nothing else holds

    def output_shapes(self, shapes: Any, params: dict[str, Any]) -> dict[str, Any]:
        halved = {
            key: (shapes[key][0], -(-shapes[key][1] // 2), *shapes[key][2:])
            for key in ("image", "segmentation")
        }
        return {**shapes, **halved}


def main() -> None:
    sample = {
        "image": np.random.default_rng(0).normal(size=(1, 16, 20, 24)).astype(np.float32),
        "segmentation": np.zeros((1, 16, 20, 24), np.int16),
    }
    pipeline = Compose([Posterize(), EveryOtherPlane(), Mirror((0, 1, 2)), GaussianNoise((0, 0.1))])
    print(pipeline)

    shapes = {key: array.shape for key, array in sample.items()}
    params = pipeline.sample(SeedTree(1234).generator(epoch=0, step=17, sample=0), shapes)
    print(pipeline.describe(params))

    ledger = json.dumps(params)  # what was done to this sample, in one line
    made = pipeline.apply(sample, params)
    again = pipeline.apply(sample, json.loads(ledger))
    assert fingerprint(again) == fingerprint(made)
    print(
        f"{sample['image'].shape} became {made['image'].shape}; the same bytes from params that "
        "were written to JSON"
    )

    if find_spec("batchgeneratorsv2") is not None:
        foreign(sample)
    print("own transforms are as reproducible as detaug's")


def foreign(sample: dict[str, Any]) -> None:
    """A batchgeneratorsv2 transform as it is: one that draws from NumPy's global generator."""
    from batchgeneratorsv2.transforms.base.basic_transform import ImageOnlyTransform

    class Darker(ImageOnlyTransform):  # type: ignore[misc]
        def get_parameters(self, **data_dict: Any) -> dict[str, Any]:
            return {"share": np.random.uniform(0.5, 1)}

        def _apply_to_image(self, img: Any, share: float) -> Any:
            img *= share
            return img

    pipeline = Compose([ForeignTransform(Darker()), Posterize()])
    one, other = (pipeline(**sample, rng=SeedTree(1234).generator(0, 17)) for _ in range(2))
    assert fingerprint(one) == fingerprint(other)
    assert not np.array_equal(one["image"], sample["image"])


if __name__ == "__main__":
    main()
