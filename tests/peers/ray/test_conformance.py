"""The engine's contract, kept by actors of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import ray

from detaug.ray import RayExecutor
from tests.support.executor_suite import *  # noqa: F403
from tests.support.executor_suite import Running, running
from tests.support.processes import wait_until

pytestmark = pytest.mark.usefixtures("cluster")


class OneActor(RayExecutor):
    """Each takes seconds to start."""

    def num_workers(self, num_processes: int) -> int:
        return 1


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    with running(lambda: OneActor(1)) as start:
        yield start


class Occupant:
    """Takes CPUs, and does nothing."""

    def there(self) -> None:
        """Once it is."""


@pytest.fixture
def few() -> Iterator[Callable[..., tuple[Running, Callable[[], None]]]]:
    """The cluster has CPUs for one of the actors, until another program's actor ends."""
    occupant = ray.remote(Occupant).options(num_cpus=5).remote()
    ray.get(occupant.there.remote())

    with running(lambda: RayExecutor(1, num_cpus=2, patience=1.0)) as run:

        def start(**options: Any) -> tuple[Running, Callable[[], None]]:
            short = run(**{**options, "num_processes": 2})

            def let_one_join() -> None:
                ray.kill(occupant)
                wait_until(lambda: len(short.engine.worker_pids(ready=True)) >= 2, "another one joins")

            return short, let_one_join

        yield start
    ray.kill(occupant)
