"""Facts about nnU-Net's inside: supported versions, modules, and names that are not documented.

For another version of nnU-Net this is the file to read, and to change. nnU-Net is imported when a
function here is called, and not before.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, redirect_stdout
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, TypeGuard
from unittest import mock

from detaug.errors import NotInstalled, UnusableError
from detaug.versions import SUPPORTED_NNUNET

#: Set to 1 to use another version.
ANY_VERSION_VARIABLE = "DETAUG_ANY_NNUNET"


def switched_on(variable: str) -> bool:
    """Return True if an environment variable is 1.

    Raises:
        ValueError: it is neither 0 nor 1.
    """
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{variable}={value!r} in the environment must be 1 or 0")
    return value == "1"


def require_nnunet() -> None:
    """Raise `NotInstalled` where nnU-Net is not installed."""
    if importlib.util.find_spec("nnunetv2") is None:
        raise NotInstalled("nnU-Net is not installed: pip install 'detaug[nnunet]'")


def check_nnunet_version() -> None:
    """Raise unless the trainers support the installed version.

    With ``DETAUG_ANY_NNUNET=1`` in the environment they support any.

    Raises:
        UnusableError: they do not support it.
    """
    version = importlib.metadata.version("nnunetv2")
    if version.startswith(tuple(f"{supported}." for supported in SUPPORTED_NNUNET)):
        return
    if switched_on(ANY_VERSION_VARIABLE):
        return
    known = " or ".join(f"{supported}.x" for supported in SUPPORTED_NNUNET)
    raise UnusableError(
        f"nnunetv2 {version} is installed, and detaug's trainers support {known}: with it, a"
        " training might silently not be reproducible. Install a supported version (pip install"
        f' "nnunetv2=={SUPPORTED_NNUNET[-1]}.*"), or set {ANY_VERSION_VARIABLE}=1 to continue, and'
        " check the result with `detaug nnunet verify`"
    )


#: How nnU-Net's own error begins where it finds no trainer of a name.
_NOT_FOUND = "Could not find"
#: The folders in which nnU-Net looks for trainers besides its own, as in PATH.
EXTERNAL_VARIABLE = "nnUNet_extTrainer"


def trainer_folders() -> str:
    """Return the value of ``nnUNet_extTrainer`` with which detaug's trainers are found as well.

    The user's folders come first.
    """
    own = os.path.join(os.path.dirname(__file__), "external")
    folders = os.environ.get(EXTERNAL_VARIABLE, "").split(os.pathsep)
    users = [folder for folder in folders if folder.strip() and folder != own]
    return os.pathsep.join([*users, own])


# --- modules --------------------------------------------------------------------------------------


#: ``nnUNetTrainer``, ``nnUNetDataLoader``, and the data set of preprocessed cases.
trainer_class = partial(resolve_name, "nnunetv2.training.nnUNetTrainer.nnUNetTrainer:nnUNetTrainer")
loader_class = partial(resolve_name, "nnunetv2.training.dataloading.data_loader:nnUNetDataLoader")
dataset_class = partial(
    resolve_name, "nnunetv2.training.dataloading.nnunet_dataset:nnUNetDatasetBlosc2"
)
#: The class of data set by the files in a folder of preprocessed cases.
infer_dataset_class = partial(
    resolve_name, "nnunetv2.training.dataloading.nnunet_dataset:infer_dataset_class"
)
#: The modules of ``nnUNetv2_plan_and_preprocess`` and ``nnUNetv2_train``.
planning = partial(resolve_name, "nnunetv2.experiment_planning.plan_and_preprocess_api")
training = partial(resolve_name, "nnunetv2.run.run_training")


def find_trainer(name: str) -> Any:
    """Return a trainer that nnU-Net comes with, by its name, or None."""
    from nnunetv2.utilities.find_class_by_name import recursive_find_python_class

    module = trainer_class().__module__
    folder = os.path.dirname(sys.modules[module].__file__ or "")
    return recursive_find_python_class(folder, name, module.rpartition(".")[0])


def external_trainer(name: str) -> Any:
    """Return a trainer as ``nnUNetv2_train -tr`` finds it.

    It is nnU-Net's own, or one in ``nnUNet_extTrainer``.

    Raises:
        UnusableError: there is none.
    """
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    try:
        # It prints where it searches, and a command's stdout is its answer.
        with redirect_stdout(sys.stderr):
            return recursive_find_trainer_class_by_name(name)
    except RuntimeError as error:
        if not str(error).startswith(_NOT_FOUND):
            # A module of a trainer's failed.
            raise
        raise UnusableError(
            f"there is no trainer {name!r}, neither nnU-Net's own nor in"
            f" {EXTERNAL_VARIABLE}={trainer_folders()}"
        ) from None


def is_nnunets_own(kind: type) -> bool:
    """Return True if nnU-Net comes with this class."""
    return kind.__module__.startswith("nnunetv2.")


def trainers_found_through(chosen: Callable[[type], type]) -> AbstractContextManager[Any]:
    """Have nnU-Net's `run_training` train ``chosen(trainer)`` in place of a trainer, in the block.

    The trainer is the one whose name `run_training` is given.
    """

    def find(name: str) -> type:
        return chosen(external_trainer(name))

    return mock.patch.object(training(), "recursive_find_trainer_class_by_name", find)


def dataset_name(name_or_number: str) -> str:
    """Return the name ``DatasetXXX_Name`` of a data set.

    Raises:
        RuntimeError, ValueError: nnU-Net's, where there is none.
    """
    from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

    return str(maybe_convert_to_dataset_name(name_or_number))


# --- trainers -------------------------------------------------------------------------------------

#: The base of a mixin for nnU-Net's trainers: nnU-Net has no types.
Trainer: Any = object
#: The method that predicts and scores the validation cases after the last epoch.
FINAL_VALIDATION = "perform_actual_validation"
#: The folder of the segmentations that it scores with, among the preprocessed cases.
GROUND_TRUTH = "gt_segmentations"
#: The method that gives the training and the validation cases of the fold.
SPLITS_CASES = "do_split"
#: The method that makes loaders and augmenters. It knows their classes as globals of its module, by
#: the names below.
MAKES_LOADERS = "get_dataloaders"
AUGMENTERS = ("NonDetMultiThreadedAugmenter", "SingleThreadedAugmenter")


def folder_of_training(
    trainer: type, plans: Mapping[str, Any], configuration: str, fold: Any
) -> Path | None:
    """Return the folder of a trainer's checkpoints, as its constructor names it.

    None without `nnUNet_results`.
    """
    results = os.environ.get("nnUNet_results")
    if not results:
        return None
    model = f"{trainer.__name__}__{plans['plans_name']}__{configuration}"
    return Path(results, plans["dataset_name"], model, f"fold_{fold}")


#: Methods of loaders and data sets, and the variable of each that is the name of the case that is
#: being read.
CASE_VARIABLES = {"generate_train_batch": "i", "load_case": "identifier", "sample": "identifier"}

# --- checkpoints ----------------------------------------------------------------------------------

#: The entry of a checkpoint with the best moving average of the Dice score.
BEST_AVERAGE = "_best_ema"
#: The entry with the logger's values.
LOGGED = "logging"
#: The entry with the trainer's class, by whose name nnU-Net's predictor finds how the network is
#: built.
TRAINER_NAME = "trainer_name"
#: The entry with the network's weights.
WEIGHTS = "network_weights"
#: The entry with the trainer's arguments.
ARGUMENTS = "init_args"
#: The logger's moving average after every epoch.
AVERAGES = "ema_fg_dice"
#: The logger's times at which epochs began and ended.
EPOCH_TIMES = ("epoch_start_timestamps", "epoch_end_timestamps")


def is_checkpoint(value: Any) -> TypeGuard[dict[str, Any]]:
    """Return True for the dict that nnU-Net hands to `torch.save` as a checkpoint."""
    return isinstance(value, dict) and {WEIGHTS, LOGGED} <= value.keys()


def best_average(trainer: Any, averages: Sequence[Any]) -> Any:
    """Return the best moving average of a trainer that has loaded a checkpoint.

    nnU-Net writes ``checkpoint_latest`` before it looks whether the epoch was the best: a best that
    it would replace next is replaced. A trainer that judges by something else (its validation loss)
    keeps its own.

    Args:
        trainer: after it has loaded the checkpoint.
        averages: the checkpoint's, after each epoch.
    """
    best = getattr(trainer, BEST_AVERAGE)
    # nnU-Net would have another best by now: code of the user's has set this one.
    if len(averages) == 0 or best != max(averages[:-1], default=None):
        return best
    judge = next(base for base in type(trainer).__mro__ if "on_epoch_end" in vars(base))
    if best is None and not is_nnunets_own(judge):
        return best
    return max(averages)


def plot_nothing(trainer: Any) -> None:
    """Have the trainer draw no plot of its progress.

    Drawing takes longer than all the rest of a short epoch.
    """

    def draw_nothing(_folder: Any) -> None:
        return None

    trainer.logger.plot_progress_png = draw_nothing
