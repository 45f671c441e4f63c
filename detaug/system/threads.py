"""One thread for every mathematics library, because sums depend on the number of threads.

The workers are the parallelism.

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

from detaug.system.interpreters import THREAD_VARIABLES

#: The number of modules when the libraries were last set to one thread.
_num_modules = -1


def keep_one_thread() -> None:
    """Set every library to one thread, in a worker, permanently."""
    global _num_modules
    os.environ.update(_variables())
    _num_modules = len(sys.modules)
    if "numba" in sys.modules:
        # Before all others: it starts its thread pool, and tells OpenMP, which torch uses as well,
        # to have that many threads.
        sys.modules["numba"].set_num_threads(1)
    for _, set_number in _libraries().values():
        set_number(1)
    look_for_libraries()


def look_for_libraries() -> None:
    """Find the libraries and set them to one thread; forked processes inherit the result."""
    torch.set_num_threads(1)
    for pool in thread_pools().lib_controllers:
        _set_number(pool.get_num_threads, pool.set_num_threads, 1)


def renew_one_thread() -> None:
    """Set libraries to one thread that the batch before has loaded or changed, in a worker."""
    if len(sys.modules) != _num_modules:
        keep_one_thread()
    elif torch.get_num_threads() != 1:
        torch.set_num_threads(1)


@contextmanager
def one_thread() -> Iterator[None]:
    """Have one thread inside the block, and as many as before afterwards, in the user's process.

    A library that is loaded inside keeps one thread. Numba's threads, which start with the first
    kernel that needs them, are limited from the next block on.
    """
    # Callbacks run in reverse order, also if one of the libraries raises.
    with contextlib.ExitStack() as stack:
        for name, value in _variables().items():
            stack.callback(_set_variable, name, os.environ.get(name))
            os.environ[name] = value
        # Whatever its number is: torch also sets that of its linear algebra, which nobody can read.
        stack.callback(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        pools = [(p.get_num_threads, p.set_num_threads) for p in thread_pools().lib_controllers]
        for number, set_number in (*_libraries().values(), *pools):
            stack.callback(_set_number, number, set_number, number())
            _set_number(number, set_number, 1)
        yield


def _set_number(number: Callable[[], int], set_number: Callable[[int], Any], wanted: int) -> None:
    """Set a library's number of threads, if it has another one."""
    # To end threads and start others takes some milliseconds, and OpenBLAS's new ones spin.
    if number() != wanted:
        set_number(wanted)


def _variables() -> dict[str, str]:
    """Return the environment variables that libraries read their number of threads from."""
    variables = dict.fromkeys(THREAD_VARIABLES, "1")
    if "numba" in sys.modules:
        # Numba refuses another number once its threads run.
        del variables["NUMBA_NUM_THREADS"]
    return variables


def _set_variable(name: str, value: str | None) -> None:
    """Set an environment variable; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value


def thread_pools() -> ThreadpoolController:
    """Return the thread pools of the loaded libraries.

    Looking for them takes some ten milliseconds: it is done again only for another number of
    modules.
    """
    return _thread_pools(len(sys.modules))


@functools.lru_cache(maxsize=1)
def _thread_pools(_: int) -> ThreadpoolController:
    return ThreadpoolController()


#: The functions that return and set the number of threads of a library that threadpoolctl does not
#: know.
_Threads = tuple[Callable[[], int], Callable[[int], Any]]


def _libraries() -> dict[str, _Threads]:
    """Return those of such libraries that are loaded.

    Half-imported ones have not all of their functions yet; the environment holds for them.
    """
    libraries = {}
    for name, threads_of in _KNOWN.items():
        if name in sys.modules:
            with contextlib.suppress(AttributeError):
                libraries[name] = threads_of(sys.modules[name])
    return libraries


def _itk(base: Any) -> _Threads:
    return base.GetGlobalDefaultNumberOfThreads, base.SetGlobalDefaultNumberOfThreads


def _simple_itk(module: Any) -> _Threads:
    return _itk(module.ProcessObject)


def _python_itk(module: Any) -> _Threads:
    return _itk(module.MultiThreaderBase)


def _opencv(module: Any) -> _Threads:
    def set_number(number: int) -> None:
        # 0: no parallel framework at all. 1 would end its pool's threads, for which a forked
        # process would wait forever.
        module.setNumThreads(0 if number == 1 else number)

    return module.getNumThreads, set_number


def _numexpr(module: Any) -> _Threads:
    return module.get_num_threads, module.set_num_threads


def _numba(module: Any) -> _Threads:
    if not module.np.ufunc.parallel._is_initialized:
        # Asking would start its threads in the user's process, and a process forked from it could
        # run none.
        raise AttributeError
    return module.get_num_threads, module.set_num_threads


_KNOWN: dict[str, Callable[[Any], _Threads]] = {
    "numba": _numba,
    "cv2": _opencv,
    "numexpr": _numexpr,
    "SimpleITK": _simple_itk,
    "itk": _python_itk,
}
