"""Compiles kernels ahead of time, in several interpreters at once, announces it, and shows the progress.

Each interpreter is given one kernel after another and leaves the compiled code in the cache on disk. One that fails or is
killed costs what it was at: the caller compiles whatever is missing.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any

from detaug.kernels.compiling import Kernel, all_kernels, is_kept
from detaug.reports.progress import Progress, progress

logger = logging.getLogger("detaug")

#: Imports are resolved as here, wherever the package lies.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from detaug.kernels.ahead import serve; serve()"
_SECONDS = 1.1  # that an idle core compiles a kernel, on average
_WORTH = 3  # kernels to compile: an interpreter takes about as long to start


def compile_ahead(kernels: Iterable[Kernel], load: bool = True) -> int:
    """Compile kernels, or load them from the cache on disk.

    Announces what has to be compiled in the log (INFO) where that is shown, else on stderr, with a bar on a terminal.

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
        with progress("compiling", len(missing), told=False) as shown:
            processes = _processes_for(len(missing)) if is_kept() else 0
            seconds = max(1, round(len(missing) * _SECONDS / max(1, processes)))
            say = logger.info if logger.isEnabledFor(logging.INFO) else shown.say
            cores = f"{processes} idle cores" if processes else "an idle core"
            once = "once for this machine; `detaug warmup` does it ahead"
            say(f"compiling {len(missing)} kernel{plural}, about {seconds} s on {cores}, {once}")
            if processes:
                _compile_in_interpreters(missing, processes, shown)
            for each in [each for each in missing if not each.is_compiled()]:
                shown.update(f"compiling {each.name}")
                each.compile()
                shown.advance()
        say(f"compiled {len(missing)} kernel{plural} in {time.perf_counter() - began:.0f} s")
    for each in asked if load else ():
        each.compile()
    return len(missing)


def _processes_for(number: int) -> int:
    """How many interpreters are worth their start for so many kernels; 0: none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min(cores, number // _WORTH)
    return most if most > 1 and sys.executable else 0


def _compile_in_interpreters(kernels: Iterable[Kernel], processes: int, shown: Progress) -> None:
    # The longest first, so that no interpreter is left alone with one of them at the end.
    lengths = {each.name: len(each.dispatcher.py_func.__code__.co_code) * len(each.signatures) for each in kernels}
    waiting = deque(sorted(lengths, key=lengths.__getitem__, reverse=True))
    done: SimpleQueue[str] = SimpleQueue()  # a kernel's name; an empty one from an interpreter that has ended
    program = _PROGRAM.format(path=sys.path)
    interpreters = [
        subprocess.Popen([sys.executable, "-c", program], stdin=-1, stdout=-1, stderr=-3, text=True, bufsize=1)
        for _ in range(processes)
    ]
    feeding = [threading.Thread(target=_feed, args=(each, waiting, done)) for each in interpreters]
    try:
        for thread in feeding:
            thread.start()
        for _ in range(processes):
            while name := done.get():
                shown.advance()
                shown.update(f"compiled {name}")
    finally:  # also by Ctrl-C: nobody waits for them then
        waiting.clear()
        for each in interpreters:
            each.kill()
        for thread in feeding:
            thread.join()


def _feed(interpreter: Any, waiting: deque[str], done: SimpleQueue[str]) -> None:
    with suppress(OSError, IndexError), interpreter:  # it is gone, or another thread has taken the last one
        while waiting:
            name = waiting.popleft()
            interpreter.stdin.write(name + "\n")
            if not interpreter.stdout.readline():
                break
            done.put(name)
    done.put("")


def serve() -> None:
    """Such an interpreter: compiles each kernel that it is told, and answers with a line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's, who ends this process
    by_name = {each.name: each for each in all_kernels()}
    for line in sys.stdin:
        by_name[line.strip()].compile()
        print(line.strip(), flush=True)
