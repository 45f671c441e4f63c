"""From a difference to its cause: the line that drew, and the first transform whose output differs."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import NamedTuple

from detaug.objects.differences import differing_names
from detaug.pipeline.plan import BatchKey
from detaug.system.interception import Site
from detaug.verification.conditions import Conditions
from detaug.verification.outputs import first_difference
from detaug.verification.result import Cause
from detaug.verification.trials import Interpreters, Outcome, Trial, TrialFailed

#: No more lines than this are tried one by one; every batch that is made alone costs a process.
_MOST_TRIED, _MOST_ALONE = 24, 4

#: What is changed, in the order of the rows: what a row is called, and what a cause says of the
#: line or the pipeline.
_FACTORS = {
    "nothing": ("made twice", "gives something else every time, under equal circumstances"),
    "history": ("made twice, after other batches", "depends on which batches were made before"),
    "alone": (
        "each batch alone in a fresh process, in epochs 0 and 2",
        "depends on what the process that makes the batch has made before",
    ),
    "randomness": (
        "other random numbers from the operating system",
        (
            "draws random numbers from the operating system ({function}): use "
            "detaug.current().generator, or one seeded from it"
        ),
    ),
    "clock": (
        "another clock",
        (
            "lets the batch depend on the clock ({function}): a seed taken from it, or a choice made "
            "by timing"
        ),
    ),
    "process": (
        "another process number",
        "lets the batch depend on the process that makes it ({function})",
    ),
    "folders": (
        "folders listed in another order",
        (
            "lets the batch depend on the order in which a folder lists its files ({function}): sort "
            "them"
        ),
    ),
    "global_state": (
        "another global random state before the first batch",
        "draws from a global random generator where detaug has not seeded it, before any batch",
    ),
    "hash": (
        "other interpreters, with another PYTHONHASHSEED",
        "depends on hash order (PYTHONHASHSEED), as the order of a set does",
    ),
}
_BY_LINE = ("randomness", "clock", "process", "folders")


class Experiment(NamedTuple):
    """Trials that differ from the first in one thing alone, and the row that says so. For "alone",
    each makes one batch.
    """

    factor: str
    what: str
    still: Trial
    changed: tuple[Trial, ...]

    def run(self, interpreters: Interpreters) -> tuple[list[BatchKey], str]:
        """The batches that differ, and what was raised first where a batch could not be made."""
        still, *changed = (interpreters.outcome(each) for each in (self.still, *self.changed))
        different = {key for outcome in changed for key in _differing(still, outcome)}
        return sorted(different), next(
            (each.raised for each in (still, *changed) if each.raised), ""
        )


def experiments(order: tuple[BatchKey, ...]) -> Iterator[Experiment]:
    """One for each thing that is changed, of batches in the order in which they are made."""
    epoch = order[0].epoch
    steps = [key.step for key in order if key.epoch == epoch][:_MOST_ALONE]
    for factor, (what, _) in _FACTORS.items():
        made = order
        if factor == "history":
            changed = [Trial(order[::-1])]
        elif factor == "alone":
            made = tuple(BatchKey(each, step) for each in (epoch, epoch + 2) for step in steps)
            changed = [Trial((key,)) for key in made]
        else:  # a choice by timing may come out the same by chance
            numbers = (1, 2) if factor == "clock" else (1,)
            changed = [Trial(order, Conditions(factor, number)) for number in numbers]
        yield Experiment(factor, what, Trial(made), tuple(changed))


def causes_of(
    interpreters: Interpreters, differing: dict[Experiment, list[BatchKey]]
) -> tuple[Cause, ...]:
    """Why batches differ: those of each experiment that differ in it."""
    factors = {experiment.factor for experiment in differing}
    if "nothing" in factors:  # then every other experiment differs as well, and shows nothing
        factors = {"nothing"}
    elif "history" in factors:  # then what differs alone does so for the same reason
        factors -= {"alone"}
    found: dict[object, Cause] = {}
    for experiment, (first, *_) in differing.items():
        if experiment.factor not in factors:
            continue
        try:
            causes = _causes_in(interpreters, experiment, first)
        except TrialFailed as error:
            causes = [Cause(f"the search for the cause ({experiment.what}) was stopped: {error}")]
        for cause in causes:
            found.setdefault(cause.site or cause.what, cause)
    with_line = tuple(cause for cause in found.values() if cause.site)
    # What no seed governs depends on what was drawn before: history without a line is that same
    # fault.
    return with_line if "randomness" in factors and with_line else tuple(found.values())


def _causes_in(interpreters: Interpreters, experiment: Experiment, key: BatchKey) -> list[Cause]:
    """Why that batch differs in the experiment.

    Raises:
        TrialFailed: a batch could not be made again.
    """
    still = _until(experiment.still, key)
    changed = [_until(each, key) for each in experiment.changed if key in each.order]
    text = _FACTORS[experiment.factor][1]
    found: dict[Site, Cause] = {}
    for each in changed if experiment.factor in _BY_LINE else ():
        sites = interpreters.outcome(each).sites[experiment.factor]
        for site, function in list(sites.items())[:_MOST_TRIED]:
            alone = each._replace(conditions=each.conditions._replace(only=site))
            differs, difference = _compared(interpreters, still, alone)
            if differs:
                found.setdefault(
                    site, Cause(f"{_code(site)}{text.format(function=function)}", site, difference)
                )
    if found:
        return list(found.values())
    differences = (_compared(interpreters, still, each)[1] for each in changed)
    return [
        Cause(f"the pipeline {text.partition(' ({')[0]}", None, next(filter(None, differences), ""))
    ]


def _until(trial: Trial, key: BatchKey) -> Trial:
    """The same, of which that batch is the last, and watched."""
    return trial._replace(order=trial.order[: trial.order.index(key) + 1], watched=True)


def _compared(interpreters: Interpreters, still: Trial, changed: Trial) -> tuple[bool, str]:
    """Whether the last batch of the trials differs, and where first."""
    here, there = interpreters.outcome(still), interpreters.outcome(changed)
    differs = still.order[-1] in _differing(here, there)
    return differs, first_difference(here.outputs, there.outputs) if differs else ""


def _differing(first: Outcome, second: Outcome) -> list[BatchKey]:
    """Return the batches that both outcomes made and that differ."""
    of_one_alone = first.prints.keys() ^ second.prints.keys()
    return differing_names(first.prints, second.prints, ignore=of_one_alone)


def _code(site: Site) -> str:
    """The line itself, for the sentence to begin with."""
    text = linecache.getline(site.file, site.line).strip()
    return f"`{text}` " if text else "this line "
