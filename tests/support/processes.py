"""Looking at processes and descriptors from outside, and running a user's script."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from pathlib import Path

import psutil

import detaug
from tests.support.preloaded import PRELOADED
from tests.support.waiting import PATIENCE, result_of

_MARK = "DETAUG_ACCEPTANCE_RUN"
_PACKAGES = str(Path(detaug.__file__).resolve().parent.parent)


def descendants() -> list[psutil.Process]:
    """All but the helper that Python's own multiprocessing starts once for a whole program, if some
    test has needed it.
    """
    tracker = getattr(resource_tracker._resource_tracker, "_pid", None)  # type: ignore[attr-defined]
    return [
        process for process in psutil.Process().children(recursive=True) if process.pid != tracker
    ]


_earlier: set[psutil.Process] = set()


def a_test_begins() -> None:
    """From now on, descendants that are there already are an earlier test's."""
    _earlier.clear()
    _earlier.update(descendants())


def own_processes() -> list[psutil.Process]:
    """The descendants that the test has started, and those that they have started."""
    return [process for process in descendants() if process not in _earlier]


def worker_pids() -> list[int]:
    """The workers of the test's augmenters, and a process that checks: children of their helpers."""
    pids = []
    for helper in psutil.Process().children():
        if helper not in _earlier:
            # It may just have ended.
            with suppress(psutil.NoSuchProcess):
                pids += [worker.pid for worker in helper.children()]
    return pids


def is_over(process: psutil.Process) -> bool:
    """Tell whether a process runs no more, though nobody may have asked how it ended."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def open_descriptors() -> dict[str, str]:
    """Descriptor → what it stands for, of the calling process."""
    found = {}
    for entry in os.listdir("/dev/fd"):
        try:
            status = os.fstat(int(entry))
        # The descriptor of the listing itself.
        except OSError:
            continue
        found[entry] = f"{status.st_dev} {status.st_ino} {status.st_mode:o}"
    return found


def wait_until(condition: Callable[[], bool], what: str, patience: float = 60.0) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not after {patience:g} s")
        time.sleep(0.01)


@dataclass
class Script:
    """A user's script run as a program in a session of its own; every process of it can be told by
    that, or, where it has made another session, by its environment.
    """

    process: subprocess.Popen[str]
    mark: str
    lines: list[str] = field(default_factory=list)
    err: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def read_line(self) -> str:
        assert self.process.stdout is not None
        line = result_of(self.process.stdout.readline, "the script has printed a line")
        self.lines.append(line.rstrip("\n"))
        return self.lines[-1]

    def alive(self) -> list[int]:
        """The pids of all processes of this run, the script's own and whoever was adopted by init;
        no zombies.
        """
        found = []
        for process in psutil.process_iter():
            try:
                ours = (
                    os.getsid(process.pid) == self.pid or process.environ().get(_MARK) == self.mark
                )
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process.pid)
            except (psutil.Error, ProcessLookupError):
                continue
        return found

    def others(self) -> list[int]:
        return [pid for pid in self.alive() if pid != self.pid]

    def kill(self) -> None:
        """Kill the script's own process and no other, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def interrupt(self) -> None:
        """As Ctrl-C in a terminal does: SIGINT for the whole foreground group."""
        os.killpg(self.pid, signal.SIGINT)

    def finish(self, patience: float = 60.0) -> None:
        """Wait for the script's own process to end and for its output pipes to be closed by
        everybody.
        """
        out, self.err = self.process.communicate(timeout=patience)
        self.lines += out.splitlines()

    def assert_nobody_left(self, within: float = 60.0) -> None:
        wait_until(lambda: not self.alive(), "no process is left after the end", within)

    def kill_all(self) -> None:
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait(timeout=30)


PRELUDE = """
import gc, os, signal, sys, time
import numpy as np
from detaug import Check, DeterministicAugmenter, LocalProcesses
START_METHOD = sys.argv[1]

class Loader:
    number_of_threads_in_multithreaded = 12
    def __iter__(self):
        return self
    def __next__(self):
        return {"data": np.random.random((2, 64, 64)), "pid": os.getpid()}

def augmenter(loader=None, transform=None, num_processes=2, **options):
    if num_processes:
        options.setdefault("executor", LocalProcesses(START_METHOD))
    options.setdefault("check", Check(ignore=("pid",)))
    return DeterministicAugmenter(loader or Loader(), transform, num_processes, seed=1, **options)
"""


def environment_of_a_script() -> dict[str, str]:
    environment = {
        k: v for k, v in os.environ.items() if k not in ("DETAUG_SEED", "PYTHONHASHSEED")
    }
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")])
    )
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def heed_interrupts() -> None:
    """In a child before its program begins: Ctrl-C is not ignored there, which is inherited under
    ``nohup``.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start_script(
    folder: Path,
    body: str,
    *arguments: str,
    prelude: str = PRELUDE,
    wrap: tuple[str, ...] = (),
    whole_end: bool = False,
) -> Script:
    """Run `prelude` and, under the main guard that spawn asks for, `body`; both are a user's own
    words.

    Args:
        folder: where the script lies and runs.
        wrap: a command that is to run the interpreter, which is one of its own then.
        whole_end: see `Preloaded.run`.
    """
    file = folder / f"script_{uuid.uuid4().hex[:8]}.py"
    guarded = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    file.write_text(f"{prelude}\nif __name__ == '__main__':\n{guarded}\n")
    mark = uuid.uuid4().hex
    environment, marked = environment_of_a_script(), {_MARK: mark}
    if not wrap:
        return Script(PRELOADED.run(file, arguments, folder, environment, marked, whole_end), mark)
    process = subprocess.Popen(
        [*wrap, sys.executable, str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env={**environment, **marked},
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    return Script(process, mark)
