"""What nnU-Net leaves of trainings: a model copied under the stock trainer's name, and two
trainings compared.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from numbers import Real
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
    print_of,
    schedule_without_state,
    without_data,
)
from detaug.nnunet.trainers.output_folder import (
    CHECKPOINTS,
    checkpoints_in,
    read_foreign_checkpoint,
    write_checkpoint,
)
from detaug.pictures.charts import figure_of
from detaug.reports.atomic_files import whole_file
from detaug.reports.escaping import short
from detaug.reports.untrusted import conforms

#: What nnU-Net's predictor reads besides checkpoints.
DESCRIPTIONS = ("dataset.json", "plans.json", "dataset_fingerprint.json")


def export(model: Path, into: Path | None) -> Path:
    """Copy a model: descriptions and checkpoints, whose weights stay as they are, under its stock
    trainer's name.

    Args:
        model: ``.../DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION``.
        into: where to; None: beside it, under the stock trainer's name.

    Returns:
        The new folder. It is there whole or not at all.

    Raises:
        UnusableError: there is no such model; its trainer is nnU-Net's own, is not found, or builds
            a network of its own; the new folder is there already.
    """
    files = sorted(file for name in CHECKPOINTS for file in model.glob(f"fold_*/{name}"))
    whole = all((model / name).is_file() for name in DESCRIPTIONS[:2])
    trainer, *others = model.resolve().name.split("__")
    if len(others) != 2 or not whole or not files:
        raise UnusableError(
            f"{str(model)!r} is no folder TRAINER__PLANS__CONFIGURATION with {DESCRIPTIONS[0]},"
            f" {DESCRIPTIONS[1]} and a fold with a checkpoint, as nnU-Net makes for a model"
        )
    stock = stock_trainer(trainer)
    target = into or model.resolve().with_name("__".join((stock, *others)))
    if target.exists():
        raise UnusableError(
            f"{str(target)!r} is there already; remove it, or name another folder (-o)"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    # beside its final place, so that it can be renamed there when it is whole
    with tempfile.TemporaryDirectory(prefix=".", suffix=".partial", dir=target.parent) as beside:
        made = Path(beside, "model")
        made.mkdir()
        for name in DESCRIPTIONS:
            if (model / name).is_file():
                shutil.copyfile(model / name, made / name)
        for file in files:
            copied = made / file.parent.name / file.name
            copied.parent.mkdir(exist_ok=True)
            write_checkpoint({**read_foreign_checkpoint(file), TRAINER_NAME: stock}, copied)
        made.rename(target)
    return target


def stock_trainer(name: str) -> str:
    """nnU-Net's own trainer that a trainer derives from, if nnU-Net alone builds the same network
    by it; errors as `export`.
    """
    from detaug.nnunet import trainers

    trainer = getattr(trainers, name, None) or external_trainer(name)
    if is_nnunets_own(trainer):
        raise UnusableError(f"{name} is nnU-Net's own trainer: its model needs no detaug as it is")
    stock = next(base for base in trainer.__mro__ if is_nnunets_own(base))
    builder = next(base for base in trainer.__mro__ if "build_network_architecture" in vars(base))
    if not is_nnunets_own(builder):
        raise UnusableError(
            f"{name} builds a network of its own ({builder.__name__}.build_network_architecture),"
            " which nnU-Net's own trainers do not: who predicts with its weights needs that class"
        )
    return str(stock.__name__)


def compare_trainings(
    one: Path, other: Path, picture: Path | None = None
) -> tuple[list[str], bool]:
    """Compare two trainings, folders ``fold_X``, by the best checkpoint that both have: lines for
    the reader, differences in the order of causes (settings, metrics, weights), and whether there
    are any. Their curves are drawn into `picture`.

    Raises:
        NotInstalled: a picture is wanted, and matplotlib is not installed.
        UnusableError: a folder has no checkpoint, or they have none in common.
    """
    found = [{file.name: file for file in checkpoints_in(each)} for each in (one, other)]
    common = next((name for name in found[0] if name in found[1]), None)
    if common is None:
        raise UnusableError(
            f"{str(one)!r} has {' and '.join(found[0])}, and {str(other)!r}"
            f" {' and '.join(found[1])}"
        )
    mine, theirs = (_read_to_compare(each[common]) for each in found)
    told = list(_differences(mine, theirs))
    lines = [f"{kind}: {short(name)}: {values}" for kind, name, values in told]
    verdict = f"different: first of all in {short(told[0][1])}" if told else "equal"
    if picture is not None:
        _draw(common, mine[LOGGED], theirs[LOGGED], picture)
    return [*lines, f"{verdict} ({common})"], bool(told)


#: Entries of a checkpoint, and what they must be to be compared.
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
    """Return a checkpoint whose entries are what they must be; errors as
    `read_foreign_checkpoint`.
    """
    checkpoint = read_foreign_checkpoint(file)
    wrong = [name for name, kind in _ENTRIES.items() if not conforms(checkpoint.get(name), kind)]
    if not wrong:
        wrong = [
            f"{name}.{part}"
            for name, part, kind in _PARTS
            if not conforms((checkpoint.get(name) or {}).get(part), kind)
        ]
    if wrong:
        raise UnusableError(f"{file} cannot be compared: {', '.join(wrong)} missing or wrong in it")
    return checkpoint


def _differences(
    mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[tuple[str, str, str]]:
    """Yield what differs between two checkpoints, in the order of causes: (kind, name, values)."""
    settings, other_settings = _settings(mine), _settings(theirs)
    for name, a, b in differences(without_data(settings), without_data(other_settings)):
        yield "settings", name, f"{short(a)} and {short(b)}"
    cases = changed_cases(settings.get("data") or {}, other_settings.get("data") or {})
    if cases:
        yield "settings", "data", f"other files of {', '.join(map(short, cases))}"
    for epoch, name, a, b in sorted(_metrics(mine, theirs)):
        yield f"metrics from epoch {epoch} on", name, f"{short(a)} and {short(b)}"
    for name, a, b in islice(differences(mine[WEIGHTS], theirs[WEIGHTS]), 1):
        yield "weights", name, f"{short(a)} and {short(b)}"


def _metrics(
    mine: Mapping[str, Any], theirs: Mapping[str, Any]
) -> Iterator[tuple[int, str, Any, Any]]:
    """(epoch, name, value, other value) of each metric that differs, where it first does; epochs
    from 0.
    """
    for name in {**mine[LOGGED], **theirs[LOGGED]}.keys() - EPOCH_TIMES:
        values = enumerate(zip_longest(mine[LOGGED].get(name, []), theirs[LOGGED].get(name, [])))
        yield from islice(
            ((epoch, name, a, b) for epoch, (a, b) in values if print_of(a) != print_of(b)), 1
        )


def _draw(title: str, mine: Mapping[str, Any], theirs: Mapping[str, Any], picture: Path) -> None:
    """The metrics with one number an epoch: losses, Dice scores, learning rates."""
    names = [
        name
        for name in mine
        if name not in EPOCH_TIMES
        and _are_numbers(mine[name])
        and _are_numbers(theirs.get(name, []))
    ]
    figure = figure_of(title, 8, 0.6 + 2.1 * len(names))
    for axes, name in zip(
        figure.subplots(len(names), sharex=True, squeeze=False)[:, 0], names, strict=True
    ):
        for label, curves, width in (("A", mine, 3.0), ("B", theirs, 1.2)):
            axes.plot(curves.get(name, []), linewidth=width, label=label)
        axes.set_title(name, loc="left", fontsize=10)
        axes.legend(frameon=False, fontsize=9)
    axes.set_xlabel("epoch")
    with whole_file(picture) as file:
        figure.savefig(file, format="png", dpi=120)


def _are_numbers(values: Iterable[Any]) -> bool:
    return all(isinstance(value, Real) for value in values)


def _settings(checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The record of what the training is made of, where there is one, and what nnU-Net keeps of
    it.
    """
    arguments = {
        name: each for name, each in (checkpoint.get(ARGUMENTS) or {}).items() if name != "device"
    }
    plans = {
        name: each
        for name, each in (arguments.get("plans") or {}).items()
        if name != "continue_training"
    }
    record = dict(checkpoint.get(KEY) or {})
    if "schedule" in record:
        # Where the schedule stands follows from the number of epochs.
        record["schedule"] = schedule_without_state(record["schedule"])
    return {
        **record,
        "trainer": checkpoint[TRAINER_NAME],
        ARGUMENTS: {**arguments, "plans": plans},
    }
