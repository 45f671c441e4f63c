"""The study as a table, as JSON and as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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


def dice(found: Sequence[Result]) -> dict[str, dict[str, list[float]]]:
    """Task → arm → the Dice of each of its runs."""
    by_task: dict[str, dict[str, list[float]]] = {}
    for each in found:
        by_task.setdefault(each.task, {STOCK: [], DETAUG: []})[each.arm].append(each.dice)
    return {task: arms for task, arms in by_task.items() if all(arms.values())}


def as_json(found: Sequence[Result]) -> dict[str, Any]:
    """Every mean and difference with its interval, and the Dice of every run."""
    by_task = dice(found)

    def plain(interval: Interval) -> dict[str, float | None]:
        ends = (interval.low, interval.high) if interval.known else (None, None)
        return dict(zip(("mean", "low", "high"), (interval.mean, *ends), strict=True))

    tasks = {
        task: {
            **{
                arm: {**plain(mean_interval(values)), "runs": values}
                for arm, values in arms.items()
            },
            "difference": plain(difference_interval(arms[DETAUG], arms[STOCK])),
        }
        for task, arms in by_task.items()
    }
    return {"tasks": tasks, "difference": plain(_overall(by_task))}


def _overall(by_task: dict[str, dict[str, list[float]]]) -> Interval:
    return mean_difference([(arms[DETAUG], arms[STOCK]) for arms in by_task.values()])


def table(found: Sequence[Result]) -> Table:
    """A line for each task, and one for all."""
    shown = Table(
        title="Dice of the validation: mean ± 95 % confidence interval",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    for heading in ("task", "runs", STOCK, DETAUG, "difference"):
        shown.add_column(heading, no_wrap=True, justify="left" if heading == "task" else "right")
    by_task = dice(found)
    for task, arms in by_task.items():
        runs = " + ".join(str(len(arms[arm])) for arm in (STOCK, DETAUG))
        means = [_text(mean_interval(arms[arm])) for arm in (STOCK, DETAUG)]
        shown.add_row(
            task, runs, *means, _text(difference_interval(arms[DETAUG], arms[STOCK]), "+")
        )
    if len(by_task) > 1:
        shown.add_section()
        shown.add_row(ALL, "", "", "", _text(_overall(by_task), "+"))
    return shown


def _text(interval: Interval, sign: str = "") -> str:
    shown = f"{interval.mean:{sign}.3f}"
    return f"{shown} ± {interval.half:.3f}" if interval.known else shown


def draw(found: Sequence[Result], file: Path) -> None:
    """Every run as a point and every mean with its interval; and the differences with theirs."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_task = dice(found)
    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(9, 1.6 + 0.5 * len(by_task)), layout="constrained", sharey=True
    )
    for place, arms in enumerate(by_task.values()):
        for offset, arm, colour in ((-0.15, STOCK, "tab:gray"), (0.15, DETAUG, "tab:blue")):
            interval = mean_interval(arms[arm])
            left.scatter(
                arms[arm], [place + offset] * len(arms[arm]), s=12, color=colour, alpha=0.5
            )
            left.errorbar(
                interval.mean, place + offset, xerr=interval.half if interval.known else 0, fmt="|", color=colour, capsize=3,
                label=arm if place == 0 else None,
            )  # fmt: skip
    differences = [difference_interval(arms[DETAUG], arms[STOCK]) for arms in by_task.values()] + [
        _overall(by_task)
    ]
    right.errorbar(
        [each.mean for each in differences],
        range(len(differences)),
        xerr=[each.half if each.known else 0 for each in differences],
        fmt="o",
        color="tab:blue",
        capsize=3,
    )
    right.axvline(0, color="0.3", linewidth=1)
    left.set_yticks(range(len(differences)), [*by_task, ALL])
    left.invert_yaxis()
    left.set_xlabel("Dice of the validation")
    left.legend(fontsize=8, loc="lower left")
    right.set_xlabel(f"difference: {DETAUG} less {STOCK}")
    figure.suptitle("Every run, means and 95 % confidence intervals", fontsize=10)
    figure.savefig(file, dpi=110)
    pyplot.close(figure)
