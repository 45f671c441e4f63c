"""What detaug knows of nnU-Net's inside: the versions for which it holds, the modules that are imported, and all names that
are no documented interface. For another version of nnU-Net this is the file to read, and to change.

nnU-Net is imported when a function here is called, and not before.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from types import FrameType
from typing import Any, NamedTuple

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


#: How nnU-Net's own error begins where it finds no trainer of a name.
_NOT_FOUND = "Could not find"
#: The folders in which nnU-Net looks for trainers besides its own, as in PATH.
EXTERNAL_VARIABLE = "nnUNet_extTrainer"


def trainer_folders() -> str:
    """The value of ``nnUNet_extTrainer`` with which detaug's trainers are found as well: the user's folders, then detaug's."""
    ours = os.path.join(os.path.dirname(__file__), "external")
    theirs = os.environ.get(EXTERNAL_VARIABLE, "").split(os.pathsep)
    return os.pathsep.join([*(each for each in theirs if each.strip() and each != ours), ours])


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


def external_trainer(name: str) -> Any:
    """A trainer by its name, as ``nnUNetv2_train -tr`` finds it: nnU-Net's own, one in ``nnUNet_extTrainer``, or detaug's.

    Raises:
        LookupError: there is none.
    """
    try:
        from nnunetv2.utilities.find_objects import recursive_find_trainer_class_by_name as find
    except ImportError:  # before 2.8
        find = find_trainer
    try:
        with redirect_stdout(sys.stderr):  # it tells where it searches; what a command prints is its answer
            found = find(name)
    except RuntimeError as error:
        if not str(error).startswith(_NOT_FOUND):  # a module of a trainer's failed
            raise
        found = None
    found = found or _external_trainer(name)
    if found is None:
        raise LookupError(name)
    return found


def is_nnunets_own(kind: type) -> bool:
    """Whether nnU-Net comes with this class."""
    return kind.__module__.startswith("nnunetv2.")


def run_training(*arguments: Any, **options: Any) -> None:
    """What ``nnUNetv2_train`` calls."""
    from nnunetv2.run import run_training as nnunet

    nnunet.run_training(*arguments, **options)


def minor_version() -> tuple[int, int]:
    """(2, 8) of nnU-Net 2.8.1. For another version than those supported, which the user has allowed: the latest of these."""
    version = installed_version()
    known = version if _supported(version) else SUPPORTED_NNUNET[-1]
    major, minor = known.split(".")[:2]
    return int(major), int(minor)


def train_command(arguments: Sequence[str]) -> None:
    """What ``nnUNetv2_train ARGUMENTS`` does, with detaug's trainers and those in the folders of ``nnUNet_extTrainer``, which
    nnU-Net before 2.8 does not look into.

    Raises:
        LookupError: there is no such trainer.
        SystemExit: the arguments are wrong.
    """
    from nnunetv2.run import run_training as nnunet

    original_arguments, rank, folders = sys.argv, getattr(nnunet, _RUN_RANK), os.environ.get(EXTERNAL_VARIABLE)
    sys.argv = ["nnUNetv2_train", *arguments]
    os.environ[EXTERNAL_VARIABLE] = trainer_folders()
    setattr(nnunet, _RUN_RANK, run_rank)
    try:
        with trainers_found_through(lambda trainer: trainer):
            nnunet.run_training_entry()
    finally:
        sys.argv = original_arguments
        setattr(nnunet, _RUN_RANK, rank)
        if folders is None:
            del os.environ[EXTERNAL_VARIABLE]
        else:
            os.environ[EXTERNAL_VARIABLE] = folders


#: The function that each rank of a training on several GPUs runs, by its name in a new process.
_RUN_RANK = "run_ddp"


def run_rank(rank: int, *arguments: Any) -> None:
    """What one rank of `train_command` does."""
    from nnunetv2.run import run_training as nnunet

    with trainers_found_through(lambda trainer: trainer):
        nnunet.run_ddp(rank, *arguments)


@contextmanager
def trainers_found_through(replaced: Callable[[type], type]) -> Iterator[None]:
    """Inside, `run_training` trains ``replaced(trainer)`` in place of the trainer whose name it is given.

    Raises (from `run_training`):
        LookupError: there is no such trainer.
    """
    from nnunetv2.run import run_training as nnunet

    by_name = "recursive_find_trainer_class_by_name"
    finder = by_name if hasattr(nnunet, by_name) else "recursive_find_python_class"
    find = getattr(nnunet, finder)

    def found(*place: str) -> type:
        return replaced(external_trainer(place[0] if finder == by_name else place[1]))

    setattr(nnunet, finder, found)
    try:
        yield
    finally:
        setattr(nnunet, finder, find)


def _external_trainer(name: str) -> Any:
    """A trainer in the folders of ``nnUNet_extTrainer``, or detaug's, for versions of nnU-Net that know no such folders."""
    for folder in filter(os.path.isdir, trainer_folders().split(os.pathsep)):
        for _, module_name, is_package in pkgutil.iter_modules([folder]):
            if not is_package:
                found = getattr(_module(folder, module_name), name, None)
                if found is not None:
                    return found
    return None


def _module(folder: str, name: str) -> Any:
    sys.path.insert(0, folder)
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(folder)


def planning() -> Any:
    """What ``nnUNetv2_plan_and_preprocess`` is made of."""
    from nnunetv2.experiment_planning import plan_and_preprocess_api

    return plan_and_preprocess_api


def without_bar(function: Any) -> dict[str, Any]:
    """The option by which a function of `planning` shows no progress bar; those of nnU-Net before 2.7 show none."""
    option = "show_progress_bar"
    return {option: False} if option in inspect.signature(function).parameters else {}


# --- trainers ---------------------------------------------------------------------------------------------------------

#: The methods of nnU-Net's trainer that mixins of detaug wrap or replace.
HOOKS = frozenset(
    {
        "_build_loss",
        "_do_i_compile",
        "get_dataloaders",
        "get_training_transforms",
        "get_validation_transforms",
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
    configuration_name: str
    current_epoch: int
    dataloader_train: Any
    dataloader_val: Any
    dataset_class: Any
    dataset_json: Any
    device: Any
    disable_checkpointing: bool
    folder_with_segs_from_previous_stage: str | None
    grad_scaler: Any
    is_ddp: bool
    label_manager: Any
    local_rank: int
    logger: Any
    loss: Any
    lr_scheduler: Any
    network: Any
    num_epochs: int
    num_iterations_per_epoch: int
    num_val_iterations_per_epoch: int
    optimizer: Any
    output_folder: str
    plans_manager: Any
    preprocessed_dataset_folder: str
    print_to_log_file: Any
    save_every: int
    was_initialized: bool


#: Entries of dataset.json by which labels are read, and attributes of a trainer by which patches are drawn.
LABELS = ("labels", "regions_class_order", "channel_names")
SAMPLING = ("batch_size", "oversample_foreground_percent", "probabilistic_oversampling")


@contextmanager
def schedulers_take_verbose() -> Iterator[None]:
    """Inside, torch's schedulers take the argument ``verbose``, which nnU-Net 2.5 hands them and torch has dropped."""
    from torch.optim.lr_scheduler import LRScheduler

    original = LRScheduler.__init__
    if "verbose" in inspect.signature(original).parameters:
        yield
        return

    def made(self: Any, optimizer: Any, last_epoch: int = -1, _verbose: bool = False) -> None:
        original(self, optimizer, last_epoch)

    LRScheduler.__init__ = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        LRScheduler.__init__ = original  # type: ignore[method-assign]


# --- loaders ----------------------------------------------------------------------------------------------------------

#: The method that makes loaders and augmenters. It knows their classes as globals of its module, by the names below.
MAKES_LOADERS = "get_dataloaders"
UNORDERED, ORDERED, SINGLE = "NonDetMultiThreadedAugmenter", "MultiThreadedAugmenter", "SingleThreadedAugmenter"


def loader_class() -> Any:
    """Of nnU-Net's loaders the one that draws cases and patches as detaug's does.

    2.5 has two: the one for planes draws a class, then a plane with it, where later ones draw a voxel.
    """
    if minor_version() == (2, 5):
        from nnunetv2.training.dataloading.data_loader_3d import nnUNetDataLoader3D

        return nnUNetDataLoader3D
    from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader

    return nnUNetDataLoader


def dataset_classes() -> tuple[Any, ...]:
    """nnU-Net's data sets of preprocessed cases."""
    from nnunetv2.training.dataloading import nnunet_dataset

    names = ("nnUNetDatasetBlosc2", "nnUNetDatasetNumpy", "nnUNetDataset")
    return tuple(getattr(nnunet_dataset, name) for name in names if hasattr(nnunet_dataset, name))


def planes_stay_inside() -> bool:
    """Whether nnU-Net's loader computes how far planes may reach over an image's edge as: not at all."""
    return minor_version() == (2, 6)


class Cases(NamedTuple):
    """What is known of a data set object."""

    source_folder: str
    identifiers: list[str]
    folder_with_segs_from_previous_stage: str | None


def cases_of(data: Any) -> Any:
    """A data set object as nnU-Net has them since 2.6: that of 2.5 knows the files of each case."""
    files = getattr(data, "dataset", None)
    if not isinstance(files, dict) or not files:
        return data
    first = next(iter(files.values()))
    previous = first.get("seg_from_prev_stage_file")
    return Cases(os.path.dirname(first["data_file"]), list(files), os.path.dirname(previous) if previous else None)


def unpack_cases(trainer: TrainerAttributes) -> None:
    """Have nnU-Net decompress what it reads decompressed."""
    if minor_version() == (2, 5):
        from nnunetv2.training.dataloading.utils import unpack_dataset

        unpack_dataset(trainer.preprocessed_dataset_folder, True, False, 1, True)
    elif trainer.dataset_class is not None:
        trainer.dataset_class.unpack_dataset(trainer.preprocessed_dataset_folder, overwrite_existing=False, verify=True)


# --- checkpoints ------------------------------------------------------------------------------------------------------

#: Entries of a checkpoint: the best moving average of the Dice score, and what the logger holds.
BEST_AVERAGE, LOGGED = "_best_ema", "logging"
#: The trainer's class, by whose name nnU-Net's predictor finds how the network is built; its weights; its arguments.
TRAINER_NAME, WEIGHTS, ARGUMENTS = "trainer_name", "network_weights", "init_args"
#: Entries of what the logger holds: the moving average after every epoch, and when epochs began and ended.
AVERAGES, EPOCH_TIMES = "ema_fg_dice", ("epoch_start_timestamps", "epoch_end_timestamps")


def is_checkpoint(value: Any) -> bool:
    """Whether it is what nnU-Net hands to `torch.save` as a checkpoint."""
    return isinstance(value, dict) and {WEIGHTS, LOGGED} <= value.keys()


def best_average(trainer: TrainerAttributes, kept: Any, averages: Sequence[Any]) -> Any:
    """The best moving average that belongs into a checkpoint which the trainer writes now.

    nnU-Net's `on_epoch_end` writes ``checkpoint_latest`` before it looks whether the epoch was the best, so that what it
    writes may be stale. That value is replaced by the one that nnU-Net sets next. Any other value is kept: a trainer that
    judges by something else (its validation loss) keeps its best there, too.

    Args:
        trainer: whose checkpoint it is.
        kept: what the trainer has as its best.
        averages: of the Dice score, after each epoch.
    """
    if len(averages) == 0 or not _ends_an_epoch(trainer):
        return kept
    best = None
    for average in averages[:-1]:
        best = average if best is None or average > best else best
    nnunets_own = kept is best if kept is None or best is None else kept == best or (kept != kept and best != best)
    return averages[-1] if nnunets_own and (best is None or averages[-1] > best) else kept


def _ends_an_epoch(trainer: TrainerAttributes) -> bool:
    """Whether nnU-Net's own `on_epoch_end` is what is running; a trainer may have replaced it."""
    code = trainer_class().on_epoch_end.__code__
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is code and frame.f_locals.get("self") is trainer:
            return True
        frame = frame.f_back
    return False


def plot_nothing(trainer: TrainerAttributes) -> None:
    """Have the trainer draw no plot of its progress, which takes longer than all the rest of a short epoch."""
    trainer.logger.plot_progress_png = _no_plot


def _no_plot(_folder: str) -> None:
    """In place of `MetaLogger.plot_progress_png`."""
