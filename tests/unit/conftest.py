"""Fixtures that fail a unit test if it starts a process or changes the interpreter's tracing."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

#: Audit events that come before the start of a process. `multiprocessing` raises them as well.
_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
#: Those of the running test.
_started: list[str] = []


def _record_start(event: str, arguments: tuple[Any, ...]) -> None:
    """Record an audit event if it starts a process."""
    # In a fresh clone the first test that needs kernels starts processes that compile them.
    if event in _STARTS and "detaug.kernels.ahead" not in str(arguments):
        _started.append(event)


sys.addaudithook(_record_start)


@pytest.fixture(scope="session", autouse=True)
def matplotlib_knows_the_fonts() -> None:
    """Import matplotlib's list of fonts, as its first import on a machine starts a process."""
    with suppress(ImportError):
        importlib.import_module("matplotlib.font_manager")


@pytest.fixture(autouse=True)
def no_process_is_started(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that has started a process."""
    _started.clear()
    yield
    # Slow tests use torch.compile, which may start a compiler.
    if request.node.get_closest_marker("slow"):
        return
    assert not _started, (
        f"a unit test starts no process; this one called {_started[0]}: it belongs to "
        "tests/processes"
    )


@pytest.fixture(autouse=True)
def tracing_stays() -> Iterator[None]:
    """Fail a test that changes the trace function: coverage of all later tests would be lost."""
    trace_before = sys.gettrace()
    profile_before = sys.getprofile()
    yield
    assert sys.gettrace() == trace_before
    assert sys.getprofile() == profile_before
