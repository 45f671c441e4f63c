"""The run-time check beside other processes: one batch at a time is made again, and differences are reported.

The course of a check: a report comes with one of a worker's batches (`reported`) → another process, which has a pristine copy,
makes the batch again (`made_again`) → where they differ, both processes are asked how the batch came to be (`explained`) → the
user is told. All of it runs in the engine's thread, but for `under_way`.
"""

from __future__ import annotations

import logging
from typing import Protocol

from detaug.engine.checking.checks import Again, CheckedBatch, Checks, Difference
from detaug.engine.checking.hash_order import HashOrder
from detaug.purity.reports import Explanation

logger = logging.getLogger("detaug")


class Asks(Protocol):
    """What is needed of an engine. What it asks the checker for ends with the answer, or with `Checking.give_up`."""

    def say_once(self, text: str, level: int = logging.WARNING) -> None:
        """Tell the user, if that has not been said."""

    def fail(self, error: BaseException) -> None:
        """There can be no more batches."""

    def ask_to_make_again(self, check: CheckedBatch, stepped: bool) -> bool:
        """Have a checker make that batch, see `make_again`. False: there is none that can be asked now."""

    def ask_to_explain(self, check: CheckedBatch) -> bool:
        """Have a checker say how that batch comes to be in it. False: as above."""

    def ask_worker_to_explain(self, check: CheckedBatch) -> bool:
        """Have the worker that made it say so. False: it is gone; if that is found later, `Checking.lost` follows."""


class Checking:
    """The check that is being made, and those that wait.

    Args:
        checks: which are made, and what they cost.
        on_mismatch: "raise", "warn", or None: the one for a worker's first batches, the other later.
        engine: asks the processes, and is told what is found.
        hash_order: beside them; None: it is not looked at.
    """

    def __init__(
        self, checks: Checks, on_mismatch: str | None, engine: Asks, hash_order: HashOrder | None = None
    ) -> None:
        self.checks = checks
        self._hash_order = hash_order
        self._on_mismatch = on_mismatch
        self._engine = engine
        self._check: CheckedBatch | None = None
        self._asked = False  # the checker
        self._difference: Difference | None = None  # of which more is asked
        self._worker_answers = False  # or has yet to

    @property
    def under_way(self) -> bool:
        """Whether an answer is on its way, or a check will be made at once."""
        return self._check is not None or self._difference is not None or self.checks.waits

    def seconds_to_next_look(self) -> float | None:
        """When `go_on` will find something to do though nothing else happens; None: not before something does."""
        hash_order = None if self.checks.knows_hash_order else self._hash_order
        return None if hash_order is None else hash_order.seconds_to_next_look()

    def reported(self, check: CheckedBatch) -> None:
        """A worker has made a batch that may be made again."""
        self.checks.reported(check)
        if said := self.checks.remark(check.key, check.report):
            self._engine.say_once(said)

    def go_on(self) -> None:
        """Have made again what is due."""
        hash_order = None if self.checks.knows_hash_order else self._hash_order
        if hash_order is not None and (difference := hash_order.go_on()) is not None:
            self._tell(difference)
        if self._difference is None and self._check is None:
            self._check, self._asked = self.checks.next(), False
        if self._asked:
            return
        if self._difference is not None:
            self._asked = self._engine.ask_to_explain(self._difference.check)
        elif self._check is not None:
            self._asked = self._engine.ask_to_make_again(self._check, self.checks.is_stepped(self._check))

    def made_again(self, again: Again, seconds: float) -> None:
        """The checker has made the batch, in so many seconds."""
        check, self._check = self._check, None
        self.checks.paid(seconds)
        if check is None:
            return
        difference = self.checks.compare(check, again)
        for said in self.checks.remarks:
            self._engine.say_once(said)
        if difference is None:
            return
        if difference.restored:
            self._tell(difference)  # where the two part is known
            return
        self._difference, self._asked = difference, False
        self._worker_answers = self._engine.ask_worker_to_explain(check)
        self.go_on()

    def explained(self, explanation: Explanation, worker: int | None) -> None:
        """That worker has said how the batch came to be; None: the checker has."""
        if self._difference is None:
            return
        if worker == self._difference.check.worker:
            self._difference.live = explanation
        else:
            self._difference.fresh = explanation
        self._conclude()

    def lost(self, worker: int) -> None:
        """That worker is gone, and tells nothing any more."""
        if self._difference is not None and worker == self._difference.check.worker:
            self._worker_answers = False
            self._conclude()

    def give_up(self) -> None:
        """The checker is gone: leave its batch out, and report what is known."""
        self._check, self._asked = None, False
        self._conclude(anyway=True)

    def close(self) -> None:
        """Nothing more is wanted."""
        if self._hash_order is not None:
            self._hash_order.close()

    def _conclude(self, anyway: bool = False) -> None:
        """Tell of the difference, once all is known."""
        difference = self._difference
        if difference is not None and (
            anyway or (difference.fresh is not None and (difference.live is not None or not self._worker_answers))
        ):
            self._difference = None
            self._tell(difference)

    def _tell(self, difference: Difference) -> None:
        if self._on_mismatch == "raise" or (self._on_mismatch is None and difference.early):
            self._engine.fail(difference.error())
        else:
            logger.warning("%s", difference.text())
