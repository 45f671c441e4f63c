"""Compiles kernels in several interpreters at once, which leave them in the cache on disk.

Each interpreter is told one kernel after another, whichever is the next to be free, and answers with a line when that is
compiled. One that fails or is killed costs what it was at: the caller compiles whatever is missing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

import numba

from detaug.kernels.compiling import Kernel, all_kernels
from detaug.kernels.lean import compile_lean

#: Imports are resolved as here, wherever the package lies.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from detaug.kernels.side_by_side import serve; serve()"
#: An interpreter takes about as long to start as so many kernels to compile.
_WORTH = 3


def processes_for(number: int) -> int:
    """How many interpreters are worth their start for so many kernels; 0: none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min(cores, number // _WORTH)
    return most if most > 1 and sys.executable else 0


def compile_side_by_side(kernels: Iterable[Kernel], processes: int, tell: Callable[[str, int], None]) -> None:
    """Have kernels compiled; those of long modules, which take longest, first.

    Args:
        kernels: those that are not in the cache.
        processes: how many interpreters.
        tell: is called with the name of each as soon as it is there, and how many there are by then.
    """
    waiting = deque(each.name for each in sorted(kernels, key=_size, reverse=True))
    compiled = 0
    program = _PROGRAM.format(path=sys.path)
    with contextlib.ExitStack() as stack, selectors.DefaultSelector() as selector:
        for _ in range(processes):
            interpreter = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                bufsize=1,
            )
            stack.callback(_end, interpreter)
            selector.register(interpreter.stdout, selectors.EVENT_READ, interpreter)  # type: ignore[arg-type]
        while selector.get_map():
            for key, _ in selector.select():
                interpreter = key.data
                line = interpreter.stdout.readline()
                if name := line.strip():
                    compiled += 1
                    tell(name, compiled)
                if not line or not _told(interpreter, waiting):
                    selector.unregister(interpreter.stdout)


def _told(interpreter: subprocess.Popen[str], waiting: deque[str]) -> bool:
    """Give it the next kernel, if there is one and it is alive."""
    assert interpreter.stdin is not None
    if not waiting:
        return False
    try:
        interpreter.stdin.write(waiting[0] + "\n")
    except OSError:
        return False
    waiting.popleft()
    return True


def _end(interpreter: subprocess.Popen[str]) -> None:
    for pipe in (interpreter.stdin, interpreter.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]
    interpreter.kill()  # it has nothing to do, or nobody waits for it (Ctrl-C)
    interpreter.wait()


def _size(each: Kernel) -> int:
    """Of its module, bytes."""
    return Path(each.dispatcher.py_func.__code__.co_filename).stat().st_size


def serve() -> None:
    """Such an interpreter: a line when it is ready, and one for each kernel that it was told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's, who ends this process
    numba.config.DISABLE_ERROR_MESSAGE_HIGHLIGHTING = 1  # type: ignore[attr-defined]  # of what nobody reads
    compile_lean()
    by_name = {each.name: each for each in all_kernels()}
    gc.disable()  # a tenth of the time; what compiling leaves behind goes with the process
    print(flush=True)
    for line in sys.stdin:
        by_name[line.strip()].compile()
        print(line.strip(), flush=True)
