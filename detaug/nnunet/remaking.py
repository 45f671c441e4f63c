"""Batches of an nnU-Net training, made again: from the data set, configuration and fold, or from its folder of results."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.inspection import inspected
from detaug.errors import UnusableError
from detaug.ledger.header import Record, portable
from detaug.ledger.reading import read_header
from detaug.nnunet.compatibility import (
    ARGUMENTS,
    EXTERNAL_VARIABLE,
    TRAINER_NAME,
    check_nnunet_version,
    external_trainer,
    trainer_folders,
)
from detaug.nnunet.run_record import RunRecord
from detaug.nnunet.trainers.late_augmenter import LateAugmenter
from detaug.nnunet.trainers.output_folder import checkpoints_in, ledger_in, read_checkpoint
from detaug.nnunet.verification.settings import Settings, checked, link_predictions, load_plans
from detaug.remaking.pipelines import CannotRemake, Remaker, check_versions
from detaug.seeding.tree import Seed


def remaker_of_training(
    dataset: str, configuration: str, fold: str, trainer: str, plans: str, header: Record
) -> Remaker:
    """What makes the batches of a ledger whose training had these arguments of ``nnUNetv2_train``; or `CannotRemake`."""
    try:
        number = fold if fold == "all" else int(fold)
        settings = checked(
            Settings(
                dataset, configuration, number, trainer, plans, device="cpu", seed=header["seed"]
            )
        )
    except ValueError as error:
        raise CannotRemake(str(error)) from error
    return _remaker(_planned(settings), header["name"], header)


def training_batches(settings: Settings) -> tuple[DeterministicAugmenter, Sequence[float], str]:
    """What a training gets, to be looked at: the trainer's augmenter, without processes; lengths of a voxel's edges in
    millimetres, along a patch's axes; data set, configuration, fold and trainer in words. Or an `UnusableError`."""
    settings = checked(settings)
    made = _planned(settings)
    title = (
        f"{settings.dataset}, {settings.configuration}, fold {settings.fold}, {settings.trainer}"
    )
    return made.dataloader_train, tuple(made.configuration_manager.spacing), title


def remaker_in(folder: Path) -> tuple[Remaker, Path | None]:
    """What makes the batches of the training whose checkpoints are in a folder such as
    ``.../fold_0``, and its ledger, if it kept one.

    Raises:
        CannotRemake: there are none, or none of detaug's trainers; its cases or its pipeline are not as they were.
    """
    try:
        found = checkpoints_in(folder)[0]
        stored = read_checkpoint(found)
        record = RunRecord.from_checkpoint(stored)
    except ValueError as error:
        raise CannotRemake(str(error)) from error
    if record is None:
        raise CannotRemake(f"{found} has no seed: it is not of one of detaug's trainers")
    arguments = tuple(
        stored[ARGUMENTS][each] for each in ("plans", "configuration", "fold", "dataset_json")
    )
    made = _training(str(stored[TRAINER_NAME]), arguments, record.seed)
    ledger = ledger_in(folder, "train")
    kept = ledger.is_file()
    header = (
        read_header(ledger)
        if kept
        else {"declared": portable(inspected(made.dataloader_train).declared)}
    )
    check_versions({"numerics": record.numerics, "seed_scheme": record.seed_scheme}, "checkpoint")
    return _remaker(made, "train", {**header, "data": record.data}), ledger if kept else None


def _remaker(training: Any, name: str, header: Mapping[str, Any]) -> Remaker:
    loaders = {"train": training.dataloader_train, "val": training.dataloader_val}
    if name not in loaders:
        raise CannotRemake(
            f"the ledger is of {name!r}; a training of nnU-Net has {' and '.join(map(repr, loaders))}"
        )
    made = Remaker(loaders[name], header)
    if header.get("data") != training._cases:
        raise CannotRemake(
            "the preprocessed cases of this fold are not those of the training: cases or splits_final.json were changed, or "
            "preprocessed again, or it was another fold"
        )
    return made


def _planned(settings: Settings) -> Any:
    plans, described = load_plans(settings.dataset, settings.plans)
    arguments = (plans, settings.configuration, settings.fold, described)
    return _training(settings.trainer, arguments, settings.seed)


def _training(trainer: str, arguments: tuple[Any, ...], seed: Seed) -> Any:
    """A trainer whose loaders are made and not started. Nothing is written to its results."""
    from detaug.nnunet.trainers.mixin import DeterministicTraining

    plans, *others = arguments
    try:
        check_nnunet_version()
        with _results_elsewhere(), contextlib.redirect_stdout(io.StringIO()):
            kind = external_trainer(trainer)
            if not issubclass(kind, DeterministicTraining):
                raise CannotRemake(
                    f"{trainer} is none of detaug's trainers: its batches are not reproducible"
                )
            made: Any = kind({**plans, "continue_training": False}, *others, torch.device("cpu"))
            made._run_seed = seed
            previous = made.folder_with_segs_from_previous_stage
            made.folder_with_segs_from_previous_stage = (
                None if previous is None else os.path.realpath(previous)
            )
            made._set_batch_size_and_oversample()
            made._prepare_cases()
            made.dataloader_train, made.dataloader_val = loaders = made.get_dataloaders()
            for each in loaders:
                if not isinstance(each, DeterministicAugmenter):
                    raise CannotRemake(
                        f"{trainer} does not load through detaug: it has a {type(each).__name__}"
                    )
                if isinstance(each, LateAugmenter):
                    each.settle()
    except UnusableError as error:
        raise CannotRemake(str(error)) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise CannotRemake(f"the loaders of {trainer} cannot be made here: {error}") from error
    return made


@contextlib.contextmanager
def _results_elsewhere() -> Iterator[None]:
    """Inside, what a trainer writes about itself goes to a folder that vanishes, no ledger is kept, and detaug's trainers are
    found."""
    with tempfile.TemporaryDirectory(prefix="detaug-", ignore_cleanup_errors=True) as results:
        link_predictions(Path(results))
        here = {
            "nnUNet_results": results,
            EXTERNAL_VARIABLE: trainer_folders(),
            "DETAUG_LEDGER": "0",
        }
        with mock.patch.dict(os.environ, here, nnUNet_wandb_enabled="0", nnUNet_n_proc_DA="0"):
            yield
