"""From a difference to its cause: the line that makes it, and the first transform whose output differs."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Producer
from detaug.verification.handed_in import UnusableError
from detaug.verification.result import Cause
from detaug.verification.trials.bench import Outcome, SearchStopped, Subject, Trial, perform
from detaug.verification.trials.carried import Snapshot, Variable
from detaug.verification.trials.conditions import Conditions
from detaug.verification.trials.interpreter import start
from detaug.verification.trials.lines import Divergence, divergence_of, line_that_changes
from detaug.verification.trials.outputs import Difference, first_difference
from detaug.watching.interception import Site

#: No more lines or variables than this are tried one by one.
_MOST_TRIED = 24
#: How often an experiment whose outcome is random (threads) is tried again.
_ATTEMPTS = 6

_SENTENCES = {
    "randomness": "draws random numbers from the operating system ({function}), which no seed governs: use "
    "detaug.current().generator, or a generator seeded from it",
    "clock": "lets the batch depend on the clock ({function}): a seed taken from it, or a choice made by timing",
    "process": "lets the batch depend on the process that makes it ({function})",
    "folders": "lets the batch depend on the order in which a folder lists its files ({function}): sort them",
}
_FROM_HERE_ON = {
    "threads": "depends on which thread is first: runs diverge at this line",
    "global_state": "draws from a global random generator where detaug has not seeded it, before any batch",
    "history": "depends on which batches were made before",
    "alone": "depends on what the process that makes the batch has made before",
    "hash": "depends on hash order (PYTHONHASHSEED), as the order of a set does",
    "place": "depends on the process that makes the batch",
    "nothing": "gives something else every time, under equal circumstances",
    **{factor: sentence.partition(" ({")[0] for factor, sentence in _SENTENCES.items()},
}


@dataclass(frozen=True)
class Experiment:
    """Two trials that differ in one thing alone.

    Attributes:
        factor: what that is: a field of `Conditions`, "history", "alone", "hash", "place" or "nothing".
        still, changed: the two; for "hash" in two interpreters, for "place" here and in another interpreter, for "alone"
            there as well: one process for the first, and one for each batch of the second.
        hash_seeds: of the other interpreters.
    """

    factor: str
    still: Trial
    changed: Trial
    hash_seeds: tuple[int, int] = (1, 2)

    @property
    def is_elsewhere(self) -> bool:
        """Whether neither trial runs in this process."""
        return self.factor in ("alone", "hash")

    def run(self, subject: Subject, still: Outcome | None = None) -> tuple[Outcome, Outcome]:
        """Both trials; only the second where the first one's outcome in this process is known."""
        if self.factor == "alone":
            apart = [replace(self.changed, order=(key,)) for key in self.changed.order]
            running, *each = start(subject, [self.still, *apart], self.hash_seeds[0]).outcomes()
            prints = {key: code for outcome in each for key, code in outcome.prints.items()}
            return running, replace(each[-1], prints=prints)
        if self.factor == "hash":
            pair = [
                start(subject, [trial], seed)
                for trial, seed in zip((self.still, self.changed), self.hash_seeds, strict=True)
            ]
            here, there = (each.outcome() for each in pair)
            return here, there
        if self.factor == "place":
            elsewhere = start(subject, [self.changed], self.hash_seeds[0])
            return still or perform(subject, self.still), elsewhere.outcome()
        return still or perform(subject, self.still), perform(subject, self.changed)

    def of(self, still: tuple[BatchKey, ...], changed: tuple[BatchKey, ...]) -> Experiment:
        """The same with other batches."""
        return replace(self, still=replace(self.still, order=still), changed=replace(self.changed, order=changed))

    def watching(self, what: str) -> Experiment:
        """The same with the last batch watched."""
        return replace(self, still=replace(self.still, watch=what), changed=replace(self.changed, watch=what))


def differing(first: Outcome, second: Outcome) -> list[BatchKey]:
    """The batches that are not the same in two outcomes, among those that both made, in order."""
    return sorted(key for key, code in first.prints.items() if second.prints.get(key, code) != code)


@dataclass
class Known:
    """What a search has found so far.

    Attributes:
        causes: that are proved.
        suspects: what changed between batches and may be a cause.
        difference: the first transform whose output differs.
    """

    causes: list[Cause] = field(default_factory=list)
    suspects: list[str] = field(default_factory=list)
    difference: Difference | None = None

    def say(self, factor: str) -> list[Cause]:
        """The causes, or all that is known instead."""
        if self.causes:
            return self.causes
        what = f"the pipeline {_FROM_HERE_ON[factor]}; the search for the line was stopped"
        if self.suspects:
            what += (
                f" before it was known which matters of what changes between batches: {', '.join(self.suspects[:8])}"
            )
        return [Cause(what, None, self.difference)]


def causes_of(
    subject: Subject, experiment: Experiment, different: Sequence[BatchKey], repaired: bool = False
) -> tuple[list[Cause], str]:
    """Why batches differ in the two trials.

    Args:
        subject: the pipeline; its time is the search's.
        experiment: the one that showed it.
        different: the batches that differed.
        repaired: detaug repairs it.

    Returns:
        The causes, never empty, and what stopped the search; empty: nothing.
    """
    known = Known()
    try:
        _search(subject, experiment, different[0], known)
        stopped = ""
    except SearchStopped as stop:
        stopped = str(stop)
    except (OSError, UnusableError) as error:  # the difference that was found remains
        stopped = f"by {error}"
    return [replace(cause, repaired=repaired) for cause in known.say(experiment.factor)], stopped


def _search(subject: Subject, experiment: Experiment, key: BatchKey, known: Known) -> None:
    if not experiment.is_elsewhere and experiment.factor != "place":
        known.difference = _first_difference(subject, experiment, key)
    if experiment.factor == "nothing" and perform(subject, experiment.still).sites["threads"]:
        held_up = replace(experiment.still, conditions=Conditions(threads=1))
        experiment = replace(experiment, factor="threads", changed=held_up)
    if experiment.factor == "hash":
        twice = replace(experiment, hash_seeds=(experiment.hash_seeds[0],) * 2)
        if differing(*twice.run(subject)):  # it is not the hash seed then, but which process it is
            experiment = replace(twice, factor="place")
    if experiment.factor == "alone":
        here, there = start(subject, [experiment.still] * 2, experiment.hash_seeds[0]).outcomes()
        if differing(here, there):
            experiment = replace(experiment, factor="place", changed=experiment.still)
    if experiment.factor in _SENTENCES:
        _by_site(subject, experiment, known)
    elif experiment.factor == "history":
        _by_variable(subject, experiment, known)
    if not known.causes:
        known.causes.append(_by_line(subject, experiment, key, known))


def _first_difference(subject: Subject, experiment: Experiment, key: BatchKey) -> Difference | None:
    """Where the batch differs, which is seen at once."""
    for shorter in _up_to(experiment, key):
        here, there = shorter.watching("outputs").run(subject)
        if differing(here, there):
            return first_difference(here.outputs, there.outputs)
    return None


def _up_to(experiment: Experiment, key: BatchKey) -> list[Experiment]:
    """The same with that batch as the last one, the shortest first, which may not show the difference."""
    if experiment.factor == "history":
        order = experiment.changed.order[: experiment.changed.order.index(key) + 1]
        return [experiment.of((key,), order[-2:]), experiment.of((key,), order)]
    if experiment.factor == "alone":
        order = experiment.still.order[: experiment.still.order.index(key) + 1]
        return [experiment.of(order[-2:], (key,)), experiment.of(order, (key,))]
    order = experiment.still.order[: experiment.still.order.index(key) + 1]
    return [experiment.of((key,), (key,)), experiment.of(order, order)]


# --- calls from one line -----------------------------------------------------------------------------------------------


def _by_site(subject: Subject, experiment: Experiment, known: Known) -> None:
    factor = experiment.factor
    still = perform(subject, experiment.still)
    if still.sites["threads"] and differing(still, perform(subject, experiment.still)):
        return  # it differs without any change, so a change of one line's answers would show nothing
    sites = perform(subject, experiment.changed).sites[factor]
    for site, function in list(sites.items())[:_MOST_TRIED]:
        conditions = replace(experiment.changed.conditions, only=site)
        alone = replace(experiment, changed=replace(experiment.changed, conditions=conditions))
        different = differing(still, perform(subject, alone.changed))
        if different:
            short = _up_to(alone, different[0])[0].watching("outputs")
            here, there = short.run(subject)
            what = f"{_code(site)}{_SENTENCES[factor].format(function=function)}"
            known.causes.append(Cause(what, site, first_difference(here.outputs, there.outputs)))
    known.causes = _one_per_transform(known.causes)


def _one_per_transform(causes: list[Cause]) -> list[Cause]:
    """Two readings of a clock make one measurement."""
    kept: dict[object, Cause] = {}
    for cause in causes:
        where = None if cause.difference is None or cause.site is None else (cause.difference.where, cause.site.file)
        before = kept.get(where) if where is not None and "clock" in cause.what else None
        if before is None or cause.site is None:
            kept[where if "clock" in cause.what else id(cause)] = cause
        else:
            kept[where] = replace(before, what=f"{before.what}; so does line {cause.site.line}")
    return list(kept.values())


# --- state carried from batch to batch ---------------------------------------------------------------------------------


class _Keeping:
    """Between batches, puts back what they changed, but for what is to be kept; None: puts nothing back."""

    def __init__(self, keep: set[Variable] | None) -> None:
        self.changed: dict[Variable, None] = {}
        self._keep = keep
        self._epoch: int | None = None
        self._snapshot: Snapshot | None = None

    def begin(self, producer: Producer, key: BatchKey) -> None:
        # `set_epoch` changes the pipeline too, but that is no state that one batch leaves to the next.
        producer.prepare(key.epoch)
        self._epoch = key.epoch
        self._snapshot = Snapshot(producer)

    def between(self, producer: Producer, key: BatchKey) -> None:
        assert self._snapshot is not None
        self.changed.update(dict.fromkeys(self._snapshot.changed(producer)))
        if self._keep is not None:
            self._snapshot.put_back(producer, self._keep)
        if key.epoch != self._epoch:
            self.begin(producer, key)


def _by_variable(subject: Subject, experiment: Experiment, known: Known) -> None:
    found = _variables_that_matter(subject, experiment, known)
    if not found:
        return
    names = frozenset(variable.name for variable in found)
    outcome = perform(subject, replace(experiment.changed, watch="lines", names=names))
    events = [*outcome.earlier_lines, *outcome.lines]
    causes = []
    for variable, difference in found.items():
        site: Site | None
        if variable.function == "cache":
            site = Site(variable.file, variable.line)
        elif variable.function == "attribute":
            site = line_that_changes(events, str(variable), file=variable.file)
        elif variable.function:
            site = line_that_changes(events, variable.name, file=variable.file, function=variable.owner)
        elif variable.file:
            site = line_that_changes(events, f"the module's {variable.name}", file=variable.file)
        else:
            site = line_that_changes(events, f"self.{variable.name}", owner=variable.owner)
            site = (
                site or line_that_changes(events, f"self.{variable.name}") or line_that_changes(events, str(variable))
            )
        text = "" if site is None else _code(site)
        verb = "keeps what it was asked first in its cache" if variable.function == "cache" else f"changes {variable}"
        what = f"{text}{verb}, which is carried from batch to batch"
        causes.append(Cause(what, site, difference))
    known.causes = _one_per_line(causes)


def _variables_that_matter(subject: Subject, experiment: Experiment, known: Known) -> dict[Variable, Difference | None]:
    """Those that make some batch another one although nothing else is carried over to it."""
    nothing, everything = _Keeping(set()), _Keeping(None)
    try:
        perform(subject, experiment.changed, everything)
    finally:
        known.suspects += list(dict.fromkeys(map(str, everything.changed)))
    still = perform(subject, experiment.still, nothing)
    found = {}
    for variable in list(everything.changed)[:_MOST_TRIED]:
        changed = perform(subject, experiment.changed, _Keeping({variable}))
        order = experiment.changed.order
        different = [key for key in order if key in differing(still, changed)]
        if different:
            upto = replace(experiment.changed, order=order[: order.index(different[0]) + 1], watch="outputs")
            alone = replace(experiment.still, order=(different[0],), watch="outputs")
            here, there = perform(subject, alone), perform(subject, upto, _Keeping({variable}))
            found[variable] = first_difference(here.outputs, there.outputs)
            # Until its line is known:
            known.causes.append(Cause(f"{variable} is carried from batch to batch", None, found[variable]))
    return found


def _one_per_line(causes: list[Cause]) -> list[Cause]:
    kept: dict[object, Cause] = {}
    for cause in causes:
        kept.setdefault(cause.site or cause.what, cause)
    return list(kept.values())


# --- anything else -----------------------------------------------------------------------------------------------------


def _by_line(subject: Subject, experiment: Experiment, key: BatchKey, known: Known) -> Cause:
    short, whole = _up_to(experiment, key)
    difference: Difference | None = None
    divergence: Divergence | None = None
    for number in range(_ATTEMPTS):
        again = _another_attempt(whole if number % 2 else short, number).watching("both")
        here, there = again.run(subject)
        if key not in differing(here, there):
            continue
        known.difference = difference = difference or first_difference(here.outputs, there.outputs)
        # What the factory and the constructors do comes first, unless the experiment lets it differ.
        earlier = (
            None if short.factor in ("history", "alone") else divergence_of(here.earlier_lines, there.earlier_lines)
        )
        divergence = divergence or earlier or divergence_of(here.lines, there.lines)
        if difference is not None and divergence is not None:
            break
    threads = short.factor in (*_SENTENCES, "history", "alone") and bool(here.sites["threads"])
    what = _FROM_HERE_ON["threads" if threads else short.factor]
    if divergence is None:
        return Cause(f"the pipeline {what}; the line could not be found", None, difference)
    names = f" (first seen in {', '.join(divergence.names[:3])})" if divergence.names else ""
    if divergence.on_entry:
        return Cause(f"what {divergence.function} is given {what}{names}", divergence.site, difference)
    return Cause(f"{_code(divergence.site)}{what}{names}", divergence.site, difference)


def _another_attempt(experiment: Experiment, number: int) -> Experiment:
    if experiment.factor != "threads" or number == 0:
        return experiment
    conditions = replace(experiment.changed.conditions, threads=experiment.changed.conditions.threads + 10 * number)
    return replace(experiment, changed=replace(experiment.changed, conditions=conditions))


def _code(site: Site) -> str:
    """The line itself, for the sentence to begin with."""
    text = linecache.getline(site.file, site.line).strip()
    return f"`{text}` " if text else "this line "
