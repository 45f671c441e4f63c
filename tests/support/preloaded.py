"""Programs for tests, started as forks of an interpreter that has imported detaug: in milliseconds
rather than seconds.

A program has its own session, pipes, environment, folder, arguments and ``__main__``. Only
``/proc/PID`` shows the difference: the command line and environment there are those of the
interpreter. It ends as any other: threads are awaited, exit handlers run, its objects are
destroyed. Only with a `whole_end` are the imported modules taken apart as well, which takes half a
second.

The interpreter is no descendant of the processes that run the tests. They share it, since it imports
for seconds, and it ends when the last of them has.
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
import time
import types
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from tests.support.waiting import PATIENCE, wait_readable

# Bytes of a request.
_MOST = 2**20
#: Names a run of the tests for all processes that take part in it.
RUN_VARIABLE = "TESTS_RUN"
_RUN = os.environ.setdefault(RUN_VARIABLE, uuid.uuid4().hex)
#: Names the modules that the interpreter of the tier has imported, where the tier has one.
TIER_VARIABLE = "TESTS_TIER_LIBRARIES"
#: Seconds for which the interpreter waits for somebody who needs it.
_LINGERS = 1.0


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

    Processes that ask for the same modules get the same interpreter. Without pidfds (macOS) every
    program has an interpreter of its own.
    """

    FORKS = hasattr(os, "pidfd_open")

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._control: socket.socket | None = None

    @classmethod
    def of_tier(cls, *modules: str) -> Preloaded:
        """Return the interpreter of the tier; one that has imported these modules, if none runs.

        The processes that share a tier are its forks, so it is there, and has imported most of what
        the tier's programs import. Another one would import for seconds of its own.
        """
        libraries = os.environ.get(TIER_VARIABLE)
        return cls(*libraries.split(",")) if libraries else cls(*modules)

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
        if not self.FORKS:
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
        script = str(program) if isinstance(program, Path) else ""
        code = program.read_text() if isinstance(program, Path) else program
        variables = {**environment, **(mark or {})}
        request = [script, code, list(arguments), str(folder), variables, whole_end]
        nothing = os.open(os.devnull, os.O_RDONLY)
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        pid, ended = self._ask(request, [nothing, out_end, err_end], environment)
        return Program(pid, open(out), open(err), ended)

    def become(self, code: str) -> int:
        """Run code with the streams of this process, which it gives away; return its exit code."""
        request = ["", code, [], os.getcwd(), dict(os.environ), True]
        # All libraries of a tier may be imported first.
        _, ended = self._ask(request, [0, 1, 2], os.environ, patience=5 * PATIENCE)
        return int(ended.recv(100) or -signal.SIGKILL)

    def _ask(
        self,
        request: list[Any],
        streams: list[int],
        environment: Mapping[str, str],
        patience: float = PATIENCE,
    ) -> tuple[int, socket.socket]:
        """Have a program forked; return its pid, and where its exit code will come from.

        Args:
            request: the arguments of `_be`.
            streams: descriptors of its stdin, stdout and stderr, which are closed here.
            environment: of the interpreter, if it is not there yet.
            patience: seconds until the fork is there.
        """
        if self._control is None:
            self._control = self._connected(environment)
        ended, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            descriptors = [*streams, child_end.fileno()]
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        for stream in streams:
            os.close(stream)
        what = "the preloaded interpreter has forked the program"
        wait_readable(self._control, what, patience)
        return int(self._control.recv(100)), ended

    def _connected(self, environment: Mapping[str, str]) -> socket.socket:
        # An abstract name: it is free again when nobody listens.
        address = f"\0detaug-{uuid.uuid5(uuid.NAMESPACE_OID, repr((_RUN, self._modules)))}"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                control.connect(address)
            except ConnectionRefusedError:
                control.close()
                self._start(address, environment)
                continue
            return control
        raise AssertionError(f"no interpreter answers that has imported {self._modules}")

    def _start(self, address: str, environment: Mapping[str, str]) -> None:
        """Start the interpreter, unless another process is about to: one alone gets the name."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(address)
            except OSError:
                time.sleep(0.01)
                return
            # Whoever connects from here on is answered when the interpreter has imported.
            listener.listen()
            started = subprocess.Popen(
                [
                    sys.executable,
                    "-c",
                    f"from {__name__} import serve; serve{(listener.fileno(), *self._modules)}",
                ],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                env={**environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=_default_interrupts,
            )
            # It ends as soon as it has forked the interpreter.
            started.wait(PATIENCE)

    def start(self) -> None:
        """Start the interpreter, if none runs; it imports while the caller does other things."""
        if self.FORKS and self._control is None:
            self._control = self._connected(os.environ)

    def close(self) -> None:
        """Ask nothing of it any more; it ends when nobody else does."""
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
        try:
            out, err = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # It leads a session: what it has started ends as well.
            os.killpg(program.pid, signal.SIGKILL)
            raise
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
        # Where it cannot be imported, the program that needs it says so.
        with suppress(Exception):
            importlib.import_module(module)
    detaug.DeterministicAugmenter  # noqa: B018  (imported when first asked for)
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as listener:
        program = _serve(listener)
    if program is None:
        # Libraries that were imported may complain at an interpreter's end.
        os._exit(0)
    program()


def _serve(listener: socket.socket) -> Callable[[], None] | None:
    """Fork programs for whoever connects; return what a fork is to do, and nothing at the end."""
    # The processes that run tests.
    controls: set[socket.socket] = set()
    # Pidfd → pid, whom to tell of its end.
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        patience = None if controls else _LINGERS
        ready = select.select([listener, *controls, *running], [], [], patience)[0]
        if not ready:
            return None
        for source in ready:
            if isinstance(source, int):
                _tell_the_end(source, *running.pop(source))
            elif source is listener:
                controls.add(listener.accept()[0])
            else:
                text, descriptors, _, _ = socket.recv_fds(source, _MOST, 4)
                if not text:
                    controls.remove(source)
                    source.close()
                    continue
                *streams, ended = descriptors
                pid = os.fork()
                if not pid:
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                    for descriptor in (*descriptors, *running):
                        os.close(descriptor)
                    for other in (*controls, *(tell for _, tell in running.values())):
                        other.close()
                    return partial(_be, *json.loads(text))
                for stream in streams:
                    os.close(stream)
                running[os.pidfd_open(pid)] = pid, socket.socket(fileno=ended)
                source.send(str(pid).encode())


def _tell_the_end(pidfd: int, pid: int, tell: socket.socket) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(pidfd)
    with tell, suppress(BrokenPipeError):
        tell.send(str(status).encode())


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
