"""Rows of the table that change one thing around the pipeline and hold everything else still."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from detaug.pipeline.plan import BatchKey
from detaug.verification.diagnosis import Experiment
from detaug.verification.trials.bench import Trial
from detaug.verification.trials.conditions import Conditions


@dataclass(frozen=True)
class Question:
    """A row that is still to be answered.

    Attributes:
        what: for the reader.
        experiments: each changes the same thing in another way; the first that shows a difference is the answer.
        alone: of the pipeline without detaug's repairs; the answer with them is that of the row of this factor.
    """

    what: str
    experiments: tuple[Experiment, ...]
    alone: bool = False

    @property
    def factor(self) -> str:
        """The one thing."""
        return self.experiments[0].factor


_WHATS = {
    "nothing": "made twice in equal circumstances",
    "history": "made twice, after other batches",
    "alone": "each batch alone in a fresh process, in epochs 0 and 2",
    "randomness": "other random numbers from the operating system",
    "clock": "another clock",
    "process": "another process number",
    "folders": "folders listed in another order",
    "threads": "the pipeline's own threads held up at random",
    "global_state": "another global random state before the first batch",
}

#: Every one of them costs a process.
_MOST_ALONE = 4

_WHATS_ALONE = {
    "history": "after other batches",
    "clock": "another clock",
    "randomness": "other random numbers from the operating system",
}


def questions(keys: list[BatchKey], hash_seeds: Sequence[int], thorough: bool) -> list[Question]:
    """The rows for these batches, in order."""
    order = tuple(dict.fromkeys(keys))
    still = Trial(order)
    apart = Trial(_in_two_epochs(order, None if thorough else _MOST_ALONE))
    found = []
    for factor, what in _WHATS.items():
        found.append(Question(what, _experiments(factor, apart if factor == "alone" else still, thorough)))
    if len(hash_seeds) > 1:
        found.append(
            Question(
                f"other interpreters, PYTHONHASHSEED {', '.join(map(str, hash_seeds))}",
                tuple(Experiment("hash", still, still, (hash_seeds[0], seed)) for seed in hash_seeds[1:]),
            )
        )
    alone = Trial(order, repairs=False)
    for factor, what in _WHATS_ALONE.items():
        found.append(Question(f"the pipeline alone, {what}", _experiments(factor, alone, thorough), alone=True))
    return found


def _in_two_epochs(order: tuple[BatchKey, ...], most: int | None) -> tuple[BatchKey, ...]:
    """The first batches of epoch 0, and those of epoch 2."""
    first = order[0].epoch
    steps = [key.step for key in order if key.epoch == first][:most]
    return tuple(BatchKey(epoch, step) for epoch in (first, first + 2) for step in steps)


def _experiments(factor: str, still: Trial, thorough: bool) -> tuple[Experiment, ...]:
    if factor in ("nothing", "alone"):
        return (Experiment(factor, still, still),)
    if factor == "history":
        backwards = Trial(still.order[::-1], repairs=still.repairs)
        return (Experiment(factor, still, backwards),)
    times = 6 if thorough else {"clock": 2, "threads": 4}.get(factor, 1)
    return tuple(
        Experiment(factor, still, Trial(still.order, Conditions().changed(factor, number), repairs=still.repairs))
        for number in range(1, times + 1)
    )
