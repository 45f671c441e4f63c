"""Compile kernels ahead of time, in several interpreters at once, and show the progress.

Each interpreter is given its kernels and leaves the compiled code in the cache on disk. Where one
fails or is killed, the caller compiles what is missing.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

from detaug.kernels.cache import cache_folder
from detaug.kernels.compiling import Kernel, all_kernels
from detaug.system.progress import Progress, progress, say

logger = logging.getLogger("detaug")

#: Imports are resolved as here, wherever the package lies.
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from detaug.kernels.ahead import serve;"
    " serve(sys.argv[1:])"
)
#: Seconds that an idle core takes to compile a kernel, on average.
_SECONDS = 2.0
#: Kernels that take as long to compile as an interpreter to start.
_WORTH = 3


def compile_ahead(kernels: Iterable[Kernel], load: bool = True) -> int:
    """Compile kernels, or load them from the cache on disk.

    Announces what has to be compiled in the log (INFO) where that is shown, else on stderr, with a
    bar on a terminal.

    Args:
        kernels: those that will be called.
        load: True: this process will call them. False: those that are in the cache are left there.

    Returns:
        The number of kernels that were not in the cache.
    """
    unique_kernels = list(dict.fromkeys(kernels))
    missing = [kernel for kernel in unique_kernels if not kernel.is_compiled()]
    if missing:
        _compile_missing(missing)
    if load:
        for kernel in unique_kernels:
            kernel.compile()
    return len(missing)


def _compile_missing(kernels: list[Kernel]) -> None:
    """Compile kernels that are not in the cache, with announcements."""
    began = time.perf_counter()
    count = f"{len(kernels)} kernel" if len(kernels) == 1 else f"{len(kernels)} kernels"
    tell = logger.info if logger.isEnabledFor(logging.INFO) else say
    with progress("compiling", len(kernels)) as bar:
        processes = 0
        if cache_folder():
            processes = _processes_for(len(kernels))
        seconds = max(1, round(len(kernels) * _SECONDS / max(1, processes)))
        cores = f"{processes} idle cores" if processes else "an idle core"
        once = "once for this machine; `detaug warmup` does it ahead"
        tell(f"compiling {count}, about {seconds} s on {cores}, {once}")
        if processes:
            _compile_in_interpreters(kernels, processes, bar)
        # All of them, or those with which an interpreter has failed.
        for kernel in [kernel for kernel in kernels if not kernel.is_compiled()]:
            kernel.compile()
            bar.advance()
    tell(f"compiled {count} in {time.perf_counter() - began:.0f} s")


def _processes_for(num_kernels: int) -> int:
    """Return the number of interpreters that are worth their start; 0: none."""
    if hasattr(os, "sched_getaffinity"):
        num_cores = len(os.sched_getaffinity(0))
    else:
        num_cores = os.cpu_count() or 1
    processes = min(num_cores, num_kernels // _WORTH)
    if processes <= 1 or not sys.executable:
        return 0
    return processes


def _compile_in_interpreters(kernels: Iterable[Kernel], processes: int, bar: Progress) -> None:
    """Share kernels out among interpreters, and wait until all have ended."""
    lengths = {}
    for kernel in kernels:
        code = kernel.dispatcher.py_func.__code__.co_code
        lengths[kernel.name] = len(code) * len(kernel.signatures)
    # The longest first, so that the interpreters have about as much to do.
    names = sorted(lengths, key=lengths.__getitem__, reverse=True)
    command = [sys.executable, "-c", _PROGRAM.format(path=sys.path)]
    reader, writer = os.pipe()
    interpreters = []
    for index in range(processes):
        interpreter = subprocess.Popen(
            [*command, *names[index::processes]],
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=subprocess.DEVNULL,
        )
        interpreters.append(interpreter)
    os.close(writer)
    try:
        # A line for every kernel, until all interpreters have closed their end.
        with open(reader) as lines:
            for _ in lines:
                bar.advance()
    finally:
        # Also after Ctrl-C, when nobody waits for them.
        for interpreter in interpreters:
            interpreter.kill()
            interpreter.wait()


def serve(names: Iterable[str]) -> None:
    """Compile kernels in such an interpreter, and print a line for each."""
    # Ctrl-C is the caller's, who ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    by_name = {kernel.name: kernel for kernel in all_kernels()}
    for name in names:
        by_name[name].compile()
        print(name, flush=True)
