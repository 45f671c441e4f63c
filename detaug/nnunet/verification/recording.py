"""Train one part of a training in a process of its own, and record its steps.

It is nnU-Net's own training, as `nnUNetv2_train` runs it, but short and without the final
validation. Its trace is a file with one event a line, in the order of the training: what comes
later may follow from what comes earlier.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TextIO

import torch

from detaug.engine.arguments import Check
from detaug.errors import UnusableError
from detaug.nnunet.compatibility import Trainer, plot_nothing, trainers_found_through, training
from detaug.nnunet.run_record import fingerprint_or_class
from detaug.nnunet.verification.settings import EPOCHS, VALIDATION_ITERATIONS, Settings
from detaug.objects.walking import flat

#: Files in a training's folder: its trace, and the message of the error that ended it.
TRACE = "trace.jsonl"
FAILURE = "failure.txt"

_SECONDS_BETWEEN_LOOKS_AT_PARENT = 0.5


class Event(NamedTuple):
    """A value in a training: the step in words, what the value is, and its fingerprint."""

    step: str
    name: str
    fingerprint: str


@dataclass(frozen=True)
class Part:
    """The part of a training that one process does.

    Attributes:
        processes: in its ``nnUNet_n_proc_DA``.
        killed: its process and all that it started get SIGKILL after the first step of the second
            epoch.
        resume: it continues the training in ``nnUNet_results``, as ``nnUNetv2_train --c``.
    """

    settings: Settings
    processes: int
    killed: bool = False
    resume: bool = False


def main(part_as_json: str, parent: str) -> None:
    """Run a `Part` in the environment that is set, and write `FAILURE` where it fails.

    Args:
        part_as_json: the `Part`.
        parent: the id of the process that started this one, which leads a process group of its own.
    """
    stored = json.loads(part_as_json)
    part = Part(**{**stored, "settings": Settings(**stored["settings"])})
    folder = Path(os.environ["nnUNet_results"]).parent
    watch = threading.Thread(
        target=_end_with_parent, args=(int(parent),), name="detaug-parent-watch", daemon=True
    )
    watch.start()
    # nnUNetv2_train sets the same number, on which the sums of a training depend.
    num_threads = 1
    if part.settings.device == "cpu":
        num_threads = os.cpu_count() or 1
    torch.set_num_threads(num_threads)
    try:
        train(part, folder / TRACE)
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        if isinstance(error, UnusableError):
            message = str(error)
        (folder / FAILURE).write_text(message, "utf-8")
        raise


def _end_with_parent(parent: int) -> None:
    """Kill this process and all that it started once the parent is gone, for any reason.

    The workers of stock nnU-Net would run on.
    """
    while os.getppid() == parent:
        time.sleep(_SECONDS_BETWEEN_LOOKS_AT_PARENT)
    kill_all()


def kill_all() -> None:
    """Send SIGKILL to this process and all that it started."""
    os.killpg(0, signal.SIGKILL)


def train(part: Part, trace: Path) -> None:
    """Run nnU-Net's own `run_training` with `Recording` in front of the trainer that it finds."""
    settings = part.settings

    def recording(trainer: type) -> type:
        # The class keeps its name, and with it nnU-Net's folder for its results.
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


def read_trace(file: Path) -> list[Event]:
    """Return the events of a trace."""
    return [Event(*json.loads(line)) for line in file.read_text().splitlines()]


class Recording(Trainer):  # type: ignore[misc]
    """A mixin that shortens a trainer's training and writes a trace of it.

    It stands in front of all other classes. The weights are those of the trainer without it.
    """

    part: ClassVar[Part]
    trace: ClassVar[TextIO]

    # Batches that are not reproducible are logged: the trainings are compared to their end.
    _check = Check(guard=True, on_mismatch="warn")
    _step = 0

    def initialize(self) -> None:
        # Here and not in __init__, whose signature has to stay nnU-Net's. The schedule reads
        # num_epochs while the trainer is initialized.
        self._shorten()
        plot_nothing(self)
        super().initialize()
        # A trainer may set them in its own initialize.
        self._shorten()

    def _shorten(self) -> None:
        self.num_epochs = EPOCHS
        self.num_iterations_per_epoch = self.part.settings.iterations
        self.num_val_iterations_per_epoch = VALIDATION_ITERATIONS
        # Saved in every epoch, so that a part killed in the second one leaves a checkpoint.
        self.save_every = 1
        self.disable_checkpointing = False

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        self._step = 0
        self._note(f"start of epoch {self.current_epoch}", self._weights())

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()
        self._step = 0

    def train_step(self, batch: Any) -> Any:
        step = f"training step {self._step} of epoch {self.current_epoch}"
        outcome = self._recorded(step, super().train_step, batch)
        self._note(step, self._weights())
        return outcome

    def validation_step(self, batch: Any) -> Any:
        step = f"validation step {self._step} of epoch {self.current_epoch}"
        return self._recorded(step, super().validation_step, batch)

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        """Do nothing: the final validation has no part in the weights."""

    def _recorded(self, step: str, function: Callable[[Any], Any], batch: Any) -> Any:
        """Run a step, and note its batch and its outcome."""
        # Before the step, which may change the batch in place.
        self._note(step, flat({"batch": batch}))
        outcome = function(batch)
        if self.part.killed and self.current_epoch > 0:
            kill_all()
        self._note(step, flat(outcome, "outcome"))
        self._step += 1
        return outcome

    def _weights(self) -> Iterator[tuple[str, Any]]:
        """Yield the name and value of parameters, buffers, and what the optimiser keeps."""
        # The network as it was before it was compiled.
        network: Any = getattr(self.network, "_orig_mod", self.network)
        for name, tensor in network.state_dict().items():
            yield f"weights.{name}", tensor
        yield from flat(self.optimizer.state_dict(), "optimizer")
        if self.grad_scaler is not None:
            yield "gradient scale", self.grad_scaler.state_dict()

    def _note(self, step: str, values: Iterable[tuple[str, Any]]) -> None:
        """Write values of a step to the trace."""
        if self.part.killed and self.current_epoch > 0:
            # The part that resumes makes this epoch again.
            return
        for name, value in values:
            print(json.dumps((step, name, fingerprint_or_class(value))), file=self.trace)
        # After SIGKILL, lines that are still in the buffer would be lost.
        self.trace.flush()
