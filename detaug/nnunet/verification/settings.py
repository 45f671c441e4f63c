"""The arguments of `detaug nnunet verify`, whose errors are found before any training."""

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


#: Epochs of a training: the second one can be killed after a checkpoint.
EPOCHS = 2
#: Validation batches of an epoch.
VALIDATION_ITERATIONS = 2


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
    """Return the settings with the data set's full name and the device.

    Raises:
        UnusableError: there are no such plans, or no such device. The first training finds whatever
            else is missing.
    """
    require_nnunet()
    plans = settings.plans
    preprocessed = os.environ.get("nnUNet_preprocessed", "")
    if not os.path.isdir(preprocessed):
        raise UnusableError(f"nnUNet_preprocessed={preprocessed!r} in the environment is no folder")
    try:
        dataset = dataset_name(settings.dataset)
        content, _ = load_plans(dataset, plans)
        configurations = content["configurations"]
    except (OSError, RuntimeError, LookupError, TypeError, ValueError) as error:
        raise UnusableError(
            f"there is no preprocessed data set {settings.dataset!r} with {plans}: run"
            f" nnUNetv2_plan_and_preprocess ({error})"
        ) from None
    if settings.configuration not in configurations:
        names = ", ".join(configurations)
        raise UnusableError(
            f"{plans} of {dataset} has no configuration {settings.configuration!r}; it has {names}"
        )
    return replace(settings, dataset=dataset, device=_checked_device(settings.device))


def load_plans(dataset: str, name: str = "nnUNetPlans") -> tuple[dict[str, Any], dict[str, Any]]:
    """Return (plans, dataset.json) of a preprocessed data set.

    They are as nnU-Net's command line hands them to a trainer, which changes them.
    """
    folder = Path(os.environ["nnUNet_preprocessed"], dataset)
    plans = json.loads((folder / f"{name}.json").read_text())
    description = json.loads((folder / "dataset.json").read_text())
    return {**plans, "continue_training": False}, description


def _checked_device(device: str) -> str:
    """Return the device, "cpu" or "cuda", or raise an `UnusableError`."""
    # torch takes seconds to import: with "cpu" a mistake in the arguments is reported at once.
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
    """Let trainings find the predictions of a cascade's first stage.

    Args:
        results: their ``nnUNet_results``.
    """
    # nnU-Net looks for them only in the folder of results that it writes to.
    known = Path(os.environ.get("nnUNet_results") or results)
    for folder in known.glob("*/*/predicted_next_stage"):
        link = results / folder.relative_to(known)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder.resolve(), target_is_directory=True)
