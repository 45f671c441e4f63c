"""The arguments of `detaug nnunet verify`, and the trainings that follow from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from detaug.seeding.tree import Seed


@dataclass(frozen=True)
class Settings:
    """A training by the arguments of `nnUNetv2_train`, and its length.

    Attributes:
        dataset: nnU-Net's name or number of the data set.
        configuration: such as "3d_fullres".
        fold: its number, or "all".
        trainer: the class's name.
        plans: the plans' identifier.
        device: "cpu" or "cuda"; "": cuda where there is a GPU.
        seed: in the trainings' ``DETAUG_SEED``.
        epochs: of a training; at least 2, so that it can be killed after a checkpoint.
        iterations: training batches of an epoch. In two epochs of batches of two samples, 23 show a branch of the pipeline
            that one sample of twenty takes with 99 % confidence.
        validation_iterations: validation batches of an epoch.
    """

    dataset: str
    configuration: str
    fold: int | str = 0
    trainer: str = "nnUNetTrainerDetAug"
    plans: str = "nnUNetPlans"
    device: str = "cuda"
    seed: Seed = 1234
    epochs: int = 2
    iterations: int = 23
    validation_iterations: int = 2

    @property
    def moments_of_an_epoch(self) -> int:
        """How many lines a trace gets in it: its start, the training and the validation batches."""
        return 1 + self.iterations + self.validation_iterations


@dataclass(frozen=True)
class Part:
    """What one process does of a training.

    Attributes:
        settings: of the training.
        processes: in its ``nnUNet_n_proc_DA``.
        kill_at: its process and all that it started get SIGKILL once its trace has this many lines; None: they do not.
        resume: whether it continues what is in `results`, as ``nnUNetv2_train --c``.
        results: the folder that is its ``nnUNet_results``, filled in when it begins.
    """

    settings: Settings
    processes: int
    kill_at: int | None = None
    resume: bool = False
    results: str = ""


@dataclass(frozen=True)
class Training:
    """One of the trainings that are compared.

    Attributes:
        what: for the reader.
        folder: a name for its folder.
        parts: one after the other.
        resumed_at: the epoch that the last part begins with, counted from 0; None: there is one part.
    """

    what: str
    folder: str
    parts: tuple[Part, ...]
    resumed_at: int | None = None

    @property
    def processes(self) -> tuple[int, ...]:
        """Worker processes of each part."""
        return tuple(part.processes for part in self.parts)


def trainings(settings: Settings) -> tuple[Training, ...]:
    """The trainings to compare; the others are compared with the first. The last is killed in mid-epoch, and resumed."""
    half = settings.epochs // 2
    kill_at = half * settings.moments_of_an_epoch + 1 + min(2, settings.iterations)
    parts = (Part(settings, 3, kill_at=kill_at), Part(settings, 1, resume=True))
    return (
        Training("straight through", "straight-2", (Part(settings, 2),)),
        Training("straight through", "straight-0", (Part(settings, 0),)),
        Training(f"killed in epoch {half + 1} of {settings.epochs}, resumed", "resumed", parts, half),
    )
