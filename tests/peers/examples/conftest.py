"""An interpreter for pages and examples, which has imported what most of them import."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.preloaded import Preloaded


@pytest.fixture(scope="package")
def interpreter() -> Iterator[Preloaded]:
    """Return the connection to the interpreter."""
    pytest.importorskip("nilearn")
    preloaded = Preloaded.of_tier("nilearn.datasets")
    yield preloaded
    preloaded.close()
