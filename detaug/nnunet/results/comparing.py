"""`detaug nnunet compare`: two trainings side by side, and where they diverge: seed, settings, data, metrics, weights."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from detaug.nnunet.compatibility import ARGUMENTS, EPOCH_TIMES, LOGGED, TRAINER_NAME, WEIGHTS
from detaug.nnunet.results.folders import NoResults, checkpoints_of, fold_of, load_checkpoint
from detaug.nnunet.trainers.run_record import KEY, differences

#: Which cause is told first: what is above explains what is below it.
SEED, SETTINGS, DATA, METRICS, FINAL = "seed", "settings", "data", "metrics", "weights"
_ORDER = (SEED, SETTINGS, DATA, METRICS, FINAL)
#: A longer list of values is cut.
_LONGEST = 60


@dataclass(frozen=True)
class Difference:
    """One thing in which two trainings differ.

    Attributes:
        kind: one of the words above.
        name: of what differs: an entry of the record, a metric, a tensor.
        one, other: the values, for the reader.
        epoch: of a metric, where it first differs, counted from 0.
        differing: in how many epochs or tensors.
        among: of how many.
    """

    kind: str
    name: str
    one: str
    other: str
    epoch: int | None = None
    differing: int = 1
    among: int = 1


@dataclass(frozen=True)
class Comparison:
    """Two trainings.

    Attributes:
        one, other: their folders.
        checkpoint: the name of the file that both have.
        epochs: how many each has trained.
        differences: most likely cause first.
        curves: of each metric with one number per epoch: the values of both.
    """

    one: Path
    other: Path
    checkpoint: str
    epochs: tuple[int, int]
    differences: tuple[Difference, ...]
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]]

    @property
    def ok(self) -> bool:
        """Whether they are the same training."""
        return not self.differences

    @property
    def first_epoch(self) -> int | None:
        """The first epoch in which a metric differs."""
        return min((each.epoch for each in self.differences if each.epoch is not None), default=None)

    def shown(self) -> list[RenderableType]:
        """What people read."""
        if self.ok:
            what = f"{self.checkpoint}, {self.epochs[0]} epochs"
            return [Text.assemble(("equal", "bold green"), f": seed, settings, data, metrics and weights ({what})")]
        found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for title in ("what", "", "A", "B", "differs in"):
            found.add_column(title, overflow="fold")
        for each in self.differences:
            unit = {METRICS: "epochs", FINAL: "tensors"}.get(each.kind, "")
            place = f"{each.differing} of {each.among} {unit}" if unit else ""
            place += "" if each.epoch is None else f", from epoch {each.epoch} on"
            found.add_row(each.kind, each.name, each.one, each.other, place)
        return [Text(f"A: {self.one}\nB: {self.other}"), Text(), found, Text(), self._verdict()]

    def _verdict(self) -> Text:
        first, epoch = self.differences[0], self.first_epoch
        said = f": first of all the {first.kind} ({first.name})" if first.kind != FINAL else ": in the weights alone"
        if epoch is None:
            told = "; their metrics are equal"
        else:
            told = f"; metrics are equal before epoch {epoch}" if epoch else "; metrics differ from the first epoch on"
        return Text.assemble(("different", "bold red"), said, told)

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*self.shown())

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return {
            "equal": self.ok,
            "checkpoint": self.checkpoint,
            "epochs": list(self.epochs),
            "first_epoch": self.first_epoch,
            "differences": [asdict(each) for each in self.differences],
        }


def compare(one: Path, other: Path) -> Comparison:
    """Compare two trainings by the best checkpoint that both have.

    Args:
        one, other: folders ``fold_X``, or a model's folder with one fold.

    Raises:
        NoResults: a folder has no checkpoint, or they have none in common.
    """
    folders = fold_of(one), fold_of(other)
    names = [{file.name: file for file in checkpoints_of(folder)} for folder in folders]
    common = next((name for name in names[0] if name in names[1]), None)
    if common is None:
        raise NoResults(f"{str(folders[0])!r} has {_listed(names[0])}, and {str(folders[1])!r} {_listed(names[1])}")
    mine, theirs = (load_checkpoint(known[common]) for known in names)
    logged = mine[LOGGED], theirs[LOGGED]
    differences = [*_of_records(mine, theirs), *_of_metrics(*logged), *_of_weights(mine[WEIGHTS], theirs[WEIGHTS])]
    return Comparison(
        *folders,
        common,
        (_epochs(logged[0]), _epochs(logged[1])),
        tuple(sorted(differences, key=lambda each: _ORDER.index(each.kind))),
        {name: (logged[0][name], logged[1].get(name, [])) for name in logged[0] if _is_curve(name, logged[0][name])},
    )


def _of_records(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    """Of what the trainings were made of."""
    told = set()
    for part, entry, mine, theirs in differences(one.get(KEY) or {}, other.get(KEY) or {}):
        kind = {"seed": SEED, "data": DATA, "cases": DATA}.get(part, SETTINGS)
        name = f"{part}.{entry}" if entry else part
        told.add(name)
        yield Difference(kind, name.replace("_", " ") if name == part else name, _short(mine), _short(theirs))
    if one[TRAINER_NAME] != other[TRAINER_NAME]:
        yield Difference(SETTINGS, "trainer", one[TRAINER_NAME], other[TRAINER_NAME])
    for each in _of_mappings("", one.get(ARGUMENTS) or {}, other.get(ARGUMENTS) or {}):
        if each.name not in told:
            yield each


def _of_mappings(path: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    """Of nnU-Net's plans and other arguments, entry by entry."""
    for name in dict.fromkeys([*one, *other]):
        mine, theirs = one.get(name, "none"), other.get(name, "none")
        if isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            yield from _of_mappings(f"{path}{name}.", mine, theirs)
        elif str(mine) != str(theirs) and name not in ("continue_training", "device"):
            yield Difference(SETTINGS, f"{path}{name}", _short(mine), _short(theirs))


def _of_metrics(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    """Of what was logged, epoch by epoch: those that differ first, first."""
    found = []
    for name in dict.fromkeys([*one, *other]):
        if name in EPOCH_TIMES:
            continue
        mine, theirs = one.get(name, []), other.get(name, [])
        length = max(len(mine), len(theirs))
        differing = [epoch for epoch in range(length) if not _same(_at(mine, epoch), _at(theirs, epoch))]
        if differing:
            first = differing[0]
            values = _short(_at(mine, first)), _short(_at(theirs, first))
            found.append(Difference(METRICS, name, *values, first, len(differing), length))
    yield from sorted(found, key=lambda each: each.epoch or 0)


def _of_weights(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[Difference]:
    names = list(dict.fromkeys([*one, *other]))
    differing = [name for name in names if not _same(one.get(name), other.get(name))]
    if differing:
        name = differing[0]
        yield Difference(
            FINAL,
            name,
            _shape(one.get(name)),
            _distance(one.get(name), other.get(name)),
            None,
            len(differing),
            len(names),
        )


def _same(one: Any, other: Any) -> bool:
    """Bit by bit; NaN is itself."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        same_form = one.dtype == other.dtype and one.shape == other.shape
        return same_form and bool(torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8)))
    if one is None or other is None or isinstance(one, torch.Tensor) or isinstance(other, torch.Tensor):
        return one is other
    return bool(np.array_equal(np.asarray(one, float), np.asarray(other, float), equal_nan=True))


def _at(values: Sequence[Any], epoch: int) -> Any:
    return values[epoch] if epoch < len(values) else None


def _is_curve(name: str, values: Sequence[Any]) -> bool:
    return name not in EPOCH_TIMES and all(np.ndim(value) == 0 for value in values)


def _epochs(logged: Mapping[str, Any]) -> int:
    return max((len(values) for values in logged.values()), default=0)


def _shape(tensor: Any) -> str:
    return "none" if tensor is None else f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"


def _distance(one: Any, other: Any) -> str:
    if one is None or other is None or one.shape != other.shape:
        return _shape(other)
    largest = (one.double() - other.double()).abs().max().item() if one.numel() else 0.0
    return f"largest difference {largest:.3g}" if math.isfinite(largest) else "not finite"


def _short(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, (float, np.floating)):
        return f"{value:.7g}"
    if isinstance(value, (list, tuple, np.ndarray)) and len(value) and isinstance(value[0], (float, np.floating)):
        value = "[" + ", ".join(f"{each:.5g}" for each in value) + "]"
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _listed(names: Mapping[str, Any]) -> str:
    return " and ".join(names) or "no checkpoint"


def plot(found: Comparison, file: Path) -> None:
    """Draw the curves of both trainings: losses, Dice scores, learning rates.

    Args:
        found: the comparison.
        file: where to; its suffix is the format.

    Raises:
        OSError: it cannot be written.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = [name for name, values in found.curves.items() if any(map(len, values))]
    figure, all_axes = pyplot.subplots(
        len(names), 1, figsize=(8, 0.6 + 2.1 * len(names)), sharex=True, squeeze=False, layout="constrained"
    )
    for axes, name in zip(all_axes[:, 0], names, strict=True):
        for values, color, width, label in zip(
            found.curves[name], ("#0072B2", "#D55E00"), (3.0, 1.2), ("A", "B"), strict=True
        ):
            marker = "o" if len(values) < 30 else ""
            axes.plot(
                range(len(values)), values, color=color, linewidth=width, label=label, marker=marker, markersize=3
            )
        epoch = next((each.epoch for each in found.differences if each.kind == METRICS and each.name == name), None)
        if epoch is not None:
            axes.axvline(epoch, color="0.5", linewidth=1, linestyle=":")
            axes.annotate(
                f" differs from epoch {epoch} on", (epoch, 1), xycoords=("data", "axes fraction"), va="top", fontsize=8
            )
        axes.set_title(name, loc="left", fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    all_axes[0, 0].legend(frameon=False, fontsize=9)
    all_axes[-1, 0].set_xlabel("epoch")
    all_axes[-1, 0].xaxis.get_major_locator().set_params(integer=True)
    figure.suptitle(f"A: {found.one}\nB: {found.other}", fontsize=8, x=0.01, ha="left")
    figure.savefig(file, dpi=120)
    pyplot.close(figure)
