"""Whether a loader may be declared ``stateless=True``."""

from __future__ import annotations

import time
from dataclasses import replace

from detaug.pipeline.plan import BatchKey
from detaug.verification.diagnosis import Experiment, causes_of, differing
from detaug.verification.handed_in import UnusableError, call_factory
from detaug.verification.result import Stateless
from detaug.verification.trials.bench import Subject, Trial, perform


def judge_statelessness(
    subject: Subject, keys: list[BatchKey], stateless: bool, search_seconds: float | None
) -> Stateless:
    """Make the loader's batches forwards and backwards by one copy, as with ``stateless=True``.

    Args:
        subject: the pipeline.
        keys: the batches to make.
        stateless: whether detaug treats the loader as stateless without a declaration.
        search_seconds: for the search for the line that prevents it; None: no limit.
    """
    alone = replace(subject, stateless=True, loader_only=True)
    try:
        call_factory(subject.factory, True)
    except UnusableError as error:
        return Stateless(False, str(error))
    order = tuple(dict.fromkeys(keys))
    still, backwards = Trial(order), Trial(order[::-1])
    different = differing(perform(alone, still), perform(alone, backwards))
    if not different:
        if stateless:
            return Stateless(True, "the loader is taken for stateless already, and is: no batch depends on another")
        return Stateless(True, "none of the loader's batches depends on the batches before it")
    until = None if search_seconds is None else time.monotonic() + search_seconds
    (cause, *_), _ = causes_of(replace(alone, until=until), Experiment("history", still, backwards), different)
    return Stateless(False, f"the loader's batches depend on the ones before: {cause}", cause.site)
