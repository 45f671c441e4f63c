"""`detaug nnunet verify` with nnU-Net's own trainings of real MRI: detaug's trainers pass, planted faults are named."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from unittest import mock

import psutil
import pytest

from detaug.nnunet.verification import recording, verifying
from detaug.nnunet.verification.recording import Part
from detaug.nnunet.verification.settings import Settings, checked
from detaug.reports.progress import Progress
from tests.peers.nnunet.trainers.command_line import Run
from tests.support.processes import heed_interrupts

#: Trainings take as long as the machine lets them: two hours is a hang on any.
pytestmark = pytest.mark.timeout(7200)

FAULTY = Path(__file__).parent / "faulty"
TEACHERS = "teacher._modules['decoder']._modules['transpconvs']._modules['0']._parameters['weight']"
LAYER = "encoder.stages.1.0.convs.0"

#: Trainer -> what is said of it. One of batches, one of checkpoints often: of which kind a difference is, is told from traces
#: alone, and test_nnunet_verify_origins.py has every kind.
FAULTS = {
    "UnseededTransform": ("data", "data of training batch 0 of epoch 0"),
    "NoisyGradient": ("weights", f"{LAYER}.conv.weight of training batch 0 of epoch 0"),
    "ForgetsMomentum": (
        "resume",
        "only one has optimizer.state.0.momentum_buffer at the start of epoch 1",
    ),
    "ForgetsTeacher": ("resume", f"the trainer's {TEACHERS} at the start of epoch 1"),
    "ForgetsCount": ("resume", "outcome.loss of training batch 0 of epoch 1"),
    "TimeInCheckpoint": ("bookkeeping", "written_at of checkpoint_final.pth"),
}
OFTEN = ("UnseededTransform", "ForgetsMomentum")


class Killed(Exception):
    """In place of SIGKILL, which would end this process."""


def killed() -> None:
    raise Killed


def run_here(part: Part, folder: Path, variables: dict[str, str]) -> None:
    """In this process, as importing nnU-Net takes longest."""
    with mock.patch.dict(os.environ, variables), contextlib.suppress(Killed):
        recording.train(part, folder / recording.TRACE)


def compared(trainer: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> verifying.Row:
    """A training that is killed in its second epoch and resumed, with one that is not."""
    monkeypatch.setenv("nnUNet_extTrainer", str(FAULTY))
    monkeypatch.setattr(verifying, "_run", run_here)
    monkeypatch.setattr(recording, "kill_all", killed)
    settings = checked(Settings("1", "3d_fullres", 0, trainer, device="cpu", iterations=1))
    straight, _, resumed = (
        replace(each, parts=tuple(replace(part, processes=0) for part in each.parts))
        for each in verifying.trainings(settings)
    )
    return verifying.compare_trainings(settings, (straight, resumed), folder, Progress()).rows[1]


@pytest.mark.parametrize(
    "trainer",
    [each if each in OFTEN else pytest.param(each, marks=pytest.mark.slow) for each in FAULTS],
)
def test_a_planted_fault_is_named(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trainer: str
) -> None:
    row = compared(trainer, tmp_path, monkeypatch)
    assert row.verdict == "different"
    assert row.origin is not None
    kind, where = FAULTS[trainer]
    assert (row.origin.kind, row.origin.where[: len(where)]) == (kind, where)


def test_detaugs_trainer_writes_the_same_checkpoint_where_it_is_resumed(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = compared("nnUNetTrainerDetAug", tmp_path, monkeypatch)
    assert (row.verdict, row.origin) == ("equal", None)


def verify(root: Path, *arguments: str) -> subprocess.Popen[str]:
    code = "from detaug.cli import main; main(prog_name='detaug')"
    command = [sys.executable, "-c", code, "nnunet", "verify", "1", *arguments, "--device", "cpu"]
    environment = Run(root, root, environment={"nnUNet_extTrainer": str(FAULTY)}).variables(None, 0)
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed_interrupts
    )


def finished(process: subprocess.Popen[str]) -> tuple[int, str]:
    out, err = process.communicate()
    return process.returncode, out + err


@pytest.mark.slow
def test_detaugs_trainer_passes_with_any_number_of_processes_and_resumed(
    nnunet_root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    code, said = finished(
        verify(nnunet_root, "3d_fullres", "--iterations", "1", "--json", str(file))
    )
    assert code == 0, said
    assert "all 3 trainings wrote the same checkpoint, byte for byte" in said
    result = json.loads(file.read_text())
    assert [row["verdict"] for row in result["rows"]] == ["reference", "equal", "equal", "equal"]
    *trainings, reading = result["rows"]
    assert len({row["sha256"] for row in trainings}) == 1
    assert reading["verdict"] == "equal", (
        "a batch of the same cases and boxes, as nnU-Net's loader and detaug's read it"
    )
    assert len(result["rows"][0]["sha256"]) == 64
    assert not any(row["origin"] for row in result["rows"])


@pytest.mark.slow
def test_nnunets_own_trainer_is_told_from_its_weights_and_batches(
    nnunet_root: Path, tmp_path: Path
) -> None:
    keep = tmp_path / "kept"
    file = tmp_path / "result.json"
    arguments = ("-tr", "nnUNetTrainer", "--keep", str(keep), "--json", str(file))
    code, said = finished(verify(nnunet_root, "3d_fullres", *arguments))
    assert code == 1, said
    for row in json.loads(file.read_text())["rows"][1:]:
        assert row["origin"]["kind"] == "initial weights"
    assert len(list(keep.glob("*/results/*/*/fold_0/checkpoint_final.pth"))) == 3
    assert {file.name for file in keep.glob("*/*.*")} == {"log.txt", "trace.jsonl"}


@pytest.mark.slow
def test_a_trainer_that_cannot_be_resumed_fails_in_that_row(
    nnunet_root: Path, tmp_path: Path
) -> None:
    file = tmp_path / "result.json"
    code, said = finished(
        verify(nnunet_root, "3d_fullres", "-tr", "CannotResume", "--json", str(file))
    )
    assert code == 1, said
    rows = json.loads(file.read_text())["rows"]
    assert [row["verdict"] for row in rows] == ["reference", "equal", "failed"]
    assert (
        rows[2]["failure"]
        == "the training failed: NotImplementedError: this trainer knows no checkpoints"
    )


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
@pytest.mark.parametrize("trainer", ["nnUNetTrainer", "nnUNetTrainerDetAug"])
def test_no_process_goes_on_when_it_is_stopped(
    nnunet_root: Path, tmp_path: Path, trainer: str, how: signal.Signals
) -> None:
    keep = tmp_path / "kept"
    trace = keep / "straight-2" / "trace.jsonl"
    process = verify(
        nnunet_root, "3d_fullres", "-tr", trainer, "--iterations", "1000", "--keep", str(keep)
    )
    try:
        # the first step is over: all workers are there
        while not trace.exists() or b"training batch 0" not in trace.read_bytes():
            assert process.poll() is None, finished(process)
            time.sleep(0.2)
        started = psutil.Process(process.pid).children(recursive=True)
        assert len(started) >= 2
        process.send_signal(how)
        code, _ = finished(process)
    finally:
        process.kill()
    assert code not in (0, 2)
    _, left = psutil.wait_procs(started, timeout=60)
    assert left == []
