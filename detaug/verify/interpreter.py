"""A trial in another interpreter, with a hash seed of its own."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import IO, Any

import cloudpickle

from detaug.engine.zygote import interpreter_command, worker_environment
from detaug.verify.bench import Outcome, Subject, Trial, UnusableError, perform

_CODE = "from detaug.verify.interpreter import main; main({descriptor})"


@dataclass
class Elsewhere:
    """A trial that runs in another interpreter."""

    process: subprocess.Popen[bytes]
    answer: int
    errors: IO[bytes]

    def outcome(self) -> Outcome:
        """What it gave, once it is there.

        Raises:
            UnusableError: the pipeline cannot be made there, or the interpreter ended; the message says why.
        """
        with os.fdopen(self.answer, "rb") as file:
            data = file.read()
        code = self.process.wait()
        with self.errors as file:
            file.seek(0)
            said = file.read().decode(errors="replace")
        if not data:
            last = said.strip().splitlines()[-1:] or [f"exit code {code}"]
            raise UnusableError(f"the pipeline cannot be made in another interpreter: {last[0]}")
        outcome: Outcome = pickle.loads(data)  # from our own child, through a pipe that nobody else holds
        return outcome


def start(subject: Subject, trial: Trial, hash_seed: int) -> Elsewhere:
    """Have another interpreter run the trial, with that PYTHONHASHSEED.

    Raises:
        UnusableError: the factory cannot be sent there.
    """
    try:
        payload = cloudpickle.dumps((subject, trial))
    except Exception as error:
        raise UnusableError(f"the factory cannot be pickled for another interpreter: {error}") from error
    ours, theirs = os.pipe()
    errors = tempfile.TemporaryFile()  # noqa: SIM115  (a pipe that nobody reads meanwhile would fill up)
    os.set_inheritable(theirs, True)
    try:
        process = subprocess.Popen(
            interpreter_command(_CODE.format(descriptor=theirs)),
            pass_fds=(theirs,),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            env={**worker_environment(), "PYTHONHASHSEED": str(hash_seed)},
        )
    finally:
        os.close(theirs)
    assert process.stdin is not None
    try:
        process.stdin.write(payload)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it has ended already; `outcome` says why
    return Elsewhere(process, ours, errors)


def main(descriptor: int) -> None:
    """The other interpreter's life: read the trial from the standard input, run it, write what it gave."""
    subject, trial = pickle.loads(sys.stdin.buffer.read())
    outcome: Any = perform(subject, trial)
    with os.fdopen(descriptor, "wb") as file:
        file.write(pickle.dumps(outcome, protocol=5))
