"""The demo's image is the real template."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from detaug.demo import mri

pytestmark = pytest.mark.skipif(find_spec("nilearn") is None, reason="nilearn is not installed")


def test_template_is_the_box_of_the_brain_normalised_over_it_and_read_only() -> None:
    head = mri.load_template()
    assert head.image.shape == head.labels.shape == (145, 181, 155)
    assert head.image.dtype == np.float32
    assert head.labels.dtype == np.int16
    brain = head.image > head.image.min()
    assert head.image[brain].mean(dtype=np.float64) == pytest.approx(0, abs=1e-4)
    assert head.image[brain].std(dtype=np.float64) == pytest.approx(1, abs=1e-4)
    white = head.image[head.labels == mri.WHITE_MATTER].mean()
    grey = head.image[head.labels == mri.GREY_MATTER].mean()
    assert white > grey, "as in T1"
    with pytest.raises(ValueError, match="read-only"):
        head.image[0, 0, 0] = 1
