"""Trainings of a few batches, by nnU-Net's own means: attributes that its documentation tells
people to change.
"""

import os
import signal

from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from detaug.nnunet import DetAugLoading, DeterministicTraining


class _Short(nnUNetTrainer):
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
            # mid-epoch: whoever started this waits for the line and then kills the process
            print("WAITING TO BE KILLED", flush=True)
            signal.pause()
        return outcome

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        if os.environ.get("SHORT_VALIDATION", "1") == "1":
            super().perform_actual_validation(save_probabilities)


class ShortDetAug(DetAugLoading, _Short):
    pass


class ShortDeterministic(DeterministicTraining, _Short):
    pass


class _Compiled(_Short):
    """nnU-Net compiles on GPUs only; torch can on a CPU as well."""

    def _do_i_compile(self) -> bool:
        return True


class ShortDetAugCompiled(DetAugLoading, _Compiled):
    pass
