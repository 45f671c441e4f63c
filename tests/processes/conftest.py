"""The fixtures of these tests; each of them ends whatever processes it has started."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from tests.support.augmenters import make, mark, script, start_method
from tests.support.processes import a_test_begins, is_over, own_processes, wait_until
from tests.support.trials import preloaded_trials

__all__ = ["make", "mark", "preloaded_trials", "script", "start_method"]


@pytest.fixture(autouse=True)
def no_process_is_left() -> Iterator[None]:
    """A process that a test leaves is found where it was left, and by no later test."""
    a_test_begins()
    yield
    left: list[psutil.Process] = []

    def all_have_ended() -> bool:
        left[:] = [process for process in own_processes() if not is_over(process)]
        return not left

    try:
        wait_until(all_have_ended, "the processes of this test have ended", patience=10)
    finally:
        for process in left:
            process.kill()
