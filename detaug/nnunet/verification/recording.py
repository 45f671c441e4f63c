"""A trainer that keeps a trace of its training, and is short. Its weights are those of the trainer itself."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.nnunet.compatibility import TrainerAttributes, plot_nothing
from detaug.nnunet.proof import difference_in_reading
from detaug.nnunet.trainers.unending_epochs import UnendingEpochs
from detaug.nnunet.trainers.unsaved_state import tensors_of
from detaug.nnunet.verification.settings import Part
from detaug.nnunet.verification.trace import (
    BACKWARD,
    DATA,
    FORWARD,
    OPTIMIZER,
    START,
    TRAINING,
    VALIDATION,
    WEIGHTS,
    Moment,
    TraceWriter,
    leaves,
)
from detaug.reports.atomic_files import write_text
from detaug.seeding.tree import SeedTree

#: A file in a training's folder: where a batch of nnU-Net's loader and detaug's differ, "" if nowhere.
READING = "reading.json"


class Interruption(Exception):
    """The training ends here, as it was asked to."""


class Recording(TrainerAttributes):
    """A mixin for nnU-Net's trainers, in front of all others.

    Attributes:
        part: how long the training is, and where it ends.
        trace: what it is recorded in.
    """

    part: ClassVar[Part]
    trace: ClassVar[TraceWriter]

    _moment: Moment | None = None
    _step = 0

    def initialize(self) -> None:
        # here and not in __init__, whose signature has to stay nnU-Net's; the learning rates are made of num_epochs
        self._shorten()
        plot_nothing(self)
        super().initialize()  # type: ignore[misc]
        # a trainer may set them here itself
        self._shorten()

    def _shorten(self) -> None:
        settings = self.part.settings
        self.num_epochs = settings.epochs
        self.num_iterations_per_epoch = settings.iterations
        self.num_val_iterations_per_epoch = settings.validation_iterations
        self.save_every = 1
        self.disable_checkpointing = False

    def get_dataloaders(self) -> tuple[Any, Any]:
        """Logs batches that are not reproducible instead of raising: the trainings are compared to their end."""
        loaders: tuple[Any, Any] = super().get_dataloaders()  # type: ignore[misc]
        for loader in loaders:
            if isinstance(loader, UnendingEpochs):
                loader.settle()
            if isinstance(loader, DeterministicAugmenter):
                loader.check = replace(loader.check, on_mismatch="warn")
        return loaders

    def on_train_start(self) -> None:
        super().on_train_start()  # type: ignore[misc]
        self._watch(self.network)

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()  # type: ignore[misc]
        self._step = 0
        moment = Moment(self.current_epoch, START)
        self._add_weights(moment)
        for name, value in tensors_of(self):  # another network (a teacher), averaged weights
            moment.add(WEIGHTS, f"the trainer's {name}", value)
        self.trace.write(moment)

    def on_validation_epoch_start(self) -> None:
        super().on_validation_epoch_start()  # type: ignore[misc]
        self._step = 0

    def train_step(self, batch: Any) -> Any:
        moment = self._begin(TRAINING, batch)
        outcome = super().train_step(batch)  # type: ignore[misc]
        self._end(moment, outcome)
        return outcome

    def validation_step(self, batch: Any) -> Any:
        moment = self._begin(VALIDATION, batch)
        outcome = super().validation_step(batch)  # type: ignore[misc]
        self._end(moment, outcome)
        return outcome

    def on_epoch_end(self) -> None:
        super().on_epoch_end()  # type: ignore[misc]
        if self.current_epoch == self.part.stop_after:
            raise Interruption

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        """Left out: it has no part in the weights."""

    def on_train_end(self) -> None:
        super().on_train_end()  # type: ignore[misc]
        given = getattr(self.dataloader_train, "given", None)
        if given is not None:
            rng = SeedTree(self.part.settings.seed).generator(0, 0)
            found = difference_in_reading(given, self.dataloader_train.generator, rng)
            write_text(Path(self.part.results).parent / READING, json.dumps(found or ""))

    # --- what is recorded --------------------------------------------------------------------------------------------

    def _begin(self, phase: str, batch: Any) -> Moment:
        cases = batch.get("keys", []) if isinstance(batch, dict) else []
        moment = Moment(self.current_epoch, phase, self._step, [str(case) for case in cases])
        for name, value in leaves(batch, "" if isinstance(batch, dict) else "batch"):
            moment.add(DATA, name, value)
        self._moment = moment
        return moment

    def _end(self, moment: Moment, outcome: Any) -> None:
        self._moment = None
        gradients = {key: moment.parts.pop(key) for key in list(moment.parts) if key[0] == BACKWARD}
        for name, value in leaves(outcome, "outcome"):
            moment.add(FORWARD, name, value)
        moment.parts.update(gradients)
        if moment.phase == TRAINING:
            self._add_weights(moment)
        self.trace.write(moment)
        self._step += 1

    def _watch(self, network: torch.nn.Module) -> None:
        """Have the outputs of all modules without children, the network's own, and all gradients before they are
        clipped, in the order in which they are made."""
        plain = uncompiled(network)
        if plain is network:  # hooks within a compiled graph would change what is compiled
            for name, module in plain.named_modules():
                if name and not any(module.children()):
                    module.register_forward_hook(self._seen_output(f"output of {name}"))
        network.register_forward_hook(self._seen_output("output of the network"))
        for name, parameter in plain.named_parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._seen_gradient(name))

    def _seen_output(self, name: str) -> Any:
        def seen(_module: Any, _inputs: Any, output: Any) -> None:
            if self._moment is not None:
                for leaf, value in leaves(output, name):
                    self._moment.add(FORWARD, leaf, value)

        return seen

    def _seen_gradient(self, name: str) -> Any:
        def seen(parameter: torch.Tensor) -> None:
            if self._moment is not None:
                self._moment.add(BACKWARD, name, parameter.grad)

        return seen

    def _add_weights(self, moment: Moment) -> None:
        network = uncompiled(self.network)
        parameters = dict(network.named_parameters())
        for name, value in [*parameters.items(), *network.named_buffers()]:
            moment.add(WEIGHTS, name, value)
        for name, parameter in parameters.items():
            for key, value in self.optimizer.state.get(parameter, {}).items():
                moment.add(OPTIMIZER, f"{key} of {name}", value)
        for i, group in enumerate(self.optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    moment.add(OPTIMIZER, f"{key} of parameter group {i}", value)
        if self.grad_scaler is not None:
            moment.add(OPTIMIZER, "gradient scale", self.grad_scaler.state_dict())


def uncompiled(network: Any) -> Any:
    """The network itself, where `torch.compile` wrapped it."""
    return getattr(network, "_orig_mod", network)


def recording(trainer: type, part: Part, trace: TraceWriter) -> type:
    """The trainer with `Recording` in front; its name stays, and with it nnU-Net's folder for its results."""
    attributes = {"__module__": trainer.__module__, "part": part, "trace": trace}
    return type(trainer.__name__, (Recording, trainer), attributes)
