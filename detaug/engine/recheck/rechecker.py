"""The run-time check beside other processes: one batch at a time is made again, and differences are
reported.

The course of a check: a report comes with one of a worker's batches (`reported`) → another process,
which has a pristine copy, makes the batch again → where they differ, both processes are asked how
the batch came to be → the user is told. Their answers come by `answered`. All of it runs in the
engine's thread, but for `is_pending`.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from detaug.engine.recheck.hash_seed import HashOrder
from detaug.engine.recheck.mismatch import Mismatch, Repeats
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.recheck.requests import (
    Answer,
    RecheckCandidate,
    RecheckResponse,
    Request,
    TraceRequest,
)

logger = logging.getLogger("detaug")


class RecheckTransport(Protocol):
    """What is needed of an engine. What it asks another process for ends with `Recheck.answered`,
    or `Recheck.give_up`.
    """

    def warn_once(self, text: str, level: int = logging.WARNING) -> None:
        """Tell the user, if that has not been said."""

    def fail(self, error: BaseException) -> None:
        """There can be no more batches."""

    def ask(self, request: Request, worker: int, another: bool) -> bool:
        """Ask the worker that made the batch, or `another` process, which has a pristine copy.
        False: it is gone, or cannot be asked now; if that is found later, `Recheck.lost` or
        `Recheck.give_up` follows.
        """


class Recheck:
    """The check that is being made, and those that wait.

    Args:
        checks: which are made, and what they cost.
        engine: asks the processes, and is told what is found.
        hash_order: beside them; None: it is not looked at.
    """

    def __init__(
        self, checks: RecheckPolicy, engine: RecheckTransport, hash_order: HashOrder | None = None
    ) -> None:
        self.checks = checks
        self._repeats = Repeats(checks.ignore)
        self._hash_order = hash_order
        self._engine = engine
        self._check: RecheckCandidate | None = None
        self._asked = False  # another process
        self._difference: Mismatch | None = None  # of which more is asked
        self._worker_answers = False  # or has yet to
        self._began = time.monotonic()

    @property
    def is_pending(self) -> bool:
        """Whether an answer is on its way, or a check will be made at once."""
        return self._check is not None or self._difference is not None or self.checks.waits

    def reported(self, check: RecheckCandidate) -> None:
        """A worker has made a batch that may be made again."""
        self.checks.reported(check)
        if remark := self._repeats.remark(check.key, check.report):
            self._engine.warn_once(remark)

    def advance(self) -> None:
        """Have made again what is due."""
        self.checks.run_has_lasted(time.monotonic() - self._began)
        if (
            self._hash_order is not None
            and not self.checks.knows_hash_order
            and (found := self._hash_order.advance())
        ):
            self._tell(found)
        if self._difference is None and self._check is None:
            self._check, self._asked = self.checks.next(), False
        if self._asked:
            return
        if self._difference is not None:
            check = self._difference.check
            self._asked = self._engine.ask(
                TraceRequest(check.key, fresh=True), check.worker, another=True
            )
        elif (due := self._check) is not None:
            request = self.checks.request_for(due)
            self._asked = self._engine.ask(request, due.worker, another=True)

    def answered(self, answer: Answer, seconds: float, worker: int | None) -> None:
        """That worker has answered, after so many seconds; None: the other process has."""
        if isinstance(answer, RecheckResponse):
            self._made_again(answer, seconds)
        elif self._difference is not None:
            if worker == self._difference.check.worker:
                self._difference = self._difference._replace(live=answer)
            else:
                self._difference = self._difference._replace(fresh=answer)
            self._conclude()

    def _made_again(self, again: RecheckResponse, seconds: float) -> None:
        check, self._check = self._check, None
        self.checks.add_check_time(seconds)
        if check is None:
            return
        difference = self.checks.compare(check, again)
        if difference is None:
            return
        if difference.is_explained:
            self._tell(difference)
            return
        self._difference, self._asked = difference, False
        self._worker_answers = self._engine.ask(
            TraceRequest(check.key, fresh=False), check.worker, another=False
        )
        self.advance()

    def lost(self, worker: int) -> None:
        """That worker is gone, and tells nothing any more."""
        if self._difference is not None and worker == self._difference.check.worker:
            self._worker_answers = False
            self._conclude()

    def give_up(self) -> None:
        """The process that makes batches again is gone: leave its batch out, and report what is
        known.
        """
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
            anyway
            or (
                difference.fresh is not None
                and (difference.live is not None or not self._worker_answers)
            )
        ):
            self._difference = None
            self._tell(difference)

    def _tell(self, difference: Mismatch) -> None:
        how = self.checks.on_mismatch
        if how == "raise" or (how is None and difference.early):
            self._engine.fail(difference.error())
        else:
            logger.warning("%s", difference.text())
