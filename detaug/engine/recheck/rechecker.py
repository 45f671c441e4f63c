"""The recheck that is running: one batch at a time is remade, and mismatches are reported.

The course of a check: a report on a worker's batch arrives (`on_candidate`) → another process,
which has a pristine copy, makes the batch again → on a mismatch, both processes are asked for a
trace of the batch → the mismatch is reported. Responses arrive by `on_response`. Everything runs in
the engine's thread, except `is_pending`.

To start a process for it takes longer than a small batch. So another worker, a *peer*, makes the
first check where that shows as much. If it finds a difference, the process above is started.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
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

#: Seconds after the first report for which a check waits for a peer.
PEER_PATIENCE = 1.0


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


class PeerTransport(RecheckTransport, Protocol):
    """The further methods of an engine whose workers remake batches of others."""

    def peer_for(self, candidate: RecheckCandidate, any_will_do: bool) -> int | None:
        """Return the id of a worker that can make an informative check; None: there is none now.

        It is another worker that has made batches, for a worker's first batch; for a later one, a
        worker that is idle and has made none.

        Args:
            candidate: the batch.
            any_will_do: any other worker can.
        """

    def expects_peer(self, candidate: RecheckCandidate) -> bool:
        """Return True if there may soon be one: another worker is starting, or has a task."""


class Recheck:
    """The check that is running, and those that wait.

    Args:
        policy: chooses the checks, and keeps the account of their costs.
        engine: sends requests to processes, and reports mismatches.
        hash_order: the checks under other hash seeds, in addition; None: there are none.
        peers: names peers; None: there are none.
    """

    def __init__(
        self,
        policy: RecheckPolicy,
        engine: RecheckTransport,
        hash_order: HashOrder | None = None,
        peers: PeerTransport | None = None,
    ) -> None:
        self._policy = policy
        self._repeats = Repeats(policy.ignore)
        self._hash_order = hash_order
        self._engine = engine
        self._peers = peers
        #: The id of the peer that remakes the batch; None: the checker does.
        self._peer: int | None = None
        #: When the first report arrived.
        self._first_report_at: float | None = None
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
        if self._first_report_at is None:
            self._first_report_at = time.monotonic()
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
            self._begin_check()
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

    def _begin_check(self) -> None:
        """Choose the next check, if one is due."""
        self._is_sent = False
        candidates = self._policy.for_peers()
        if self._peers is not None and candidates:
            for candidate in candidates:
                peer = self._peers.peer_for(candidate, self._policy.any_peer_will_do)
                if peer is not None and self._ask_peer(candidate, peer):
                    return
            if self._waits_for_peers(self._peers, candidates):
                return
        self._candidate = self._policy.next()

    def _ask_peer(self, candidate: RecheckCandidate, peer: int) -> bool:
        """Send the request of a check to a peer; False: it is gone."""
        request = self._policy.request_for(candidate, fresh=False)
        if not self._engine.send_request(request, peer, to_checker=False):
            return False
        # First: `is_pending` is read by other threads, and the policy forgets the candidate next.
        self._candidate = candidate
        self._peer = peer
        self._is_sent = True
        self._policy.begin_peer_check(candidate)
        return True

    def _waits_for_peers(
        self, peers: PeerTransport, candidates: Sequence[RecheckCandidate]
    ) -> bool:
        if self._first_report_at is None:
            return False
        if time.monotonic() - self._first_report_at > PEER_PATIENCE:
            return False
        return any(peers.expects_peer(candidate) for candidate in candidates)

    def _end_peer_check(self, response: RecheckResponse | None) -> None:
        """Take in a peer's response; None: the peer is gone."""
        mismatch = None
        if self._candidate is not None:
            mismatch = self._policy.end_peer_check(self._candidate, response)
        # Afterwards: `is_pending` is read by other threads, and a further check may be due.
        self._candidate = None
        self._peer = None
        self._is_sent = False
        if mismatch is not None:
            self._report(mismatch)

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
            if self._peer is not None and worker_id == self._peer:
                self._policy.add_check_time(seconds)
                self._end_peer_check(response)
            else:
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
        """Expect no more responses from a worker."""
        if self._peer is not None and worker_id == self._peer:
            self._end_peer_check(None)
        if self._mismatch is not None and worker_id == self._mismatch.candidate.worker:
            self._worker_responds = False
            self._report_if_traced()

    def cancel_check(self) -> None:
        """Drop the check because its process is gone, and report the mismatch that is known."""
        self._candidate = None
        self._peer = None
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
