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
from collections.abc import Callable, Iterable
from typing import Any

from detaug.kernels.compiling import Kernel, all_kernels
from detaug.kernels.lean import compile_lean
from detaug.kernels.sharing import choose, parts_of

#: Imports are resolved as here, wherever the package lies.
_PROGRAM = "import sys; sys.path[:] = {path!r}; from detaug.kernels.side_by_side import serve; serve()"
#: An interpreter takes about as long to start as so many kernels to compile.
_WORTH = 3
#: Numba colours messages as it makes them, also those that nobody reads. It asks when it is imported.
_PLAIN = {"NUMBA_DISABLE_ERROR_MESSAGE_HIGHLIGHTING": "1"}


def processes_for(number: int) -> int:
    """How many interpreters are worth their start for so many kernels; 0: none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = min(cores, number // _WORTH)
    return most if most > 1 and sys.executable else 0


def compile_side_by_side(kernels: Iterable[Kernel], processes: int, tell: Callable[[str, int], None]) -> None:
    """Have kernels compiled, in the order that `detaug.kernels.sharing` finds.

    Args:
        kernels: those that are not in the cache.
        processes: how many interpreters.
        tell: is called with the name of each as soon as it is there, and how many there are by then.
    """
    waiting = {each.name: each for each in kernels}
    parts = {each: parts_of(each) for each in waiting.values()}
    has: dict[Any, dict[Any, int]] = {}
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
                env={**os.environ, **_PLAIN},
            )
            stack.callback(_end, interpreter)
            has[interpreter] = {}
            selector.register(interpreter.stdout, selectors.EVENT_READ, interpreter)  # type: ignore[arg-type]
        while selector.get_map():
            for key, _ in selector.select():
                interpreter = key.data
                line = interpreter.stdout.readline()
                if name := line.strip():
                    compiled += 1
                    tell(name, compiled)
                if not line or not waiting:
                    selector.unregister(interpreter.stdout)
                    continue
                others = [theirs for each, theirs in has.items() if each is not interpreter]
                chosen = choose(waiting.values(), parts, has[interpreter], others)
                if not _told(interpreter, chosen.name):
                    selector.unregister(interpreter.stdout)
                    continue
                del waiting[chosen.name]
                has[interpreter].update(parts[chosen])


def _told(interpreter: subprocess.Popen[str], name: str) -> bool:
    """Give it a kernel, if it is alive."""
    assert interpreter.stdin is not None
    try:
        interpreter.stdin.write(name + "\n")
    except OSError:
        return False
    return True


def _end(interpreter: subprocess.Popen[str]) -> None:
    for pipe in (interpreter.stdin, interpreter.stdout):
        with contextlib.suppress(OSError):
            pipe.close()  # type: ignore[union-attr]
    interpreter.kill()  # it has nothing to do, or nobody waits for it (Ctrl-C)
    interpreter.wait()


def serve() -> None:
    """Such an interpreter: a line when it is ready, and one for each kernel that it was told."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's, who ends this process
    compile_lean()
    by_name = {each.name: each for each in all_kernels()}
    gc.disable()  # a tenth of the time; what compiling leaves behind goes with the process
    print(flush=True)
    for line in sys.stdin:
        by_name[line.strip()].compile()
        print(line.strip(), flush=True)
