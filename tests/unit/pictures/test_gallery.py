"""docs/gallery.md has every transform, with pictures that are made by the code that it shows."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from docs import gallery
from tests.support.transforms.every_transform import public_transforms

pytestmark = pytest.mark.skipif(find_spec("nilearn") is None, reason="nilearn is not installed")


def test_page_is_what_the_script_writes() -> None:
    assert gallery.PAGE.read_text(encoding="utf-8") == gallery.page(), (
        "run `python -m docs.gallery`"
    )
    files = {entry.file for entry in gallery.entries()}
    assert {path.name for path in gallery.PICTURES.glob("*")} == files
    assert len(files) == len(list(gallery.entries()))


def test_every_transform_is_on_the_page() -> None:
    shown = {entry.name for entry in gallery.entries()}
    assert shown | set(gallery.WITHOUT_PICTURES) == public_transforms()
    assert not shown & set(gallery.WITHOUT_PICTURES)


def test_pictures_are_made_by_the_code_that_is_shown() -> None:
    names = gallery.preparation()
    for entry in gallery.entries():
        picture = gallery.picture(entry, names)
        committed = np.asarray(Image.open(gallery.PICTURES / entry.file).convert("RGB"))
        assert committed.shape == picture.shape, entry.title
        # The file has a small palette, so its colours differ a little.
        difference = np.abs(committed.astype(int) - picture).mean()
        assert difference < 12, f"{entry.title}: run `python -m docs.gallery`"
        original, *strengths = np.array_split(picture, 4, axis=1)
        is_changed = [not np.array_equal(strength, original) for strength in strengths]
        assert any(is_changed), f"{entry.title} changes nothing"


def test_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in Path(gallery.PICTURES).glob("*.png")) < 1.5e6


def test_code_that_shows_no_three_strengths_is_refused() -> None:
    with pytest.raises(ValueError, match=r"three strengths are shown, and .* makes 2"):
        gallery.picture(gallery.Entry("Mirror", "[Mirror((0,))] * 2"), gallery.preparation())
