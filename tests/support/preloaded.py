"""Programs for tests, started as forks of an interpreter that has imported detaug: in milliseconds
rather than seconds.

A program has its own session, pipes, environment, folder, arguments and ``__main__``. Only
``/proc/PID`` shows the difference: the command line and environment there are those of the
interpreter. It ends as any other: threads are awaited, exit handlers run, its objects are
destroyed. Only with a `whole_end` are the imported modules taken apart as well, which takes half a
second.

The interpreter is no descendant of the process that runs the tests, and ends with it.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from tests.support.waiting import PATIENCE, wait_readable

# Bytes of a request.
_MOST = 2**20


class Program(subprocess.Popen[str]):
    """A program of which not we, but the interpreter that forked it sees the end."""

    def __init__(self, pid: int, stdout: TextIO, stderr: TextIO, ended: socket.socket) -> None:
        # what Popen's methods look at; its own __init__ would start a process
        self.args, self.pid, self.returncode = "", pid, None  # type: ignore[assignment]
        self.stdin, self.stdout, self.stderr = None, stdout, stderr
        self.text_mode, self.encoding, self.errors = True, None, None
        self._input, self._communication_started, self._child_created = None, False, True
        self._waitpid_lock, self._sigint_wait_secs = threading.Lock(), 0.25
        self._ended = ended

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            answer = self._ended.recv(100)
            self._ended.close()
            self.returncode = int(answer) if answer else -signal.SIGKILL
        return self.returncode

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        try:
            return self._wait(0.0)
        except subprocess.TimeoutExpired:
            return None


def _default_interrupts() -> None:
    """Let an interrupt end the program, whatever the tests' own process does with it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Preloaded:
    """The interpreter, started when it is first needed; it imports these modules beside detaug.

    Without pidfds (macOS) every program has an interpreter of its own.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._control: socket.socket | None = None

    def run(
        self,
        program: Path | str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        mark: Mapping[str, str] | None = None,
        whole_end: bool = False,
    ) -> subprocess.Popen[str]:
        """Run a script (a path), or code as ``python -c`` takes it. `mark`: variables that the
        interpreter itself does not have. `whole_end`: it is finalized to the last module.
        """
        if not hasattr(os, "pidfd_open"):
            code = [str(program)] if isinstance(program, Path) else ["-c", program]
            return subprocess.Popen(
                [sys.executable, *code, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                cwd=folder,
                env={**environment, **(mark or {})},
                start_new_session=True,
                preexec_fn=_default_interrupts,
            )
        if self._control is None:
            self._control = self._started(environment)
        parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        script = str(program) if isinstance(program, Path) else ""
        code = program.read_text() if isinstance(program, Path) else program
        request = [
            script,
            code,
            list(arguments),
            str(folder),
            {**environment, **(mark or {})},
            whole_end,
        ]
        socket.send_fds(
            self._control, [json.dumps(request).encode()], [out_end, err_end, child_end.fileno()]
        )
        child_end.close()
        os.close(out_end)
        os.close(err_end)
        wait_readable(self._control, "the preloaded interpreter has forked the program")
        return Program(int(self._control.recv(100)), open(out), open(err), parent_end)

    def _started(self, environment: Mapping[str, str]) -> socket.socket:
        parent_end, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            started = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from {__name__} import serve; serve{(child_end.fileno(), *self._modules)}",
                ],
                pass_fds=[child_end.fileno()],
                stdin=subprocess.DEVNULL,
                env={**environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=_default_interrupts,
            )
            # It ends as soon as it has forked the interpreter.
            started.wait(PATIENCE)
        return parent_end

    def close(self) -> None:
        """Let it end, once nothing is asked of it any more."""
        if self._control is not None:
            self._control.close()
            self._control = None


PRELOADED = Preloaded()
#: For programs that compile kernels.
WITH_NUMBA = Preloaded("numba")


def run_code(
    code: Path | str,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    timeout: float = 240.0,
    interpreter: Preloaded = PRELOADED,
) -> subprocess.CompletedProcess[str]:
    """As ``subprocess.run([sys.executable, "-c", code, *arguments], ...)``; a path is a script."""
    with interpreter.run(code, arguments, folder, environment) as program:
        out, err = program.communicate(timeout=timeout)
    return subprocess.CompletedProcess([], program.returncode, out, err)


def serve(descriptor: int, *modules: str) -> None:
    """The interpreter's life: until nobody asks any more. In a program it returns after the
    program's last line.
    """
    if os.fork():
        os._exit(0)
    import detaug
    from detaug.engine.local import coordinator, worker  # noqa: F401

    for module in modules:
        importlib.import_module(module)
    detaug.DeterministicAugmenter  # noqa: B018  (imported when first asked for)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as control:
        program = _serve(control)
    if program is None:
        # Libraries that were imported may complain at an interpreter's end.
        os._exit(0)
    program()


def _serve(control: socket.socket) -> Callable[[], None] | None:
    # Pidfd → pid, whom to tell of its end.
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        ready = select.select([control, *running], [], [])[0]
        for pidfd in ready:
            if isinstance(pidfd, int):
                pid, tell = running.pop(pidfd)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(pidfd)
                try:
                    tell.send(str(status).encode())
                except BrokenPipeError:
                    pass
                tell.close()
        if control not in ready:
            continue
        text, descriptors, _, _ = socket.recv_fds(control, _MOST, 3)
        if not text:
            return None
        out, err, ended = descriptors
        pid = os.fork()
        if not pid:
            os.dup2(out, 1)
            os.dup2(err, 2)
            for descriptor in (*descriptors, *running):
                os.close(descriptor)
            for _, tell in running.values():
                tell.close()
            return partial(_be, *json.loads(text))
        os.close(out)
        os.close(err)
        running[os.pidfd_open(pid)] = pid, socket.socket(fileno=ended)
        control.send(str(pid).encode())


def _be(
    file: str,
    code: str,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    whole_end: bool,
) -> None:
    """Be the program."""
    os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [file or "-c", *arguments]
    sys.path[0] = os.path.dirname(file)
    main = types.ModuleType("__main__")
    if file:
        main.__file__ = file
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    sys.modules["__main__"] = main
    status: Any = 0
    try:
        exec(compile(code, file or "<string>", "exec"), main.__dict__)
    except SystemExit as leaving:
        status = leaving.code or 0
        if whole_end or not isinstance(status, int):
            raise
    if not whole_end:
        _end(main, status)


def _end(main: types.ModuleType, status: int) -> None:
    """End after the program's last line, but for the modules. What is raised on the way, or a
    thread that would not wait for the end, leaves it to the interpreter.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if any(thread.daemon for thread in threading.enumerate()):
        sys.exit(status)
    main.__dict__.clear()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        if not stream.closed:
            stream.flush()
    os._exit(status)
