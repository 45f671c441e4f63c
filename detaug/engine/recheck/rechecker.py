"""The recheck that is running: one batch at a time is remade, and mismatches are reported.

The course of a check: a report on a worker's batch arrives (`on_candidate`) → another process,
which has a pristine copy, makes the batch again → on a mismatch, both processes are asked for a
trace of the batch → the mismatch is reported. Responses arrive by `on_response`. Everything runs in
the engine's thread, except `is_pending`.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from detaug.engine.recheck.hash_seed import HashOrder
from detaug.engine.recheck.mismatch import Mismatch, Repeats
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.recheck.requests import (
    RecheckCandidate,
    RecheckResponse,
    Request,
    Response,
    TraceRequest,
)

logger = logging.getLogger("detaug")


class RecheckTransport(Protocol):
    """The methods that the recheck needs of an engine.

    Each request that is sent ends with a call of `Recheck.on_response`, `Recheck.on_worker_gone` or
    `Recheck.cancel_check`.
    """

    def warn_once(self, text: str, level: int = logging.WARNING) -> None:
        """Log a text, unless it was logged before."""

    def fail(self, error: BaseException) -> None:
        """End the run with an error: there will be no more batches."""

    def send_request(self, request: Request, worker_id: int, *, to_checker: bool) -> bool:
        """Send a request to a process.

        Args:
            request: the request.
            worker_id: the worker that made the batch.
            to_checker: True: send it to another process, which has a pristine copy. False: to the
                worker.

        Returns:
            False if the process is gone, or cannot be asked now. If that is discovered later,
            `Recheck.on_worker_gone` or `Recheck.cancel_check` is called.
        """


class Recheck:
    """The check that is running, and those that wait.

    Args:
        policy: chooses the checks, and keeps the account of their costs.
        engine: sends requests to processes, and reports mismatches.
        hash_order: the checks under other hash seeds, in addition; None: there are none.
    """

    def __init__(
        self, policy: RecheckPolicy, engine: RecheckTransport, hash_order: HashOrder | None = None
    ) -> None:
        self._policy = policy
        self._repeats = Repeats(policy.ignore)
        self._hash_order = hash_order
        self._engine = engine
        #: The batch that is being remade.
        self._candidate: RecheckCandidate | None = None
        #: True: the checker has the request of the candidate or the mismatch. False: not yet.
        self._is_sent = False
        #: The mismatch whose traces have not arrived.
        self._mismatch: Mismatch | None = None
        #: True: the worker's trace is to come, or has. False: it will not come.
        self._worker_responds = False
        self._start = time.monotonic()

    @property
    def is_pending(self) -> bool:
        """True: a response is expected, or a check is due. False: there is nothing to wait for."""
        return self._candidate is not None or self._mismatch is not None or self._policy.has_next

    def on_candidate(self, candidate: RecheckCandidate) -> None:
        """Take in the report on a batch that may be remade."""
        self._policy.on_candidate(candidate)
        remark = self._repeats.remark(candidate.key, candidate.report)
        if remark:
            self._engine.warn_once(remark)

    def advance(self) -> None:
        """Send the request that is due, if there is one."""
        self._policy.run_has_lasted(time.monotonic() - self._start)
        self._advance_hash_order()
        if self._mismatch is None and self._candidate is None:
            # One at a time: there is one checker.
            self._candidate = self._policy.next()
            self._is_sent = False
        if self._is_sent:
            return
        if self._mismatch is not None:
            candidate = self._mismatch.candidate
            trace = TraceRequest(candidate.key, fresh=True)
            self._is_sent = self._engine.send_request(trace, candidate.worker, to_checker=True)
        elif self._candidate is not None:
            worker_id = self._candidate.worker
            request = self._policy.request_for(self._candidate)
            self._is_sent = self._engine.send_request(request, worker_id, to_checker=True)

    def _advance_hash_order(self) -> None:
        if self._hash_order is None or self._policy.knows_hash_order:
            return
        mismatch = self._hash_order.advance()
        if mismatch is not None:
            self._report(mismatch)

    def on_response(self, response: Response, seconds: float, worker_id: int | None) -> None:
        """Take in a response.

        Args:
            response: the response.
            seconds: how long it took.
            worker_id: the worker that sent it; None: a process that is no worker.
        """
        if isinstance(response, RecheckResponse):
            self._compare(response, seconds)
            return
        # It was reported without this trace, because a process was gone.
        if self._mismatch is None:
            return
        if worker_id == self._mismatch.candidate.worker:
            self._mismatch = self._mismatch._replace(live=response)
        else:
            self._mismatch = self._mismatch._replace(fresh=response)
        self._report_if_traced()

    def _compare(self, response: RecheckResponse, seconds: float) -> None:
        """Compare a second making with the first, and ask for traces on a mismatch."""
        candidate = self._candidate
        self._candidate = None
        self._policy.add_check_time(seconds)
        # The check was cancelled while it was made.
        if candidate is None:
            return
        mismatch = self._policy.compare(candidate, response)
        if mismatch is None:
            return
        if mismatch.is_explained:
            self._report(mismatch)
            return
        # Before the request: an engine without workers calls `on_response` while it is being sent.
        self._mismatch = mismatch
        self._is_sent = False
        trace = TraceRequest(candidate.key, fresh=False)
        self._worker_responds = self._engine.send_request(trace, candidate.worker, to_checker=False)
        self.advance()

    def on_worker_gone(self, worker_id: int) -> None:
        """Expect no more traces from a worker."""
        if self._mismatch is not None and worker_id == self._mismatch.candidate.worker:
            self._worker_responds = False
            self._report_if_traced()

    def cancel_check(self) -> None:
        """Drop the check because its process is gone, and report the mismatch that is known."""
        self._candidate = None
        self._is_sent = False
        self._report_now()

    def close(self) -> None:
        """End the processes of the check."""
        if self._hash_order is not None:
            self._hash_order.close()

    def _report_if_traced(self) -> None:
        """Report the mismatch if no more traces of it will arrive."""
        mismatch = self._mismatch
        if mismatch is None or mismatch.fresh is None:
            return
        if mismatch.live is not None or not self._worker_responds:
            self._report_now()

    def _report_now(self) -> None:
        """Report the mismatch, if there is one, with the traces that have arrived."""
        mismatch = self._mismatch
        if mismatch is not None:
            # First: `_report` raises in an engine without workers.
            self._mismatch = None
            self._report(mismatch)

    def _report(self, mismatch: Mismatch) -> None:
        """End the run with an error, or log a warning, as the user wants."""
        on_mismatch = self._policy.on_mismatch
        if on_mismatch == "raise" or (on_mismatch is None and mismatch.is_early):
            self._engine.fail(mismatch.error())
        else:
            logger.warning("%s", mismatch.text())
