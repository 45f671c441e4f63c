"""From a difference to its cause: the line that drew, and the first transform whose output differs."""

from __future__ import annotations

import linecache
from dataclasses import dataclass, replace

from detaug.pipeline.plan import BatchKey
from detaug.verification.conditions import Conditions
from detaug.verification.outputs import Difference, first_difference
from detaug.verification.result import Cause
from detaug.verification.trials import Interpreters, Outcome, Trial
from detaug.watching.interception import Site

#: No more lines than this are tried one by one.
_MOST_TRIED = 24

#: What is changed, in the order of the rows: what a row is called, and what a cause says of the line or the pipeline.
FACTORS = {
    "nothing": ("made twice", "gives something else every time, under equal circumstances"),
    "history": ("made twice, after other batches", "depends on which batches were made before"),
    "alone": (
        "each batch alone in a fresh process, in epochs 0 and 2",
        "depends on what the process that makes the batch has made before",
    ),
    "randomness": (
        "other random numbers from the operating system",
        "draws random numbers from the operating system ({function}): use detaug.current().generator, or one seeded from it",
    ),
    "clock": (
        "another clock",
        "lets the batch depend on the clock ({function}): a seed taken from it, or a choice made by timing",
    ),
    "process": ("another process number", "lets the batch depend on the process that makes it ({function})"),
    "folders": (
        "folders listed in another order",
        "lets the batch depend on the order in which a folder lists its files ({function}): sort them",
    ),
    "global_state": (
        "another global random state before the first batch",
        "draws from a global random generator where detaug has not seeded it, before any batch",
    ),
    "hash": ("", "depends on hash order (PYTHONHASHSEED), as the order of a set does"),
}
_BY_LINE = ("randomness", "clock", "process", "folders")


@dataclass(frozen=True)
class Experiment:
    """Trials that differ in one thing alone.

    Attributes:
        factor: what that is.
        what: the row.
        still: what all are compared with.
        changed: the others; the first that differs is the answer. For "alone", each makes one batch.
    """

    factor: str
    what: str
    still: Trial
    changed: tuple[Trial, ...]

    @staticmethod
    def of(factor: str, order: tuple[BatchKey, ...]) -> Experiment:
        """With these batches; for all but "hash"."""
        still = Trial(order)
        if factor == "nothing":
            changed = [still]
        elif factor == "history":
            changed = [Trial(order[::-1])]
        elif factor == "alone":
            changed = [Trial((key,)) for key in order]
        else:
            # A choice by timing may come out the same by chance.
            numbers = (1, 2) if factor == "clock" else (1,)
            changed = [Trial(order, Conditions().changed(factor, number)) for number in numbers]
        return Experiment(factor, FACTORS[factor][0], still, tuple(changed))

    def run(self, interpreters: Interpreters) -> tuple[Outcome, Outcome]:
        """What the still one gave, and the first other that differs, or the last."""
        still = interpreters.outcome(self.still)
        outcomes = (interpreters.outcome(each, anew=self.factor == "nothing") for each in self.changed)
        if self.factor == "alone":
            made = list(outcomes)
            prints = {key: print_ for outcome in made for key, print_ in outcome.prints.items()}
            return still, still._replace(prints=prints, raised=next((each.raised for each in made if each.raised), ""))
        changed = still
        for changed in outcomes:
            if changed.raised or differing(still, changed):
                break
        return still, changed


def differing(first: Outcome, second: Outcome) -> list[BatchKey]:
    """The batches that are not the same in two outcomes that both made them, in order."""
    return sorted(key for key, code in first.prints.items() if second.prints.get(key, code) != code)


def causes_of(interpreters: Interpreters, experiment: Experiment, key: BatchKey) -> list[Cause]:
    """Why a batch differs in the experiment.

    Raises:
        TrialFailed: a batch could not be made again.
    """
    pairs = _watched(experiment, key)
    found: list[Cause] = []
    if experiment.factor in _BY_LINE:
        for changed in experiment.changed:
            sites = interpreters.outcome(changed).sites[experiment.factor]
            for site, function in list(sites.items())[:_MOST_TRIED]:
                alone = [(still, _only(other, site)) for still, other in pairs]
                difference, differs = _first_difference(interpreters, alone, key)
                if differs and site not in (cause.site for cause in found):
                    what = FACTORS[experiment.factor][1].format(function=function)
                    found.append(Cause(f"{_code(site)}{what}", site, difference))
    if not found:
        difference, _ = _first_difference(interpreters, pairs, key, anew=experiment.factor == "nothing")
        what = FACTORS[experiment.factor][1].partition(" ({")[0]
        found = [Cause(f"the pipeline {what}", None, difference)]
    return found


def _watched(experiment: Experiment, key: BatchKey) -> list[tuple[Trial, Trial]]:
    """Pairs of trials whose last batch is that one, the shortest first, which may not show the difference."""
    still, others = experiment.still, experiment.changed
    before = still.order[: still.order.index(key) + 1]
    if experiment.factor == "alone":
        return [(replace(still, order=before, watched=True), Trial((key,), watched=True))]
    if experiment.factor == "history":
        after = others[0].order[: others[0].order.index(key) + 1]
        orders = [((key,), after[-2:]), ((key,), after), (before, after)]
        return [(Trial(one, watched=True), Trial(two, watched=True)) for one, two in orders]
    return [
        (replace(still, order=order, watched=True), replace(other, order=order, watched=True))
        for order in ((key,), before)
        for other in others
    ]


def _only(trial: Trial, site: Site) -> Trial:
    return replace(trial, conditions=replace(trial.conditions, only=site))


def _first_difference(
    interpreters: Interpreters, pairs: list[tuple[Trial, Trial]], key: BatchKey, anew: bool = False
) -> tuple[Difference | None, bool]:
    """Where the batch differs first, and whether it does."""
    for still, changed in pairs:
        here, there = interpreters.outcome(still), interpreters.outcome(changed, anew)
        if key in differing(here, there):
            return first_difference(here.outputs, there.outputs), True
    return None, False


def _code(site: Site) -> str:
    """The line itself, for the sentence to begin with."""
    text = linecache.getline(site.file, site.line).strip()
    return f"`{text}` " if text else "this line "
