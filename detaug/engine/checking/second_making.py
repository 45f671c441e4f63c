"""The run-time check beside other processes: one batch at a time is made again, and differences are reported.

The course of a check: a report comes with one of a worker's batches (`reported`) → another process, which has a pristine copy,
makes the batch again (`made_again`) → where they differ, both processes are asked how the batch came to be (`explained`) → the
user is told. All of it runs in the engine's thread, but for `under_way`.
"""

from __future__ import annotations

import logging
from typing import Protocol

from detaug.engine.checking.checks import Again, CheckedBatch, Checks, Inquiry
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
        """Have a checker make that batch, see `detaug.engine.checking.make_again`. False: there is none that can be asked now."""

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
        self._inquiry: Inquiry | None = None
        self._worker_answers = False  # or has yet to

    @property
    def under_way(self) -> bool:
        """Whether an answer is on its way, or a check will be made at once."""
        return self._check is not None or self._inquiry is not None or self.checks.waits

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
            self._tell(Inquiry(difference))
        if self._inquiry is None and self._check is None:
            self._check, self._asked = self.checks.next(), False
        if self._asked:
            return
        if self._inquiry is not None:
            self._asked = self._engine.ask_to_explain(self._inquiry.difference.check)
        elif self._check is not None:
            self._asked = self._engine.ask_to_make_again(self._check, self.checks.is_stepped(self._check))

    def made_again(self, again: Again, seconds: float) -> None:
        """The checker has made the batch, in so many seconds."""
        check, self._check = self._check, None
        self.checks.paid(seconds)
        if check is None:
            return
        difference = self.checks.compare(check, again)
        for said, level in self.checks.remarks:
            self._engine.say_once(said, level)
        if difference is None:
            return
        self._inquiry, self._asked = Inquiry(difference), False
        if difference.restored:
            self._conclude()  # where the two part is known
            return
        self._worker_answers = self._engine.ask_worker_to_explain(check)
        self.go_on()

    def explained(self, explanation: Explanation, worker: int | None) -> None:
        """That worker has said how the batch came to be; None: the checker has."""
        if self._inquiry is None:
            return
        if worker == self._inquiry.difference.check.worker:
            self._inquiry.live = explanation
        else:
            self._inquiry.fresh = explanation
        self._conclude_if_all_is_known()

    def lost(self, worker: int) -> None:
        """That worker is gone, and tells nothing any more."""
        if self._inquiry is not None and worker == self._inquiry.difference.check.worker:
            self._worker_answers = False
            self._conclude_if_all_is_known()

    def give_up(self) -> None:
        """The checker is gone: leave its batch out, and report what is known."""
        self._check, self._asked = None, False
        if self._inquiry is not None:
            self._conclude()

    def close(self) -> None:
        """Nothing more is wanted."""
        if self._hash_order is not None:
            self._hash_order.close()

    def _conclude_if_all_is_known(self) -> None:
        assert self._inquiry is not None
        if self._inquiry.fresh is not None and (self._inquiry.live is not None or not self._worker_answers):
            self._conclude()

    def _conclude(self) -> None:
        inquiry, self._inquiry = self._inquiry, None
        assert inquiry is not None
        self._tell(inquiry)

    def _tell(self, inquiry: Inquiry) -> None:
        if inquiry.is_error(self._on_mismatch):
            self._engine.fail(inquiry.error())
        else:
            logger.warning("%s", inquiry.text())
