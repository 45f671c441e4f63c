"""What a study has found: one line of JSON for each training, in a file that an interrupted study continues."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
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
    """

    task: str
    arm: str
    run: int
    settings: dict[str, Any]
    dice: float
    labels: dict[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0


class OtherSettings(ValueError):
    """The file holds results that were trained in another way."""


def read(file: Path) -> list[Result]:
    """The results of a file, [] where there is none. A line that was not written to its end is left out."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            found.append(Result(**json.loads(line)))
        except ValueError:
            continue
    return found


def append(file: Path, result: Result) -> None:
    """Write one more line; once this returns, it is on the disk."""
    with file.open("ab+") as opened:
        if opened.tell():
            opened.seek(-1, os.SEEK_END)
            if opened.read() != b"\n":  # the study was killed while it wrote
                opened.write(b"\n")
        opened.write(json.dumps(asdict(result)).encode() + b"\n")
        opened.flush()
        os.fsync(opened.fileno())


def missing(
    found: Sequence[Result], tasks: Sequence[str], arms: Sequence[str], runs: int
) -> list[tuple[int, str, str]]:
    """(run, task, arm) of the trainings that are still to do, in an order of which every beginning is balanced."""
    done = {(each.run, each.task, each.arm) for each in found}
    planned = [
        (run, task, arm)
        for run in range(1, runs + 1)
        for task in tasks
        for arm in (arms if run % 2 else reversed(arms))
    ]
    return [each for each in planned if each not in done]


def check_settings(found: Sequence[Result], task: str, settings: dict[str, Any]) -> None:
    """That what the file holds of a task can be compared with what is trained now.

    Raises:
        OtherSettings: it cannot.
    """
    for each in found:
        if each.task != task or each.settings == settings:
            continue
        names = sorted(
            name
            for name in {*each.settings, *settings}
            if each.settings.get(name) != settings.get(name)
        )
        differences = "; ".join(
            f"{name} was {each.settings.get(name)!r}, is {settings.get(name)!r}" for name in names
        )
        raise OtherSettings(
            f"the results of {task} were trained otherwise: {differences}. Name another file"
        )


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval; a half width of infinity where there are too few values."""

    mean: float
    half: float

    @property
    def known(self) -> bool:
        """Whether there were values enough."""
        return math.isfinite(self.half)

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def mean_interval(values: Sequence[float]) -> Interval:
    """Of one arm: Student's t."""
    mean, error, freedom = _moments(values)
    return _interval(mean, error, freedom)


def difference_interval(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Of ``mean(ours) - mean(theirs)``: Welch's, which takes no equal variances for granted."""
    return mean_difference([(ours, theirs)])


def mean_difference(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Interval:
    """Of the difference, averaged over tasks that weigh alike; degrees of freedom after Welch and Satterthwaite.

    Args:
        pairs: for each task, the values of both arms.
    """
    difference, parts = 0.0, []
    for ours, theirs in pairs:
        for sign, values in ((1, ours), (-1, theirs)):
            mean, error, freedom = _moments(values)
            difference += sign * mean / len(pairs)
            parts.append(((error / len(pairs)) ** 2, freedom))
    variance = sum(part for part, _ in parts)
    if any(freedom < 1 for _, freedom in parts):
        return Interval(difference, math.inf)
    lost = sum(part**2 / freedom for part, freedom in parts)
    return _interval(difference, math.sqrt(variance), variance**2 / lost if lost else 1.0)


def _moments(values: Sequence[float]) -> tuple[float, float, int]:
    """Mean, its standard error, degrees of freedom."""
    import numpy as np

    freedom = len(values) - 1
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if freedom > 0 else math.inf
    return float(np.mean(values)), error, freedom


def _interval(mean: float, error: float, freedom: float) -> Interval:
    from scipy.stats import t

    return Interval(
        mean, float(t.ppf((1 + CONFIDENCE) / 2, freedom)) * error if freedom >= 1 else math.inf
    )
