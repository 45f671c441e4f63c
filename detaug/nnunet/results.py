"""What nnU-Net leaves of trainings: a model copied under the stock trainer's name, and two trainings compared."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from detaug.fingerprints import fingerprint
from detaug.nnunet.compatibility import (
    ARGUMENTS,
    EPOCH_TIMES,
    LOGGED,
    TRAINER_NAME,
    WEIGHTS,
    NoTrainer,
    external_trainer,
    is_checkpoint,
    is_nnunets_own,
)
from detaug.nnunet.trainers.output_folder import CHECKPOINTS, read_checkpoint, write_checkpoint
from detaug.nnunet.trainers.run_record import KEY, differences, shown
from detaug.reports.progress import Progress

#: What nnU-Net's predictor reads besides checkpoints.
DESCRIPTIONS = ("dataset.json", "plans.json", "dataset_fingerprint.json")


class NoResults(ValueError):
    """A folder is not what nnU-Net leaves of a training, or nnU-Net alone could not use it."""


def checkpoints_of(fold: Path) -> list[Path]:
    """The checkpoints in a folder ``fold_X``, the one that says most first."""
    return [fold / name for name in CHECKPOINTS if (fold / name).is_file()]


def folds_of(model: Path) -> list[Path]:
    """The folders ``fold_X`` with a checkpoint of a model ``.../DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION``.

    Raises:
        NoResults: the folder has another name, or lacks what nnU-Net writes.
    """
    if not model.is_dir() or len(model.resolve().name.split("__")) != 3:
        raise NoResults(f"{str(model)!r} is no folder TRAINER__PLANS__CONFIGURATION, as nnU-Net makes for a model")
    missing = [name for name in DESCRIPTIONS[:2] if not (model / name).is_file()]
    folds = sorted(each for each in model.glob("fold_*") if checkpoints_of(each))
    if missing or not folds:
        missing += [] if folds else ["fold with a checkpoint"]
        raise NoResults(f"{str(model)!r} has no {' and no '.join(missing)}: nnU-Net has not trained in it")
    return folds


def load_checkpoint(file: Path) -> Mapping[str, Any]:
    """What nnU-Net has saved.

    Raises:
        NoResults: it is damaged, or nothing of nnU-Net's.
    """
    try:
        checkpoint = read_checkpoint(file)
    except ValueError as error:
        raise NoResults(str(error)) from error
    if not is_checkpoint(checkpoint):
        raise NoResults(f"{str(file)!r} is no checkpoint of nnU-Net's")
    return checkpoint  # type: ignore[no-any-return]


# --- export -----------------------------------------------------------------------------------------------------------


def export(model: Path, into: Path | None, progress: Progress) -> Path:
    """Copy a model: descriptions and checkpoints, whose weights stay as they are, under its stock trainer's name.

    Args:
        model: ``.../DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION``.
        into: where to; None: beside it, under the stock trainer's name.
        progress: shows every checkpoint.

    Returns:
        The new folder. It is there whole or not at all.

    Raises:
        NoResults: there is no such model; its trainer is nnU-Net's own, is not found, or builds a network of its own; the new
            folder is there already.
        OSError: it cannot be written.
    """
    files = [file for fold in folds_of(model) for file in checkpoints_of(fold)]
    trainer, *others = model.resolve().name.split("__")
    stock = stock_trainer(trainer)
    target = into or model.resolve().parent / "__".join((stock, *others))
    if target.exists():
        raise NoResults(f"{str(target)!r} is there already; remove it, or name another folder (-o)")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that it can be renamed there when it is whole.
    made = target.with_name(f".{target.name}.{os.getpid()}.partial")
    made.mkdir()
    try:
        for name in DESCRIPTIONS:
            if (model / name).is_file():
                shutil.copyfile(model / name, made / name)
        progress.total = len(files)
        for number, file in enumerate(files):
            progress.update(f"{file.parent.name}/{file.name}", number)
            copied = made / file.parent.name / file.name
            copied.parent.mkdir(exist_ok=True)
            write_checkpoint({**load_checkpoint(file), TRAINER_NAME: stock}, copied)
        progress.done = len(files)
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def stock_trainer(name: str) -> str:
    """nnU-Net's own trainer that a trainer derives from, if nnU-Net alone builds the same network by it.

    Raises:
        NoResults: it does not, or there is nothing to export.
    """
    from detaug.nnunet import trainers

    try:
        trainer = getattr(trainers, name, None) or external_trainer(name)
    except NoTrainer as error:
        raise NoResults(str(error)) from None
    if is_nnunets_own(trainer):
        raise NoResults(f"{name} is nnU-Net's own trainer: its model needs no detaug as it is")
    stock = next((base for base in trainer.__mro__ if is_nnunets_own(base)), None)
    builder = next((base for base in trainer.__mro__ if "build_network_architecture" in vars(base)), None)
    if stock is None or builder is None or not is_nnunets_own(builder):
        raise NoResults(
            f"{name} builds a network of its own ({builder.__name__ if builder else 'none'}.build_network_architecture), "
            "which nnU-Net's own trainers do not: who predicts with its weights needs that class"
        )
    return str(stock.__name__)


# --- compare ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Difference:
    """One thing in which two trainings differ.

    Attributes:
        kind: "settings", "metrics" or "weights"; what comes first explains what comes later.
        name: an entry of the record or of nnU-Net's arguments, a metric, a tensor.
        one, other: the values, for the reader.
        epoch: of a metric, where it first differs, counted from 0.
    """

    kind: str
    name: str
    one: str
    other: str
    epoch: int | None = None

    def __str__(self) -> str:
        when = "" if self.epoch is None else f" from epoch {self.epoch} on"
        return f"{self.kind}: {self.name}{when}: {self.one} and {self.other}"


@dataclass(frozen=True)
class Comparison:
    """Two trainings.

    Attributes:
        checkpoint: the name of the file that both have.
        differences: in the order of causes.
        curves: of each metric with one number per epoch: the values of both.
    """

    checkpoint: str
    differences: tuple[Difference, ...]
    curves: Mapping[str, tuple[list[float], list[float]]]

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        told = [asdict(each) for each in self.differences]
        return {"equal": not told, "checkpoint": self.checkpoint, "differences": told}


def compare(one: Path, other: Path) -> Comparison:
    """Compare two trainings by the best checkpoint that both have, bit by bit.

    Args:
        one, other: folders ``fold_X``, or a model's folder with one fold.

    Raises:
        NoResults: a folder has no checkpoint, or they have none in common.
    """
    found = [{file.name: file for file in checkpoints_of(_fold(each))} for each in (one, other)]
    common = next((name for name in found[0] if name in found[1]), None)
    if common is None:
        raise NoResults(f"{str(one)!r} has {' and '.join(found[0])}, and {str(other)!r} {' and '.join(found[1])}")
    mine, theirs = (load_checkpoint(each[common]) for each in found)
    told = [*_of_settings(mine, theirs), *_of_metrics(mine[LOGGED], theirs[LOGGED])]
    for name in dict.fromkeys([*mine[WEIGHTS], *theirs[WEIGHTS]]):
        tensors = mine[WEIGHTS].get(name), theirs[WEIGHTS].get(name)
        if fingerprint(tensors[0]) != fingerprint(tensors[1]):
            told.append(Difference("weights", name, _brief(tensors[0]), _brief(tensors[1])))
            break
    curves = {
        name: (values, theirs[LOGGED].get(name, []))
        for name, values in mine[LOGGED].items()
        if name not in EPOCH_TIMES and all(getattr(value, "ndim", 0) == 0 and _is_number(value) for value in values)
    }
    return Comparison(common, tuple(told), curves)


def _brief(tensor: Any) -> str:
    return shown(" ".join(str(tensor).split()))


def _fold(folder: Path) -> Path:
    if checkpoints_of(folder):
        return folder
    folds = folds_of(folder)
    if len(folds) != 1:
        raise NoResults(f"{str(folder)!r} has {', '.join(each.name for each in folds)}: name the folder of one fold")
    return folds[0]


def _of_settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    """Of the records of what the trainings are made of, where there are any, and of what nnU-Net keeps."""
    parts = [
        {**(each.get(KEY) or {}), "trainer": each[TRAINER_NAME], ARGUMENTS: _without_place(each.get(ARGUMENTS) or {})}
        for each in (one, other)
    ]
    for part, entry, mine, theirs in differences(*parts):
        yield Difference("settings", f"{part}.{entry}" if entry else part, shown(mine), shown(theirs))


def _without_place(arguments: Mapping[str, Any]) -> dict[str, Any]:
    plans = {name: each for name, each in (arguments.get("plans") or {}).items() if name != "continue_training"}
    return {**{name: each for name, each in arguments.items() if name != "device"}, "plans": plans}


def _of_metrics(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """The first difference of each metric, the earliest first."""
    found = []
    for name in dict.fromkeys([*one, *other]):
        mine, theirs = list(one.get(name, [])), list(other.get(name, []))
        for epoch in range(max(len(mine), len(theirs)) if name not in EPOCH_TIMES else 0):
            values = [each[epoch] if epoch < len(each) else None for each in (mine, theirs)]
            if fingerprint(values[0]) != fingerprint(values[1]):
                found.append(Difference("metrics", name, shown(values[0]), shown(values[1]), epoch))
                break
    return sorted(found, key=lambda each: each.epoch or 0)


def _is_number(value: Any) -> bool:
    return value is not None and not isinstance(value, (list, tuple, str))


def plot(found: Comparison, file: Path) -> None:
    """Draw the curves of both trainings: losses, Dice scores, learning rates.

    Raises:
        OSError: the file cannot be written. ValueError: its suffix is no format of matplotlib's.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [name for name, values in found.curves.items() if any(map(len, values))]
    figure = Figure(figsize=(8, 0.6 + 2.1 * len(names)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, name in zip(figure.subplots(len(names), sharex=True, squeeze=False)[:, 0], names, strict=True):
        for label, values, width in zip(("A", "B"), found.curves[name], (3.0, 1.2), strict=True):
            axes.plot(range(len(values)), values, linewidth=width, label=label)
        axes.set_title(name, loc="left", fontsize=10)
        axes.legend(frameon=False, fontsize=9)
    axes.set_xlabel("epoch")
    figure.savefig(file, dpi=120)
