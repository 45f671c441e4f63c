"""A cluster of Ray on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed")

#: CPUs that the node claims to have, whatever the machine has.
CPUS = 8

#: Tests of the engines' suite that show what an engine does by itself. The others show what the
#: schedule does for every engine. They are slow here, since each starts an actor, which imports
#: torch; in the default tier the engines of this machine run them.
OWN_TESTS = {
    "test_bytes_are_those_of_a_replay",
    "test_work_is_checked",
    "test_streams_of_a_worker_that_does_not_come_are_made_by_another",
    "test_closing_ends_what_was_started_and_may_be_repeated",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the engines' suite as slow, except `OWN_TESTS`."""
    for item in items:
        is_of_suite = item.path.parent.name == "ray" and item.path.stem == "test_conformance"
        if is_of_suite and item.name not in OWN_TESTS:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """Start a cluster of one node and connect this process to it."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    # By default actors wait for all other programs of the machine.
    os.environ.setdefault("RAY_worker_niceness", "0")
    # By default an interpreter starts for each CPU, and few of them are ever used.
    os.environ.setdefault("RAY_prestart_worker_first_driver", "0")
    # "local" starts another cluster even if one runs on this machine.
    ray.init(
        "local",
        num_cpus=CPUS,
        include_dashboard=False,
        log_to_driver=False,
        configure_logging=False,
        object_store_memory=300 * 2**20,
    )
    yield
    ray.shutdown()
