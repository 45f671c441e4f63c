"""One thread for every mathematics library: the workers are the parallelism, and sums depend on the
thread count.

Workers always have one thread (`keep_one_thread`, and `renew_one_thread` before each batch), the
calling process while it makes a batch (`one_thread`). Libraries that are loaded later read the
number from the environment, and in workers get it again once they are loaded.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import ThreadpoolController

from detaug.processes.interpreters import THREAD_VARIABLES

_loaded = -1  # modules there were when the libraries were last told


def keep_one_thread() -> None:
    """In a worker, for good."""
    global _loaded
    os.environ.update(_variables())
    _loaded = len(sys.modules)
    if "numba" in sys.modules:
        # first of all: it starts its thread pool, and tells OpenMP, which torch uses as well, to
        # have that many threads
        sys.modules["numba"].set_num_threads(1)
    for _, set_number in _libraries().values():
        set_number(1)
    look_for_libraries()


def look_for_libraries() -> None:
    """In a process that forks others: they find what it found, which takes tens of milliseconds. It
    gets no threads.
    """
    torch.set_num_threads(1)
    for pool in _pools(len(sys.modules)).lib_controllers:
        if (
            pool.get_num_threads() != 1
        ):  # to set it starts OpenBLAS's threads, which spin for tens of milliseconds
            pool.set_num_threads(1)


def renew_one_thread() -> None:
    """In a worker before each batch: limits what the batch before it has loaded or changed."""
    if len(sys.modules) != _loaded:
        keep_one_thread()
    elif torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """In the user's process: inside there is one thread, and afterwards as many as before.

    A library that is loaded inside keeps one thread. Numba's threads, which start with the first
    kernel that needs them, are limited from the next block on.
    """
    with contextlib.ExitStack() as stack:
        for name, value in _variables().items():
            stack.callback(_set_variable, name, os.environ.get(name))
            os.environ[name] = value
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        for number, set_number in _libraries().values():
            stack.callback(set_number, number())
            set_number(1)
        stack.enter_context(_pools(len(sys.modules)).limit(limits=1))
        yield


def _variables() -> dict[str, str]:
    # Numba refuses another number once its threads run.
    return {
        name: "1"
        for name in THREAD_VARIABLES
        if not (name.startswith("NUMBA") and "numba" in sys.modules)
    }


def _set_variable(name: str, value: str | None) -> None:
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


@functools.lru_cache(maxsize=1)
def _pools(_: int) -> ThreadpoolController:
    """Looking for the libraries takes milliseconds: it is done again only for another number of
    modules.
    """
    return ThreadpoolController()


#: Of a library that threadpoolctl does not know: what gives its number of threads, and what sets
#: it.
_Threads = tuple[Callable[[], int], Callable[[int], Any]]


def _libraries() -> dict[str, _Threads]:
    """Those that are loaded. Half-imported ones have not all of their functions yet; the
    environment holds for them.
    """
    found = {}
    for name, look in _KNOWN.items():
        if name in sys.modules:
            with contextlib.suppress(AttributeError):
                found[name] = look(sys.modules[name])
    return found


def _itk(base: Any) -> _Threads:
    return base.GetGlobalDefaultNumberOfThreads, base.SetGlobalDefaultNumberOfThreads


def _numba(module: Any) -> _Threads:
    if not module.np.ufunc.parallel._is_initialized:
        # To ask would start its threads in the user's process, and a process forked from it could
        # run none.
        raise AttributeError
    return module.get_num_threads, module.set_num_threads


_KNOWN: dict[str, Callable[[Any], _Threads]] = {
    "numba": _numba,
    # 0: no parallel framework at all. 1 would end its pool's threads, for which a forked process
    # would wait forever.
    "cv2": lambda module: (
        module.getNumThreads,
        lambda number: module.setNumThreads(0 if number == 1 else number),
    ),
    "numexpr": lambda module: (module.get_num_threads, module.set_num_threads),
    "SimpleITK": lambda module: _itk(module.ProcessObject),
    "itk": lambda module: _itk(module.MultiThreaderBase),
}
