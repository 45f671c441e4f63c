"""What detaug knows of nnU-Net's inside: the versions for which it holds, the modules that are
imported, and all names that are no documented interface. For another version of nnU-Net this is the
file to read, and to change.

nnU-Net is imported when a function here is called, and not before.
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
    """Whether an environment variable is 1; a ValueError where it is neither 0 nor 1."""
    value = os.environ.get(variable, "")
    if value not in ("", "0", "1"):
        raise ValueError(f"{variable}={value!r} in the environment must be 1 or 0")
    return value == "1"


def require_nnunet() -> None:
    """`NotInstalled` where nnU-Net is not."""
    if importlib.util.find_spec("nnunetv2") is None:
        raise NotInstalled("nnU-Net is not installed: pip install 'detaug[nnunet]'")


def check_nnunet_version() -> None:
    """An `UnusableError` where the trainers do not support the installed version (with
    ``DETAUG_ANY_NNUNET=1`` in the environment they support any).
    """
    version = importlib.metadata.version("nnunetv2")
    if version.startswith(tuple(f"{each}." for each in SUPPORTED_NNUNET)) or switched_on(
        ANY_VERSION_VARIABLE
    ):
        return
    known = " or ".join(f"{each}.x" for each in SUPPORTED_NNUNET)
    raise UnusableError(
        f"nnunetv2 {version} is installed, and detaug's trainers support {known}: a training might"
        " silently not be "
        f'reproducible. Install a supported one (pip install "nnunetv2=={SUPPORTED_NNUNET[-1]}.*"),'
        " or set "
        f"{ANY_VERSION_VARIABLE}=1 to continue and check the result with `detaug nnunet verify`"
    )


#: How nnU-Net's own error begins where it finds no trainer of a name.
_NOT_FOUND = "Could not find"
#: The folders in which nnU-Net looks for trainers besides its own, as in PATH.
EXTERNAL_VARIABLE = "nnUNet_extTrainer"


def trainer_folders() -> str:
    """The value of ``nnUNet_extTrainer`` with which detaug's trainers are found as well: the user's
    folders, then detaug's.
    """
    ours = os.path.join(os.path.dirname(__file__), "external")
    theirs = os.environ.get(EXTERNAL_VARIABLE, "").split(os.pathsep)
    return os.pathsep.join([*(each for each in theirs if each.strip() and each != ours), ours])


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
#: What ``nnUNetv2_plan_and_preprocess`` and ``nnUNetv2_train`` are made of.
planning = partial(resolve_name, "nnunetv2.experiment_planning.plan_and_preprocess_api")
training = partial(resolve_name, "nnunetv2.run.run_training")


def find_trainer(name: str) -> Any:
    """A trainer that nnU-Net comes with, by its name; None: there is none."""
    from nnunetv2.utilities.find_class_by_name import recursive_find_python_class

    module = trainer_class().__module__
    folder = os.path.dirname(sys.modules[module].__file__ or "")
    return recursive_find_python_class(folder, name, module.rpartition(".")[0])


def external_trainer(name: str) -> Any:
    """A trainer as ``nnUNetv2_train -tr`` finds it: nnU-Net's own, or one in ``nnUNet_extTrainer``;
    or an `UnusableError`.
    """
    from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name

    try:
        with redirect_stdout(
            sys.stderr
        ):  # it tells where it searches; what a command prints is its answer
            return recursive_find_trainer_class_by_name(name)
    except RuntimeError as error:
        if not str(error).startswith(_NOT_FOUND):  # a module of a trainer's failed
            raise
        raise UnusableError(
            f"there is no trainer {name!r}, neither nnU-Net's own nor in"
            f" {EXTERNAL_VARIABLE}={trainer_folders()}"
        ) from None


def is_nnunets_own(kind: type) -> bool:
    """Whether nnU-Net comes with this class."""
    return kind.__module__.startswith("nnunetv2.")


def train_command(arguments: Sequence[str]) -> None:
    """What ``nnUNetv2_train ARGUMENTS`` does, with detaug's trainers and those in the folders of
    ``nnUNet_extTrainer``.
    """
    called = mock.patch.object(sys, "argv", ["nnUNetv2_train", *arguments])
    # the processes of other ranks inherit the variable
    found = mock.patch.dict(os.environ, {EXTERNAL_VARIABLE: trainer_folders()})
    with called, found, trainers_found_through(lambda trainer: trainer):
        training().run_training_entry()


def trainers_found_through(chosen: Callable[[type], type]) -> AbstractContextManager[Any]:
    """Inside, nnU-Net's `run_training` trains ``chosen(trainer)`` in place of the trainer whose
    name it is given.
    """
    find = "recursive_find_trainer_class_by_name"
    return mock.patch.object(training(), find, lambda name: chosen(external_trainer(name)))


def dataset_name(name_or_number: str) -> str:
    """The name ``DatasetXXX_Name`` of a data set; a RuntimeError or ValueError of nnU-Net's where
    there is none.
    """
    from nnunetv2.utilities.dataset_name_id_conversion import maybe_convert_to_dataset_name

    return str(maybe_convert_to_dataset_name(name_or_number))


# --- trainers -------------------------------------------------------------------------------------

#: What a mixin for nnU-Net's trainers builds on: nnU-Net has no types.
Trainer: Any = object
#: The method that predicts and scores the validation cases after the last epoch, and the folder of
#: the segmentations that it scores with, among the preprocessed cases.
FINAL_VALIDATION, GROUND_TRUTH = "perform_actual_validation", "gt_segmentations"
#: The method that gives the training and the validation cases of the fold.
SPLITS_CASES = "do_split"
#: The method that makes loaders and augmenters. It knows their classes as globals of its module, by
#: the names below.
MAKES_LOADERS = "get_dataloaders"
AUGMENTERS = ("NonDetMultiThreadedAugmenter", "SingleThreadedAugmenter")


def folder_of_training(
    trainer: type, plans: Mapping[str, Any], configuration: str, fold: Any
) -> Path | None:
    """Return the folder of a trainer's checkpoints, as its constructor names it; None without
    `nnUNet_results`.
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

#: Entries of a checkpoint: the best moving average of the Dice score, and what the logger holds.
BEST_AVERAGE, LOGGED = "_best_ema", "logging"
#: The trainer's class, by whose name nnU-Net's predictor finds how the network is built; its
#: weights; its arguments.
TRAINER_NAME, WEIGHTS, ARGUMENTS = "trainer_name", "network_weights", "init_args"
#: Entries of what the logger holds: the moving average after every epoch, and when epochs began and
#: ended.
AVERAGES, EPOCH_TIMES = "ema_fg_dice", ("epoch_start_timestamps", "epoch_end_timestamps")


def is_checkpoint(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether it is what nnU-Net hands to `torch.save` as a checkpoint."""
    return isinstance(value, dict) and {WEIGHTS, LOGGED} <= value.keys()


def best_average(trainer: Any, averages: Sequence[Any]) -> Any:
    """The best moving average of a trainer that has loaded a checkpoint with these averages after
    each epoch.

    nnU-Net writes ``checkpoint_latest`` before it looks whether the epoch was the best: a best that
    it would replace next is replaced. A trainer that judges by something else (its validation loss)
    keeps its own.
    """
    kept, before = getattr(trainer, BEST_AVERAGE), max(averages[:-1], default=None)
    decides = next(base for base in type(trainer).__mro__ if "on_epoch_end" in vars(base))
    is_stale = (
        len(averages) > 0 and kept == before and (kept is not None or is_nnunets_own(decides))
    )
    return max(averages) if is_stale else kept


def plot_nothing(trainer: Any) -> None:
    """Have the trainer draw no plot of its progress, which takes longer than all the rest of a
    short epoch.
    """
    trainer.logger.plot_progress_png = lambda _folder: None
