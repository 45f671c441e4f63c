"""A study's results: a line of JSON for each training, in a file that a study continues."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, stdev, variance
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

#: Of all intervals.
CONFIDENCE = 0.95

#: Fewer seeds say nothing of a correlation: Fisher's interval needs four.
LEAST_SEEDS = 4


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


# --- what they show -------------------------------------------------------------------------------


def dice_by_seed(results: Sequence[Result], task: str, arm: str) -> dict[int, float]:
    """Return run → Dice."""
    return {
        result.run: result.dice for result in results if (result.task, result.arm) == (task, arm)
    }


@dataclass(frozen=True)
class Interval:
    """A mean with its confidence interval, which is infinite where there are too few values."""

    mean: float
    half: float

    @property
    def is_known(self) -> bool:
        """Whether there were values enough."""
        return math.isfinite(self.half)


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the interval of one arm, by Student's t."""
    return _interval(fmean(values), [_Part(1.0, values)])


def mean_difference(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Interval:
    """Return that of the difference of two arms, averaged over tasks of equal weight.

    It assumes no equal variances: the degrees of freedom are Welch's and Satterthwaite's.

    Args:
        pairs: for each task, the values of both arms.
    """
    weight = 1 / len(pairs)
    difference = weight * sum(fmean(ours) - fmean(theirs) for ours, theirs in pairs)
    return _interval(difference, [_Part(weight, values) for pair in pairs for values in pair])


class _Part(NamedTuple):
    """The values of which a mean has a share, its weight."""

    weight: float
    values: Sequence[float]


def _interval(mean: float, parts: Sequence[_Part]) -> Interval:
    if min(len(part.values) for part in parts) < 2:
        return Interval(mean, math.inf)
    variances = [part.weight**2 * variance(part.values) / len(part.values) for part in parts]
    lost = sum(
        value**2 / (len(part.values) - 1) for value, part in zip(variances, parts, strict=True)
    )
    # Without any spread there is none to estimate the degrees of freedom from.
    freedom = sum(variances) ** 2 / lost if lost else 1.0
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, freedom)) * math.sqrt(sum(variances))
    return Interval(mean, half)


@dataclass(frozen=True)
class Spread:
    """What the seeds of one task show of two variants.

    Attributes:
        task: its name.
        seeds: how many both variants have.
        mean: of the first variant's Dice.
        deviation: standard deviation of the first variant's Dice.
        lowest, highest: of the first variant's Dice.
        paired: standard deviation of the difference of the variants with the same seeds.
        unpaired: the same with different seeds.
        correlation: Pearson's, of the two variants over the seeds.
        correlation_range: its confidence interval, by Fisher's transformation.
    """

    task: str
    seeds: int
    mean: float
    deviation: float
    lowest: float
    highest: float
    paired: float
    unpaired: float
    correlation: float
    correlation_range: tuple[float, float]


def spreads(results: Sequence[Result], first: str, second: str) -> list[Spread]:
    """Return one for each task in which both variants (arms) have enough seeds in common."""
    tasks = sorted({result.task for result in results})
    every = [_spread(results, task, first, second) for task in tasks]
    return [spread for spread in every if spread is not None]


def _spread(results: Sequence[Result], task: str, first: str, second: str) -> Spread | None:
    dice_of_first = dice_by_seed(results, task, first)
    dice_of_second = dice_by_seed(results, task, second)
    seeds = sorted(dice_of_first.keys() & dice_of_second.keys())
    if len(seeds) < LEAST_SEEDS:
        return None
    firsts = [dice_of_first[seed] for seed in seeds]
    seconds = [dice_of_second[seed] for seed in seeds]
    correlation = stats.pearsonr(firsts, seconds)
    low, high = correlation.confidence_interval(CONFIDENCE)
    return Spread(
        task=task,
        seeds=len(firsts),
        mean=fmean(firsts),
        deviation=stdev(firsts),
        lowest=min(firsts),
        highest=max(firsts),
        paired=stdev(np.subtract(seconds, firsts).tolist()),
        # Of independent runs: variances add up.
        unpaired=math.hypot(stdev(firsts), stdev(seconds)),
        correlation=float(correlation.statistic),
        correlation_range=(float(low), float(high)),
    )
