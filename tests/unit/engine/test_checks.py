"""The policy of checks: which batches are made a second time, when, and at what cost.

Also what a comparison of the two batches reports.
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
#: Seconds after which a run is a long one.
LONG = 20.0
#: Number of batches in an epoch, as in nnU-Net.
EPOCH = 250
#: The most that all checks may take of a long run, as a share of the workers' time.
SHARE = 0.015
#: The most that all checks but the first may take before a run is a long one, in seconds.
AT_FIRST = 0.1


def checks_of(ignore=(), stateless=True, every=EVERY):
    """Return a policy of checks."""
    loader = RandomSampler() if stateless else [1]
    states = LoaderStates(resolve_source(loader), num_streams=1)
    return RecheckPolicy(Check(every, ignore), 1, stateless, states)


def candidate(step, number=1, worker=1, epoch=0):
    """Return a batch that may be checked, the `number`-th of its worker."""
    return RecheckCandidate(BatchKey(epoch, step), BatchReport({}, {"x": "1"}), number, worker)


def answer(checks, checked, seconds):
    """Let a check end without a difference after these seconds."""
    checks.add_check_time(seconds)
    checks.compare(checked, RecheckResponse(BatchReport({}, {"x": "1"})))


@pytest.fixture(autouse=True)
def runs_last_as_long_as_they_do(
    nothing_comes_of_how_long_it_takes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undo the setting of `tests/conftest.py` that no run becomes a long one."""
    monkeypatch.setattr(checking, "LONG_RUN", LONG)


class Run:
    """A simulated run, whose workers make batches and whose checks take time.

    Args:
        num_workers: number of workers.
        seconds: mean duration of a batch.
        num_batches: batches of all workers together.
        spread: half of the range of durations, relative to the mean.
        process_seconds: time that each check takes to start a process.

    Attributes:
        told: number of batches at the first check that can show carried state; 0 if there is none.
        spent: seconds that all checks took.
        spent_on_first: seconds that the first check took.
        spent_at_first: seconds that checks took before the run was a long one.
        lasted: seconds of the clock.
        worked: seconds of all workers together.
        checked: the batches that were checked.
    """

    def __init__(self, num_workers, seconds, num_batches, spread=0.0, process_seconds=0.0):
        self.process_seconds = process_seconds
        self.checks = checks_of()
        self.told = 0
        self.spent = 0.0
        self.spent_on_first = 0.0
        self.spent_at_first = 0.0
        self.lasted = 0.0
        self.worked = 0.0
        self.checked = []
        rng = random.Random(num_workers)
        workers = range(1, num_workers + 1)
        # The time at which each worker is free.
        free_at = [(0.0, worker) for worker in workers]
        numbers = dict.fromkeys(workers, 0)
        for step in range(num_batches):
            time, worker = heapq.heappop(free_at)
            self.lasted = time
            self.checks.run_has_lasted(time)
            duration = seconds * rng.uniform(1 - spread, 1 + spread)
            heapq.heappush(free_at, (time + duration, worker))
            numbers[worker] += 1
            if is_checked(numbers[worker], EVERY):
                self.checks.on_candidate(candidate(step, numbers[worker], worker))
            self.checks.add_batch_time(duration)
            self.worked += duration
            self._run_due_checks(seconds, step + 1)
        self.checks.end_is_near()
        self._run_due_checks(seconds, num_batches)

    def _run_due_checks(self, seconds, num_batches):
        """Run all checks that are due after so many batches, each at the mean cost."""
        for due in iter(self.checks.next, None):
            # A batch that is made after another one costs both.
            duration = seconds if due.after is None else 2 * seconds
            self.checks.add_process_time(self.process_seconds)
            answer(self.checks, due, duration)
            self.spent += duration + self.process_seconds
            if not self.checked:
                self.spent_on_first = self.spent
            if self.lasted < LONG:
                self.spent_at_first = self.spent
            self.checked.append(due)
            if not self.told and self.checks.informative:
                self.told = num_batches


@pytest.mark.parametrize("workers", [1, 3, 8, 20, 64])
def test_what_is_carried_is_told_by_the_twentieth_batch_for_little_of_an_epoch(workers):
    all_seconds = (0.001, 0.01, 0.05, 0.2, 0.6, 2.0)
    for epochs, seconds, spread in product((1, 3), all_seconds, (0.0, 0.7)):
        run = Run(workers, seconds, epochs * EPOCH, spread)
        assert 0 < run.told <= 20
        assert run.checked[0].is_informative
        # At most one check is of a worker's first batch, which shows nothing of carried state.
        assert run.checks.informative >= len(run.checked) - 1
        tolerance = spread * seconds + 1e-9
        assert run.spent_at_first <= run.spent_on_first + AT_FIRST + tolerance
        if run.lasted > LONG:
            most = max(run.spent_at_first, SHARE * run.worked)
            assert run.spent <= most + tolerance


@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16, 64])
def test_what_is_carried_is_told_before_a_short_program_ends(workers):
    for batches in range(2, 20):
        assert Run(workers, 0.2, batches).told


def test_many_workers_first_batches_are_made_again_after_another_one():
    (checked,) = Run(64, 2.0, 20).checked
    assert checked.nth_batch == 1
    assert checked.after is not None
    assert checked.after != checked.key


@pytest.mark.parametrize(("seconds", "most"), [(0.001, 1), (0.01, 2), (0.1, 2)])
def test_a_short_run_pays_for_one_check_and_next_to_nothing_else(seconds, most):
    run = Run(4, seconds, 300, process_seconds=0.04)
    assert run.told <= 20
    assert 1 <= len(run.checked) <= most
    assert run.spent - run.spent_on_first <= AT_FIRST + 1e-9


def test_the_process_that_is_made_for_a_check_counts():
    checks = checks_of()
    for step in range(20):
        checks.add_batch_time(1.0)
        checks.on_candidate(candidate(step, number=2, worker=step))
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
    checks.on_candidate(candidate(0, number=2))
    answer(checks, checks.next(), 0.1)
    assert checks.for_other_hashes() is None
    checks.run_has_lasted(LONG - 1)
    assert checks.for_other_hashes() is None
    checks.run_has_lasted(LONG)
    assert checks.for_other_hashes() is not None


def test_later_checks_take_batches_after_the_longest_history():
    run = Run(8, 0.2, 8 * EPOCH)
    numbers = [checked.nth_batch for checked in run.checked]
    assert numbers[0] == 2
    assert numbers[-1] >= 100
    assert numbers.count(1) <= 1


def test_a_check_that_came_to_nothing_is_followed_by_another():
    checks = checks_of()
    for step in range(4):
        checks.on_candidate(candidate(step, number=2, worker=step + 1))
        checks.add_batch_time(5.0)
    assert checks.next() is not None
    # The first check was not answered.
    assert checks.next() is not None
    answer(checks, candidate(1, number=2), 5.0)
    # The answered one has cost more than checks may take.
    assert checks.next() is None


def checked_of(numbers, every):
    """Return those of a worker's batches that are checked, by number."""
    return [number for number in numbers if is_checked(number, every)]


def test_first_second_fourth_and_then_one_in_so_many():
    powers_of_two = [1, 2, 4, 8, 16, 32, 64]
    assert checked_of(range(1, 400), every=100) == [*powers_of_two, 100, 200, 300]
    assert checked_of(range(1, 10), every=1) == list(range(1, 10))
    assert checked_of(range(1, 100), every=0) == []


def test_all_are_checked_where_that_is_asked_for_and_the_first_after_itself():
    checks = checks_of(every=1)
    all_checked = []
    for step in range(50):
        checks.add_batch_time(2.0)
        checks.on_candidate(candidate(step, number=1 + step // 5))
        for due in iter(checks.next, None):
            answer(checks, due, 2.0)
            all_checked.append(due)
    assert [checked.key.step for checked in all_checked] == list(range(50))
    first, *others = all_checked
    assert first.after == first.key
    for checked in others:
        assert checked.after is None


def test_late_batches_of_a_stream_cost_those_before_them():
    checks = checks_of(stateless=False)
    checks.on_candidate(candidate(1, number=2))
    early = checks.next()
    assert early is not None
    answer(checks, early, 0.02)
    for _ in range(1000):
        checks.add_batch_time(0.01)
    checks.on_candidate(candidate(5_000, number=100))
    assert checks.next() is None
    checks.on_candidate(candidate(7, number=4))
    due = checks.next()
    assert due is not None
    assert due.key.step == 7


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


@pytest.mark.parametrize(
    ("policy", "may_ask"),
    [
        pytest.param(checks_of(), True, id="any worker may make any batch"),
        pytest.param(checks_of(stateless=False), False, id="streams belong to workers"),
        pytest.param(checks_of(every=1), False, id="every batch is made again"),
    ],
)
def test_only_batches_that_any_worker_may_make_are_for_peers(policy, may_ask):
    policy.on_candidate(candidate(0))
    assert bool(policy.for_peers()) == may_ask
    policy.stop()
    assert policy.for_peers() == []


def test_an_equal_batch_of_a_peer_is_the_first_informative_check():
    policy = checks_of()
    policy.on_candidate(candidate(0))
    policy.begin_peer_check(candidate(0))
    policy.end_peer_check(candidate(0), RecheckResponse(BatchReport({}, {"x": "1"})))
    assert policy.done == 1
    assert policy.informative == 1
    assert policy.different == 0
    policy.on_candidate(candidate(1, worker=2))
    assert policy.for_peers() == []


def test_a_short_run_starts_no_process_after_a_peers_check():
    policy = checks_of()
    policy.on_candidate(candidate(0))
    policy.begin_peer_check(candidate(0))
    policy.end_peer_check(candidate(0), RecheckResponse(BatchReport({}, {"x": "1"})))
    for _ in range(100):
        policy.add_batch_time(0.1)
    policy.on_candidate(candidate(40, number=16))
    assert policy.next() is None
    policy.run_has_lasted(LONG)
    for _ in range(1000):
        policy.add_batch_time(0.1)
    assert policy.next().key.step == 40


@pytest.mark.parametrize(
    "response", [None, RecheckResponse(BatchReport({}, {"x": "2"}))], ids=["gone", "different"]
)
def test_the_checker_decides_where_a_peer_could_not(response):
    policy = checks_of()
    policy.on_candidate(candidate(5, number=2))
    policy.begin_peer_check(candidate(5, number=2))
    assert policy.next() is None
    policy.end_peer_check(candidate(5, number=2), response)
    assert policy.done == 0
    assert policy.informative == 0
    assert policy.for_peers() == []
    assert policy.next().key.step == 5


def test_the_difference_that_a_peer_found_is_told_even_if_the_checker_finds_none():
    policy = checks_of()
    policy.on_candidate(candidate(0))
    policy.begin_peer_check(candidate(0))
    policy.end_peer_check(candidate(0), RecheckResponse(BatchReport({}, {"x": "2"})))
    policy.on_candidate(candidate(1, number=2))
    assert policy.next() == candidate(1, number=2)
    mismatch = policy.compare(candidate(1, number=2), RecheckResponse(BatchReport({}, {"x": "1"})))
    assert mismatch is not None
    assert mismatch.candidate == candidate(0)
    assert mismatch.is_explained
    assert policy.different == 1
    answer(policy, candidate(3, number=4), 0.01)
    assert policy.different == 1


def agreed_with_a_peer():
    """Return a policy whose first check was made by a peer, in a run of a second."""
    policy = checks_of()
    policy.on_candidate(candidate(0))
    policy.begin_peer_check(candidate(0))
    policy.end_peer_check(candidate(0), RecheckResponse(BatchReport({}, {"x": "1"})))
    for _ in range(100):
        policy.add_batch_time(0.01)
    return policy


def test_peers_make_batches_with_a_long_history_again_if_that_is_cheap():
    policy = agreed_with_a_peer()
    for step, number in ((8, 4), (20, 8), (40, 16)):
        policy.on_candidate(candidate(step, number=number))
    late, earlier = policy.for_peers()
    assert (late.key.step, earlier.key.step) == (40, 20)
    assert policy.any_peer_will_do
    policy.begin_peer_check(late)
    policy.add_check_time(0.01)
    policy.end_peer_check(late, RecheckResponse(BatchReport({}, {"x": "1"})))
    assert policy.done == 2
    for _ in range(3):
        policy.add_check_time(0.01)
    policy.on_candidate(candidate(80, number=32))
    assert policy.for_peers() == []


def test_workers_that_differ_late_are_told_without_another_process():
    policy = agreed_with_a_peer()
    policy.on_candidate(candidate(40, number=16))
    (late,) = policy.for_peers()
    policy.begin_peer_check(late)
    mismatch = policy.end_peer_check(late, RecheckResponse(BatchReport({}, {"x": "2"})))
    assert mismatch is not None
    assert not mismatch.is_early
    assert mismatch.is_explained
    assert "made again by another worker" in mismatch.text()
    assert policy.different == 1
    assert policy.next() is None


def test_one_batch_of_a_later_epoch_is_made_again_whatever_it_costs():
    policy = agreed_with_a_peer()
    policy.add_check_time(LONG)
    policy.on_candidate(candidate(3, number=4))
    policy.on_candidate(candidate(1, number=8, epoch=1))
    policy.on_candidate(candidate(7, number=16, epoch=1))
    assert policy.for_peers() == []
    policy.user_is_in(1)
    (later,) = policy.for_peers()
    assert later.key == BatchKey(1, 1)
    policy.begin_peer_check(later)
    policy.end_peer_check(later, RecheckResponse(BatchReport({}, {"x": "1"})))
    assert policy.for_peers() == []
    assert policy.next() is None


def test_a_pristine_copy_makes_it_again_where_no_other_worker_can():
    policy = agreed_with_a_peer()
    policy.add_check_time(LONG)
    policy.on_candidate(candidate(1, number=8, epoch=1))
    assert policy.next() is None
    policy.user_is_in(1)
    assert policy.next() == candidate(1, number=8, epoch=1)
    policy.on_candidate(candidate(7, number=16, epoch=1))
    assert policy.next() is None


def test_a_stream_is_not_stepped_far_for_a_batch_of_a_later_epoch():
    policy = checks_of(stateless=False)
    policy.on_candidate(candidate(1, number=2))
    for _ in range(100):
        policy.add_batch_time(0.01)
    answer(policy, policy.next(), 1.0)
    policy.user_is_in(2)
    policy.on_candidate(candidate(70, number=64, epoch=1))
    assert policy.next() is None
    policy.on_candidate(candidate(15, number=128, epoch=2))
    assert policy.next() == candidate(15, number=128, epoch=2)


def test_in_a_long_run_pristine_copies_check_them():
    policy = agreed_with_a_peer()
    policy.on_candidate(candidate(40, number=16))
    policy.run_has_lasted(LONG)
    assert policy.for_peers() == []
