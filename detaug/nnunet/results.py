"""nnU-Net's results: copy a model under the stock trainer's name, and compare two trainings."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

from detaug.errors import UnusableError
from detaug.nnunet.compatibility import (
    ARGUMENTS,
    EPOCH_TIMES,
    LOGGED,
    TRAINER_NAME,
    WEIGHTS,
    external_trainer,
    is_nnunets_own,
)
from detaug.nnunet.run_record import (
    KEY,
    changed_cases,
    differences,
    fingerprint_or_class,
    schedule_without_state,
    without_data,
)
from detaug.nnunet.trainers.output_folder import (
    CHECKPOINTS,
    checkpoints_in,
    read_foreign_checkpoint,
    write_checkpoint,
)
from detaug.system.escaping import short
from detaug.system.untrusted import conforms

#: Files that nnU-Net's predictor reads in addition to checkpoints.
DESCRIPTIONS = ("dataset.json", "plans.json", "dataset_fingerprint.json")


def export(model: Path, into: Path | None) -> Path:
    """Copy a model under its stock trainer's name; its weights stay as they are.

    Args:
        model: ``.../DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION``.
        into: the new folder; None: next to the model, under the stock trainer's name.

    Returns:
        The new folder. It is there whole or not at all.

    Raises:
        UnusableError: there is no such model; its trainer is nnU-Net's own, is not found, or builds
            a network of its own; the new folder is there already.
    """
    files = [file for file in sorted(model.glob("fold_*/*")) if file.name in CHECKPOINTS]
    # nnU-Net predicts without the last one.
    has_descriptions = all((model / name).is_file() for name in DESCRIPTIONS[:2])
    trainer, *others = model.resolve().name.split("__")
    if len(others) != 2 or not has_descriptions or not files:
        raise UnusableError(
            f"{str(model)!r} is not a model's folder: nnU-Net's is named"
            f" TRAINER__PLANS__CONFIGURATION, and has {DESCRIPTIONS[0]}, {DESCRIPTIONS[1]} and a"
            " fold with a checkpoint"
        )
    stock = stock_trainer(trainer)
    target = into or model.resolve().with_name("__".join((stock, *others)))
    if target.exists():
        raise UnusableError(
            f"{str(target)!r} exists already: remove it, or name another folder (-o)"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the copy can be renamed when it is whole.
    with tempfile.TemporaryDirectory(prefix=".", suffix=".partial", dir=target.parent) as partial:
        copy = Path(partial, "model")
        copy.mkdir()
        for name in DESCRIPTIONS:
            if (model / name).is_file():
                shutil.copyfile(model / name, copy / name)
        for file in files:
            copied_file = copy / file.parent.name / file.name
            copied_file.parent.mkdir(exist_ok=True)
            # As data: a model that somebody hands over runs no code here.
            checkpoint = {**read_foreign_checkpoint(file), TRAINER_NAME: stock}
            write_checkpoint(checkpoint, copied_file)
        copy.rename(target)
    return target


def stock_trainer(name: str) -> str:
    """Return the name of nnU-Net's own trainer that a trainer derives from.

    Raises:
        UnusableError: as of `export`; or nnU-Net alone would not build the same network by it.
    """
    from detaug.nnunet import trainers

    trainer = getattr(trainers, name, None) or external_trainer(name)
    if is_nnunets_own(trainer):
        raise UnusableError(f"{name} is nnU-Net's own trainer: its model needs no detaug as it is")
    # The first of nnU-Net's own: its predictor builds the network by that class's name.
    stock = next(base for base in trainer.__mro__ if is_nnunets_own(base))
    builder = next(base for base in trainer.__mro__ if "build_network_architecture" in vars(base))
    if not is_nnunets_own(builder):
        raise UnusableError(
            f"{name} builds a network of its own ({builder.__name__}.build_network_architecture),"
            " which nnU-Net's own trainers do not: predicting with its weights needs that class"
        )
    return str(stock.__name__)


@dataclass(frozen=True)
class TrainingComparison:
    """The result of comparing two trainings.

    Attributes:
        lines: the differences and the verdict, for the reader.
        differ: True if there is any difference.
    """

    lines: list[str]
    differ: bool


def compare_trainings(one: Path, other: Path) -> TrainingComparison:
    """Compare two trainings, folders ``fold_X``, by the best checkpoint that both have.

    Differences come in the order of causes: settings, metrics, weights.

    Raises:
        UnusableError: A folder has no checkpoint, or they have none in common.
    """
    names = [file.name for file in checkpoints_in(one)]
    other_names = [file.name for file in checkpoints_in(other)]
    # The names are sorted, the most informative checkpoint first.
    common = next((name for name in names if name in other_names), None)
    if common is None:
        raise UnusableError(
            f"{str(one)!r} has {' and '.join(names)}, and {str(other)!r} has"
            f" {' and '.join(other_names)}: no checkpoint is in both"
        )
    changes = list(_differences(_read_to_compare(one / common), _read_to_compare(other / common)))
    lines = [f"{kind}: {short(name)}: {values}" for kind, name, values in changes]
    verdict = "equal"
    if changes:
        _, first_name, _ = changes[0]
        verdict = f"different: first of all in {short(first_name)}"
    return TrainingComparison([*lines, f"{verdict} ({common})"], differ=bool(changes))


#: Entries of a checkpoint that are compared, and their types.
_ENTRIES: dict[str, Any] = {
    TRAINER_NAME: str,
    WEIGHTS: dict[str, Any],
    LOGGED: dict[str, list[Any]],
    ARGUMENTS: dict[str, Any] | None,
    KEY: dict[str, Any] | None,
}
#: Entries of two of these.
_PARTS: tuple[tuple[str, str, Any], ...] = (
    (ARGUMENTS, "plans", dict[str, Any] | None),
    (KEY, "data", dict[str, str] | None),
    (KEY, "pipeline", dict[str, list[str]] | None),
)


def _read_to_compare(file: Path) -> dict[str, Any]:
    """Return a checkpoint whose entries have the types that they must have.

    Raises:
        UnusableError: they have not; and as of `read_foreign_checkpoint`.
    """
    checkpoint = read_foreign_checkpoint(file)
    wrong = [name for name, kind in _ENTRIES.items() if not conforms(checkpoint.get(name), kind)]
    if not wrong:
        for name, part, kind in _PARTS:
            if not conforms((checkpoint.get(name) or {}).get(part), kind):
                wrong.append(f"{name}.{part}")
    if wrong:
        raise UnusableError(f"{file} cannot be compared: {', '.join(wrong)} missing or wrong in it")
    return checkpoint


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, name, values) of each entry that differs, in the order of causes."""
    settings = _settings(a)
    other_settings = _settings(b)
    for name, value, other in differences(without_data(settings), without_data(other_settings)):
        yield "settings", name, f"{short(value)} and {short(other)}"
    cases = changed_cases(settings.get("data") or {}, other_settings.get("data") or {})
    if cases:
        yield "settings", "data", f"other files of {', '.join(map(short, cases))}"
    for epoch, name, value, other in sorted(_metrics(a, b)):
        yield f"metrics from epoch {epoch} on", name, f"{short(value)} and {short(other)}"
    # One is enough: after a step that differs, all weights do.
    for name, value, other in islice(differences(a[WEIGHTS], b[WEIGHTS]), 1):
        yield "weights", name, f"{short(value)} and {short(other)}"


def _metrics(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[int, str, Any, Any]]:
    """Yield (epoch, name, value, other value) where each metric that differs first does.

    Epochs count from 0.
    """
    # Times differ between any two trainings of stock nnU-Net; detaug's trainers write zeros.
    names = {**a[LOGGED], **b[LOGGED]}.keys() - EPOCH_TIMES
    for name in names:
        pairs = zip_longest(a[LOGGED].get(name, []), b[LOGGED].get(name, []))
        for epoch, (value, other) in enumerate(pairs):
            if fingerprint_or_class(value) != fingerprint_or_class(other):
                yield epoch, name, value, other
                break


def _settings(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a training, where there is one, and nnU-Net's own settings."""
    # What says where a training ran, or that it was continued, is no setting of its own.
    arguments = dict(checkpoint.get(ARGUMENTS) or {})
    arguments.pop("device", None)
    plans = dict(arguments.get("plans") or {})
    plans.pop("continue_training", None)
    record = dict(checkpoint.get(KEY) or {})
    if "schedule" in record:
        # Where the schedule stands follows from the number of epochs.
        record["schedule"] = schedule_without_state(record["schedule"])
    return {
        **record,
        "trainer": checkpoint[TRAINER_NAME],
        ARGUMENTS: {**arguments, "plans": plans},
    }
