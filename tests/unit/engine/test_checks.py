"""Which batches are made a second time, when, and for how much of the time; and what a comparison
says.
"""

from __future__ import annotations

import heapq
import random
from itertools import product

import pytest

from detaug.engine.arguments import Check
from detaug.engine.recheck import policy as checking
from detaug.engine.recheck.policy import RecheckPolicy
from detaug.engine.recheck.requests import RecheckCandidate, RecheckResponse, is_checked
from detaug.pipeline.batch_report import BatchReport
from detaug.pipeline.loader_states import LoaderStates
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.sources import resolve_source
from tests.support.loaders import RandomSampler

EVERY = 100
#: The seconds after which a run is a long one.
LONG = 20.0
#: Batches of an epoch, nnU-Net's.
EPOCH = 250
#: The share of a long run that all checks may take.
SHARE = 0.015
#: The seconds that all checks but the first may take of a run that has not lasted so long.
AT_FIRST = 0.1


def checks_of(ignore=(), stateless=True, every=EVERY):
    loader = RandomSampler() if stateless else [1]
    states = LoaderStates(resolve_source(loader), num_streams=1)
    return RecheckPolicy(Check(every, ignore), 1, stateless, states)


def check(step, number=1, worker=1):
    return RecheckCandidate(BatchKey(0, step), BatchReport({}, {"x": "1"}), number, worker)


def answer(checks, made, seconds):
    checks.add_check_time(seconds)
    checks.compare(made, RecheckResponse(BatchReport({}, {"x": "1"})))


@pytest.fixture(autouse=True)
def runs_last_as_long_as_they_do(
    nothing_comes_of_how_long_it_takes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "LONG_RUN", LONG)


class Run:
    """A run by the clock of its workers: each makes batches one after the other, of which the
    checks hear.

    Attributes:
        told: how many batches were made when the first check was made that shows what is carried;
            0: none was.
        spent: seconds that checks took.
        spent_on_first: seconds that the first of them took.
        spent_at_first: seconds that they took before the run was a long one.
        lasted: seconds of the clock.
        worked: seconds of all workers.
        made: the checks.
    """

    def __init__(self, workers, seconds, batches, spread=0.0, process_seconds=0.0):
        self.process_seconds = process_seconds
        self.checks = checks_of()
        self.told = 0
        self.spent = 0.0
        self.spent_on_first = 0.0
        self.spent_at_first = 0.0
        self.lasted = 0.0
        self.worked = 0.0
        self.made = []
        vary = random.Random(workers)
        free = [(0.0, worker) for worker in range(1, workers + 1)]
        numbers = dict.fromkeys(range(1, workers + 1), 0)
        for step in range(batches):
            now, worker = heapq.heappop(free)
            self.lasted = now
            self.checks.run_has_lasted(now)
            cost = seconds * vary.uniform(1 - spread, 1 + spread)
            heapq.heappush(free, (now + cost, worker))
            numbers[worker] += 1
            if is_checked(numbers[worker], EVERY):
                self.checks.on_candidate(check(step, numbers[worker], worker))
            self.checks.add_batch_time(cost)
            self.worked += cost
            self._check(seconds, step + 1)
        self.checks.end_is_near()
        self._check(seconds, batches)

    def _check(self, seconds, batches):
        while (due := self.checks.next()) is not None:
            cost = seconds * (2 if due.after is not None else 1)
            self.checks.add_process_time(self.process_seconds)
            answer(self.checks, due, cost)
            self.spent += cost + self.process_seconds
            if not self.made:
                self.spent_on_first = self.spent
            if self.lasted < LONG:
                self.spent_at_first = self.spent
            self.made.append(due)
            if not self.told and self.checks.informative:
                self.told = batches


@pytest.mark.parametrize("workers", [1, 3, 8, 20, 64])
def test_what_is_carried_is_told_by_the_twentieth_batch_for_little_of_an_epoch(workers):
    all_seconds = (0.001, 0.01, 0.05, 0.2, 0.6, 2.0)
    for epochs, seconds, spread in product((1, 3), all_seconds, (0.0, 0.7)):
        run = Run(workers, seconds, epochs * EPOCH, spread)
        assert 0 < run.told <= 20
        assert run.made[0].is_informative
        # First batches once at most.
        assert run.checks.informative >= len(run.made) - 1
        more_than_expected = spread * seconds + 1e-9
        assert run.spent_at_first <= run.spent_on_first + AT_FIRST + more_than_expected
        if run.lasted > LONG:
            most = max(run.spent_at_first, SHARE * run.worked)
            assert run.spent <= most + more_than_expected


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16, 64])
def test_what_is_carried_is_told_before_a_short_program_ends(workers):
    for batches in range(2, 20):
        assert Run(workers, 0.2, batches).told


def test_many_workers_first_batches_are_made_again_after_another_one():
    (only,) = Run(64, 2.0, 20).made
    assert only.nth_batch == 1
    assert only.after is not None
    assert only.after != only.key


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 1), (0.01, 2), (0.1, 2)])
def test_a_short_run_pays_for_one_check_and_next_to_nothing_else(seconds, most):
    run = Run(4, seconds, 300, process_seconds=0.04)
    assert run.told <= 20
    assert 1 <= len(run.made) <= most
    assert run.spent - run.spent_on_first <= AT_FIRST + 1e-9


def test_the_process_that_is_made_for_a_check_counts():
    checks = checks_of()
    for step in range(20):
        checks.add_batch_time(1.0)
        checks.on_candidate(check(step, number=2, worker=step))
    due = checks.next()
    checks.add_process_time(0.2)
    answer(checks, due, 0.001)
    assert checks.next() is None
    checks.run_has_lasted(LONG)
    for _ in range(200):
        checks.add_batch_time(1.0)
    assert checks.next() is not None


def test_another_hash_seed_is_tried_in_a_long_run_alone():
    checks = checks_of()
    checks.add_batch_time(0.1)
    checks.on_candidate(check(0, number=2))
    answer(checks, checks.next(), 0.1)
    assert checks.for_other_hashes() is None
    checks.run_has_lasted(LONG - 1)
    assert checks.for_other_hashes() is None
    checks.run_has_lasted(LONG)
    assert checks.for_other_hashes() is not None


def test_later_checks_take_batches_after_the_longest_history():
    run = Run(8, 0.2, 8 * EPOCH)
    numbers = [candidate.nth_batch for candidate in run.made]
    assert numbers[0] == 2
    assert numbers[-1] >= 100
    assert numbers.count(1) <= 1


def test_a_check_that_came_to_nothing_is_followed_by_another():
    checks = checks_of()
    for step in range(4):
        checks.on_candidate(check(step, number=2, worker=step + 1))
        checks.add_batch_time(5.0)
    assert checks.next() is not None
    # It was not answered.
    assert checks.next() is not None
    answer(checks, check(1, number=2), 5.0)
    # It has cost more than there is.
    assert checks.next() is None


def checked_of(numbers, every):
    return [number for number in numbers if is_checked(number, every)]


def test_first_second_fourth_and_then_one_in_so_many():
    powers_of_two = [1, 2, 4, 8, 16, 32, 64]
    assert checked_of(range(1, 400), every=100) == [*powers_of_two, 100, 200, 300]
    assert checked_of(range(1, 10), every=1) == list(range(1, 10))
    assert checked_of(range(1, 100), every=0) == []


def test_all_are_checked_where_that_is_asked_for_and_the_first_after_itself():
    checks = checks_of(every=1)
    made = []
    for step in range(50):
        checks.add_batch_time(2.0)
        checks.on_candidate(check(step, number=1 + step // 5))
        while (due := checks.next()) is not None:
            answer(checks, due, 2.0)
            made.append(due)
    assert [candidate.key.step for candidate in made] == list(range(50))
    first, *others = made
    assert first.after == first.key
    for candidate in others:
        assert candidate.after is None


def test_late_batches_of_a_stream_cost_those_before_them():
    checks = checks_of(stateless=False)
    checks.on_candidate(check(1, number=2))
    made = checks.next()
    assert made is not None
    answer(checks, made, 0.02)
    for _ in range(1000):
        checks.add_batch_time(0.01)
    checks.on_candidate(check(5_000, number=100))
    assert checks.next() is None
    checks.on_candidate(check(7, number=4))
    made = checks.next()
    assert made is not None
    assert made.key.step == 7


def test_a_difference_says_whether_the_loader_made_it():
    checks = checks_of(ignore=("pid",))
    report = BatchReport({"x": "raw"}, {"x": "a", "pid": "1"})
    first = RecheckCandidate(BatchKey(0, 3), report, nth_batch=40, worker=2)

    def compared(raw, **final):
        response = RecheckResponse(BatchReport({"x": raw}, final))
        return checks.compare(first, response)

    assert compared("raw", x="a", pid="2") is None
    mismatch = compared("raw", x="b", y="c", pid="1")
    assert mismatch.keys == ["x", "y"]
    assert not mismatch.in_loader
    assert not mismatch.is_early
    assert compared("other", x="b", pid="1").in_loader
    assert checks.done == 3
    assert checks.informative == 3
    assert checks.different == 2
