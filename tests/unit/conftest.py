"""A unit test starts no process and leaves the interpreter's tracing as it found it, or fails."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

#: What the interpreter says before it starts one; `multiprocessing` goes through these as well.
_STARTS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.system", "subprocess.Popen"}
_started: list[str] = []


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    # Where kernels are missing, as in a fresh clone, whichever test needs them first has them
    # compiled.
    if event in _STARTS and "detaug.kernels.ahead" not in str(arguments):
        _started.append(event)


sys.addaudithook(_note)


@pytest.fixture(scope="session", autouse=True)
def matplotlib_knows_the_fonts() -> None:
    """Import what lists the system's fonts: on a new machine it starts a process for that, once."""
    with suppress(ImportError):
        importlib.import_module("matplotlib.font_manager")


@pytest.fixture(autouse=True)
def no_process_is_started(request: pytest.FixtureRequest) -> Iterator[None]:
    _started.clear()
    yield
    # torch.compile may start a compiler.
    if request.node.get_closest_marker("slow"):
        return
    assert not _started, (
        f"a unit test starts no process; this one called {_started[0]}: it belongs to "
        "tests/processes"
    )


@pytest.fixture(autouse=True)
def tracing_stays() -> Iterator[None]:
    """Coverage is taken through it: a test that ends it ends the coverage of all that run after it."""
    before = sys.gettrace(), sys.getprofile()
    yield
    assert (sys.gettrace(), sys.getprofile()) == before
