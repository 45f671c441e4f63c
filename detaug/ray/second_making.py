"""The run-time check on a cluster: one batch at a time is made again by another actor than the one that made it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from detaug.engine.checking import CheckedBatch, Checks, Inquiry, remark_on_process
from detaug.pipeline.plan import BatchKey
from detaug.ray.actors import Report

logger = logging.getLogger("detaug")


class Asks(Protocol):
    """What is needed of the engine."""

    def say_once(self, text: str, level: int = logging.WARNING) -> None:
        """Tell the user, if that has not been said."""

    def fail(self, error: BaseException) -> None:
        """There can be no more batches."""

    def ask(
        self, number: int | None, unlike: int, method: str, arguments: tuple[Any, ...], then: Callable[[Any], None]
    ) -> bool:
        """Call a method of an actor, and `then` with what it returns, None if the actor died.

        Args:
            number: which; None: any but `unlike`, unless there is no other.
            unlike: see there.
            method, arguments: of `detaug.ray.actors.BatchMaker`.
            then: is called in the engine's thread.

        Returns: False: there is no such actor now.
        """


class Checking:
    """The check that is being made, and those that wait. All of it runs in the engine's thread, but for `under_way`.

    Args:
        checks: which are made, and what they cost.
        on_mismatch: "raise", "warn", or None: the one for a worker's first batches, the other later.
        engine: asks the actors.
    """

    def __init__(self, checks: Checks, on_mismatch: str | None, engine: Asks) -> None:
        self.checks = checks
        self._on_mismatch = on_mismatch
        self._engine = engine
        self._check: CheckedBatch | None = None
        self._inquiry: Inquiry | None = None
        self._asked = False

    @property
    def under_way(self) -> bool:
        """Whether an answer is on its way, or a check will be made at once."""
        return self._check is not None or self._inquiry is not None or self.checks.waits

    def reported(self, key: BatchKey, report: Report, actor: int) -> None:
        """An actor has made a batch that is to be checked."""
        self.checks.reported(CheckedBatch(key, report.report, report.number, actor, report.state_before))
        if said := self.checks.remark(key, report.report):
            self._engine.say_once(said)

    def go_on(self) -> None:
        """Have made again what is due."""
        if self._inquiry is not None or self._asked:
            return
        if self._check is None:
            self._check = self.checks.next()
        check = self._check
        if check is not None:
            arguments = (*check.key, self.checks.is_stepped(check), check.state, check.after)
            self._asked = self._engine.ask(None, check.worker, "make_again", arguments, self._compare)

    def _compare(self, answer: Any) -> None:
        check, self._check, self._asked = self._check, None, False
        if answer is None or check is None:
            return  # the actor that was asked is gone: this batch is left out
        again, seconds = answer
        self.checks.paid(seconds)
        difference = self.checks.compare(check, again)
        if said := remark_on_process(self.checks.about_process):
            self._engine.say_once(said, logging.INFO)
        if self.checks.about_states:
            self._engine.say_once(self.checks.about_states)
        if difference is None:
            return
        self._inquiry = Inquiry(difference)
        if difference.restored or not self._ask_how(None, True, self._heard_fresh):
            self._conclude()

    def _ask_how(self, number: int | None, fresh: bool, then: Callable[[Any], None]) -> bool:
        assert self._inquiry is not None
        check = self._inquiry.difference.check
        return self._engine.ask(number, check.worker, "explain", (*check.key, fresh), then)

    def _heard_fresh(self, explanation: Any) -> None:
        assert self._inquiry is not None
        self._inquiry.fresh = explanation
        if not self._ask_how(self._inquiry.difference.check.worker, False, self._heard_live):
            self._conclude()

    def _heard_live(self, explanation: Any) -> None:
        assert self._inquiry is not None
        self._inquiry.live = explanation
        self._conclude()

    def _conclude(self) -> None:
        inquiry, self._inquiry = self._inquiry, None
        assert inquiry is not None
        if inquiry.is_error(self._on_mismatch):
            self._engine.fail(inquiry.error())
        else:
            logger.warning("%s", inquiry.text())
