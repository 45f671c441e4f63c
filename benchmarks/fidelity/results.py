"""A study's results: a line of JSON for each training, in a file that a study continues."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

#: Of all intervals.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Result:
    """One training.

    Attributes:
        task, arm, run: which one.
        settings: of the task, and the versions that trained.
        dice: mean over the labels of the final validation.
        labels: each one's.
        cpu_seconds: that it took.
        date, commit: when it was trained, and with which code.
    """

    task: str
    arm: str
    run: int
    settings: dict[str, Any]
    dice: float
    labels: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    date: str = ""
    commit: str | None = None


class OtherSettings(ValueError):
    """The file holds results that were trained in another way."""


def read(file: Path) -> list[Result]:
    """Return the results of a file, [] if there is none; skip a line that was cut off."""
    if not file.exists():
        return []
    results = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            results.append(Result(**json.loads(line)))
        except ValueError:
            continue
    return results


def append(file: Path, result: Result) -> None:
    """Write one more line and wait until it is on the disk."""
    with file.open("ab+") as opened:
        if opened.tell():
            opened.seek(-1, os.SEEK_END)
            # A study that was killed while it wrote has left half a line.
            if opened.read() != b"\n":
                opened.write(b"\n")
        opened.write(json.dumps(asdict(result)).encode() + b"\n")
        opened.flush()
        os.fsync(opened.fileno())


def missing(
    results: Sequence[Result], tasks: Sequence[str], arms: Sequence[str], runs: int
) -> list[tuple[int, str, str]]:
    """Return (run, task, arm) of the trainings still to do, balanced wherever a study stops."""
    done = {(result.run, result.task, result.arm) for result in results}
    planned = []
    for run in range(1, runs + 1):
        for task in tasks:
            # By turns, so that neither arm is always trained while the machine is fresh.
            order = list(arms)
            if run % 2 == 0:
                order.reverse()
            planned += [(run, task, arm) for arm in order]
    return [training for training in planned if training not in done]


def check_settings(results: Sequence[Result], task: str, settings: dict[str, Any]) -> None:
    """Check that a task's results can be compared with what is trained now.

    Raises:
        OtherSettings: they cannot.
    """
    for result in results:
        before = result.settings
        if result.task != task or before == settings:
            continue
        differences = [
            f"{name} was {before.get(name)!r}, is {settings.get(name)!r}"
            for name in sorted({*before, *settings})
            if before.get(name) != settings.get(name)
        ]
        raise OtherSettings(
            f"the results of {task} were trained otherwise: {'; '.join(differences)}. "
            "Name another file"
        )


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval; a half width of infinity where there are too few values."""

    mean: float
    half: float

    @property
    def is_known(self) -> bool:
        """Whether there were values enough."""
        return math.isfinite(self.half)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the interval of one arm, by Student's t."""
    mean, error, freedom = _moments(values)
    return _interval(mean, error, freedom)


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Return that of ``mean(ours) - mean(theirs)``: Welch's, which assumes no equal variances."""
    return mean_difference([(ours, theirs)])


def mean_difference(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Interval:
    """Return that of the difference, averaged over tasks of equal weight.

    The degrees of freedom are Welch's and Satterthwaite's.

    Args:
        pairs: for each task, the values of both arms.
    """
    difference = 0.0
    parts = []
    for ours, theirs in pairs:
        for sign, values in ((1, ours), (-1, theirs)):
            mean, error, freedom = _moments(values)
            difference += sign * mean / len(pairs)
            parts.append(((error / len(pairs)) ** 2, freedom))
    variance = sum(part for part, _ in parts)
    if any(freedom < 1 for _, freedom in parts):
        return Interval(difference, math.inf)
    lost = sum(part**2 / freedom for part, freedom in parts)
    # Without any spread there is none to estimate the degrees of freedom from.
    freedom_of_all = 1.0
    if lost:
        freedom_of_all = variance**2 / lost
    return _interval(difference, math.sqrt(variance), freedom_of_all)


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the mean, its standard error, and the degrees of freedom."""
    freedom = len(values) - 1
    if freedom < 1:
        return fmean(values), math.inf, freedom
    return fmean(values), stdev(values) / math.sqrt(len(values)), freedom


def _interval(mean: float, error: float, freedom: float) -> Interval:
    from scipy.stats import t

    if freedom < 1:
        return Interval(mean, math.inf)
    return Interval(mean, float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * error)
