"""Notes on values that no argument declares: batches may depend on them, and they may change.

Another program may find other values: one that resumes the run, or a worker that is spawned. The
rows show it only where the batches that they compare depend on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from detaug.pipeline.undeclared import differing_values
from detaug.system.escaping import printable
from detaug.verification.augmenter_runs import Reference, Values
from detaug.verification.causes import experiments
from detaug.verification.factories import NotPicklable
from detaug.verification.trials import Interpreters, TrialFailed

#: Differences of one kind that are named.
_MOST_NAMED = 8
#: Conditions under which a constructor draws other numbers, or meets a set in another order.
_FACTORS_OF_CONSTRUCTORS = ("randomness", "global_state", "hash")
_DRAWN = (
    "a constructor draws it, or takes it from a set in its order, so a resumed run begins with "
    "another value, and its batches may differ. Pass it as an argument, or seed what the "
    "constructor draws"
)
_CHANGED = (
    "workers keep the value of the start, a resumed program gets its own, so batches may differ. "
    "Let it follow from the epoch (set_epoch(epoch), detaug.current().epoch), or pass it as an "
    "argument"
)
_FRESH = (
    "spawned workers and resumed programs import the module anew, so batches may differ. Set it "
    "where the module is imported, or pass it as an argument"
)


def notes_on_values(
    reference: Reference, latest: Values, interpreters: Interpreters, has_differences: bool
) -> list[str]:
    """Return notes on variables and attributes that differ from program to program.

    Args:
        reference: made first, with the values of its start.
        latest: those of a pipeline that was made in this process last.
        interpreters: have made the rows' trials.
        has_differences: batches differ in some row. Only then are variables named that the factory
            changes from call to call: most of them count objects.
    """
    start = reference.values
    notes: dict[str, str] = {}
    # Most such variables count objects, which does not matter while batches are equal.
    if has_differences:
        for path, before, after in differing_values(start.variables, latest.variables):
            notes[path] = f"{path} was {before} at first and is {after} now: {_CHANGED}"
    try:
        for path, fresh, original in _in_fresh_interpreter(reference, interpreters):
            text = f"{path} is {original} in this program and {fresh} in a fresh interpreter"
            # `setdefault`: each path is named once, by the first note on it.
            notes.setdefault(path, f"{text}: {_FRESH}")
        differing_attributes = list(_drawn(reference, interpreters))
    except (NotPicklable, TrialFailed):
        # The pipeline cannot be made in another interpreter: two of this process are compared.
        differing_attributes = differing_values(start.attributes, latest.attributes)
    for path, text, other_text in differing_attributes:
        note = f"{path} is {text} in one program and {other_text} in another"
        notes.setdefault(path, f"{note}: {_DRAWN}")
    # The values come from the user's program, and may contain control characters.
    return _shortened([printable(note) for note in notes.values()])


def _in_fresh_interpreter(
    reference: Reference, interpreters: Interpreters
) -> list[tuple[str, str, str]]:
    """Return the variables that differ there: (path, text there, text in this program)."""
    first = next(experiments(tuple(reference.keys)))
    fresh = interpreters.outcome(first.still).values
    return differing_values(fresh.variables, reference.values.variables)


def _drawn(reference: Reference, interpreters: Interpreters) -> Iterator[tuple[str, str, str]]:
    """Yield the attributes that differ where constructors draw other numbers: (path, two texts).

    The trials are forks of fresh interpreters, so a number that counts the objects of a process
    does not differ.
    """
    for experiment in experiments(tuple(reference.keys)):
        if experiment.factor not in _FACTORS_OF_CONSTRUCTORS:
            continue
        still = interpreters.outcome(experiment.still).values
        for trial in experiment.changed:
            changed = interpreters.outcome(trial).values
            yield from differing_values(still.attributes, changed.attributes)


def _shortened(notes: list[str]) -> list[str]:
    """Return the first notes, and a last one that counts the rest."""
    if len(notes) <= _MOST_NAMED:
        return notes
    rest = f"{len(notes) - _MOST_NAMED} more variables and attributes differ"
    return [*notes[:_MOST_NAMED], rest]
