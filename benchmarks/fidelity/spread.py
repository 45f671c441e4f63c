"""How much the Dice varies over seeds, and whether two variants vary together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import correlation, fmean, stdev

from benchmarks.fidelity.results import CONFIDENCE, Result

#: Fewer seeds say nothing of a correlation: Fisher's interval needs four.
LEAST_SEEDS = 4


@dataclass(frozen=True)
class Spread:
    """What the seeds of one task show.

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
    result = []
    for task in tasks:
        dice_of_first = _dice_by_seed(results, task, first)
        dice_of_second = _dice_by_seed(results, task, second)
        seeds = sorted(dice_of_first.keys() & dice_of_second.keys())
        if len(seeds) < LEAST_SEEDS:
            continue
        firsts = [dice_of_first[seed] for seed in seeds]
        seconds = [dice_of_second[seed] for seed in seeds]
        result.append(_spread(task, firsts, seconds))
    return result


def _dice_by_seed(results: Sequence[Result], task: str, arm: str) -> dict[int, float]:
    return {
        result.run: result.dice for result in results if (result.task, result.arm) == (task, arm)
    }


def _spread(task: str, firsts: Sequence[float], seconds: Sequence[float]) -> Spread:
    differences = [second - first for first, second in zip(firsts, seconds, strict=True)]
    together = correlation(firsts, seconds)
    return Spread(
        task=task,
        seeds=len(firsts),
        mean=fmean(firsts),
        deviation=stdev(firsts),
        lowest=min(firsts),
        highest=max(firsts),
        paired=stdev(differences),
        # Of independent runs: variances add up.
        unpaired=math.hypot(stdev(firsts), stdev(seconds)),
        correlation=together,
        correlation_range=_fisher_interval(together, len(firsts)),
    )


def _fisher_interval(value: float, count: int) -> tuple[float, float]:
    from scipy.stats import norm

    half = float(norm.ppf((1 + CONFIDENCE) / 2)) / math.sqrt(count - 3)
    middle = math.atanh(value)
    return math.tanh(middle - half), math.tanh(middle + half)
