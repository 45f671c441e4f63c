"""Trials in another interpreter, with its own hash seed."""

from __future__ import annotations

import os
import pickle
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, Any

import cloudpickle

from detaug.processes.control import die_with, run_and_exit
from detaug.processes.interpreters import code_of, interpreter_command, worker_environment
from detaug.verification.handed_in import CannotTravel, UnusableError
from detaug.verification.trials.bench import Outcome, SearchStopped, Subject, Trial, perform
from detaug.verification.trials.surroundings import under


@dataclass
class Elsewhere:
    """Trials that run in another interpreter."""

    process: subprocess.Popen[bytes]
    answer: int
    errors: IO[bytes]
    until: float | None

    def outcome(self) -> Outcome:
        """What the one trial gave, or the first."""
        return self.outcomes()[0]

    def outcomes(self) -> list[Outcome]:
        """What they gave, once it is there.

        Raises:
            UnusableError: the pipeline cannot be made there, or the interpreter ended; the message says why.
            SearchStopped: the time for it is over.
        """
        data = self._read()
        code = self.process.wait()
        with self.errors as file:
            file.seek(0)
            said = file.read().decode(errors="replace")
        if not data:
            last = said.strip().splitlines()[-1:] or [f"exit code {code}"]
            raise UnusableError(f"the pipeline cannot be made in another interpreter: {last[0]}")
        outcomes: list[Outcome] = pickle.loads(data)  # from our own child, through a pipe that no other process holds
        return outcomes

    def _read(self) -> bytes:
        parts: list[bytes] = []
        with os.fdopen(self.answer, "rb", buffering=0) as file:
            while True:
                left = None if self.until is None else max(0.0, self.until - time.monotonic())
                if not select.select([file], [], [], left)[0]:
                    self.process.kill()
                    self.process.wait()
                    self.errors.close()
                    raise SearchStopped
                part = file.read(1 << 20)
                if not part:
                    return b"".join(parts)
                parts.append(part)


def start(subject: Subject, trials: Sequence[Trial], hash_seed: int) -> Elsewhere:
    """Have another interpreter run trials, with that PYTHONHASHSEED. One is run there; each of several in a fork of its
    own, which no other trial has touched.

    Raises:
        CannotTravel: the factory cannot be sent there.
    """
    try:
        payload = cloudpickle.dumps((subject, list(trials)))
    except Exception as error:
        raise CannotTravel(f"the factory cannot be pickled for another interpreter: {error}") from error
    ours, theirs = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (an unread pipe would fill up)
    os.set_inheritable(theirs, True)
    try:
        process = subprocess.Popen(
            interpreter_command(code_of(__name__, theirs)),
            pass_fds=(theirs,),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env=worker_environment(hash_seed),
        )
    finally:
        os.close(theirs)  # else the end of the answer would never be seen: this process would hold the pipe open
    assert process.stdin is not None
    try:
        process.stdin.write(payload)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has ended already; `outcomes` says why
    return Elsewhere(process, ours, errors, subject.until)


def main(descriptor: int) -> None:
    """The other interpreter's life: read the trials from the standard input, run them, write what they gave."""

    def live() -> None:
        subject, trials = pickle.loads(sys.stdin.buffer.read())
        if len(trials) == 1:
            outcomes = [perform(subject, trials[0])]
        else:
            with under(trials[0].conditions):  # the search for what it replaces is made once, and not in every fork
                pass
            outcomes = [_forked(subject, trial) for trial in trials]
        _answer(descriptor, outcomes)

    run_and_exit(live)  # taking a whole interpreter with torch apart would take half a second


def _answer(descriptor: int, outcome: Any) -> None:
    with os.fdopen(descriptor, "wb") as file:
        file.write(pickle.dumps(outcome, protocol=5))


def _forked(subject: Subject, trial: Trial) -> Outcome:
    """A trial in a fork of this process, which has done nothing yet and has no other threads."""
    ours, theirs = os.pipe()
    parent = os.getpid()
    child = os.fork()
    if child == 0:

        def live() -> None:
            die_with(parent)
            os.close(ours)
            _answer(theirs, perform(subject, trial))

        run_and_exit(live)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        data = file.read()
    with suppress(ChildProcessError):  # SIGCHLD is ignored, which is inherited
        os.waitpid(child, 0)  # only now: a child whose answer fills the pipe ends when it has been read
    if not data:
        sys.exit(1)  # the child has said why
    outcome: Any = pickle.loads(data)
    return outcome  # type: ignore[no-any-return]
