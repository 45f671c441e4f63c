"""Blocks of pages that come from files of their own: the Dice over seeds, and simulated epochs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.fidelity.results import (
    Interval,
    Result,
    difference_interval,
    mean_difference,
    mean_interval,
    read,
)
from benchmarks.fidelity.spread import Spread, spreads
from benchmarks.fidelity.training import DETAUG, STOCK, VARIANT
from benchmarks.tables.cpus import product_name

#: Training steps of one of nnU-Net's epochs.
STEPS = 250

SPREAD_INTRODUCTION = f"""\
Measured on [small tasks](benchmarks.md#does-it-segment-as-well) with `{DETAUG}`, and with
`{VARIANT}` as the variant. The last three columns show the standard deviation of
the difference of the two, with the same seeds and with different ones, and their correlation over the seeds."""
SPREAD_COLUMNS = (
    "task",
    "seeds",
    "Dice (mean ± standard deviation)",
    "lowest to highest",
    "difference, same seeds",
    "difference, different seeds",
    "correlation (0.95 interval)",
)

EPOCHS_INTRODUCTION = """\
A training loop with a *simulated step*, on {cpu} (commit {commit}, {date}). The step sleeps, and so
do the workers, for as long as batches took on one core, as if every worker had a core to itself. What
the augmenters do with the batches is real. An epoch has 250 steps; waiting is part of it:"""
EPOCHS_COLUMNS = (
    "step",
    "workers",
    "nnU-Net's epoch",
    "waiting",
    "detaug's epoch",
    "waiting",
)


def dice_text(results: Sequence[Result]) -> str:
    """Return the table of nnU-Net's trainer against detaug's, "" without results of both."""
    runs = _dice_of_runs(results)
    if not runs:
        return ""
    lines = [_measured_text(results), ""]
    lines += [f"| task | runs | `{STOCK}` | `{DETAUG}` | difference |", "|---|---|---|---|---|"]
    pairs = []
    differing = []
    for task, arms in runs.items():
        ours = arms[DETAUG]
        theirs = arms[STOCK]
        pairs.append((ours, theirs))
        difference = difference_interval(ours, theirs)
        if _excludes_zero(difference):
            differing.append(task)
        cells = [
            task,
            f"{len(theirs)} + {len(ours)}",
            _interval_text(mean_interval(theirs)),
            _interval_text(mean_interval(ours)),
            _interval_text(difference, "+"),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    overall = mean_difference(pairs)
    lines.append(f"| all tasks | | | | {_interval_text(overall, '+')} |")
    lines += ["", _difference_text(differing, overall)]
    return _with_minus_signs(lines)


def _measured_text(results: Sequence[Result]) -> str:
    """Return when and with which code the trainings ran."""
    dates = sorted({result.date for result in results})
    commits = sorted({str(result.commit) for result in results})
    period = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"Measured {period}, commit {', '.join(commits)}:"


def _difference_text(differing: Sequence[str], overall: Interval) -> str:
    """Return whether the tasks show a difference between the two trainers.

    Args:
        differing: the tasks whose interval does not contain 0.
        overall: the interval of all tasks.
    """
    if _excludes_zero(overall):
        return "**A difference was found**: the interval of all tasks does not contain 0."
    if differing:
        return (
            f"**A difference was found on single tasks** ({', '.join(differing)}): there the "
            "interval does not contain 0. That of all tasks does."
        )
    return "**No difference was found**: every interval contains 0."


def _excludes_zero(interval: Interval) -> bool:
    return interval.is_known and abs(interval.mean) > interval.half


def _dice_of_runs(results: Sequence[Result]) -> dict[str, dict[str, list[float]]]:
    """Return task → arm → the Dice of each of its runs, of tasks that have runs of both arms."""
    tasks: dict[str, dict[str, list[float]]] = {}
    for result in results:
        arms = tasks.setdefault(result.task, {STOCK: [], DETAUG: []})
        if result.arm in arms:
            arms[result.arm].append(result.dice)
    return {task: arms for task, arms in tasks.items() if all(arms.values())}


def _interval_text(interval: Interval, sign: str = "") -> str:
    """Return a mean and half of its interval; `sign` "+" puts a sign before either."""
    mean = f"{interval.mean:{sign}.3f}"
    if not interval.is_known:
        return mean
    return f"{mean} ± {interval.half:.3f}"


def spread_text(results: Sequence[Result]) -> str:
    """Return what was measured of the spread over seeds, "" without results of both variants."""
    tasks = spreads(results, DETAUG, VARIANT)
    if not tasks:
        return ""
    lines = [
        SPREAD_INTRODUCTION,
        "",
        f"| {' | '.join(SPREAD_COLUMNS)} |",
        f"|{'---|' * len(SPREAD_COLUMNS)}",
    ]
    for spread in tasks:
        low, high = spread.correlation_range
        cells = [
            spread.task,
            str(spread.seeds),
            f"{spread.mean:.3f} ± {spread.deviation:.3f}",
            f"{spread.lowest:.3f} to {spread.highest:.3f}",
            f"{spread.paired:.3f}",
            f"{spread.unpaired:.3f}",
            f"{spread.correlation:.2f} ({low:.2f} to {high:.2f})",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", _pairing_text(tasks)]
    return _with_minus_signs(lines)


def _pairing_text(tasks: Sequence[Spread]) -> str:
    """Return what the correlations say about giving both variants the same seeds."""
    paired = [spread.task for spread in tasks if spread.correlation_range[0] > 0]
    if not paired:
        return (
            "**No gain from pairing was found**: every interval of the correlation contains 0 or "
            "lies below it."
        )
    return (
        f"**Pairing helped on {len(paired)} of {len(tasks)} tasks** ({', '.join(paired)}): only "
        "there the interval of the correlation lies above 0."
    )


def _with_minus_signs(lines: Sequence[str]) -> str:
    text = "\n".join(lines)
    for opening in (" ", "("):
        text = text.replace(f"{opening}-0.", f"{opening}−0.")
    return f"{text}\n"


def epochs_text(measurements: Sequence[dict[str, Any]]) -> str:
    """Return the table of simulated epochs on every machine, "" without any."""
    parts = []
    for measurement in measurements:
        record = measurement["environment"]
        introduction = EPOCHS_INTRODUCTION.format(
            cpu=product_name(record["cpu"]), commit=record["commit"], date=record["date"]
        )
        lines = [
            introduction,
            "",
            f"| {' | '.join(EPOCHS_COLUMNS)} |",
            f"|{'---|' * len(EPOCHS_COLUMNS)}",
        ]
        lines += [_epoch_line(row) for row in measurement["rows"]]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n" if parts else ""


def _epoch_line(row: dict[str, Any]) -> str:
    cells = [f"{1e3 * row['step']:.0f} ms", str(row["workers"])]
    for system in ("nnU-Net", "detaug"):
        seconds = row["systems"][system]
        cells.append(f"{STEPS * seconds['per_step']:.0f} s")
        cells.append(f"{STEPS * seconds['waiting']:.0f} s")
    return f"| {' | '.join(cells)} |"


def kept_studies(folder: Path) -> tuple[list[Result], list[dict[str, Any]]]:
    """Return the trainings over seeds, and the simulated epochs, that a folder keeps."""
    files = sorted(folder.glob("epochs-*.json"))
    epochs = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return read(folder / "fidelity.jsonl"), epochs


def study_blocks(folder: Path) -> dict[str, str]:
    """Return block name → text, "" where a folder keeps no results for it."""
    trainings, epochs = kept_studies(folder)
    return {
        "dice": dice_text(trainings),
        "spread": spread_text(trainings),
        "epochs": epochs_text(epochs),
    }
