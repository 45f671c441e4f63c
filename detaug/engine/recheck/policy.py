"""The run-time check: which batches are made a second time, from a pristine copy, and when.

Everything here is arithmetic on reports; processes are the engines' business.

Checks are ordered by what they can reveal. What is carried from batch to batch shows in a batch
only if the process that made it had made others before: such a check is informative. The first one
is the second batch of some worker. Where there are so many workers that none has made a second one
soon, a first batch is made again by a process that has made another one before. Then come batches
after a long history, and the first batch of one worker.

A check costs what a batch costs, and what the process costs that makes it. The first informative
one is made at any rate. A short run pays next to nothing for others; a long one pays a known share
of the workers' time, and for an interpreter with another hash seed.
"""

from __future__ import annotations

from detaug.engine.arguments import Check
from detaug.engine.recheck.mismatch import Mismatch
from detaug.engine.recheck.requests import RecheckCandidate, RecheckRequest, RecheckResponse
from detaug.pipeline.batch_report import BatchReport, differing_keys
from detaug.pipeline.loader_states import LoaderStates

#: A run that has lasted this many seconds is a long one.
LONG_RUN = 20.0
#: In a short run, all checks but the first may take this share of the workers' time, and no more
#: than so many seconds.
_SHARE_AT_FIRST = 0.03
_MOST_AT_FIRST = 0.1
#: In a long run, all checks may take this share of the workers' time.
_SHARE = 0.01
#: A check that takes as long as this many batches is left out.
_MOST_COSTLY = 20
#: Once so many batches were made and none of them is a worker's second one, a first one is made
#: again after another.
_SECOND_BY = 12
#: Differences in a worker's first batches are errors; later a training is under way.
_FIRST_BATCHES = 8
#: Checks that wait for their turn; what comes beyond is left out.
_MOST_WAITING = 16


class RecheckPolicy:
    """Which batches are checked, and what has come of it.

    Args:
        check: the user's; where every batch is to be checked, none waits for the account.
        num_streams, stateless: where a batch cannot be made by itself, those before it in its
            stream have to be made as well.
        states: the loader's; a batch is made again from the state that its stream resumed from.
    """

    def __init__(
        self, check: Check, num_streams: int, stateless: bool, states: LoaderStates
    ) -> None:
        self.done = self.informative = self.different = 0
        self.knows_hash_order = not check.every  # or it is known, or cannot be
        self.ignore = tuple(check.ignore)
        self.on_mismatch = check.on_mismatch
        self.num_streams = num_streams
        self.stateless = stateless
        self._thorough = check.every == 1
        self._states = states
        self._batches = 0
        self._worked = 0.0
        self._add_check_time = 0.0
        self._paid_for_first = 0.0
        self._batch_seconds = 0.0
        #: What a check costs beside its batches.
        self._overhead = 0.0
        self._is_long_run = False
        self._end_is_near = False
        self._is_stopped = False
        self._waiting: list[RecheckCandidate] = []
        self._first: RecheckCandidate | None = None
        self._latest = 0

    def worked(self, seconds: float) -> None:
        """A batch took so long."""
        self._batch_seconds += (
            ((seconds - self._batch_seconds) / 8) if self._batch_seconds else seconds
        )
        self._worked += seconds
        self._batches += 1

    def add_check_time(self, seconds: float) -> None:
        """Add the seconds that a check took, before its result is compared."""
        self._add_check_time += seconds
        if self.done == 0:
            self._paid_for_first = self._add_check_time

    def paid_for_process(self, seconds: float) -> None:
        """Add the seconds that it took to start a process for one check, as for every other."""
        self.add_check_time(seconds)
        self._overhead = seconds

    def run_has_lasted(self, seconds: float) -> None:
        """Take in how old the run is."""
        if seconds >= LONG_RUN:
            self._is_long_run = True

    def stop(self) -> None:
        """Make no further checks."""
        self._is_stopped = True
        self.knows_hash_order = True

    def end_is_near(self) -> None:
        """The epoch's or the program's end waits for checks: what can be said by then is not to
        wait for more batches.
        """
        self._end_is_near = True

    def reported(self, check: RecheckCandidate) -> None:
        """The report on a batch has come."""
        self._first = self._first or check
        self._latest = max(self._latest, check.number)
        firsts = sum(each.number == 1 for each in self._waiting)
        if self._thorough or check.number > 1 or (firsts < 2 and not self.done):
            self._waiting.append(check)
        if len(self._waiting) > _MOST_WAITING and not self._thorough:
            self._waiting.remove(min(self._waiting, key=lambda each: each.number))

    def next(self) -> RecheckCandidate | None:
        """The check to be made now, if there is one that can be paid for."""
        check = self._chosen()
        if check is not None:
            one_is_enough = check.number == 1 and not self._thorough
            self._waiting = [
                each
                for each in self._waiting
                if each.key != check.key and not (one_is_enough and each.number == 1)
            ]
        return check

    @property
    def takes_kept_copies(self) -> bool:
        """Whether a copy that has made other checks or replays may make the next one.

        It has made fewer batches than the process whose batches are checked, so what is carried
        from batch to batch shows. Where every batch is checked it has made the same ones, in their
        order.
        """
        return self.done > 0 and not self._thorough

    @property
    def waits(self) -> bool:
        """Whether `next` would give one."""
        return self._chosen() is not None

    def _chosen(self) -> RecheckCandidate | None:
        """Return the check to be made now; None: there is none, or it would cost too much."""
        if not self._waiting or self._is_stopped:
            return None
        if self._thorough:
            return self._next_in_order()
        if self.informative:
            return self._longest_history()
        return self._first_informative()

    def _next_in_order(self) -> RecheckCandidate:
        first = self._waiting[0]
        if self.done:
            return first
        # A pipeline that counts its batches would count in step with a process that makes all of
        # them again: that process makes the first one twice.
        return first._replace(after=first.key)

    def _longest_history(self) -> RecheckCandidate | None:
        affordable = [check for check in self._waiting if self._affords(check)]
        return max(affordable, key=lambda check: check.number, default=None)

    def _first_informative(self) -> RecheckCandidate | None:
        """Return the cheapest check that can show state carried over from an earlier batch.

        One is made at any rate, whatever it costs.
        """
        candidates = [check for check in self._waiting if check.number > 1]
        if candidates:
            return min(candidates, key=self._cost_of)
        if not self._end_is_near and self._batches < _SECOND_BY:
            return None
        # No worker has made a second batch yet: a first one is made again after another one.
        return self._waiting[0]._replace(after=self._waiting[-1].key)

    def request_for(self, check: RecheckCandidate) -> RecheckRequest:
        """Return what another process is asked for, to make that check."""
        keys = [check.key]
        if check.after is not None:
            keys.insert(0, check.after)
        return RecheckRequest(tuple((key, self._states.loaded(key)) for key in keys))

    @property
    def _left(self) -> float:
        """The seconds that further checks may take."""
        if self._is_long_run:
            return _SHARE * self._worked - self._add_check_time
        allowed = min(_MOST_AT_FIRST, _SHARE_AT_FIRST * self._worked)
        return allowed - (self._add_check_time - self._paid_for_first)

    def _affords(self, check: RecheckCandidate) -> bool:
        return not self._is_far(check) and self._overhead + self._cost_of(check) <= self._left

    def _is_far(self, check: RecheckCandidate) -> bool:
        """Return whether a copy has to step through too many batches to make that one."""
        cost = self._cost_of(check)
        return cost > max(_MOST_AT_FIRST, _MOST_COSTLY * self._batch_seconds)

    def _cost_of(self, check: RecheckCandidate) -> float:
        """Return the seconds that it takes to make that batch again."""
        return self._states.num_batches_to(check.key) * self._batch_seconds

    def for_other_hashes(self) -> RecheckCandidate | None:
        """Return the batch that is to be made again with other hash seeds; None: there is none now.

        That is in a long run, once it is known that the batch does not differ anyway, and if a copy
        need not step far for it.
        """
        check = self._first
        if check is None or not self._is_long_run or not self.informative or self.different:
            return None
        return None if self._is_far(check) else check

    def depends_on_hashes(
        self, check: RecheckCandidate, one: BatchReport, other: BatchReport
    ) -> Mismatch:
        """These makings of it, which differ, were made with different hash seeds."""
        self.different += 1
        return self._difference(check, one, other, self._latest)._replace(why="hashes")

    def compare(self, check: RecheckCandidate, again: RecheckResponse) -> Mismatch | None:
        """Return how a second making differs from the first, or None."""
        self.done += 1
        self.informative += check.is_informative
        report = again.report
        if not isinstance(report, BatchReport):
            self.different += 1
            early = check.number <= _FIRST_BATCHES
            return Mismatch(check, [], in_loader=False, early=early, raised=report)
        # A difference in the raw batch alone does not reach the user.
        if not self.differing(check.report, report):
            return None
        self.different += 1
        return self._difference(check, check.report, report, check.number)

    def differing(self, one: BatchReport, other: BatchReport) -> list[str]:
        """The keys in which two makings of a batch differ."""
        return differing_keys(one.final, other.final, self.ignore)

    def _difference(
        self, check: RecheckCandidate, one: BatchReport, other: BatchReport, number: int
    ) -> Mismatch:
        in_loader = bool(differing_keys(one.raw, other.raw, self.ignore))
        return Mismatch(check, self.differing(one, other), in_loader, number <= _FIRST_BATCHES)
