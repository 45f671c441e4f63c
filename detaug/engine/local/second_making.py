"""The run-time check with processes: takes in reports, has one batch at a time made again, and reports differences.

The course of a check: a worker sends a report with one of its batches (report) → the checker, a process that has a pristine
copy, makes the batch again (check, checked) → where they differ, the worker and the checker are both asked how the batch came
to be (explain, explained) → the user is told. All of it runs in the coordinator's thread, but for `under_way`.
"""

from __future__ import annotations

import contextlib
import logging
from typing import Protocol

from detaug.engine.checking import Again, CheckedBatch, Checks, Inquiry, remark_on_process
from detaug.engine.checking.hash_order import HashOrder
from detaug.engine.local import messages
from detaug.engine.local.handles import Worker
from detaug.engine.local.pool import Pool
from detaug.pipeline.plan import BatchKey
from detaug.transport.channel import ChannelClosed

logger = logging.getLogger("detaug")


class Listener(Protocol):
    """Receives what the check finds."""

    def say_once(self, text: str, level: int = logging.WARNING) -> None:
        """Tell the user, if that has not been said."""

    def fail(self, error: BaseException) -> None:
        """There can be no more batches."""


class Checking:
    """The check that is being made, and those that wait.

    Args:
        checks: which are made, and what they cost.
        hash_order: beside them.
        on_mismatch: "raise", "warn", or None: the one for a worker's first batches, the other later.
        listener: receives the findings.
    """

    def __init__(self, checks: Checks, hash_order: HashOrder, on_mismatch: str | None, listener: Listener) -> None:
        self.checks = checks
        self._hash_order = hash_order
        self._on_mismatch = on_mismatch
        self._listener = listener
        self._check: CheckedBatch | None = None
        self._asked = False
        self._inquiry: Inquiry | None = None

    @property
    def under_way(self) -> bool:
        """Whether an answer is on its way, or a check will be made at once."""
        return self._check is not None or self._inquiry is not None or self.checks.waits

    def go_on(self, pool: Pool) -> None:
        """Have made again what is due."""
        if (difference := self._hash_order.go_on()) is not None:
            self._tell(Inquiry(difference))
        inquiry = self._inquiry
        if inquiry is not None and inquiry.fresh is not None and inquiry.difference.check.worker not in pool.workers:
            self._conclude()  # that worker can tell nothing any more
        if self._inquiry is None and self._check is None:
            self._check, self._asked = self.checks.next(), False
        if self._asked:
            return
        if self._inquiry is not None:
            self._asked = pool.ask_checker(messages.Explain(*self._inquiry.difference.check.key))
        elif self._check is not None:
            stepped = self.checks.is_stepped(self._check)
            self._asked = pool.ask_checker(
                messages.MakeAgain(*self._check.key, stepped, self._check.state, self._check.after)
            )

    def heard(
        self, pool: Pool, worker: Worker, message: messages.Report | messages.Checked | messages.Explained
    ) -> None:
        """A worker or the checker has said something."""
        if isinstance(message, messages.Report):
            key = BatchKey(message.epoch, message.step)
            self.checks.reported(CheckedBatch(key, message.report, message.number, worker.number, message.state_before))
            if said := self.checks.remark(key, message.report):
                self._listener.say_once(said)
        elif isinstance(message, messages.Checked):
            self._compare(pool, message.again, message.seconds)
        elif self._inquiry is not None:
            if worker.number == self._inquiry.difference.check.worker:
                self._inquiry.live = message.explanation
            else:
                self._inquiry.fresh = message.explanation
                pool.end_checker()
            told = self._inquiry.live is not None or self._inquiry.difference.check.worker not in pool.workers
            if told and self._inquiry.fresh is not None:
                self._conclude()

    def close(self) -> None:
        """Nothing more is wanted."""
        self._hash_order.close()

    def give_up(self) -> None:
        """The checker is gone: leave its batch out, and report what is known."""
        self._check, self._asked = None, False
        if self._inquiry is not None:
            self._conclude()

    def _compare(self, pool: Pool, again: Again, seconds: float) -> None:
        check, self._check = self._check, None
        pool.end_checker()
        self.checks.paid(seconds)
        if check is None:
            return
        difference = self.checks.compare(check, again)
        if said := remark_on_process(self.checks.about_process):
            self._listener.say_once(said, logging.INFO)
        if self.checks.about_states:
            self._listener.say_once(self.checks.about_states)
        if difference is None:
            return
        self._inquiry, self._asked = Inquiry(difference), False
        if difference.restored:
            self._conclude()  # where the two part is known
            return
        live = pool.workers.get(check.worker)
        if live is not None:
            with contextlib.suppress(ChannelClosed):
                live.channel.send(messages.Explain(*check.key))
        self.go_on(pool)

    def _conclude(self) -> None:
        inquiry, self._inquiry = self._inquiry, None
        assert inquiry is not None
        self._tell(inquiry)

    def _tell(self, inquiry: Inquiry) -> None:
        if inquiry.is_error(self._on_mismatch):
            self._listener.fail(inquiry.error())
        else:
            logger.warning("%s", inquiry.text())
