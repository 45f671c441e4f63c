"""What detaug knows of nnU-Net's inside: the versions for which it holds, the modules that are imported, and all names that
are no documented interface. For another version of nnU-Net this is the file to read, and to change.

nnU-Net is imported when a function here is called, and not before.
"""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from detaug.versions import SUPPORTED_NNUNET

#: Set to 1 to use another version.
ANY_VERSION_VARIABLE = "DETAUG_ANY_NNUNET"


class UnsupportedNNUNet(RuntimeError):
    """The installed nnU-Net is not a version that detaug's trainers support."""


def installed_version() -> str:
    """The version of nnunetv2.

    Raises:
        UnsupportedNNUNet: it is not installed as a package.
    """
    try:
        return importlib.metadata.version("nnunetv2")
    except importlib.metadata.PackageNotFoundError:
        raise UnsupportedNNUNet('nnunetv2 is not installed: pip install "detaug[nnunet]"') from None


def check_nnunet_version() -> str:
    """The installed version, if the trainers support it (with ``DETAUG_ANY_NNUNET=1`` in the environment: any).

    Raises:
        UnsupportedNNUNet: they do not.
    """
    version = installed_version()
    if _supported(version) or os.environ.get(ANY_VERSION_VARIABLE) == "1":
        return version
    known = " or ".join(f"{each}.x" for each in SUPPORTED_NNUNET)
    raise UnsupportedNNUNet(
        f"nnunetv2 {version} is installed, and detaug's trainers support {known}: a training might silently not be "
        f'reproducible. Install a supported one (pip install "nnunetv2=={SUPPORTED_NNUNET[-1]}.*"), or set '
        f"{ANY_VERSION_VARIABLE}=1 to continue and check the result with `detaug nnunet verify`"
    )


def _supported(version: str) -> bool:
    return any(version == each or version.startswith(f"{each}.") for each in SUPPORTED_NNUNET)


# --- modules ----------------------------------------------------------------------------------------------------------


def trainer_class() -> Any:
    """``nnUNetTrainer``."""
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    return nnUNetTrainer


def find_trainer(name: str) -> Any:
    """A trainer that nnU-Net comes with, by its name; None: there is none."""
    from nnunetv2.utilities.find_class_by_name import recursive_find_python_class

    module = trainer_class().__module__
    folder = os.path.dirname(sys.modules[module].__file__ or "")
    return recursive_find_python_class(folder, name, module.rpartition(".")[0])


def is_nnunets_own(kind: type) -> bool:
    """Whether nnU-Net comes with this class."""
    return kind.__module__.startswith("nnunetv2.")


def run_training(*arguments: Any, **options: Any) -> None:
    """What ``nnUNetv2_train`` calls."""
    from nnunetv2.run import run_training as nnunet

    nnunet.run_training(*arguments, **options)


def make_trainer(
    dataset: str, configuration: str, fold: int | str, trainer: str, plans: str, device: Any
) -> TrainerAttributes:
    """The trainer that ``nnUNetv2_train`` would make of these arguments, not initialised.

    Raises:
        LookupError: there is no such trainer.
    """
    from nnunetv2.run.run_training import get_trainer_from_args

    try:
        made: TrainerAttributes = get_trainer_from_args(dataset, configuration, fold, trainer, plans, device=device)
    except RuntimeError as error:
        if not str(error).startswith("Could not find"):
            raise
        raise LookupError(trainer) from None
    return made


@contextmanager
def trainers_found_through(replaced: Callable[[type], type]) -> Iterator[None]:
    """Inside, `run_training` trains ``replaced(trainer)`` in place of the trainer whose name it is given.

    Raises (from `run_training`):
        LookupError: there is no such trainer.
    """
    from nnunetv2.run import run_training as nnunet

    find = nnunet.recursive_find_trainer_class_by_name

    def found(name: str) -> type:
        try:
            return replaced(find(name))
        except RuntimeError as error:
            if not str(error).startswith("Could not find"):  # not nnU-Net's own words: a module of a trainer's failed
                raise
            raise LookupError(name) from None

    nnunet.recursive_find_trainer_class_by_name = found
    try:
        yield
    finally:
        nnunet.recursive_find_trainer_class_by_name = find


def planning() -> Any:
    """What ``nnUNetv2_plan_and_preprocess`` is made of."""
    from nnunetv2.experiment_planning import plan_and_preprocess_api

    return plan_and_preprocess_api


# --- trainers ---------------------------------------------------------------------------------------------------------

#: The methods of nnU-Net's trainer that mixins of detaug wrap or replace.
HOOKS = frozenset(
    {
        "_build_loss",
        "_do_i_compile",
        "get_dataloaders",
        "initialize",
        "load_checkpoint",
        "on_epoch_end",
        "on_train_end",
        "on_train_epoch_start",
        "on_train_start",
        "on_validation_epoch_start",
        "perform_actual_validation",
        "run_training",
        "save_checkpoint",
        "train_step",
        "validation_step",
    }
)


class TrainerAttributes:
    """What a trainer of nnU-Net has, as far as mixins of detaug use it."""

    batch_size: int
    configuration_manager: Any
    current_epoch: int
    dataloader_train: Any
    dataloader_val: Any
    dataset_class: Any
    device: Any
    disable_checkpointing: bool
    folder_with_segs_from_previous_stage: str | None
    grad_scaler: Any
    is_ddp: bool
    label_manager: Any
    local_rank: int
    logger: Any
    loss: Any
    network: Any
    num_epochs: int
    num_iterations_per_epoch: int
    num_val_iterations_per_epoch: int
    optimizer: Any
    output_folder: str
    preprocessed_dataset_folder: str
    print_to_log_file: Any
    save_every: int
    was_initialized: bool


# --- loaders ----------------------------------------------------------------------------------------------------------

#: The method that makes loaders and augmenters. It knows their classes as globals of its module, by the names below.
MAKES_LOADERS = "get_dataloaders"
LOADER = "nnUNetDataLoader"
UNORDERED, ORDERED, SINGLE = "NonDetMultiThreadedAugmenter", "MultiThreadedAugmenter", "SingleThreadedAugmenter"


# --- checkpoints ------------------------------------------------------------------------------------------------------

#: Entries of a checkpoint: the best moving average of the Dice score, and what the logger holds.
BEST_AVERAGE, LOGGED = "_best_ema", "logging"
#: Entries of what the logger holds: the moving average after every epoch, and when epochs began and ended.
AVERAGES, EPOCH_TIMES = "ema_fg_dice", ("epoch_start_timestamps", "epoch_end_timestamps")


def is_checkpoint(value: Any) -> bool:
    """Whether it is what nnU-Net hands to `torch.save` as a checkpoint."""
    return isinstance(value, dict) and {"network_weights", LOGGED} <= value.keys()


def plot_nothing(trainer: TrainerAttributes) -> None:
    """Have the trainer draw no plot of its progress, which takes longer than all the rest of a short epoch."""
    trainer.logger.plot_progress_png = _no_plot


def _no_plot(_folder: str) -> None:
    """In place of `MetaLogger.plot_progress_png`."""
