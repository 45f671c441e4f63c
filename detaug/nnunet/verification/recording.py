"""One part of a training, in a process of its own: as ``nnUNetv2_train``, but short, with a trace and without the final
validation."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TextIO

import torch

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import only_warn
from detaug.errors import UnusableError
from detaug.ledger.header import flat
from detaug.nnunet.compatibility import Trainer, plot_nothing, trainers_found_through, training
from detaug.nnunet.proof import difference_in_reading
from detaug.nnunet.run_record import print_of
from detaug.nnunet.trainers.late_augmenter import LateAugmenter
from detaug.nnunet.trainers.unsaved_state import tensors_of
from detaug.nnunet.verification.settings import EPOCHS, VALIDATION_ITERATIONS, Settings
from detaug.nnunet.verification.traces import (
    DATA,
    OUTCOME,
    START,
    TRAINING,
    VALIDATION,
    WEIGHTS,
    at_start,
    in_step,
)
from detaug.seeding.tree import SeedTree

#: Files in a training's folder: its events; how it failed; where a batch of nnU-Net's loader and detaug's differ, "" if nowhere.
TRACE, FAILURE, READING = "trace.jsonl", "failure.txt", "reading.txt"

_PARENT_WATCHED_EVERY = 0.5  # seconds


@dataclass(frozen=True)
class Part:
    """What one process does of a training.

    Attributes:
        processes: in its ``nnUNet_n_proc_DA``.
        killed: whether its process and all that it started get SIGKILL after the first step of the second epoch.
        resume: whether it continues what is in ``nnUNet_results``, as ``nnUNetv2_train --c``.
    """

    settings: Settings
    processes: int
    killed: bool = False
    resume: bool = False


def main(text: str, parent: str) -> None:
    """Run a `Part`, given as JSON, in the environment that is set; where it fails, `FAILURE` says how. `parent` is the process
    that started this one, which leads its own process group."""
    stored = json.loads(text)
    part = Part(**{**stored, "settings": Settings(**stored["settings"])})
    folder = Path(os.environ["nnUNet_results"]).parent
    threading.Thread(
        target=_end_with, args=(int(parent),), name="detaug-parent-watch", daemon=True
    ).start()
    try:
        # as nnUNetv2_train
        torch.set_num_threads((os.cpu_count() or 1) if part.settings.device == "cpu" else 1)
        train(part, folder / TRACE)
    except Exception as error:
        kind = "" if isinstance(error, UnusableError) else f"{type(error).__name__}: "
        (folder / FAILURE).write_text(f"{kind}{error}", "utf-8")
        raise


def _end_with(parent: int) -> None:
    """Kill this process and all that it started once the parent is gone, for any reason: stock nnU-Net's workers would run on."""
    while os.getppid() == parent:
        time.sleep(_PARENT_WATCHED_EVERY)
    kill_all()


def kill_all() -> None:
    """SIGKILL for this process, and all that it started."""
    os.killpg(0, signal.SIGKILL)


def train(part: Part, trace: Path) -> None:
    """nnU-Net's own `run_training`, with `Recording` in front of the trainer that it finds; the trace gets its events."""
    settings = part.settings

    def recording(trainer: type) -> type:
        # its name stays, and with it nnU-Net's folder for its results
        attributes = {"__module__": trainer.__module__, "part": part, "trace": file}
        return type(trainer.__name__, (Recording, trainer), attributes)

    with trace.open("a") as file, trainers_found_through(recording):
        training().run_training(
            settings.dataset,
            settings.configuration,
            settings.fold,
            settings.trainer,
            settings.plans,
            continue_training=part.resume,
            device=torch.device(settings.device),
        )


class Recording(Trainer):  # type: ignore[misc]
    """A mixin for nnU-Net's trainers, in front of all others. The weights are those of the trainer itself."""

    part: ClassVar[Part]
    trace: ClassVar[TextIO]

    _step = 0

    def initialize(self) -> None:
        # here and not in __init__, whose signature has to stay nnU-Net's; the learning rates are made of num_epochs
        self._shorten()
        plot_nothing(self)
        super().initialize()
        # a trainer may set them here itself
        self._shorten()

    def _shorten(self) -> None:
        self.num_epochs = EPOCHS
        self.num_iterations_per_epoch = self.part.settings.iterations
        self.num_val_iterations_per_epoch = VALIDATION_ITERATIONS
        self.save_every = 1
        self.disable_checkpointing = False

    def get_dataloaders(self) -> tuple[Any, Any]:
        """Logs batches that are not reproducible instead of raising: the trainings are compared to their end."""
        loaders: tuple[Any, Any] = super().get_dataloaders()
        for loader in loaders:
            if isinstance(loader, LateAugmenter):
                loader.settle()
            if isinstance(loader, DeterministicAugmenter):
                only_warn(loader)
        return loaders

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self._step = 0
        place = at_start(self.current_epoch)
        self._note(place, START, self._weights())
        # another network (a teacher), averaged weights
        self._note(
            place, START, ((f"the trainer's {name}", value) for name, value in tensors_of(self))
        )

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self._step = 0

    def train_step(self, batch: Any) -> Any:
        return self._recorded(TRAINING, super().train_step, batch)

    def validation_step(self, batch: Any) -> Any:
        return self._recorded(VALIDATION, super().validation_step, batch)

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        """Left out: it has no part in the weights."""

    def on_train_end(self) -> None:
        super().on_train_end()
        given = getattr(self.dataloader_train, "given", None)
        if given is not None:
            rng = SeedTree(self.part.settings.seed).generator(0, 0)
            found = difference_in_reading(given, self.dataloader_train.generator, rng)
            Path(self.trace.name).with_name(READING).write_text(found or "", "utf-8")

    def _recorded(self, phase: str, step: Callable[[Any], Any], batch: Any) -> Any:
        place = in_step(phase, self._step, self.current_epoch)
        # before the step, which may change the batch in place
        self._note(place, DATA, flat(batch if isinstance(batch, dict) else {"batch": batch}))
        outcome = step(batch)
        if self.part.killed and self.current_epoch:
            kill_all()
        self._note(place, OUTCOME, flat(outcome, "outcome"))
        if phase == TRAINING:
            self._note(place, WEIGHTS, self._weights())
        self._step += 1
        return outcome

    def _weights(self) -> Iterator[tuple[str, Any]]:
        """Parameters and buffers, and what the optimiser keeps."""
        network: Any = getattr(
            self.network, "_orig_mod", self.network
        )  # as it is before it is compiled
        yield from network.state_dict().items()
        yield from flat(self.optimizer.state_dict(), "optimizer")
        if self.grad_scaler is not None:
            yield "gradient scale", self.grad_scaler.state_dict()

    def _note(self, place: str, stage: str, found: Iterable[tuple[str, Any]]) -> None:
        if self.part.killed and self.current_epoch:
            return  # the part that resumes makes this epoch again
        for name, value in found:
            print(json.dumps((place, stage, name, print_of(value))), file=self.trace)
        self.trace.flush()
