"""nnU-Net's own command line, run as a user runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.peers.nnunet.trainers.small_datasets import KINDS
from tests.support.waiting import wait_for_line

REPOSITORY = Path(__file__).parents[4]
SHORT = Path(__file__).parent / "short"
EXTERNAL = REPOSITORY / "detaug" / "nnunet" / "external"  # as `detaug nnunet path` prints
#: Seconds of a training, on a busy machine.
LONGEST_TRAINING = 1200.0
NNUNET_TRAIN = Path(sys.executable).with_name("nnUNetv2_train")


@dataclass
class Run:
    """One training's folders and settings.

    Attributes:
        root: with nnU-Net's ``raw`` and ``preprocessed``.
        results: nnU-Net's results folder.
        kind: of data set.
        trainer, configuration: as for ``nnUNetv2_train``.
        environment: further variables.
        plans, device, fold: as for ``nnUNetv2_train``.
    """

    root: Path
    results: Path
    kind: str = "plain"
    trainer: str = "ShortDetAug"
    configuration: str = "3d_fullres"
    environment: dict[str, str] = field(default_factory=dict)
    plans: str = "nnUNetPlans"
    device: str = "cpu"
    fold: str = "0"

    @property
    def folder(self) -> Path:
        """Where fold 0's checkpoints are."""
        name = f"{self.trainer}__{self.plans}__{self.configuration}"
        return self.results / KINDS[self.kind].name / name / "fold_0"

    def variables(self, seed: int | None, processes: int, **more: str) -> dict[str, str]:
        """The environment of the command."""
        known = {name: value for name, value in os.environ.items() if name != "DETAUG_SEED"}
        return {
            **known,
            "nnUNet_raw": str(self.root / "raw"),
            "nnUNet_preprocessed": str(self.root / "preprocessed"),
            "nnUNet_results": str(self.results),
            "nnUNet_extTrainer": os.pathsep.join([str(SHORT), str(EXTERNAL)]),
            "nnUNet_n_proc_DA": str(processes),
            "nnUNet_def_n_proc": "1",
            "DETAUG_CPU_THREADS": "1",
            **({"DETAUG_SEED": str(seed)} if seed is not None else {}),
            **self.environment,
            **more,
        }

    def command(self, *flags: str) -> list[str]:
        return [str(NNUNET_TRAIN), str(KINDS[self.kind].number), self.configuration, self.fold, "-tr", self.trainer,
                "-p", self.plans, "-device", self.device, *flags]  # fmt: skip

    def train(self, *flags: str, seed: int | None = 1, processes: int = 2, **more: str) -> str:
        """Run the command to its end; what it printed.

        Raises:
            subprocess.CalledProcessError: it failed.
        """
        done = self.attempt(*flags, seed=seed, processes=processes, **more)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    def attempt(
        self, *flags: str, seed: int | None = 1, processes: int = 2, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command, which may fail."""
        return subprocess.run(
            self.command(*flags), env=self.variables(seed, processes, **more), cwd=self.root, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST_TRAINING,
        )  # fmt: skip

    def train_until_killed(
        self, epoch: int, *flags: str, seed: int | None = 1, processes: int = 2
    ) -> list[psutil.Process]:
        """Run the command, and SIGKILL it in the middle of an epoch; what it had started."""
        variables = self.variables(seed, processes, SHORT_STOP_AT=str(epoch))
        with subprocess.Popen(
            self.command(*flags), env=variables, cwd=self.root, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as training:  # fmt: skip
            assert training.stdout is not None
            wait_for_line(
                training.stdout, "WAITING TO BE KILLED", "the epoch has begun", LONGEST_TRAINING
            )
            children = psutil.Process(training.pid).children(recursive=True)
            training.send_signal(signal.SIGKILL)
        return children


def checkpoints(folder: Path) -> dict[str, bytes]:
    """The checkpoints of a training, by name."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.pth"))}
