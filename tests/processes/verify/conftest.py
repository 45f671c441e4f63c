"""What `verify` runs in a fresh interpreter, run in a fork of one that has imported detaug and nothing of the tests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import cloudpickle
import pytest

from detaug.processes.interpreters import worker_environment
from detaug.verification import diagnosis
from detaug.verification.trials.bench import Subject, Trial
from detaug.verification.trials.interpreter import Elsewhere, start
from tests.support.preloaded import PRELOADED

ROOT = Path(__file__).parents[3]

PROGRAM = """
import os, sys
from detaug.verification.trials.interpreter import main
answer = os.dup(1)
os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
os.dup2(os.open(sys.argv[2], os.O_WRONLY), 2)
sys.stdin = open(sys.argv[1])
main(answer)
"""


@pytest.fixture(autouse=True)
def batches_alone_are_made_in_a_preloaded_interpreter(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """An interpreter that imports torch takes most of the time of `verify`. One it is for the programs of
    test_command.py, for the rows about hash seeds, and where the cause is looked for in another process."""

    def start_in_a_fork(subject: Subject, trials: Sequence[Trial], hash_seed: int) -> Elsewhere:
        if len(trials) == 1:  # what is compared with it is made elsewhere
            return start(subject, trials, hash_seed)
        folder = tmp_path_factory.mktemp("alone")
        (folder / "payload").write_bytes(cloudpickle.dumps((subject, list(trials))))
        errors = (folder / "errors").open("w+b")
        files = (str(folder / "payload"), errors.name)
        program = PRELOADED.run(PROGRAM, files, ROOT, worker_environment(hash_seed))
        if program is None:
            errors.close()
            return start(subject, trials, hash_seed)
        assert program.stdout is not None
        assert program.stderr is not None
        answer = os.dup(program.stdout.fileno())
        program.stdout.close()
        program.stderr.close()
        return Elsewhere(program, answer, errors, subject.until)  # type: ignore[arg-type]

    monkeypatch.setattr(diagnosis, "start", start_in_a_fork)
