"""Settings, hooks and fixtures of all tests.

Where several processes run tests, the process that hands them out reads this file as well: detaug,
which imports torch for seconds, is imported in functions that it does not call.
"""

from __future__ import annotations

import gc
import logging
import math
import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from filelock import FileLock

# NumPy and torch read these when they are imported, here and in all programs of the tests. They
# make idle threads sleep at once. By default OpenBLAS's threads spin for 30 ms after every start,
# and they are started again after every fork; OpenMP's threads spin at the end of every loop. With
# several tests at a time, spinning threads take the cores from those that work.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Some systems set this variable. Without bytecode files each of hundreds of interpreters would
# compile the package and the tests again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Files and folders that are started first, in this order, where several processes run tests. A
#: long file that is started last would keep one process busy while the others have nothing to do.
_LONGEST = (
    "tests/peers/loops/test_trainings.py",
    "tests/peers/examples/test_documentation.py",
    "tests/peers/ray/",
    "tests/peers/nnunet/trainers/",
    "tests/peers/",
    "tests/processes/engine/test_stalls.py",
    "tests/processes/purity/",
    "tests/processes/verify/",
    "tests/processes/benchmarks/",
    "tests/stress/",
    "tests/processes/",
)

#: Folders whose tests share one cluster, which takes seconds to start.
_CLUSTERS = {"tests/peers/ray"}


def pytest_configure(config: pytest.Config) -> None:
    """Make `--dist loadfile` keep the order below; by default it sorts files by number of tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return a scheduler that gives all files of a folder with a cluster to one process."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrCluster(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folder, _, _ = nodeid.partition("::")[0].rpartition("/")
            return folder if folder in _CLUSTERS else str(super()._split_scope(nodeid))

    return ByFileOrCluster(config, log)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    """Mark rare cases as slow, and sort the tests if several processes run them."""
    from tests.support.augmenters import mark_rare_cases

    # Before the other hooks, as `-m` selects tests by their marks there.
    mark_rare_cases(items)
    yield
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_order_of_start)


def _order_of_start(item: pytest.Item) -> int:
    """Return the index of a test's file in `_LONGEST`, or its length for all other files."""
    for index, prefix in enumerate(_LONGEST):
        if item.nodeid.startswith(prefix):
            return index
    return len(_LONGEST)


def compile_missing_kernels(config: pytest.Config) -> None:
    """Compile missing kernels, as in a fresh clone, before several processes run tests.

    One process compiles all kernels on all cores and the others wait. Otherwise each would compile
    those that its own tests need. No test's timeout runs meanwhile.
    """
    from detaug.kernels.ahead import compile_ahead
    from detaug.kernels.compiling import all_kernels

    assert config.cache is not None
    with FileLock(config.cache.mkdir("kernels") / "lock"):
        compile_ahead(all_kernels(), load=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Prepare this process for tests that fork, after all files have been imported."""
    if session.config.option.collectonly:
        return
    if "PYTEST_XDIST_WORKER" in os.environ:
        compile_missing_kernels(session.config)
    # A garbage collection in a fork would write to every inherited object, and so copy its memory.
    gc.collect()
    gc.freeze()
    # Saves time: for every stage of a test pytest adds a handler to each logger that does not
    # propagate its records, and torch has forty of these.
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("torch"):
            logger.propagate = True


@pytest.fixture(autouse=True)
def nothing_comes_of_how_long_it_takes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Switch off what a run does after some seconds, except in the tests of exactly that.

    On a busy machine a run may last long enough to start an interpreter with another hash seed,
    and an epoch long enough for a log message that the loop waited.
    """
    from detaug.engine import wait_stats as health
    from detaug.engine.recheck import policy as checks

    monkeypatch.setattr(checks, "LONG_RUN", math.inf)
    if request.path.stem != "test_health":
        monkeypatch.setattr(health, "_SHORTEST", math.inf)


@pytest.fixture(autouse=True)
def no_seed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variable that would give every augmenter a seed."""
    monkeypatch.delenv("DETAUG_SEED", raising=False)


@pytest.fixture(autouse=True)
def no_temporary_module_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Restore sys.path after each test, and forget the modules of its temporary folders.

    A command puts a factory's folder into sys.path, and modules of two tests may have one name.
    """
    path_before = [*sys.path]
    yield
    if sys.path == path_before:
        return
    sys.path[:] = path_before
    temporary = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if file.startswith(temporary):
            del sys.modules[name]
