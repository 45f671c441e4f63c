"""A warning names what transforms load on first use, since every batch would load it again."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from detaug.pipeline.first_use import loaded_on_first_use


class Unsized:
    """An object whose size cannot be read."""

    def __sizeof__(self) -> int:
        raise RuntimeError("a class of the user's")


def test_a_large_object_that_a_batch_has_added_is_named() -> None:
    table = np.zeros(300_000)
    before = SimpleNamespace(table=table, atlas=None, odd=Unsized())
    after = SimpleNamespace(table=table, atlas={"t1": np.zeros(200_000)}, odd=Unsized())
    text = loaded_on_first_use({"transform": before}, {"transform": after}, ())
    assert "load transform.atlas['t1'] (2 MB)" in text
    assert "keep=('atlas',)" in text
    assert loaded_on_first_use({"transform": before}, {"transform": after}, ("atlas",)) == ""
    assert loaded_on_first_use({"transform": before}, {"transform": before}, ()) == ""
