"""Programs for tests that start in milliseconds, as forks of an interpreter with detaug imported.

A test's process (`Preloaded`) sends a request and the descriptors of the program's streams through
a Unix socket to the interpreter (`serve`). The interpreter forks; the fork becomes the program
(`_be`). The interpreter answers with the pid, and later sends the exit code.

A program has its own session, pipes, environment, folder, arguments and ``__main__``. Only
``/proc/PID`` shows a difference: the command line and environment there are those of the
interpreter. A program ends like any other: it waits for its threads, runs exit handlers and
destroys its objects. Imported modules are destroyed with `whole_end` only, as that takes half a
second.

The interpreter is no descendant of the processes that run the tests. They share one, since its
imports take seconds, and it ends after the last of them.
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

#: Most bytes of a request.
_MAX_REQUEST = 2**20
#: The environment variable with the name of a run of the tests, which all its processes share.
RUN_VARIABLE = "TESTS_RUN"
_RUN = os.environ.setdefault(RUN_VARIABLE, uuid.uuid4().hex)
#: The environment variable with the modules that the tier's interpreter has imported, if any.
TIER_VARIABLE = "TESTS_TIER_LIBRARIES"
#: Seconds after which the interpreter ends if no process of the tests is connected.
_IDLE_TIMEOUT = 1.0


class Program(subprocess.Popen[str]):
    """A program whose parent is the interpreter, which sends the exit code through a socket."""

    def __init__(self, pid: int, stdout: TextIO, stderr: TextIO, ended: socket.socket) -> None:
        # All attributes that Popen's methods read. Its own __init__ would start a process.
        self.args = ""
        self.pid = pid
        self.returncode = None
        self.stdin = None
        self.stdout = stdout
        self.stderr = stderr
        self.text_mode = True
        self.encoding = None
        self.errors = None
        self._input = None
        self._communication_started = False
        self._child_created = True
        self._waitpid_lock = threading.Lock()
        self._sigint_wait_secs = 0.25
        self._ended = ended

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            answer = self._ended.recv(100)
            self._ended.close()
            # Without an answer the interpreter itself was killed.
            self.returncode = int(answer) if answer else -signal.SIGKILL
        return self.returncode

    def _internal_poll(self, *_: Any, **__: Any) -> int | None:
        try:
            return self._wait(0.0)
        except subprocess.TimeoutExpired:
            return None


def _default_interrupts() -> None:
    """Let an interrupt end the program even if the process of the tests ignores interrupts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Preloaded:
    """A connection to the interpreter, which is started when it is first needed.

    Processes that ask for the same modules share one interpreter. Without pidfds (macOS) every
    program has an interpreter of its own.

    Args:
        modules: names of those that the interpreter imports in addition to detaug.
    """

    FORKS = hasattr(os, "pidfd_open")

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._control: socket.socket | None = None

    @classmethod
    def of_tier(cls, *modules: str) -> Preloaded:
        """Return a connection to the tier's interpreter, or to one with these modules imported.

        The processes that run a tier are forks of its interpreter. So it is there already, and has
        imported most of what the tier's programs import, which takes another one seconds.
        """
        libraries = os.environ.get(TIER_VARIABLE)
        if libraries:
            return cls(*libraries.split(","))
        return cls(*modules)

    def run(
        self,
        program: Path | str,
        arguments: Sequence[str],
        folder: Path,
        environment: Mapping[str, str],
        mark: Mapping[str, str] | None = None,
        whole_end: bool = False,
    ) -> subprocess.Popen[str]:
        """Start a program with pipes for its output.

        Args:
            program: path of a script, or code as ``python -c`` takes it.
            arguments: of the program.
            folder: its working directory.
            environment: of the program, and of the interpreter if this call starts it.
            mark: further variables for the program alone.
            whole_end: whether the program destroys all imported modules at its end.
        """
        variables = {**environment, **(mark or {})}
        if not self.FORKS:
            return _run_in_own_interpreter(program, arguments, folder, variables)
        file = ""
        code = program
        if isinstance(program, Path):
            file = str(program)
            code = program.read_text()
        request = [file, code, list(arguments), str(folder), variables, whole_end]
        nothing = os.open(os.devnull, os.O_RDONLY)
        out, child_out = os.pipe()
        err, child_err = os.pipe()
        pid, ended = self._fork_program(request, [nothing, child_out, child_err], environment)
        return Program(pid, open(out), open(err), ended)

    def become(self, code: str) -> int:
        """Run code in a fork that takes over the streams of this process; return its exit code."""
        request = ["", code, [], os.getcwd(), dict(os.environ), True]
        # The interpreter may have to import all libraries of a tier first.
        _, ended = self._fork_program(request, [0, 1, 2], os.environ, patience=5 * PATIENCE)
        return int(ended.recv(100) or -signal.SIGKILL)

    def _fork_program(
        self,
        request: list[Any],
        streams: list[int],
        environment: Mapping[str, str],
        patience: float = PATIENCE,
    ) -> tuple[int, socket.socket]:
        """Ask the interpreter to fork a program; return its pid and the socket of its exit code.

        Args:
            request: the arguments of `_be`.
            streams: descriptors of its stdin, stdout and stderr, which are closed here.
            environment: of the interpreter, if this call starts it.
            patience: seconds until the wait for the fork fails.
        """
        if self._control is None:
            self._control = self._connected(environment)
        ended, child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with child_end:
            descriptors = [*streams, child_end.fileno()]
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
        for stream in streams:
            os.close(stream)
        event = "the preloaded interpreter has forked the program"
        wait_readable(self._control, event, patience)
        return int(self._control.recv(100)), ended

    def _connected(self, environment: Mapping[str, str]) -> socket.socket:
        """Return a connection to the interpreter; start it if it does not run."""
        # An abstract address, which is free again as soon as nobody listens.
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
        """Start the interpreter, unless another process is doing so: only one can bind the name."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            try:
                listener.bind(address)
            except OSError:
                time.sleep(0.01)
                return
            # From here on processes can connect. They are answered after the imports.
            listener.listen()
            code = f"from {__name__} import serve; serve{(listener.fileno(), *self._modules)}"
            started = subprocess.Popen(
                [sys.executable, "-c", code],
                pass_fds=[listener.fileno()],
                stdin=subprocess.DEVNULL,
                env={**environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=_default_interrupts,
            )
            # This process only forks the interpreter, see `serve`.
            started.wait(PATIENCE)

    def start(self) -> None:
        """Start the interpreter if it does not run; its imports go on after this call."""
        if self.FORKS and self._control is None:
            self._control = self._connected(os.environ)

    def close(self) -> None:
        """Disconnect; the interpreter ends when no process is connected."""
        if self._control is not None:
            self._control.close()
            self._control = None


def _run_in_own_interpreter(
    program: Path | str, arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> subprocess.Popen[str]:
    """Start a program without a fork."""
    code = [str(program)] if isinstance(program, Path) else ["-c", program]
    return subprocess.Popen(
        [sys.executable, *code, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env=environment,
        start_new_session=True,
        preexec_fn=_default_interrupts,
    )


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
    """Run a program to its end and return its exit code and output, as `subprocess.run` does.

    Args:
        code: path of a script, or code as ``python -c`` takes it.
        arguments: of the program.
        folder: its working directory.
        environment: of the program, and of the interpreter if this call starts it.
        timeout: seconds after which the program is killed.
        interpreter: forks the program.
    """
    with interpreter.run(code, arguments, folder, environment) as program:
        try:
            out, err = program.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # The program leads a session, so all processes that it has started are killed as well.
            os.killpg(program.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess([], program.returncode, out, err)


def serve(descriptor: int, *modules: str) -> None:
    """Be the interpreter: import, and fork programs until no process of the tests is connected.

    It returns in the forks alone, after the program's last line.

    Args:
        descriptor: of the socket that listens.
        modules: names of those to import in addition to detaug.
    """
    # The process that ran this function's caller ends here, so that init adopts the interpreter.
    if os.fork():
        os._exit(0)
    import detaug
    from detaug.engine.local import coordinator, worker  # noqa: F401

    for module in modules:
        # If a module is missing, the program that needs it fails with its own error.
        with suppress(Exception):
            importlib.import_module(module)
    # This attribute is imported when it is first read.
    detaug.DeterministicAugmenter  # noqa: B018
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=descriptor) as listener:
        program = _serve(listener)
    if program is None:
        # Libraries that were imported may print errors while an interpreter is finalized.
        os._exit(0)
    program()


def _serve(listener: socket.socket) -> Callable[[], None] | None:
    """Fork programs for all processes that connect.

    Returns:
        In a fork, the function that runs the program. In the interpreter, None at its end.
    """
    # One connection to each process that runs tests.
    controls: set[socket.socket] = set()
    # The programs: pidfd -> (pid, the socket of its exit code).
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        timeout = None if controls else _IDLE_TIMEOUT
        ready = select.select([listener, *controls, *running], [], [], timeout)[0]
        if not ready:
            return None
        for source in ready:
            if isinstance(source, int):
                _send_exit_code(source, *running.pop(source))
                continue
            if source is listener:
                controls.add(listener.accept()[0])
                continue
            text, descriptors, _, _ = socket.recv_fds(source, _MAX_REQUEST, 4)
            if not text:
                controls.remove(source)
                source.close()
                continue
            *streams, ended = descriptors
            pid = os.fork()
            if not pid:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
                # Close what the interpreter keeps for others: a copy of a socket that stays open
                # would hide from its other end that the interpreter has ended.
                for descriptor in (*descriptors, *running):
                    os.close(descriptor)
                for control in controls:
                    control.close()
                for _, other_ended in running.values():
                    other_ended.close()
                return partial(_be, *json.loads(text))
            for stream in streams:
                os.close(stream)
            running[os.pidfd_open(pid)] = pid, socket.socket(fileno=ended)
            source.send(str(pid).encode())


def _send_exit_code(pidfd: int, pid: int, ended: socket.socket) -> None:
    """Wait for a program that has ended and send its exit code to the process that started it."""
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.close(pidfd)
    # Nobody listens any more if that process has ended.
    with ended, suppress(BrokenPipeError):
        ended.send(str(status).encode())


def _be(
    file: str,
    code: str,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    whole_end: bool,
) -> None:
    """Become the program and run it.

    Args:
        file: path of the script, or "" for code alone.
        code: of the program.
        arguments: of the program.
        folder: its working directory.
        environment: all its variables.
        whole_end: whether the interpreter finalizes itself at the end, as usual.
    """
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
    except SystemExit as error:
        status = error.code or 0
        if whole_end or not isinstance(status, int):
            raise
    if not whole_end:
        _end(main, status)


def _end(main: types.ModuleType, status: int) -> None:
    """End the process as an interpreter does, but without destroying the imported modules.

    If an exception is raised here or a daemon thread still runs, the interpreter finalizes itself.
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
