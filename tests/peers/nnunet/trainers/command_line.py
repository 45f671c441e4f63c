"""Run nnU-Net's own command line as a user does."""

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
#: What `detaug nnunet path` prints.
EXTERNAL = REPOSITORY / "detaug" / "nnunet" / "external"
#: Of one on a busy machine, in seconds.
LONGEST_TRAINING = 1200.0
NNUNET_TRAIN = Path(sys.executable).with_name("nnUNetv2_train")


@dataclass
class Run:
    """The folders and settings of one training.

    Attributes:
        root: folder with nnU-Net's ``raw`` and ``preprocessed``.
        results: nnU-Net's results folder.
        kind: of data set.
        trainer: an argument of ``nnUNetv2_train``.
        configuration: another one.
        environment: further variables.
        plans: an argument of ``nnUNetv2_train``.
        device: another one.
        fold: another one.
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
        """The folder of fold 0's checkpoints."""
        name = f"{self.trainer}__{self.plans}__{self.configuration}"
        return self.results / KINDS[self.kind].name / name / "fold_0"

    def variables(self, seed: int | None, processes: int, **more: str) -> dict[str, str]:
        """Return the environment of the command.

        Args:
            seed: DETAUG_SEED, or None for none.
            processes: of nnU-Net's loaders.
            more: further variables.
        """
        inherited = {name: value for name, value in os.environ.items() if name != "DETAUG_SEED"}
        if seed is not None:
            inherited["DETAUG_SEED"] = str(seed)
        return {
            **inherited,
            "nnUNet_raw": str(self.root / "raw"),
            "nnUNet_preprocessed": str(self.root / "preprocessed"),
            "nnUNet_results": str(self.results),
            "nnUNet_extTrainer": os.pathsep.join([str(SHORT), str(EXTERNAL)]),
            "nnUNet_n_proc_DA": str(processes),
            "nnUNet_def_n_proc": "1",
            "DETAUG_CPU_THREADS": "1",
            **self.environment,
            **more,
        }

    def command(self, *flags: str) -> list[str]:
        """Return the command line."""
        return [
            str(NNUNET_TRAIN),
            str(KINDS[self.kind].number),
            self.configuration,
            self.fold,
            "-tr",
            self.trainer,
            "-p",
            self.plans,
            "-device",
            self.device,
            *flags,
        ]

    def train(self, *flags: str, seed: int | None = 1, processes: int = 2, **more: str) -> str:
        """Run the command, check that it succeeds, and return what it printed."""
        done = self.attempt(*flags, seed=seed, processes=processes, **more)
        assert done.returncode == 0, done.stdout[-6000:]
        return done.stdout

    def attempt(
        self, *flags: str, seed: int | None = 1, processes: int = 2, **more: str
    ) -> subprocess.CompletedProcess[str]:
        """Run the command, which may fail."""
        return subprocess.run(
            self.command(*flags),
            env=self.variables(seed, processes, **more),
            cwd=self.root,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_TRAINING,
        )

    def train_until_killed(
        self, epoch: int, *flags: str, seed: int | None = 1, processes: int = 2
    ) -> list[psutil.Process]:
        """Run the command and SIGKILL it within an epoch; return its child processes."""
        with subprocess.Popen(
            self.command(*flags),
            env=self.variables(seed, processes, SHORT_STOP_AT=str(epoch)),
            cwd=self.root,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as training:
            assert training.stdout is not None
            wait_for_line(
                training.stdout, "WAITING TO BE KILLED", "the epoch has begun", LONGEST_TRAINING
            )
            children = psutil.Process(training.pid).children(recursive=True)
            training.send_signal(signal.SIGKILL)
        return children


def checkpoints(folder: Path) -> dict[str, bytes]:
    """Return the contents of a training's checkpoints, by name."""
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*.pth"))}
