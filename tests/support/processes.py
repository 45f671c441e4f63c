"""Functions that look at processes and descriptors from outside, and that run a user's script."""

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

#: The environment variable by which a script's processes are recognized.
_MARK = "DETAUG_ACCEPTANCE_RUN"
#: The folder from which a script imports detaug.
_PACKAGES = str(Path(detaug.__file__).resolve().parent.parent)


def descendants() -> list[psutil.Process]:
    """Return all processes below this one, without multiprocessing's resource tracker.

    Python starts the tracker once for a whole program, when some test first needs it.
    """
    tracker_pid = getattr(resource_tracker._resource_tracker, "_pid", None)  # type: ignore[attr-defined]
    processes = psutil.Process().children(recursive=True)
    return [process for process in processes if process.pid != tracker_pid]


#: Processes that were there when the running test began.
_earlier: set[psutil.Process] = set()


def a_test_begins() -> None:
    """Remember the processes of earlier tests, so that `own_processes` leaves them out."""
    _earlier.clear()
    _earlier.update(descendants())


def own_processes() -> list[psutil.Process]:
    """Return the processes that the running test has started, and all below them."""
    return [process for process in descendants() if process not in _earlier]


def worker_pids() -> list[int]:
    """Return the pids of the test's workers and checkers, which are children of its helpers."""
    pids = []
    for helper in psutil.Process().children():
        if helper not in _earlier:
            # The helper may have ended since it was listed.
            with suppress(psutil.NoSuchProcess):
                pids += [worker.pid for worker in helper.children()]
    return pids


def is_over(process: psutil.Process) -> bool:
    """Return whether a process has ended, even if its parent has not waited for it yet."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def open_descriptors() -> dict[str, str]:
    """Return the calling process's descriptors: number -> device, inode and mode of the file."""
    files = {}
    for entry in os.listdir("/dev/fd"):
        try:
            status = os.fstat(int(entry))
        except OSError:
            # The descriptor of the listing itself, which is closed by now.
            continue
        files[entry] = f"{status.st_dev} {status.st_ino} {status.st_mode:o}"
    return files


def wait_until(condition: Callable[[], bool], event: str, patience: float = 60.0) -> None:
    """Wait until a condition holds; fail with the event's name after `patience` seconds."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{event}: not after {patience:g} s")
        time.sleep(0.01)


@dataclass
class Script:
    """A user's script that runs as a program in a session of its own.

    Its processes are recognized by that session. Those that have made another session are
    recognized by a variable in their environment.

    Attributes:
        process: the program.
        mark: value of that variable.
        lines: what the program has printed so far.
        err: its standard error, complete after `finish`.
    """

    process: subprocess.Popen[str]
    mark: str
    lines: list[str] = field(default_factory=list)
    err: str = ""

    @property
    def pid(self) -> int:
        return self.process.pid

    def read_line(self) -> str:
        """Wait for the next line that the program prints, and return it."""
        assert self.process.stdout is not None
        line = result_of(self.process.stdout.readline, "the script has printed a line")
        self.lines.append(line.rstrip("\n"))
        return self.lines[-1]

    def alive(self) -> list[int]:
        """Return the pids of all processes of this run that have not ended.

        The script's own process counts, and so do processes that init has adopted.
        """
        pids = []
        for process in psutil.process_iter():
            try:
                if self._owns(process) and process.status() != psutil.STATUS_ZOMBIE:
                    pids.append(process.pid)
            except (psutil.Error, ProcessLookupError):
                continue
        return pids

    def _owns(self, process: psutil.Process) -> bool:
        """Return whether a process belongs to this run."""
        if os.getsid(process.pid) == self.pid:
            return True
        return process.environ().get(_MARK) == self.mark

    def others(self) -> list[int]:
        """Return the pids of all living processes of this run but the script's own."""
        return [pid for pid in self.alive() if pid != self.pid]

    def kill(self) -> None:
        """Kill the script's own process and no other, and wait for its end."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.wait(PATIENCE)

    def interrupt(self) -> None:
        """Send SIGINT to the whole process group, as Ctrl-C in a terminal does."""
        os.killpg(self.pid, signal.SIGINT)

    def finish(self, patience: float = 60.0) -> None:
        """Wait for the end of the script's own process, and until all have closed its output pipes.

        Args:
            patience: seconds until the wait fails.
        """
        out, self.err = self.process.communicate(timeout=patience)
        self.lines += out.splitlines()

    def assert_nobody_left(self, within: float = 60.0) -> None:
        """Assert that all processes of this run end within these seconds."""
        wait_until(lambda: not self.alive(), "no process is left after the end", within)

    def kill_all(self) -> None:
        """Kill every process of this run and close the pipes to it."""
        for pid in self.alive():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()
        self.process.wait(timeout=30)


#: The beginning of every script that has no `prelude` of its own.
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
    """Return an environment in which a script imports this detaug and sees no seed from outside."""
    environment = dict(os.environ)
    environment.pop("DETAUG_SEED", None)
    environment.pop("PYTHONHASHSEED", None)
    paths = [_PACKAGES]
    if os.environ.get("PYTHONPATH"):
        paths.append(os.environ["PYTHONPATH"])
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment["PYTHONUNBUFFERED"] = "1"
    return environment


def heed_interrupts() -> None:
    """Restore the default action of SIGINT; called in a child before its program begins.

    A shell lets its background jobs ignore SIGINT. If the tests are one, children inherit that.
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
    """Write a user's script and start it.

    Args:
        folder: where the script is written, and its working directory.
        body: code that is put under the main guard, which spawn needs.
        arguments: of the script.
        prelude: code before the main guard.
        wrap: a command and its arguments that run the interpreter, such as ``unshare``. The script
            is then no fork of the preloaded interpreter.
        whole_end: see `Preloaded.run`.
    """
    file = folder / f"script_{uuid.uuid4().hex[:8]}.py"
    guarded = textwrap.indent(textwrap.dedent(body).strip("\n"), "    ")
    file.write_text(f"{prelude}\nif __name__ == '__main__':\n{guarded}\n")
    mark = uuid.uuid4().hex
    environment = environment_of_a_script()
    marking = {_MARK: mark}
    if not wrap:
        program = PRELOADED.run(file, arguments, folder, environment, marking, whole_end)
        return Script(program, mark)
    process = subprocess.Popen(
        [*wrap, sys.executable, str(file), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env={**environment, **marking},
        start_new_session=True,
        preexec_fn=heed_interrupts,
    )
    return Script(process, mark)
