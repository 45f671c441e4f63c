"""Trainers of a few batches, by attributes that nnU-Net's documentation lets users change."""

import os
import signal

from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from detaug.nnunet import DetAugLoading, DeterministicTraining


class _Short(nnUNetTrainer):
    """A trainer of two batches in an epoch.

    The variable SHORT_EPOCHS has the number of epochs; SHORT_VALIDATION=0 leaves out the final
    validation.
    """

    #: The epoch in which the training waits to be killed, or "".
    stop_at = os.environ.get("SHORT_STOP_AT", "")

    def initialize(self) -> None:
        self.num_epochs = int(os.environ.get("SHORT_EPOCHS", "4"))
        self.num_iterations_per_epoch = 2
        self.num_val_iterations_per_epoch = 2
        self.save_every = 2
        super().initialize()

    def train_step(self, batch: dict) -> dict:
        outcome = super().train_step(batch)
        if self.stop_at == f"{self.current_epoch}":
            # In mid-epoch: the test waits for this line and then kills the process.
            print("WAITING TO BE KILLED", flush=True)
            signal.pause()
        return outcome

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        if os.environ.get("SHORT_VALIDATION", "1") == "1":
            super().perform_actual_validation(save_probabilities)


class ShortDetAug(DetAugLoading, _Short):
    """A short trainer with detaug's reading and augmentation of cases."""


class ShortDeterministic(DeterministicTraining, _Short):
    """A short trainer with nnU-Net's own loader and transforms, made reproducible."""


class _Compiled(_Short):
    """A short trainer that compiles on a CPU, where nnU-Net does not."""

    def _do_i_compile(self) -> bool:
        return True


class ShortDetAugCompiled(DetAugLoading, _Compiled):
    """`ShortDetAug` with a compiled network."""
