"""A cluster of Ray on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed")

#: Numbers that a node claims to have; nobody counts.
CPUS = 8


#: Of the engines' suite, what an engine does by itself. The rest the schedule does for every
#: engine: those of this machine show it in the default tier, and here every test starts an actor,
#: which imports torch.
OWN = {
    "test_bytes_are_those_of_a_replay",
    "test_work_is_checked",
    "test_streams_of_a_worker_that_does_not_come_are_made_by_another",
    "test_closing_ends_what_was_started_and_may_be_repeated",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (
            item.path.parent.name == "ray"
            and item.path.stem == "test_conformance"
            and item.name not in OWN
        ):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """One node, to which this process is connected."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # else actors wait for whatever else the machine does
    os.environ.setdefault("RAY_worker_niceness", "0")
    # else an interpreter starts for each CPU, and few are ever used
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
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
