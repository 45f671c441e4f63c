"""The demo's image is the real template."""

from __future__ import annotations

import sys
from importlib.util import find_spec

import numpy as np
import pytest

from detaug.demo import mri

pytestmark = pytest.mark.skipif(find_spec("nilearn") is None, reason="nilearn is not installed")


def test_template_is_the_box_of_the_brain_in_1_mm_voxels() -> None:
    head = mri.load_template()
    assert head.image.shape == head.labels.shape == (145, 181, 155)
    assert head.image.dtype == np.float32
    assert head.labels.dtype == np.int16


def test_intensities_are_normalised_over_the_brain() -> None:
    head = mri.load_template()
    brain = head.image > head.image.min()
    assert head.image[brain].mean(dtype=np.float64) == pytest.approx(0, abs=1e-4)
    assert head.image[brain].std(dtype=np.float64) == pytest.approx(1, abs=1e-4)


def test_white_matter_is_brighter_than_grey_matter_in_t1() -> None:
    head = mri.load_template()
    assert head.image[head.labels == mri.WHITE_MATTER].mean() > head.image[head.labels == mri.GREY_MATTER].mean()


def test_shared_arrays_cannot_be_written_to() -> None:
    with pytest.raises(ValueError, match="read-only"):
        mri.load_template().image[0, 0, 0] = 1


def test_missing_nilearn_is_said_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nilearn", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'detaug\[demo\]'"):
        mri.load_template.__wrapped__()
