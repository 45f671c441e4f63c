"""A cluster of Ray on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed")

#: Numbers that a node claims to have; nobody counts.
CPUS = 8


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """One node, to which this process is connected."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(
        "local",  # others may run one beside it
        num_cpus=CPUS,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=300 * 2**20,
    )
    yield
    ray.shutdown()
