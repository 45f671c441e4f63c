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
from queue import SimpleQueue

from detaug.kernels.compiling import Kernel, all_kernels, is_kept
from detaug.reports.progress import Progress, progress

logger = logging.getLogger("detaug")

#: Imports are resolved as here, wherever the package lies.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from detaug.kernels.ahead import serve; serve()"
#: Seconds that an idle core compiles a kernel, on average.
_SECONDS = 1.1
#: An interpreter takes about as long to start as so many kernels to compile.
_WORTH = 3


def compile_ahead(kernels: Iterable[Kernel], load: bool = True) -> int:
    """Compile kernels, or load them from the cache on disk.

    Announces what has to be compiled in the log (INFO) where that is shown, else on stderr, with a bar on a terminal.

    Args:
        kernels: which.
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
            seconds = len(missing) * _SECONDS / max(1, processes)
            cores = f"{processes} idle cores" if processes else "an idle core"
            text = (
                f"compiling {len(missing)} kernel{plural}, about {max(1, round(seconds))} s on {cores}, once for this machine; "
                "`detaug warmup` does it ahead"
            )
            say = logger.info if logger.isEnabledFor(logging.INFO) else shown.say
            say(text)
            if processes:
                _compile_in_interpreters(missing, processes, shown)
            left = [each for each in missing if not each.is_compiled()]
            shown.update(done=len(missing) - len(left))
            for each in left:
                shown.update(f"compiling {each.name}")
                each.compile()
                shown.advance()
        say(f"compiled {len(missing)} kernel{plural} in {time.perf_counter() - began:.0f} s")
    if load:
        for each in asked:
            each.compile()
    return len(missing)


def _processes_for(number: int) -> int:
    """How many interpreters are worth their start for so many kernels; 0: none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min(cores, number // _WORTH)
    return most if most > 1 and sys.executable else 0


def _compile_in_interpreters(kernels: Iterable[Kernel], processes: int, shown: Progress) -> None:
    # The longest first, so that no interpreter is left alone with one of them at the end.
    waiting = deque(each.name for each in sorted(kernels, key=_length, reverse=True))
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
        running = processes
        while running:
            if name := done.get():
                shown.advance()
                shown.update(f"compiled {name}")
            else:
                running -= 1
    finally:  # also by Ctrl-C: nobody waits for them then
        waiting.clear()
        for each in interpreters:
            each.kill()
        for thread in feeding:
            thread.join()


def _length(kernel: Kernel) -> int:
    return len(kernel.dispatcher.py_func.__code__.co_code) * len(kernel.signatures)


def _feed(interpreter: subprocess.Popen[str], waiting: deque[str], done: SimpleQueue[str]) -> None:
    assert interpreter.stdin is not None
    assert interpreter.stdout is not None
    try:
        with interpreter:
            while waiting:
                name = waiting.popleft()
                interpreter.stdin.write(name + "\n")
                if not interpreter.stdout.readline():
                    return
                done.put(name)
    except (OSError, IndexError):  # it is gone, or another thread has taken the last one
        pass
    finally:
        done.put("")


def serve() -> None:
    """Such an interpreter: compiles each kernel that it is told, and answers with a line."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's, who ends this process
    by_name = {each.name: each for each in all_kernels()}
    for line in sys.stdin:
        by_name[line.strip()].compile()
        print(line.strip(), flush=True)
