"""A cluster of Ray on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

ray = pytest.importorskip("ray", reason="Ray is not installed")

#: Numbers that a node claims to have; nobody counts.
CPUS = 8


#: Of the engines' suite, what the schedule does for every engine: those of this machine show it in the default tier, and
#: here every test starts an actor, which imports torch. Order, epochs and errors are in test_losses.py too.
SCHEDULES = {
    "test_batches_come_in_order_and_epochs_end",
    "test_a_move_goes_anywhere",
    "test_a_ledger_has_every_batch_as_it_was_given",
    "test_a_failure_is_raised_until_the_position_is_moved",
    "test_what_is_put_back_is_due_again",
    "test_failures_can_be_left_out",
    "test_other_ranks_steps_are_theirs",
    "test_several_threads_get_each_batch_once_and_right",
    "test_failures_reach_every_thread",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "ray" and item.name in SCHEDULES:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="package")
def cluster() -> Iterator[None]:
    """One node, to which this process is connected."""
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    os.environ.setdefault("RAY_worker_niceness", "0")  # else actors wait for whatever else the machine does
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
