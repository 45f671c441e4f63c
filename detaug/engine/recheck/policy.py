"""The policy of the run-time check: which batches are made a second time, and when.

Everything here is arithmetic on reports; the engines run the processes.

Checks are ordered by what they can reveal. State that is carried from batch to batch shows in a
batch only if the process that made it had made other batches before: the check of such a batch is
informative. A worker's first batch may as well be remade by another worker that has made batches
before, and its later ones by a worker that has made none: no further process is needed for that.
Otherwise the first informative check is of some worker's second batch. With so many workers that
none makes a second batch soon, a first batch is remade by a process that makes another one
before it. Then follow batches after a long history, and the first batch of one worker.

Some state shows in later batches only: a cache of cases that are changed in place, or drawn. So in
a short run another worker remakes batches with a long history as well, which costs no more than the
batch. What counts the visits to a case, or goes on from pass to pass, shows from the second epoch
on: one batch of a later epoch is always remade, if a copy does not have to step far for it.

A check costs the time of its batches, and the time of the process that makes them. The first
informative check is always made. A short run pays next to nothing for other checks; a long run pays
a known share of the workers' time, and for an interpreter with another hash seed.
"""

from __future__ import annotations

from detaug.engine.arguments import Check
from detaug.engine.errors_from_workers import ErrorRecord
from detaug.engine.recheck.mismatch import Mismatch
from detaug.engine.recheck.requests import RecheckCandidate, RecheckRequest, RecheckResponse
from detaug.pipeline.batch_report import BatchReport, differing_keys
from detaug.pipeline.loader_states import LoaderStates

#: Seconds. A run that has lasted longer is a long one.
LONG_RUN = 20.0
#: In a short run, all checks but the first may take this share of the workers' time ...
_SHARE_AT_FIRST = 0.03
#: A check of a long history by another worker is made if all fit into this share.
_SHARE_OF_LATE_PEERS = 0.02
#: ... and no more than these seconds.
_MOST_AT_FIRST = 0.1
#: In a long run, all checks may take this share of the workers' time.
_SHARE = 0.01
#: A check that takes as long as this many batches is left out.
_MOST_COSTLY = 20
#: If none of this many batches is a worker's second one, a first batch is remade after another.
_SECOND_BY = 12
#: Mismatches of a worker's first batches are errors; later ones would interrupt a training.
_FIRST_BATCHES = 8
#: A worker that has made as many batches has a long history.
_LONG_HISTORY = 8
#: Candidates that wait for their turn; further ones are left out.
_MOST_WAITING = 16
#: Weight of the latest batch in the running mean of a batch's time.
_MEAN_WEIGHT = 1 / 8


class RecheckPolicy:
    """The choice of batches to be remade, and the account of what checks have cost and shown.

    Args:
        check: the user's check. If it wants every batch, checks are made whatever they cost.
        num_streams: number of streams.
        stateless: True: a batch can be made by itself. False: the batches before it in its stream
            have to be made as well.
        states: the loader's states. A batch is made again from the state its stream resumed from.
    """

    def __init__(
        self, check: Check, num_streams: int, stateless: bool, states: LoaderStates
    ) -> None:
        self.done = 0
        self.informative = 0
        self.different = 0
        #: True: it is known, cannot be known, or nobody wants to know it.
        self.knows_hash_order = not check.every
        self.ignore = tuple(check.ignore)
        self.on_mismatch = check.on_mismatch
        self.num_streams = num_streams
        self.stateless = stateless
        self._is_thorough = check.every == 1
        self._states = states
        self._num_batches = 0
        self._work_seconds = 0.0
        self._check_seconds = 0.0
        self._first_check_seconds = 0.0
        #: Running mean.
        self._batch_seconds = 0.0
        #: Seconds that a check costs in addition to its batches.
        self._overhead = 0.0
        self._is_long_run = False
        self._end_is_near = False
        self._is_stopped = False
        #: True: a worker has been asked to remake another one's batch.
        self._has_asked_peer = False
        #: True: a worker has been asked after the first informative check.
        self._is_late_peer_check = False
        #: The difference that a peer has found. A pristine copy is asked next, as that shows more.
        self._difference_of_peer: Mismatch | None = None
        #: The epoch of the batch that the user has taken last; None: there is none.
        self._users_epoch: int | None = None
        #: True: a batch of a later epoch than the first was chosen.
        self._has_later_epoch = False
        self._waiting: list[RecheckCandidate] = []
        self._first: RecheckCandidate | None = None
        self._latest_nth_batch = 0

    def add_batch_time(self, seconds: float) -> None:
        """Add the seconds that a worker's batch took."""
        if self._batch_seconds:
            self._batch_seconds += (seconds - self._batch_seconds) * _MEAN_WEIGHT
        else:
            self._batch_seconds = seconds
        self._work_seconds += seconds
        self._num_batches += 1

    def add_check_time(self, seconds: float) -> None:
        """Add the seconds that a check took, before its result is compared."""
        self._check_seconds += seconds
        if self.done == 0:
            self._first_check_seconds = self._check_seconds

    def add_process_time(self, seconds: float) -> None:
        """Add the seconds that the start of a process took; every check needs such a process."""
        self.add_check_time(seconds)
        self._overhead = seconds

    def run_has_lasted(self, seconds: float) -> None:
        """Update the age of the run."""
        if seconds >= LONG_RUN:
            self._is_long_run = True

    def user_is_in(self, epoch: int) -> None:
        """Update the epoch that the user has come to: batches are made ahead of the user."""
        self._users_epoch = epoch

    def stop(self) -> None:
        """Make no further checks."""
        self._is_stopped = True
        self.knows_hash_order = True

    def end_is_near(self) -> None:
        """Make the first check now, because the end of the epoch or the program waits for it."""
        self._end_is_near = True

    def on_candidate(self, candidate: RecheckCandidate) -> None:
        """Take in the report on a batch."""
        if self._first is None:
            self._first = candidate
        self._latest_nth_batch = max(self._latest_nth_batch, candidate.nth_batch)
        num_firsts = sum(waiting.nth_batch == 1 for waiting in self._waiting)
        # Two first batches are enough for a check that makes one after another.
        is_useful_first = num_firsts < 2 and not self.done
        if self._is_thorough or candidate.nth_batch > 1 or is_useful_first:
            self._waiting.append(candidate)
        if len(self._waiting) > _MOST_WAITING and not self._is_thorough:
            shortest_history = min(self._waiting, key=lambda waiting: waiting.nth_batch)
            self._waiting.remove(shortest_history)

    def for_peers(self) -> list[RecheckCandidate]:
        """Return the batches of which one may be remade by another worker; empty: none may.

        The first is for the first informative check. Then follow one of a later epoch, and those
        with a long history, as far as a short run can afford it.
        """
        # A worker's streams must not be stepped by others.
        if self._is_stopped or self._is_thorough or not self.stateless:
            return []
        if self.informative:
            later = self._of_later_epoch()
            return [later] if later is not None else self._with_long_history()
        if self._has_asked_peer:
            return []
        return list(self._waiting)

    def _of_later_epoch(self) -> RecheckCandidate | None:
        """Return a batch after the first epoch; None: there is none, or one was chosen before.

        A program of one epoch pays nothing for it.
        """
        if self._has_later_epoch or self._first is None or self._users_epoch is None:
            return None
        first_epoch = self._first.key.epoch
        for candidate in self._waiting:
            is_later = first_epoch < candidate.key.epoch <= self._users_epoch
            if is_later and not self._is_far(candidate):
                return candidate
        return None

    def _with_long_history(self) -> list[RecheckCandidate]:
        # In a long run pristine copies check such batches, which shows more.
        if self._is_long_run:
            return []
        if self._batch_seconds > self._left_in_short_run(_SHARE_OF_LATE_PEERS):
            return []
        late = [waiting for waiting in self._waiting if waiting.nth_batch >= _LONG_HISTORY]
        return sorted(late, key=lambda candidate: candidate.nth_batch, reverse=True)

    @property
    def any_peer_will_do(self) -> bool:
        """True: any other worker may make the check. False: one whose history makes it informative.

        The first informative check has shown that a worker's history changes no first batch.
        """
        return self.informative > 0

    def begin_peer_check(self, candidate: RecheckCandidate) -> None:
        """Stop the waiting of a check, because another worker is asked for it."""
        self._has_asked_peer = True
        self._note_choice(candidate)
        self._is_late_peer_check = self.informative > 0
        self._waiting.remove(candidate)

    def end_peer_check(
        self, candidate: RecheckCandidate, response: RecheckResponse | None
    ) -> Mismatch | None:
        """Count a check by another worker, and return how its batch differs; None: it does not.

        If the first check differs, a pristine copy has to make the batch again, so that the error
        can name the cause.

        Args:
            candidate: the batch.
            response: the other worker's; None: it is gone.
        """
        report = None
        if response is not None:
            report = response.report
        if self._is_late_peer_check:
            return self._compare_late(candidate, report)
        if isinstance(report, BatchReport) and not self.differing(candidate.report, report):
            self.done += 1
            self.informative += 1
            # No process was started yet, so nobody knows how long that takes: a short run does
            # without further checks.
            self._overhead = _MOST_AT_FIRST
        else:
            self._waiting.insert(0, candidate)
            if isinstance(report, BatchReport):
                self._difference_of_peer = self._mismatch_of_peer(candidate, report)
        return None

    def _compare_late(
        self, candidate: RecheckCandidate, report: BatchReport | ErrorRecord | None
    ) -> Mismatch | None:
        """Return how two workers' makings of a batch with a long history differ, if they do."""
        # It raised, or the worker is gone: a pristine copy may make it later.
        if not isinstance(report, BatchReport):
            return None
        self.done += 1
        self.informative += 1
        if not self.differing(candidate.report, report):
            return None
        self.different += 1
        return self._mismatch_of_peer(candidate, report)

    def _mismatch_of_peer(self, candidate: RecheckCandidate, report: BatchReport) -> Mismatch:
        mismatch = self._mismatch(candidate, candidate.report, report, candidate.nth_batch)
        return mismatch._replace(cause="workers")

    def next(self) -> RecheckCandidate | None:
        """Return the check to be made now, and stop its waiting; None: no check is due."""
        chosen = self._chosen()
        if chosen is None:
            return None
        self._note_choice(chosen)
        # One check of a first batch is enough.
        drops_firsts = chosen.nth_batch == 1 and not self._is_thorough
        remaining = []
        for waiting in self._waiting:
            is_dropped = drops_firsts and waiting.nth_batch == 1
            if waiting.key != chosen.key and not is_dropped:
                remaining.append(waiting)
        self._waiting = remaining
        return chosen

    def _note_choice(self, chosen: RecheckCandidate) -> None:
        if self._first is not None and chosen.key.epoch > self._first.key.epoch:
            self._has_later_epoch = True

    @property
    def takes_kept_copies(self) -> bool:
        """True: a copy that was used for checks or replays may be used again. False: it may not.

        It has made fewer batches than the process whose batches are checked, so state that is
        carried from batch to batch shows. If every batch is checked, it has made the same batches
        in the same order, and such state does not show.
        """
        return self.done > 0 and not self._is_thorough

    @property
    def has_next(self) -> bool:
        """True: `next` would return a check. False: it would return None."""
        return self._chosen() is not None

    def _chosen(self) -> RecheckCandidate | None:
        """Return the check to be made now; None: no check is due, or all would cost too much."""
        if not self._waiting or self._is_stopped:
            return None
        if self._is_thorough:
            return self._next_in_order()
        if self.informative:
            return self._of_later_epoch() or self._longest_history()
        return self._first_informative()

    def _next_in_order(self) -> RecheckCandidate:
        first = self._waiting[0]
        if self.done:
            return first
        # A pipeline that counts its batches would count in step with a process that makes all of
        # them again: that process makes the first one twice.
        return first._replace(after=first.key)

    def _longest_history(self) -> RecheckCandidate | None:
        """Return the affordable check of the batch with the longest history, or None."""
        affordable = [candidate for candidate in self._waiting if self._affords(candidate)]
        return max(affordable, key=lambda candidate: candidate.nth_batch, default=None)

    def _first_informative(self) -> RecheckCandidate | None:
        """Return the cheapest check that can show state carried over from an earlier batch.

        One is always made, whatever it costs.
        """
        candidates = [candidate for candidate in self._waiting if candidate.nth_batch > 1]
        if candidates:
            return min(candidates, key=self._cost_of)
        if not self._end_is_near and self._num_batches < _SECOND_BY:
            return None
        # No worker has made a second batch yet: a first one is remade after another one.
        return self._waiting[0]._replace(after=self._waiting[-1].key)

    def request_for(self, candidate: RecheckCandidate, *, fresh: bool = True) -> RecheckRequest:
        """Return the request by which another process makes a check.

        Args:
            candidate: the batch.
            fresh: True: from a pristine copy. False: by the copy that makes that process's batches.
        """
        keys = [candidate.key]
        if candidate.after is not None:
            keys.insert(0, candidate.after)
        return RecheckRequest(tuple((key, self._states.loaded(key)) for key in keys), fresh)

    @property
    def _seconds_left(self) -> float:
        """The seconds that further checks may take."""
        if self._is_long_run:
            return _SHARE * self._work_seconds - self._check_seconds
        return self._left_in_short_run(_SHARE_AT_FIRST)

    def _left_in_short_run(self, share: float) -> float:
        allowed = min(_MOST_AT_FIRST, share * self._work_seconds)
        # The first check is always made, whatever it costs: it does not count.
        return allowed - (self._check_seconds - self._first_check_seconds)

    def _affords(self, candidate: RecheckCandidate) -> bool:
        if self._is_far(candidate):
            return False
        return self._overhead + self._cost_of(candidate) <= self._seconds_left

    def _is_far(self, candidate: RecheckCandidate) -> bool:
        """Return whether a copy has to step through too many batches to make this one."""
        cost = self._cost_of(candidate)
        return cost > max(_MOST_AT_FIRST, _MOST_COSTLY * self._batch_seconds)

    def _cost_of(self, candidate: RecheckCandidate) -> float:
        """Return the seconds that it takes to remake the batch."""
        return self._states.num_batches_to(candidate.key) * self._batch_seconds

    def for_other_hashes(self) -> RecheckCandidate | None:
        """Return the batch to be remade under other hash seeds; None: none is due.

        There is one in a long run, once it is known that batches do not differ for other reasons,
        if a copy does not have to step far for it.
        """
        candidate = self._first
        if candidate is None or not self._is_long_run:
            return None
        if not self.informative or self.different:
            return None
        if self._is_far(candidate):
            return None
        return candidate

    def hash_mismatch(
        self, candidate: RecheckCandidate, a: BatchReport, b: BatchReport
    ) -> Mismatch:
        """Count and return the mismatch of two makings under different hash seeds."""
        self.different += 1
        return self._mismatch(candidate, a, b, self._latest_nth_batch)._replace(cause="hashes")

    def compare(self, candidate: RecheckCandidate, response: RecheckResponse) -> Mismatch | None:
        """Return how a second making differs from the first; None: it does not."""
        self.done += 1
        if candidate.is_informative:
            self.informative += 1
        report = response.report
        if not isinstance(report, BatchReport):
            self.different += 1
            is_early = candidate.nth_batch <= _FIRST_BATCHES
            return Mismatch(candidate, [], in_loader=False, is_early=is_early, raised=report)
        # A difference in the raw batch alone does not reach the user.
        mismatch = self._difference_of_peer
        self._difference_of_peer = None
        if self.differing(candidate.report, report):
            mismatch = self._mismatch(candidate, candidate.report, report, candidate.nth_batch)
        if mismatch is not None:
            self.different += 1
        return mismatch

    def differing(self, a: BatchReport, b: BatchReport) -> list[str]:
        """Return the keys in which two makings of a batch differ."""
        return differing_keys(a.final, b.final, self.ignore)

    def _mismatch(
        self, candidate: RecheckCandidate, a: BatchReport, b: BatchReport, nth_batch: int
    ) -> Mismatch:
        """Return the mismatch of two makings; `nth_batch` decides whether it is an early one."""
        in_loader = bool(differing_keys(a.raw, b.raw, self.ignore))
        return Mismatch(candidate, self.differing(a, b), in_loader, nth_batch <= _FIRST_BATCHES)
