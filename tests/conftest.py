"""What holds for all tests.

Where tests run side by side, the process that hands them out reads this file as well: detaug, which
imports torch for seconds, is imported in functions that it does not call.
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

# Read when NumPy and torch are imported, here and in all programs of the tests: threads that wait
# sleep at once. OpenBLAS's would spin for 30 ms whenever they are started, which they are again
# after every fork; OpenMP's at the end of every loop, and with several tests at a time for one that
# has no core to run on.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Some systems forbid bytecode files: every one of hundreds of interpreters would then compile the
# package and the tests again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

#: Started first where tests run side by side, so that nobody waits for one of them at the end.
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

#: Folders whose tests share a fixture of their package.
_CLUSTERS = {"tests/peers/ray"}


def pytest_configure(config: pytest.Config) -> None:
    """With `--dist loadfile` files are handed out in the order below, not by their number of tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Have one process run all files of a folder that starts a cluster, which takes seconds."""
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
    """Marks before `-m` looks at them; then the longest files first, where tests run side by side."""
    from tests.support.augmenters import mark_rare_cases

    mark_rare_cases(items)
    yield
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return

    def place(item: pytest.Item) -> int:
        name = item.nodeid
        return next(
            (place for place, start in enumerate(_LONGEST) if name.startswith(start)), len(_LONGEST)
        )

    items.sort(key=place)


def compile_missing_kernels(config: pytest.Config) -> None:
    """Compile kernels that are missing, as in a fresh clone, before tests run side by side.

    One process compiles all of them on every core, and the others wait. Else each would compile
    what its own tests need. No test's timeout runs meanwhile.
    """
    from detaug.kernels.ahead import compile_ahead
    from detaug.kernels.compiling import all_kernels

    assert config.cache is not None
    with FileLock(config.cache.mkdir("kernels") / "lock"):
        compile_ahead(all_kernels(), load=False)


def pytest_collection_finish(session: pytest.Session) -> None:
    """All files have been imported; from here on tests fork."""
    if session.config.option.collectonly:
        return
    if "PYTEST_XDIST_WORKER" in os.environ:
        compile_missing_kernels(session.config)
    # A collection of garbage in a fork would write to every inherited object, and so copy it.
    gc.collect()
    gc.freeze()
    # For every stage of a test pytest adds a handler to each logger that keeps records to itself,
    # as torch's forty do.
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("torch"):
            logger.propagate = True


@pytest.fixture(autouse=True)
def nothing_comes_of_how_long_it_takes(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a run does after some seconds it does in the tests about that alone.

    On a busy machine a run may last long enough to start an interpreter with another hash seed,
    and an epoch long enough for the log to say that the loop waited.
    """
    from detaug.engine import wait_stats as health
    from detaug.engine.recheck import policy as checks

    monkeypatch.setattr(checks, "LONG_RUN", math.inf)
    if request.path.stem != "test_health":
        monkeypatch.setattr(health, "_SHORTEST", math.inf)


@pytest.fixture(autouse=True)
def no_seed_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DETAUG_SEED", raising=False)


@pytest.fixture(autouse=True)
def no_temporary_module_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A factory's folder is put into sys.path: a later test's module may have the same name."""
    before = [*sys.path]
    yield
    if sys.path == before:
        return
    sys.path[:] = before
    temporary = str(tmp_path_factory.getbasetemp())
    for name, module in list(sys.modules.items()):
        if (getattr(module, "__file__", None) or "").startswith(temporary):
            del sys.modules[name]
