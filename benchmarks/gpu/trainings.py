"""Short trainings by nnU-Net's own `run_training`, each in a child, with a record of every step."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.children import Child, ChildFailed, Send
from benchmarks.gpu.dataset import DATASET, use_folders

SEED = "1234"
EPOCHS = 2
VALIDATION_ITERATIONS = 2
#: The step of the last epoch at which a training is killed, counted from 0.
KILLED_AT = 1

STOCK = "nnUNetTrainer"
DETERMINISTIC = "nnUNetTrainerDeterministic"
DETAUG = "nnUNetTrainerDetAug"
FAST = "nnUNetTrainerDetAugFast"


@dataclass(frozen=True)
class Training:
    """A training of two epochs.

    Attributes:
        trainer: its class, nnU-Net's or detaug's.
        root: of the data set.
        configuration: nnU-Net's.
        device: ``cuda`` or ``cpu``.
        iterations: steps of an epoch.
        workers: processes that make batches; 0: the training's own.
        is_compiled: whether torch.compile compiles the network.
    """

    trainer: str
    root: Path
    configuration: str
    device: str
    iterations: int
    workers: int = 2
    is_compiled: bool = False


@dataclass(frozen=True)
class Trained:
    """What a training left.

    Attributes:
        steps: a record of each step, in order.
        sha256: of ``checkpoint_final.pth``.
    """

    steps: list[dict[str, Any]]
    sha256: str


class Run:
    """A training that is under way in a child.

    Args:
        training: which.
        folder: for its records, results and log.
        is_killed: whether it kills itself in the last epoch.
        continues: whether it continues what is in the folder, as ``nnUNetv2_train --c``.
    """

    def __init__(
        self, training: Training, folder: Path, is_killed: bool = False, continues: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.is_killed = is_killed
        self.child = Child(_train, training, folder, is_killed, continues, log=folder / "log.txt")

    def wait(self, deadline: float) -> Trained | None:
        """Return what the training left, at a reading of `time.monotonic`; None of a killed one.

        Raises:
            ChildFailed: it failed, or was not over in time.
        """
        try:
            results = list(self.child.results(deadline - time.monotonic()))
        except ChildFailed:
            if self.is_killed and self.child.exit_code == -signal.SIGKILL and self._steps():
                return None
            raise
        return Trained(self._steps(), results[0])

    def _steps(self) -> list[dict[str, Any]]:
        file = self.folder / "steps.jsonl"
        if not file.exists():
            return []
        records = [json.loads(line) for line in file.read_text().splitlines()]
        # A step that was made before the kill and again after it counts as it was made again.
        by_position = {(record["epoch"], record["step"]): record for record in records}
        return [by_position[position] for position in sorted(by_position)]


def _train(send: Send, training: Training, folder: Path, is_killed: bool, continues: bool) -> None:
    use_folders(training.root)
    os.environ.update(
        nnUNet_results=str(folder / "results"),
        nnUNet_n_proc_DA=str(training.workers),
        nnUNet_compile=str(training.is_compiled),
        nnUNet_wandb_enabled="0",
        DETAUG_SEED=SEED,
        DETAUG_CPU_THREADS="1",
    )
    from nnunetv2.run import run_training

    with (folder / "steps.jsonl").open("a") as file:
        kind = recorded(trainer_class(training.trainer), training, file, is_killed)
        # By name it would import all of nnU-Net's trainers, some of which need other packages.
        run_training.recursive_find_trainer_class_by_name = lambda _name: kind
        torch.set_num_threads(1)
        run_training.run_training(
            DATASET,
            training.configuration,
            0,
            training.trainer,
            continue_training=continues,
            device=torch.device(training.device),
        )
    (checkpoint,) = (folder / "results").glob("*/*/fold_0/checkpoint_final.pth")
    send(hashlib.sha256(checkpoint.read_bytes()).hexdigest())


def trainer_class(name: str) -> Any:
    """Return nnU-Net's trainer, or one of detaug's."""
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from detaug.nnunet import trainers

    if name == STOCK:
        return nnUNetTrainer
    return getattr(trainers, name)


def recorded(trainer: Any, training: Training, file: Any, is_killed: bool) -> Any:
    """Return a trainer that is short and writes a line for each step.

    Its name stays, and with it nnU-Net's folder for its results.
    """
    from detaug import fingerprint
    from detaug.nnunet.compatibility import plot_nothing

    class Recorded(trainer):  # type: ignore[misc]
        def initialize(self) -> None:
            # Before the schedule is made, which reads num_epochs; and after it, for a trainer that
            # sets them in its own `initialize`.
            self._shorten()
            plot_nothing(self)
            super().initialize()
            self._shorten()

        def _shorten(self) -> None:
            self.num_epochs = EPOCHS
            self.num_iterations_per_epoch = training.iterations
            self.num_val_iterations_per_epoch = VALIDATION_ITERATIONS
            self.save_every = 1

        def on_train_epoch_start(self) -> None:
            super().on_train_epoch_start()
            self._step = 0

        def train_step(self, batch: dict[str, Any]) -> Any:
            step = {"epoch": self.current_epoch, "step": self._step}
            step["batch"] = fingerprint({key: batch[key] for key in ("data", "target")})
            outcome = super().train_step(batch)
            step["loss"] = float(outcome["loss"])
            step["tensors"] = {
                name: fingerprint(tensor.detach().cpu()) for name, tensor in self._parameters()
            }
            file.write(json.dumps(step) + "\n")
            file.flush()
            if is_killed and self.current_epoch == EPOCHS - 1 and self._step == KILLED_AT:
                os.killpg(0, signal.SIGKILL)
            self._step += 1
            return outcome

        def _parameters(self) -> Iterator[tuple[str, torch.Tensor]]:
            network: Any = getattr(self.network, "_orig_mod", self.network)
            yield from network.named_parameters()

        def perform_actual_validation(self, save_probabilities: bool = False) -> None:
            """Do nothing: it predicts whole cases, and has no part in the training."""

    Recorded.__name__ = trainer.__name__
    Recorded.__qualname__ = trainer.__qualname__
    Recorded.__module__ = trainer.__module__
    return Recorded


def first_difference(a: Trained, b: Trained) -> dict[str, Any] | None:
    """Return the first step that differs, and in what: the batch, the loss, or which tensor."""
    if len(a.steps) != len(b.steps):
        return {"what": "number of steps", "values": [len(a.steps), len(b.steps)]}
    for one, other in zip(a.steps, b.steps, strict=True):
        position = {"epoch": one["epoch"], "step": one["step"]}
        if one["batch"] != other["batch"]:
            return {**position, "what": "batch"}
        # As text: NaN equals NaN.
        if repr(one["loss"]) != repr(other["loss"]):
            return {**position, "what": "loss", "values": [one["loss"], other["loss"]]}
        for name, value in one["tensors"].items():
            if other["tensors"].get(name) != value:
                return {**position, "what": f"tensor {name} after the step"}
    if a.sha256 != b.sha256:
        return {"what": "bytes of checkpoint_final.pth, of equal steps"}
    return None
