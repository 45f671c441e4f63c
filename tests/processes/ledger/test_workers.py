"""A ledger of batches from worker processes: with workers killed, and with the program itself killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from detaug import LocalProcesses
from detaug.engine.local.coordinator import Coordinator
from detaug.ledger.lines import read_lines
from tests.support.ledgers.runs import Draws, augmenter, digest, kinds, lines, run, steps, take
from tests.support.preloaded import run_code
from tests.support.processes import wait_until


class Volumes(Draws):
    """Batches that travel in slots."""

    def generate_train_batch(self) -> dict:
        return {**super().generate_train_batch(), "data": np.random.standard_normal((2, 40, 40)).astype(np.float32)}


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_workers_change_nothing_about_the_digest(tmp_path: Path, method: str) -> None:
    here = digest(run(tmp_path / "here.jsonl", loader=Volumes()))
    assert (
        digest(run(tmp_path / "workers.jsonl", processes=3, executor=LocalProcesses(method), loader=Volumes())) == here
    )
    workers = {line["worker"] for line in lines(tmp_path / "workers.jsonl") if line["kind"] == "batch"}
    assert workers
    assert os.getpid() not in workers


def test_killed_workers_are_counted_and_change_nothing_else(tmp_path: Path) -> None:
    with augmenter(tmp_path / "run.jsonl", 2) as made:
        take(made, 3)
        engine = made._engine
        assert isinstance(engine, Coordinator)
        wait_until(lambda: len(engine.worker_pids()) == 2, "both workers were there")
        for pid in engine.worker_pids():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: made.stats()["restarts"] == 2, "both were replaced")
        take(made, 21)
    assert [line["restarts"] for line in lines(tmp_path / "run.jsonl")[1:4]] == [0, 0, 0]
    assert lines(tmp_path / "run.jsonl")[-2]["restarts"] == 2
    assert digest(tmp_path / "run.jsonl") == digest(run(tmp_path / "whole.jsonl", 24))


PROGRAM = """
import json, sys
from pathlib import Path
from detaug.reports.atomic_files import write_text
from tests.support.ledgers.runs import augmenter, take

ledger, state, processes, batches = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with augmenter(ledger, processes, batches_per_epoch=40) as made:
    if state.exists():
        made.load_state_dict(json.loads(state.read_text()))
    while (made.epoch, made.step) < (batches // 40, 0):
        take(made, 7)
        write_text(state, json.dumps(made.state_dict()))
        with open(sys.argv[5], "a") as log:
            print(made.epoch, made.step, file=log)
"""


@pytest.mark.parametrize("processes", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_a_program_that_is_killed_again_and_again_ends_with_the_digest_of_one_that_was_not(
    tmp_path: Path, processes: int
) -> None:
    ledger, state = tmp_path / "run.jsonl", tmp_path / "state.json"
    moments, kills = random.Random(1), 0
    while True:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            sys.argv = ["program", str(ledger), str(state), str(processes), "400", str(tmp_path / "out")]
            try:
                exec(PROGRAM, {"__name__": "__main__"})
            except BaseException:
                os._exit(1)
            os._exit(0)
        if kills < 6:
            # In the middle of its work, however long it takes to begin.
            progress = _size(tmp_path / "out") + moments.choice([1, 5, 12, 30])
            wait_until(
                lambda least=progress: _size(tmp_path / "out") >= least, "it has made some more batches", patience=30
            )
            time.sleep(moments.uniform(0, 0.01))
            os.killpg(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
        if status == 0:
            break
        assert os.WIFSIGNALED(status), (tmp_path / "out").read_text()
        kills += 1
        if ledger.exists():
            assert all(line.startswith(b'{"kind":"') for line in read_lines(ledger))
    assert kills
    assert steps(ledger)[:400] == [(epoch, step) for epoch in range(10) for step in range(40)]
    assert digest(ledger) == digest(run(tmp_path / "whole.jsonl", 400, batches_per_epoch=40))


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def test_a_fork_that_lives_on_does_not_keep_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with augmenter(tmp_path / "run.jsonl") as made:
        take(made, 2)
        fork = os.fork()
        if fork == 0:
            signal.pause()
            os._exit(0)
        try:
            made.close()
            made.restart()
            take(made, 1)
        finally:
            os.kill(fork, signal.SIGKILL)
            os.waitpid(fork, 0)
    assert kinds(tmp_path / "run.jsonl") == ["header", "batch"], "from the start of its epoch"
    assert "stopped" not in caplog.text


def test_a_fork_of_the_program_writes_nothing(tmp_path: Path) -> None:
    code = f"""
import os
from pathlib import Path
from tests.support.ledgers.runs import augmenter, take
made = augmenter(Path({str(tmp_path / "run.jsonl")!r}))
take(made, 2)
pid = os.fork()
if pid == 0:
    take(made, 2)
    raise SystemExit
os.waitpid(pid, 0)
take(made, 1)
"""
    done = run_code(code, folder=tmp_path, environment={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])})
    assert done.returncode == 0, done.stderr
    assert steps(tmp_path / "run.jsonl") == [(0, 0), (0, 1), (0, 2)]
