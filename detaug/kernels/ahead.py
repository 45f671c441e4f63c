"""Compiles kernels ahead of time, in several interpreters at once, announces it, and shows the
progress.

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
from detaug.reports.progress import Progress, progress, say

logger = logging.getLogger("detaug")

#: Imports are resolved as here, wherever the package lies.
_PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from detaug.kernels.ahead import serve;"
    " serve(sys.argv[1:])"
)
_SECONDS = 2.0  # that an idle core compiles a kernel, on average
_WORTH = 3  # kernels to compile: an interpreter takes about as long to start


def compile_ahead(kernels: Iterable[Kernel], load: bool = True) -> int:
    """Compile kernels, or load them from the cache on disk.

    Announces what has to be compiled in the log (INFO) where that is shown, else on stderr, with a
    bar on a terminal.

    Args:
        load: whether this process will call them. Else those that are in the cache are left there.

    Returns:
        How many were not in the cache.
    """
    asked = list(dict.fromkeys(kernels))
    missing = [each for each in asked if not each.is_compiled()]
    if missing:
        began = time.perf_counter()
        plural = "s" if len(missing) > 1 else ""
        with progress("compiling", len(missing)) as shown:
            processes = _processes_for(len(missing)) if cache_folder() else 0
            seconds = max(1, round(len(missing) * _SECONDS / max(1, processes)))
            tell = logger.info if logger.isEnabledFor(logging.INFO) else say
            cores = f"{processes} idle cores" if processes else "an idle core"
            once = "once for this machine; `detaug warmup` does it ahead"
            tell(f"compiling {len(missing)} kernel{plural}, about {seconds} s on {cores}, {once}")
            if processes:
                _compile_in_interpreters(missing, processes, shown)
            for each in [each for each in missing if not each.is_compiled()]:
                each.compile()
                shown.advance()
        tell(f"compiled {len(missing)} kernel{plural} in {time.perf_counter() - began:.0f} s")
    for each in asked if load else ():
        each.compile()
    return len(missing)


def _processes_for(number: int) -> int:
    """How many interpreters are worth their start for so many kernels; 0: none."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    most = min(cores, number // _WORTH)
    return most if most > 1 and sys.executable else 0


def _compile_in_interpreters(kernels: Iterable[Kernel], processes: int, shown: Progress) -> None:
    # The longest first, so that the interpreters have about as much to do.
    lengths = {
        each.name: len(each.dispatcher.py_func.__code__.co_code) * len(each.signatures)
        for each in kernels
    }
    names = sorted(lengths, key=lengths.__getitem__, reverse=True)
    command, told = [sys.executable, "-c", _PROGRAM.format(path=sys.path)], os.pipe()
    interpreters = [
        subprocess.Popen(
            [*command, *names[n::processes]],
            stdin=subprocess.DEVNULL,
            stdout=told[1],
            stderr=subprocess.DEVNULL,
        )
        for n in range(processes)
    ]
    os.close(told[1])
    try:
        with open(told[0]) as lines:  # until all interpreters have ended
            for _ in lines:
                shown.advance()
    finally:  # also by Ctrl-C: nobody waits for them then
        for each in interpreters:
            each.kill()
            each.wait()


def serve(names: Iterable[str]) -> None:
    """Such an interpreter: compiles its kernels, and says so of each by a line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's, who ends this process
    by_name = {each.name: each for each in all_kernels()}
    for name in names:
        by_name[name].compile()
        print(name, flush=True)
