"""Actors of a cluster keep the contract of an engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from detaug.ray import RayExecutor
from tests.support.executor_suite import *  # noqa: F403
from tests.support.executor_suite import Running, running

pytestmark = pytest.mark.usefixtures("cluster")


class OneActor(RayExecutor):
    """An executor with one actor, whatever is asked for: each takes seconds to start."""

    def num_workers(self, num_processes: int) -> int:
        return 1


@pytest.fixture
def run() -> Iterator[Callable[..., Running]]:
    """Return a function that starts an engine with one actor."""
    with running(partial(OneActor, 1)) as start:
        yield start


@pytest.fixture
def run_two() -> Iterator[Callable[..., Running]]:
    """Return a function that starts an engine with two actors."""
    with running(partial(RayExecutor, 2)) as start:

        def start_two(**options: Any) -> Running:
            return start(num_processes=0, **options)

        yield start_two
