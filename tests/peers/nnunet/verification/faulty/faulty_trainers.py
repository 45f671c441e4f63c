"""Trainers that do not repeat themselves, each for one reason. All are detaug's otherwise."""

import copy
import os
import time

import torch

from detaug.nnunet import nnUNetTrainerDeterministic


def noise(like):
    """Another small tensor at every call, whatever was seeded."""
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(7), "little"))
    return 1e-3 * torch.randn(like.shape, generator=generator)


class _NoisyTransforms:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, **sample):
        made = self.transforms(**sample)
        return {**made, "image": made["image"] + noise(made["image"])}


class UnseededTransform(nnUNetTrainerDeterministic):
    @staticmethod
    def get_training_transforms(*arguments, **options):
        return _NoisyTransforms(
            nnUNetTrainerDeterministic.get_training_transforms(*arguments, **options)
        )


class ForgetsTeacher(nnUNetTrainerDeterministic):
    """The weights are drawn to those of a teacher, their moving average, which is in no checkpoint."""

    def initialize(self):
        super().initialize()
        self.teacher = copy.deepcopy(self.network)

    def train_step(self, batch):
        outcome = super().train_step(batch)
        with torch.no_grad():
            for mine, theirs in zip(
                self.network.parameters(), self.teacher.parameters(), strict=True
            ):
                mine.lerp_(theirs, 0.25)
                theirs.lerp_(mine, 0.25)
        return outcome


class ForgetsCount(nnUNetTrainerDeterministic):
    """The loss grows with the number of steps, which is in no checkpoint."""

    steps = 0

    def train_step(self, batch):
        self.steps += 1
        batch["data"] = batch["data"] * (1 + self.steps / 8)
        return super().train_step(batch)


class NoisyGradient(nnUNetTrainerDeterministic):
    def initialize(self):
        super().initialize()
        weights = self.network.encoder.stages[1][0].convs[0].conv.weight
        weights.register_hook(lambda gradient: gradient + noise(gradient))


class ForgetsMomentum(nnUNetTrainerDeterministic):
    def load_checkpoint(self, filename_or_checkpoint):
        super().load_checkpoint(filename_or_checkpoint)
        self.optimizer.state.clear()


class TimeInCheckpoint(nnUNetTrainerDeterministic):
    def save_checkpoint(self, filename):
        super().save_checkpoint(filename)
        checkpoint = torch.load(filename, weights_only=False)
        torch.save({**checkpoint, "written_at": time.time()}, filename)


class CannotResume(nnUNetTrainerDeterministic):
    def load_checkpoint(self, filename_or_checkpoint):
        raise NotImplementedError("this trainer knows no checkpoints")


class PicklesInAnotherWay(nnUNetTrainerDeterministic):
    """Once resumed, it writes the same entries with another name in the archive."""

    resumed = False

    def load_checkpoint(self, filename_or_checkpoint):
        super().load_checkpoint(filename_or_checkpoint)
        self.resumed = True

    def save_checkpoint(self, filename):
        super().save_checkpoint(filename)
        checkpoint = torch.load(filename, weights_only=False)
        name = "resumed.pth" if self.resumed else "straight.pth"
        temporary = os.path.join(os.path.dirname(filename), name)
        torch.save(checkpoint, temporary)
        os.replace(temporary, filename)
