"""`detaug nnunet verify` with nnU-Net's own trainings of real MRI.

detaug's trainers pass, and the report names planted faults.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest

from detaug.nnunet.verification import recording, verifying
from detaug.nnunet.verification.recording import Part
from detaug.nnunet.verification.settings import Settings, checked
from detaug.system.progress import Progress
from tests.peers.nnunet.trainers.command_line import LONGEST_TRAINING, Run
from tests.support.processes import heed_interrupts

#: Trainings take long on a slow machine, but one of two hours hangs on any.
pytestmark = pytest.mark.timeout(7200)

FAULTY = Path(__file__).parent / "faulty"
LAYER = "encoder.stages.1.0.convs.0"

#: How the report begins, by trainer: the first step in which it differs.
FAULTS = {
    "UnseededTransform": "training step 0 of epoch 0: batch.data",
    "NoisyGradient": f"training step 0 of epoch 0: weights.{LAYER}.conv.weight",
    "ForgetsMomentum": "start of epoch 1: only one has optimizer.state.0.momentum_buffer",
    "ForgetsTeacher": "training step 0 of epoch 1: weights.",
    "ForgetsCount": "training step 0 of epoch 1: outcome.loss",
    "TimeInCheckpoint": "after the last step: written_at of checkpoint_final.pth: ",
    "PicklesInAnotherWay": "after the last step: the pickled form of checkpoint_final.pth",
}
#: The others are slow: one fault of batches and one of checkpoints are enough for every run.
OFTEN = ("UnseededTransform", "ForgetsMomentum")


class Killed(Exception):
    """Raised in place of SIGKILL, which would end this process."""


def kill() -> None:
    """End a part of a training, in place of `recording.kill_all`."""
    raise Killed


def run_here(
    part: Part, folder: Path, variables: dict[str, str], on_poll: Callable[[], None]
) -> None:
    """Run a part of a training in this process, since another one would have to import nnU-Net."""
    with mock.patch.dict(os.environ, variables), contextlib.suppress(Killed):
        recording.train(part, folder / recording.TRACE)
    on_poll()


def interrupted(
    trainer: str, folder: Path, monkeypatch: pytest.MonkeyPatch, bar: Progress | None = None
) -> verifying.Row:
    """Return the row of a training that is killed in its second epoch and resumed.

    Args:
        trainer: name of its class.
        folder: of the trainings.
        monkeypatch: lets all parts run in this process.
        bar: where progress is shown.
    """
    monkeypatch.setenv("nnUNet_extTrainer", str(FAULTY))
    monkeypatch.setattr(verifying, "_run_part", run_here)
    monkeypatch.setattr(recording, "kill_all", kill)
    settings = checked(Settings("1", "3d_fullres", 0, trainer, device="cpu", iterations=1))
    straight, _, resumed = verifying.trainings(settings)
    pair = (without_processes(straight), without_processes(resumed))
    result = verifying.run_and_compare(settings, pair, folder, bar or Progress())
    return result.rows[1]


def without_processes(training: verifying.Training) -> verifying.Training:
    """Return a training whose loaders make all batches in its own process."""
    parts = tuple(replace(part, processes=0) for part in training.parts)
    return replace(training, parts=parts)


def faults() -> list[Any]:
    """Return a parameter for every fault."""
    parameters = []
    for name in FAULTS:
        marks = () if name in OFTEN else pytest.mark.slow
        parameters.append(pytest.param(name, marks=marks))
    return parameters


@pytest.mark.parametrize("trainer", faults())
def test_the_first_step_and_what_differs_in_it_are_named(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    row = interrupted(trainer, tmp_path, monkeypatch)
    assert row.verdict == "different"
    assert row.reason.startswith(FAULTS[trainer])


def test_detaugs_trainer_writes_the_same_checkpoint_where_it_is_resumed(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    actions = []

    def on_action(*action: Any) -> None:
        actions.append(action)

    bar = Progress(on_action=on_action)
    row = interrupted("nnUNetTrainerDetAug", tmp_path, monkeypatch, bar)
    assert row.verdict == "equal"
    assert row.reason == ""
    straight = "straight through, 2 processes"
    resumed = row.what
    assert actions == [
        (straight, 0, 4),
        (f"{straight}: epoch 2 of 2", 1, 4),
        (resumed, 2, 4),
        (f"{resumed}: epoch 1 of 2", 2, 4),
        (f"{resumed}: epoch 2 of 2", 3, 4),
    ]


def test_the_report_says_what_is_wrong_in_one_line_a_training() -> None:
    settings = Settings("Dataset001_Name", "3d_fullres")
    first = verifying.Row("straight through")
    rows = (
        first,
        verifying.Row("again", "different", reason="training step 2 of epoch 1: batch.target"),
        verifying.Row("resumed", "failed", reason="OSError: no space left"),
    )
    result = verifying.Trainings(settings, rows)
    assert str(result).splitlines()[-2:] == [
        "different: again: training step 2 of epoch 1: batch.target",
        "failed: resumed: OSError: no space left",
    ]
    assert result.status == 1
    equal = verifying.Trainings(settings, (first, verifying.Row("again", "equal")))
    assert str(equal).splitlines()[-1] == (
        "equal: all 2 trainings wrote the same checkpoint_final.pth"
    )
    assert equal.status == 0


def verify(root: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `detaug nnunet verify`.

    Args:
        root: folder with nnU-Net's ``raw`` and ``preprocessed``.
        arguments: after the data set's number.
    """
    code = "from detaug.tools.cli import main; main(prog_name='detaug')"
    command = [sys.executable, "-c", code, "nnunet", "verify", "1", *arguments, "--device", "cpu"]
    environment = Run(root, root, environment={"nnUNet_extTrainer": str(FAULTY)}).variables(None, 0)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_interrupts
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Return the exit status and what was printed, whatever the width of its lines."""
    out, err = process.communicate(timeout=LONGEST_TRAINING)
    return process.returncode, " ".join((out + err).split())


@pytest.mark.slow
def test_detaugs_trainer_passes_with_any_number_of_processes_and_resumed(nnunet_root: Path) -> None:
    code, text = finished(verify(nnunet_root, "3d_fullres", "--iterations", "1"))
    assert code == 0, text
    assert "equal: all 3 trainings wrote the same checkpoint_final.pth" in text


@pytest.mark.slow
def test_nnunets_own_trainer_differs_from_its_first_weights_on(
    nnunet_root: Path, tmp_path: Path
) -> None:
    keep = tmp_path / "kept"
    arguments = ["3d_fullres", "-tr", "nnUNetTrainer", "--keep", str(keep)]
    code, text = finished(verify(nnunet_root, *arguments))
    assert code == 1, text
    assert text.count("start of epoch 0: weights.") == 2
    assert len(list(keep.glob("*/results/*/*/fold_0/checkpoint_final.pth"))) == 3
    assert {file.name for file in keep.glob("*/*.*")} == {"log.txt", "trace.jsonl"}


@pytest.mark.slow
def test_a_trainer_that_cannot_be_resumed_fails_in_that_row(nnunet_root: Path) -> None:
    code, text = finished(verify(nnunet_root, "3d_fullres", "-tr", "CannotResume"))
    assert code == 1, text
    assert "different: " not in text
    error = "the training failed: NotImplementedError: this trainer knows no checkpoints"
    assert f"failed: 3 processes, killed in epoch 2 of 2, resumed with 1: {error}" in text


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("trainer", ["nnUNetTrainer", "nnUNetTrainerDetAug"])
def test_no_process_goes_on_when_it_is_stopped(
    nnunet_root: Path, tmp_path: Path, trainer: str, number: signal.Signals
) -> None:
    keep = tmp_path / "kept"
    trace = keep / "straight-2" / "trace.jsonl"
    arguments = ["3d_fullres", "-tr", trainer, "--iterations", "1000", "--keep", str(keep)]
    process = verify(nnunet_root, *arguments)
    try:
        # After the first step all workers have been started.
        while not trace.exists() or b"training step 0" not in trace.read_bytes():
            assert process.poll() is None, finished(process)
            time.sleep(0.2)
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 2
        process.send_signal(number)
        code, _ = finished(process)
    finally:
        process.kill()
    assert code not in (0, 2)
    _, remaining = psutil.wait_procs(started, timeout=60)
    assert remaining == []
