"""From a difference to its cause: the line that drew, and the first transform that differs."""

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

#: Lines that are tried one by one, at most.
_MOST_TRIED = 24
#: Batches that are made alone, at most: each costs a process.
_MOST_ALONE = 4

#: The factors that are changed, in the order of the rows: the row's name, and what a cause says of
#: the line or the pipeline.
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
            "lets the batch depend on the clock ({function}): a seed taken from it, or a choice "
            "made by timing"
        ),
    ),
    "process": (
        "another process number",
        "lets the batch depend on the process that makes it ({function})",
    ),
    "folders": (
        "folders listed in another order",
        (
            "lets the batch depend on the order in which a folder lists its files ({function}): "
            "sort them"
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
#: Factors that can be changed for the calls from one line alone.
_BY_LINE = ("randomness", "clock", "process", "folders")


class Experiment(NamedTuple):
    """Trials that differ from the first one in one factor alone, and the row for them.

    Attributes:
        factor: a key of `_FACTORS`.
        name: the row's.
        still: the trial in which nothing is changed.
        changed: those with the factor changed; of "alone", each makes one batch.
    """

    factor: str
    name: str
    still: Trial
    changed: tuple[Trial, ...]

    def run(self, interpreters: Interpreters) -> tuple[list[BatchKey], str]:
        """Run the trials.

        Returns:
            The batches that differ; and what the first batch raised that could not be made, or "".
        """
        still = interpreters.outcome(self.still)
        changed = [interpreters.outcome(trial) for trial in self.changed]
        different: set[BatchKey] = set()
        for outcome in changed:
            different.update(_differing(still, outcome))
        for outcome in (still, *changed):
            if outcome.raised:
                return sorted(different), outcome.raised
        return sorted(different), ""


def experiments(order: tuple[BatchKey, ...]) -> Iterator[Experiment]:
    """Yield an experiment for each factor.

    Args:
        order: the batches, in the order in which they are made.
    """
    for factor, (name, _) in _FACTORS.items():
        if factor == "history":
            # In reverse order, every batch is made after other batches than before.
            yield Experiment(factor, name, Trial(order), (Trial(order[::-1]),))
        elif factor == "alone":
            keys = _keys_made_alone(order)
            yield Experiment(factor, name, Trial(keys), tuple(Trial((key,)) for key in keys))
        else:
            # Two changed clocks: a choice by timing may come out the same by chance.
            states = (1, 2) if factor == "clock" else (1,)
            changed = tuple(Trial(order, Conditions(factor, state)) for state in states)
            yield Experiment(factor, name, Trial(order), changed)


def _keys_made_alone(order: tuple[BatchKey, ...]) -> tuple[BatchKey, ...]:
    """Return the first steps of the first epoch, and the same of two epochs later."""
    epoch = order[0].epoch
    # A later epoch as well, because shuffling once an epoch may show only there.
    steps = [key.step for key in order if key.epoch == epoch][:_MOST_ALONE]
    first = [BatchKey(epoch, step) for step in steps]
    later = [BatchKey(epoch + 2, step) for step in steps]
    return (*first, *later)


def causes_of(
    interpreters: Interpreters, differing: dict[Experiment, list[BatchKey]]
) -> tuple[Cause, ...]:
    """Return why batches differ.

    Args:
        interpreters: run further trials.
        differing: the batches that differ in each experiment, at least one.
    """
    # One fault shows in several experiments. Only those are searched that say most of it.
    factors = {experiment.factor for experiment in differing}
    if "nothing" in factors:
        # Then every other experiment differs as well, and shows nothing.
        factors = {"nothing"}
    elif "history" in factors:
        # Then batches that are made alone differ for the same reason.
        factors -= {"alone"}
    causes: dict[object, Cause] = {}
    for experiment, (first, *_) in differing.items():
        # A search runs further trials, each in a process of its own.
        if experiment.factor not in factors:
            continue
        for cause in _causes_or_failure(interpreters, experiment, first):
            # Keyed by line, because two experiments may find the same line.
            causes.setdefault(cause.site or cause.what, cause)
    with_line = tuple(cause for cause in causes.values() if cause.site)
    # Draws that no seed governs also depend on earlier draws. A "history" cause without a line is
    # then that same fault.
    if "randomness" in factors and with_line:
        return with_line
    return tuple(causes.values())


def _causes_or_failure(
    interpreters: Interpreters, experiment: Experiment, key: BatchKey
) -> list[Cause]:
    """Return why the batch differs in the experiment, or that the search failed."""
    try:
        return _causes_in(interpreters, experiment, key)
    except TrialFailed as error:
        return [Cause(f"the search for the cause ({experiment.name}) was stopped: {error}")]


def _causes_in(interpreters: Interpreters, experiment: Experiment, key: BatchKey) -> list[Cause]:
    """Return why the batch differs in the experiment: a cause for each line, else one.

    Raises:
        TrialFailed: a batch could not be made again.
    """
    # All trials end with this batch: what differs after it cannot be its cause.
    still = _until(experiment.still, key)
    changed = [_until(trial, key) for trial in experiment.changed if key in trial.order]
    if experiment.factor in _BY_LINE:
        causes = _causes_by_line(interpreters, experiment.factor, still, changed)
        if causes:
            return causes
    _, text = _FACTORS[experiment.factor]
    without_function, _, _ = text.partition(" ({")
    what = f"the pipeline {without_function}"
    # No line is known, so the first transform whose output differs is named.
    for trial in changed:
        _, difference = _compared(interpreters, still, trial)
        if difference:
            return [Cause(what, None, difference)]
    return [Cause(what)]


def _causes_by_line(
    interpreters: Interpreters, factor: str, still: Trial, changed: list[Trial]
) -> list[Cause]:
    """Return a cause for each line whose calls alone, if changed, change the last batch.

    Raises:
        TrialFailed: a batch could not be made again.
    """
    _, text = _FACTORS[factor]
    causes: dict[Site, Cause] = {}
    for trial in changed:
        sites = interpreters.outcome(trial).sites[factor]
        # One line at a time, all others held still: of the lines that asked, few matter.
        for site, function in list(sites.items())[:_MOST_TRIED]:
            conditions = trial.conditions._replace(only=site)
            of_line = trial._replace(conditions=conditions)
            differs, difference = _compared(interpreters, still, of_line)
            if differs:
                what = f"{_code(site)}{text.format(function=function)}"
                causes.setdefault(site, Cause(what, site, difference))
    return list(causes.values())


def _until(trial: Trial, key: BatchKey) -> Trial:
    """Return the trial with that batch as its last one, whose outputs are kept."""
    # Not the batch alone: what was made before it may be the cause.
    end = trial.order.index(key) + 1
    return trial._replace(order=trial.order[:end], watched=True)


def _compared(interpreters: Interpreters, still: Trial, changed: Trial) -> tuple[bool, str]:
    """Return whether the trials' last batch differs, and where first."""
    # `outcome` is cached, so that one unchanged trial serves the comparison of all lines.
    expected = interpreters.outcome(still)
    actual = interpreters.outcome(changed)
    if still.order[-1] not in _differing(expected, actual):
        return False, ""
    return True, first_difference(expected.outputs, actual.outputs)


def _differing(first: Outcome, second: Outcome) -> list[BatchKey]:
    """Return the batches that both outcomes made and that differ."""
    # A batch that one of them could not make is reported by what it raised.
    of_one_alone = first.fingerprints.keys() ^ second.fingerprints.keys()
    return differing_names(first.fingerprints, second.fingerprints, ignore=of_one_alone)


def _code(site: Site) -> str:
    """Return the line itself, as the beginning of a sentence."""
    text = linecache.getline(site.file, site.line).strip()
    return f"`{text}` " if text else "this line "
