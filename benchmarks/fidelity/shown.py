"""The study as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.fidelity.results import (
    Interval,
    Result,
    difference_interval,
    mean_difference,
    mean_interval,
)
from benchmarks.fidelity.training import DETAUG, STOCK

ALL = "all tasks"


def dice_of_runs(results: Sequence[Result]) -> dict[str, dict[str, list[float]]]:
    """Return task → arm → the Dice of each of its runs, of tasks that have runs of both arms."""
    tasks: dict[str, dict[str, list[float]]] = {}
    for result in results:
        arms = tasks.setdefault(result.task, {STOCK: [], DETAUG: []})
        if result.arm in arms:
            arms[result.arm].append(result.dice)
    return {task: arms for task, arms in tasks.items() if all(arms.values())}


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """Return every mean and difference with its interval, and the Dice of every run."""
    tasks: dict[str, Any] = {}
    runs = dice_of_runs(results)
    for task, arms in runs.items():
        tasks[task] = {
            arm: {**_plain(mean_interval(dice)), "runs": dice} for arm, dice in arms.items()
        }
        tasks[task]["difference"] = _plain(difference_interval(arms[DETAUG], arms[STOCK]))
    return {"tasks": tasks, "difference": _plain(_overall(runs))}


def _plain(interval: Interval) -> dict[str, float | None]:
    low, high = (interval.low, interval.high) if interval.is_known else (None, None)
    return {"mean": interval.mean, "low": low, "high": high}


def _overall(runs: dict[str, dict[str, list[float]]]) -> Interval:
    return mean_difference([(arms[DETAUG], arms[STOCK]) for arms in runs.values()])


def table(results: Sequence[Result]) -> Table:
    """Return a line for each task, and one for all."""
    shown = Table(
        title="Dice of the validation: mean ± 95 % confidence interval",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    shown.add_column("task", no_wrap=True)
    for heading in ("runs", STOCK, DETAUG, "difference"):
        shown.add_column(heading, no_wrap=True, justify="right")
    runs = dice_of_runs(results)
    for task, arms in runs.items():
        shown.add_row(
            task,
            f"{len(arms[STOCK])} + {len(arms[DETAUG])}",
            interval_text(mean_interval(arms[STOCK])),
            interval_text(mean_interval(arms[DETAUG])),
            interval_text(difference_interval(arms[DETAUG], arms[STOCK]), "+"),
        )
    if len(runs) > 1:
        shown.add_section()
        shown.add_row(ALL, "", "", "", interval_text(_overall(runs), "+"))
    return shown


def interval_text(interval: Interval, sign: str = "") -> str:
    """Return a mean and half of its interval; `sign` "+" puts a sign before either."""
    mean = f"{interval.mean:{sign}.3f}"
    if not interval.is_known:
        return mean
    return f"{mean} ± {interval.half:.3f}"
