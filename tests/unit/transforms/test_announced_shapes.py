"""A transform whose output has another shape than it announced raises an error.

Otherwise a later transform would draw params for the wrong shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detaug import transforms as t
from detaug.transforms import Transform
from tests.support.transforms.generators import rng


class Halved(Transform):
    """A transform that keeps every other voxel of the last axis without announcing it."""

    def change(self, workspace: Any, params: Any) -> None:
        for key in ("image", "segmentation"):
            if key in workspace:
                workspace.put(key, workspace[key][..., ::2].copy())


class AnnouncedInVain(Transform):
    """A transform that announces another shape but changes nothing."""

    def change(self, workspace: Any, params: Any) -> None:
        pass

    def output_shapes(self, shapes: Any, params: Any) -> dict[str, Any]:
        return {key: (*shape[:-1], -(-shape[-1] // 2)) for key, shape in shapes.items()}


def sample(*space: int) -> dict[str, np.ndarray]:
    return {
        "image": np.ones((2, *space), np.float32),
        "segmentation": np.ones((1, *space), np.int16),
    }


@pytest.mark.parametrize("space", [(20, 20), (9, 10, 13)])
def test_a_shape_that_was_not_announced_is_an_error_with_the_line_to_write(
    space: tuple[int, ...],
) -> None:
    message = (
        r"Halved gave image of shape \(2, .*\), but \(2, .*\) was expected.*def "
        r"output_shapes\(self, shapes, params\): return"
    )
    for pipeline in (
        Halved(),
        t.Compose([Halved(), t.RandomCrop((5,) * len(space))]),
        t.RandomApply(t.OneOf([Halved()]), 1),
    ):
        with pytest.raises(ValueError, match=message):
            pipeline(**sample(*space), rng=rng())
    with pytest.raises(ValueError, match=r"AnnouncedInVain gave image of shape"):
        AnnouncedInVain()(**sample(*space), rng=rng())


def test_the_line_that_the_error_gives_mends_it() -> None:
    with pytest.raises(ValueError, match="give Halved the method") as raised:
        Halved()(image=np.ones((1, 8, 8), np.float32), rng=rng())
    _, _, code = str(raised.value).partition("the method ")
    names: dict[str, Any] = {}
    exec(code, names)
    mended = type("Mended", (Halved,), {"output_shapes": names["output_shapes"]})()
    assert mended(image=np.ones((1, 8, 8), np.float32), rng=rng())["image"].shape == (1, 8, 4)
