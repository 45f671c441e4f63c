"""A ledger of batches from worker processes: with workers killed, and with the program itself
killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from detaug.ledger.lines import read_lines
from detaug.system.atomic_files import whole_file
from tests.support.ledgers.runs import Draws, augmenter, digest, kinds, lines, run, steps, take
from tests.support.processes import wait_until, worker_pids
from tests.support.waiting import exit_code


class Volumes(Draws):
    """Batches that travel in slots."""

    def generate_train_batch(self) -> dict:
        return {
            **super().generate_train_batch(),
            "data": np.random.standard_normal((2, 40, 40)).astype(np.float32),
        }


def test_killed_workers_are_counted_and_change_nothing_else(tmp_path: Path) -> None:
    with augmenter(tmp_path / "run.jsonl", 2, loader=Volumes()) as made:
        take(made, 3)
        wait_until(lambda: len(worker_pids()) == 2, "both workers were there")
        for pid in worker_pids():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: made.stats()["restarts"] == 2, "both were replaced")
        take(made, 21)
    assert [line["restarts"] for line in lines(tmp_path / "run.jsonl")[1:4]] == [0, 0, 0]
    assert lines(tmp_path / "run.jsonl")[-2]["restarts"] == 2
    assert os.getpid() not in {line.get("worker") for line in lines(tmp_path / "run.jsonl")}
    assert digest(tmp_path / "run.jsonl") == digest(
        run(tmp_path / "whole.jsonl", 24, loader=Volumes())
    )


def train(ledger: Path, state: Path, progress: Path, processes: int) -> None:
    """Ten epochs of 40 batches, from the state that is there."""
    with augmenter(ledger, processes, batches_per_epoch=40) as made:
        if state.exists():
            made.load_state_dict(json.loads(state.read_text()))
        while made.epoch < 10:
            take(made, 7)
            with whole_file(state) as file:
                file.write(json.dumps(made.state_dict()).encode())
            with progress.open("a") as log:
                print(made.epoch, made.step, file=log)


@pytest.mark.parametrize("processes", [2, pytest.param(0, marks=pytest.mark.slow)])
def test_a_program_that_is_killed_again_and_again_ends_with_the_digest_of_one_that_was_not(
    tmp_path: Path, processes: int
) -> None:
    ledger, progress = tmp_path / "run.jsonl", tmp_path / "progress"
    moments = random.Random(1)
    for kills in range(7):
        pid = os.fork()
        if pid == 0:
            os.setsid()
            with suppress(BaseException):
                train(ledger, tmp_path / "state.json", progress, processes)
                os._exit(0)
            os._exit(1)
        if kills < 6:
            # In the middle of its work, however long it takes to begin.
            size = _size(progress) + moments.choice([1, 5, 12, 30])
            wait_until(
                lambda least=size: _size(progress) >= least,
                "it has made some more batches",
                patience=30,
            )
            time.sleep(moments.uniform(0, 0.01))
            os.killpg(pid, signal.SIGKILL)
        expected = -signal.SIGKILL if kills < 6 else 0
        assert exit_code(pid, "the training has ended") == expected, progress.read_text()
        assert all(line.startswith(b'{"kind":"') for line in read_lines(ledger))
    assert steps(ledger)[:400] == [(epoch, step) for epoch in range(10) for step in range(40)]
    assert digest(ledger) == digest(run(tmp_path / "whole.jsonl", 400, batches_per_epoch=40))


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def test_a_fork_that_lives_on_does_not_keep_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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
            exit_code(fork, "the killed fork has ended")
    assert kinds(tmp_path / "run.jsonl") == ["header", "batch"], "from the start of its epoch"
    assert "stopped" not in caplog.text


def test_a_fork_of_the_program_writes_nothing(tmp_path: Path) -> None:
    with augmenter(tmp_path / "run.jsonl") as made:
        take(made, 2)
        fork = os.fork()
        if fork == 0:
            with suppress(BaseException):
                take(made, 2)
                os._exit(0)
            os._exit(1)
        assert exit_code(fork, "the fork has ended") == 0
        take(made, 1)
    assert steps(tmp_path / "run.jsonl") == [(0, 0), (0, 1), (0, 2)]
