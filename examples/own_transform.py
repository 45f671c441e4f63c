"""Your own transforms, whose params are drawn from shapes alone, and one of batchgeneratorsv2.

Only detaug is needed. Without batchgeneratorsv2 the last part is left out.
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
        # NumPy keeps the stream of `random` from version to version.
        return {"step": 0.1 + 0.4 * rng.random()}

    def change(self, workspace: Any, params: dict[str, Any]) -> None:
        # float32 (C, X, Y[, Z]); a copy, if the array is the caller's.
        image = workspace.writable("image")
        step = np.float32(params["step"])
        image[...] = np.floor(image / step) * step


class EveryOtherPlane(Transform):
    """Keeps the even planes of the first axis, and declares the shape of its results."""

    def change(self, workspace: Any, params: dict[str, Any]) -> None:
        for key in ("image", "segmentation"):
            if key in workspace:
                # A copy: nothing else may hold the array.
                workspace.put(key, workspace[key][:, ::2].copy())

    def output_shapes(self, shapes: Any, params: dict[str, Any]) -> dict[str, Any]:
        result = dict(shapes)
        for key in ("image", "segmentation"):
            channels, num_planes, *others = shapes[key]
            result[key] = (channels, (num_planes + 1) // 2, *others)
        return result


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

    # One line that says everything about this sample's augmentation.
    line = json.dumps(params)
    result = pipeline.apply(sample, params)
    repeated = pipeline.apply(sample, json.loads(line))
    assert fingerprint(repeated) == fingerprint(result)
    print(
        f"{sample['image'].shape} became {result['image'].shape}; the same bytes from params that "
        "were written to JSON"
    )

    if find_spec("batchgeneratorsv2") is not None:
        foreign(sample)
    print("own transforms are as reproducible as detaug's")


def foreign(sample: dict[str, Any]) -> None:
    """Apply a batchgeneratorsv2 transform that draws from NumPy's global generator."""
    from batchgeneratorsv2.transforms.base.basic_transform import ImageOnlyTransform

    class Darker(ImageOnlyTransform):  # type: ignore[misc]
        def get_parameters(self, **data_dict: Any) -> dict[str, Any]:
            return {"share": np.random.uniform(0.5, 1)}

        def _apply_to_image(self, img: Any, share: float) -> Any:
            img *= share
            return img

    pipeline = Compose([ForeignTransform(Darker()), Posterize()])
    result = pipeline(**sample, rng=SeedTree(1234).generator(0, 17))
    repeated = pipeline(**sample, rng=SeedTree(1234).generator(0, 17))
    assert fingerprint(result) == fingerprint(repeated)
    assert not np.array_equal(result["image"], sample["image"])


if __name__ == "__main__":
    main()
