"""Blocks of pages that come from files of their own: the Dice over seeds, and simulated epochs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.fidelity.results import (
    Interval,
    Result,
    Spread,
    dice_by_seed,
    mean_difference,
    mean_interval,
    spreads,
)
from benchmarks.fidelity.training import DETAUG, STOCK, VARIANT
from benchmarks.markdown import markdown_table
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
    rows = []
    differing = []
    for task, (theirs, ours) in runs.items():
        difference = mean_difference([(ours, theirs)])
        if _excludes_zero(difference):
            differing.append(task)
        rows.append(
            [
                task,
                f"{len(theirs)} + {len(ours)}",
                _interval_text(mean_interval(theirs)),
                _interval_text(mean_interval(ours)),
                _interval_text(difference, "+"),
            ]
        )
    overall = mean_difference([(ours, theirs) for theirs, ours in runs.values()])
    rows.append(["all tasks", "", "", "", _interval_text(overall, "+")])
    table = markdown_table(["task", "runs", f"`{STOCK}`", f"`{DETAUG}`", "difference"], rows)
    return _with_minus_signs(
        f"{_measured_text(results)}\n\n{table}\n{_difference_text(differing, overall)}\n"
    )


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


def _dice_of_runs(results: Sequence[Result]) -> dict[str, tuple[list[float], list[float]]]:
    """Return task → the Dice of each run of nnU-Net's trainer, and of detaug's, if it has both."""
    runs = {}
    for task in dict.fromkeys(result.task for result in results):
        theirs = list(dice_by_seed(results, task, STOCK).values())
        ours = list(dice_by_seed(results, task, DETAUG).values())
        if theirs and ours:
            runs[task] = (theirs, ours)
    return runs


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
    rows = []
    for spread in tasks:
        low, high = spread.correlation_range
        rows.append(
            [
                spread.task,
                str(spread.seeds),
                f"{spread.mean:.3f} ± {spread.deviation:.3f}",
                f"{spread.lowest:.3f} to {spread.highest:.3f}",
                f"{spread.paired:.3f}",
                f"{spread.unpaired:.3f}",
                f"{spread.correlation:.2f} ({low:.2f} to {high:.2f})",
            ]
        )
    table = markdown_table(SPREAD_COLUMNS, rows)
    return _with_minus_signs(f"{SPREAD_INTRODUCTION}\n\n{table}\n{_pairing_text(tasks)}\n")


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


def _with_minus_signs(text: str) -> str:
    return text.replace(" -0.", " −0.").replace("(-0.", "(−0.")


def epochs_text(measurements: Sequence[dict[str, Any]]) -> str:
    """Return the table of simulated epochs on every machine, "" without any."""
    parts = []
    for measurement in measurements:
        record = measurement["environment"]
        introduction = EPOCHS_INTRODUCTION.format(
            cpu=product_name(record["cpu"]), commit=record["commit"], date=record["date"]
        )
        table = markdown_table(EPOCHS_COLUMNS, map(_epoch_cells, measurement["rows"]))
        parts.append(f"{introduction}\n\n{table}")
    return "\n".join(parts)


def _epoch_cells(row: dict[str, Any]) -> list[str]:
    cells = [f"{1e3 * row['step']:.0f} ms", str(row["workers"])]
    for system in ("nnU-Net", "detaug"):
        seconds = row["systems"][system]
        cells += [f"{STEPS * seconds[name]:.0f} s" for name in ("per_step", "waiting")]
    return cells
