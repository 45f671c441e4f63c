"""The arguments of `detaug nnunet verify`, and errors in them that are found before anything is trained.

Nothing heavy is imported here: what is wrong is said at once.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detaug.errors import UnusableError

if TYPE_CHECKING:
    from detaug.seeding.tree import Seed


@dataclass(frozen=True)
class Settings:
    """A training by the arguments of `nnUNetv2_train`, and its length.

    Attributes:
        device: "cpu" or "cuda"; "": cuda where there is a GPU.
        seed: in the trainings' ``DETAUG_SEED``.
        epochs: of a training; at least 2, so that it can be killed after a checkpoint.
        iterations: training batches of an epoch. In two epochs of batches of two samples, 23 show a branch of the pipeline
            that one sample of twenty takes with 99 % confidence.
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


class CannotVerify(UnusableError):
    """There is no such training; the message says what is missing, and what there is."""


def checked(settings: Settings) -> Settings:
    """The settings with the data set's full name, when all that a training reads is there; else `CannotVerify`."""
    dataset, plans = planned(settings.dataset, settings.configuration, settings.plans)
    _check_cases(dataset, settings, plans["configurations"])
    _check_fold(dataset, settings.fold)
    return replace(settings, dataset=dataset.name, device=_checked_device(settings.device))


def planned(name: str, configuration: str, plans: str) -> tuple[Path, dict[str, Any]]:
    """The folder of a preprocessed data set, and its plans; or `CannotVerify`."""
    if importlib.util.find_spec("nnunetv2") is None:
        raise CannotVerify('nnU-Net is not installed: pip install "detaug[nnunet]"')
    preprocessed = Path(os.environ.get("nnUNet_preprocessed", ""))
    if preprocessed == Path():
        raise CannotVerify("nnUNet_preprocessed is not set: nnU-Net finds its folders by environment variables")
    if not preprocessed.is_dir():
        raise CannotVerify(f"nnUNet_preprocessed={preprocessed} is no folder")
    dataset = preprocessed / _dataset_name(preprocessed, name)
    stored = _plans(dataset, plans)
    if configuration not in stored["configurations"]:
        raise CannotVerify(
            f"{plans} of {dataset.name} has no configuration {configuration!r}; it has {_some(stored['configurations'])}"
        )
    return dataset, stored


def link_predictions(results: Path) -> None:
    """Let trainings whose ``nnUNet_results`` this is find what a cascade's first stage has predicted."""
    known = Path(os.environ.get("nnUNet_results") or results)
    for folder in known.glob("*/*/predicted_next_stage"):
        place = results / folder.relative_to(known)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(folder.resolve(), target_is_directory=True)


def _dataset_name(preprocessed: Path, dataset: str) -> str:
    names = sorted(folder.name for folder in preprocessed.glob("Dataset*") if folder.is_dir())
    if dataset.isdecimal():
        found = [name for name in names if name.startswith(f"Dataset{int(dataset):03d}_")]
        if len(found) > 1:
            raise CannotVerify(f"several data sets have the number {dataset}: {_some(found)}; give one's name")
    else:
        found = [name for name in names if name == dataset]
    if not found:
        raise CannotVerify(
            f"there is no preprocessed data set {dataset!r} in {preprocessed}; there is {_some(names)}. A data set is "
            "named by its number or as DatasetXXX_Name, and preprocessed by nnUNetv2_plan_and_preprocess"
        )
    return found[0]


def _plans(dataset: Path, plans: str) -> dict[str, Any]:
    for name in ("dataset.json", "dataset_fingerprint.json", f"{plans}.json"):
        if not (dataset / name).is_file():
            others = [file.stem for file in dataset.glob("*.json") if "configurations" in _object(file)]
            there = f"; plans that are there: {_some(others)}" if name == f"{plans}.json" else ""
            raise CannotVerify(f"{dataset} has no {name}{there}: run nnUNetv2_plan_and_preprocess")
    stored = _object(dataset / f"{plans}.json")
    if not isinstance(stored.get("configurations"), dict):
        raise CannotVerify(f"{dataset / plans}.json holds no plans of nnU-Net's")
    return stored


def _object(file: Path) -> dict[str, Any]:
    try:
        stored = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise CannotVerify(f"{file} cannot be read: {error}") from None
    return stored if isinstance(stored, dict) else {}


def _inherited(configurations: Mapping[str, Any], name: str, key: str) -> Any:
    """An entry of a configuration, or of the one that it inherits from."""
    known: set[str] = set()
    while name in configurations and name not in known:
        known.add(name)
        if key in configurations[name]:
            return configurations[name][key]
        name = configurations[name].get("inherits_from", "")
    return None


def _check_cases(dataset: Path, settings: Settings, configurations: Mapping[str, Any]) -> None:
    from detaug.nnunet.loading.case_files import listed_cases

    identifier = _inherited(configurations, settings.configuration, "data_identifier")
    folder = dataset / str(identifier)
    if not folder.is_dir() or not listed_cases(folder):
        raise CannotVerify(
            f"{folder} has no preprocessed cases: run nnUNetv2_preprocess -d {dataset.name} -plans_name "
            f"{settings.plans} -c {settings.configuration}"
        )


def _check_fold(dataset: Path, fold: int | str) -> None:
    if fold == "all":
        return
    file = dataset / "splits_final.json"
    # nnU-Net writes it when it first trains: five folds
    folds = len(json.loads(file.read_text())) if file.is_file() else 5
    if not isinstance(fold, int) or not 0 <= fold < folds:
        raise CannotVerify(f"there is no fold {fold!r} of {dataset.name}: it is one of 0 ... {folds - 1}, or 'all'")


def _checked_device(device: str) -> str:
    if device == "cpu":
        return device
    if device not in ("", "cuda"):
        raise CannotVerify(f"device must be 'cpu' or 'cuda', got {device!r}")
    import torch

    if not torch.cuda.is_available():
        if device == "cuda":
            raise CannotVerify("PyTorch sees no GPU here (torch.cuda.is_available() is False): use --device cpu")
        return "cpu"
    return "cuda"


def _some(names: Iterable[str]) -> str:
    """At most eight of them."""
    found = list(names)
    return ", ".join(found[:8]) + (f" and {len(found) - 8} more" if len(found) > 8 else "") if found else "none"
