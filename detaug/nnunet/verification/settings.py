"""The arguments of `detaug nnunet verify`, and errors in them that are found before anything is
trained.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detaug.errors import UnusableError
from detaug.nnunet.compatibility import dataset_name, require_nnunet

if TYPE_CHECKING:
    from detaug.seeding.tree import Seed


#: Of a training; the second one can be killed after a checkpoint. And validation batches of an
#: epoch.
EPOCHS, VALIDATION_ITERATIONS = 2, 2


@dataclass(frozen=True)
class Settings:
    """A training by the arguments of `nnUNetv2_train`, and its length, which is of two epochs.

    Attributes:
        device: "cpu" or "cuda"; "": cuda where there is a GPU.
        seed: in the trainings' ``DETAUG_SEED``.
        iterations: training batches of an epoch. In two epochs of batches of two samples, 23 show a
            branch of the pipeline that one sample of twenty takes with 99 % confidence.
    """

    dataset: str
    configuration: str
    fold: int | str = 0
    trainer: str = "nnUNetTrainerDetAug"
    plans: str = "nnUNetPlans"
    device: str = "cuda"
    seed: Seed = 1234
    iterations: int = 23


def checked(settings: Settings) -> Settings:
    """The settings with the data set's full name and the device, when there are such plans; else an
    `UnusableError`. What else is missing is said by the first training.
    """
    require_nnunet()
    preprocessed, plans = os.environ.get("nnUNet_preprocessed", ""), settings.plans
    if not os.path.isdir(preprocessed):
        raise UnusableError(f"nnUNet_preprocessed={preprocessed!r} in the environment is no folder")
    try:
        dataset = dataset_name(settings.dataset)
        configurations = load_plans(dataset, plans)[0]["configurations"]
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        raise UnusableError(
            f"there is no preprocessed data set {settings.dataset!r} with {plans}: run"
            f" nnUNetv2_plan_and_preprocess ({error})"
        ) from None
    if settings.configuration not in configurations:
        there = ", ".join(configurations)
        raise UnusableError(
            f"{plans} of {dataset} has no configuration {settings.configuration!r}; it has {there}"
        )
    return replace(settings, dataset=dataset, device=_checked_device(settings.device))


def load_plans(dataset: str, name: str = "nnUNetPlans") -> tuple[dict[str, Any], dict[str, Any]]:
    """(plans, dataset.json) of a preprocessed data set, as nnU-Net's command line hands them to a
    trainer, which changes them.
    """
    folder = Path(os.environ["nnUNet_preprocessed"], dataset)
    plans, described = (
        json.loads((folder / f"{each}.json").read_text()) for each in (name, "dataset")
    )
    return {**plans, "continue_training": False}, described


def _checked_device(device: str) -> str:
    if device == "cpu":
        return device
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device:
        raise UnusableError(
            "PyTorch sees no GPU here (torch.cuda.is_available() is False): use --device cpu"
        )
    return "cpu"


def link_predictions(results: Path) -> None:
    """Let trainings whose ``nnUNet_results`` this is find what a cascade's first stage has
    predicted.
    """
    known = Path(os.environ.get("nnUNet_results") or results)
    for folder in known.glob("*/*/predicted_next_stage"):
        place = results / folder.relative_to(known)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(folder.resolve(), target_is_directory=True)
