"""Rows of the table that change one thing around the pipeline and hold everything else still."""

from __future__ import annotations

from dataclasses import dataclass

from detaug.plan import BatchKey
from detaug.verify.bench import Trial
from detaug.verify.conditions import Conditions
from detaug.verify.diagnosis import Experiment


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
    "chance": "another answer to every request for chance",
    "clock": "another clock",
    "process": "another process number",
    "folders": "folders listed in another order",
    "threads": "the pipeline's own threads held up at random",
    "global_state": "another global random state before the first batch",
}

_WHATS_ALONE = {
    "history": "after other batches",
    "clock": "another clock",
    "chance": "another answer to every request for chance",
}


def questions(keys: list[BatchKey], hash_seeds: tuple[int, ...], thorough: bool) -> list[Question]:
    """The rows for these batches, in order."""
    order = tuple(dict.fromkeys(keys))
    still = Trial(order)
    found = []
    for factor, what in _WHATS.items():
        found.append(Question(what, _experiments(factor, still, thorough)))
    if len(hash_seeds) > 1:
        found.append(
            Question(
                f"other interpreters, PYTHONHASHSEED {', '.join(map(str, hash_seeds))}",
                tuple(Experiment("hash", still, still, (hash_seeds[0], seed)) for seed in hash_seeds[1:]),
            )
        )
    alone = Trial(order, repairs="none")
    for factor, what in _WHATS_ALONE.items():
        found.append(Question(f"the pipeline alone, {what}", _experiments(factor, alone, thorough), alone=True))
    return found


def _experiments(factor: str, still: Trial, thorough: bool) -> tuple[Experiment, ...]:
    if factor == "nothing":
        return (Experiment(factor, still, still),)
    if factor == "history":
        backwards = Trial(still.order[::-1], repairs=still.repairs)
        return (Experiment(factor, still, backwards),)
    times = 6 if thorough else {"clock": 2, "threads": 4}.get(factor, 1)
    return tuple(
        Experiment(factor, still, Trial(still.order, Conditions().changed(factor, number), repairs=still.repairs))
        for number in range(1, times + 1)
    )
