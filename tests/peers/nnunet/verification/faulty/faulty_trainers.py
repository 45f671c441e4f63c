"""Trainers that are not reproducible, each for one reason. All are detaug's otherwise."""

import copy
import os
import time

import torch

from detaug.nnunet import nnUNetTrainerDeterministic


def noise(like):
    """Return small random numbers that no seed governs."""
    seed = int.from_bytes(os.urandom(7), "little")
    generator = torch.Generator().manual_seed(seed)
    return 1e-3 * torch.randn(like.shape, generator=generator)


def add_noise(tensor):
    """Return a tensor with noise."""
    return tensor + noise(tensor)


class _NoisyTransforms:
    """A transform that adds noise to the image that others return."""

    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, **sample):
        result = self.transforms(**sample)
        return {**result, "image": add_noise(result["image"])}


class UnseededTransform(nnUNetTrainerDeterministic):
    """A trainer whose transforms draw from a generator that no seed governs."""

    @staticmethod
    def get_training_transforms(*arguments, **options):
        original = nnUNetTrainerDeterministic.get_training_transforms
        return _NoisyTransforms(original(*arguments, **options))


class ForgetsTeacher(nnUNetTrainerDeterministic):
    """A trainer that moves its weights towards a teacher's, which no checkpoint has.

    The teacher is the weights' moving average.
    """

    def initialize(self):
        super().initialize()
        self.teacher = copy.deepcopy(self.network)

    def train_step(self, batch):
        outcome = super().train_step(batch)
        with torch.no_grad():
            parameters = zip(self.network.parameters(), self.teacher.parameters(), strict=True)
            for student, teacher in parameters:
                student.lerp_(teacher, 0.25)
                teacher.lerp_(student, 0.25)
        return outcome


class ForgetsCount(nnUNetTrainerDeterministic):
    """A trainer whose loss grows with the number of steps, which no checkpoint has."""

    steps = 0

    def train_step(self, batch):
        self.steps += 1
        batch["data"] = batch["data"] * (1 + self.steps / 8)
        return super().train_step(batch)


class NoisyGradient(nnUNetTrainerDeterministic):
    """A trainer that adds noise to a gradient."""

    def initialize(self):
        super().initialize()
        weights = self.network.encoder.stages[1][0].convs[0].conv.weight
        weights.register_hook(add_noise)


class ForgetsMomentum(nnUNetTrainerDeterministic):
    """A trainer that forgets the momentum when it loads a checkpoint."""

    def load_checkpoint(self, filename_or_checkpoint):
        super().load_checkpoint(filename_or_checkpoint)
        self.optimizer.state.clear()


class TimeInCheckpoint(nnUNetTrainerDeterministic):
    """A trainer that writes the time into its checkpoints."""

    def save_checkpoint(self, filename):
        super().save_checkpoint(filename)
        checkpoint = torch.load(filename, weights_only=False)
        torch.save({**checkpoint, "written_at": time.time()}, filename)


class CannotResume(nnUNetTrainerDeterministic):
    """A trainer that cannot load a checkpoint."""

    def load_checkpoint(self, filename_or_checkpoint):
        raise NotImplementedError("this trainer knows no checkpoints")


class PicklesInAnotherWay(nnUNetTrainerDeterministic):
    """A trainer that, once resumed, writes the same entries with another name in the archive."""

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
