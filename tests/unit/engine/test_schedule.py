"""What is made next and what is due, and how long epochs are, without processes."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug import DeterministicAugmenter
from detaug.engine.outcomes import Delivered, EpochEnd, Failed, Position, Skipped
from detaug.engine.prefetching_engine import assign_tasks
from detaug.engine.schedule import Schedule
from detaug.pipeline.plan import TAILS, BatchKey, StepPlan
from detaug.pipeline.sources import resolve_source
from tests.unit.engine.reference_schedule import ReferenceSchedule

#: No identifier of a thread.
THREAD = -1


def handed_to_the_user(schedule: Schedule) -> Any:
    """Return the due outcome, which is not on the way any more."""
    outcome = schedule.take(THREAD).outcome
    schedule.on_the_way.pop(THREAD, None)
    return outcome


def workers_of(number: int) -> list[SimpleNamespace]:
    return [SimpleNamespace(index=index, tasks=deque()) for index in range(number)]


def run(
    schedule: Schedule, lengths: list[int] | None, num_workers: int, order, batches: int
) -> list[BatchKey]:
    """Play workers that finish in the order that `order` picks, until enough is handed out or the
    epoch ends.
    """
    plan = schedule.plan
    handed_out = []
    workers = workers_of(num_workers)
    while len(handed_out) < batches:
        outcome = handed_to_the_user(schedule)
        if isinstance(outcome, EpochEnd):
            return handed_out
        if isinstance(outcome, Delivered):
            handed_out.append(outcome.batch)
            continue
        for worker, key in assign_tasks(schedule, workers):
            worker.tasks.append(key)
        busy = [worker for worker in workers if worker.tasks]
        assert busy, "nothing is due and nobody works"
        key = order(busy).tasks.popleft()
        if lengths is not None and plan.turn_of(key.step) >= lengths[plan.stream_of(key.step)]:
            schedule.end_stream(key)
        else:
            schedule.finish(key, Delivered(key))
    return handed_out


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4),
    st.randoms(use_true_random=False),
)
def test_ranks_in_changing_numbers_share_a_finite_source_out(num_streams, num_steps, runs, chance):
    """(world size, rounds) for each run; the last one goes on to the end of the epoch."""
    lengths = [len(range(stream, num_steps, num_streams)) for stream in range(num_streams)]
    position, taken, reached = None, [], 0
    for number, (world_size, rounds) in enumerate(runs):
        is_last = number == len(runs) - 1
        rounds = min(rounds, (num_steps - reached) // world_size)
        of_ranks = []
        for rank in range(world_size):
            plan = StepPlan(num_streams, rank, world_size, num_steps)
            schedule = Schedule(plan, chance.randint(1, 5), 2, False)
            if position is not None:
                schedule.position = position._replace(step=reached + rank)
            of_ranks.append(run(schedule, lengths, 2, chance.choice, 10**6 if is_last else rounds))
            if is_last:
                assert schedule.position == Position(1, rank, 0)
        taken += [key.step for at_once in zip(*of_ranks, strict=True) for key in at_once]
        reached = len(taken)
        assert taken == list(range(reached))
        position = Position(0, 0, 0, num_before_resize=reached)
    assert num_steps - reached < runs[-1][0]


@pytest.mark.parametrize("num_steps", [9, None])
def test_a_batch_that_is_missing_fails_where_several_ranks_need_it(num_steps):
    schedule = Schedule(StepPlan(2, 1, 3, num_steps), 1, 1, stateless=False)
    key = schedule.next_for(0)
    schedule.end_stream(key)
    outcome = handed_to_the_user(schedule)
    assert isinstance(outcome, Failed)
    assert "no batch for step 1 of epoch 0" in str(outcome.error)
    assert "batches_per_epoch" in str(outcome.error)
    assert schedule.position.step == key.step


@st.composite
def schedules(draw):
    """The same schedule twice, and a world in which its tasks come true: how long each stream is in
    each epoch.
    """
    num_streams = draw(st.integers(1, 5))
    world_size = draw(st.integers(1, 4))
    rank = draw(st.integers(0, world_size - 1))
    num_steps = draw(st.none() | st.integers(0, 12))
    tail = draw(st.sampled_from(TAILS))
    arguments = {
        "plan": StepPlan(num_streams, rank, world_size, num_steps, tail),
        "window": draw(st.integers(1, 9)),
        "num_workers": draw(st.integers(1, 4)),
        "stateless": draw(st.booleans()),
        "limit": draw(st.none() | st.integers(0, 14)),
    }
    ends = st.lists(st.integers(0, 5), min_size=num_streams, max_size=num_streams)
    lengths = draw(st.none() | ends)
    return Schedule(**arguments), ReferenceSchedule(**arguments), lengths


@settings(max_examples=100, deadline=None)
@given(schedules(), st.randoms(use_true_random=False), st.integers(10, 60))
def test_schedule_knows_at_every_event_what_a_walk_through_the_window_finds(both, chance, events):
    schedule, reference, lengths = both
    plan = schedule.plan
    workers = 1 if schedule.stateless else schedule._num_workers
    begun = []
    handed_out = None
    present = range(workers)

    def each(what, *arguments):
        for one in (schedule, reference):
            getattr(one, what)(*arguments)

    def start():
        worker = chance.randrange(workers)
        key = schedule.next_for(worker, present, False)
        if key is not None:
            begun.append(key)
            schedule.start(key, worker)
            reference.start(key)

    def finish():
        key = begun.pop(chance.randrange(len(begun)))
        if lengths is None or plan.turn_of(key.step) < lengths[plan.stream_of(key.step)]:
            kinds = [Delivered(key), Skipped(ValueError(), "", ""), Failed(ValueError())]
            (outcome,) = chance.choices(kinds, [8, 1, 1])
            each("finish", key, outcome)
        elif plan.world_size == 1:
            each("end_stream", key)
        else:
            schedule.end_stream(key)
            reference.finish(key, schedule.outcomes.get(key, Failed(ValueError())))

    def go_on():
        nonlocal handed_out
        schedule.on_the_way.clear()
        handed_out = schedule.take(THREAD)[:2]
        reference.hand_out(*handed_out)

    def put_back():
        nonlocal handed_out
        if handed_out is not None:
            each_put_back(*handed_out)
            handed_out = None

    def each_put_back(position, outcome):
        schedule.put_back(THREAD)
        if isinstance(outcome, Delivered):
            reference.outcomes[schedule.key_at(position)] = outcome
        if isinstance(outcome, (Delivered, EpochEnd)):
            reference.position = position

    def jump():
        epoch = max(0, schedule.position.epoch + chance.randrange(-1, 3))
        turn = chance.randrange(8)
        place = Position(epoch, plan.rank + turn * plan.world_size, turn)
        # From there on there are as many ranks as now.
        first = chance.randrange(12)
        taken = chance.randrange(3)
        step = first + plan.rank + taken * plan.world_size
        begun_by_others = Position(epoch, step, taken, first)
        position = chance.choice([schedule.start_of(epoch), place, begun_by_others])
        schedule.position = position
        reference.position = position

    def lose():
        each("requeue", begun.pop(chance.randrange(len(begun))))

    def be_interrupted():
        schedule._computed_for = None

    def forget_failures():
        each("forget_failures")

    usual = [*[start] * 3, *[go_on] * 3, be_interrupted]
    busy = [*[finish] * 4, *[lose] * 2]
    seldom = [jump, put_back, forget_failures]
    for _ in range(events):
        do = chance.choice(usual + busy if begun else usual)
        if chance.random() < 0.08:
            do = chance.choice(seldom)
        if do is not go_on and do is not put_back:
            handed_out = None
            schedule.on_the_way.clear()
        do()
        assert list(schedule.window_tasks()) == reference.window_tasks()
        reference.prune()
        assert schedule.position == reference.position
        assert schedule.outcomes == reference.outcomes
        assert schedule.in_flight == reference.in_flight
        assert schedule.due() == reference.due()
        for worker in range(workers):
            assert schedule.next_for(worker, present, False) == reference.next_for(worker)


def given_to_each(schedule, workers):
    """The numbers of tasks that the workers have, once they were given what there is."""
    for worker, key in assign_tasks(schedule, workers):
        worker.tasks.append(key)
    return [len(worker.tasks) for worker in workers]


def test_a_worker_has_one_task_in_hand_and_at_most_one_waiting_and_each_has_a_first_before_any_has_a_second():
    workers = workers_of(4)
    assert sorted(given_to_each(Schedule(StepPlan(1), 6, 4, True), workers)) == [1, 1, 2, 2]
    assert sorted(worker.tasks[0].step for worker in workers) == [0, 1, 2, 3]
    assert given_to_each(Schedule(StepPlan(1), 100, 4, True), workers) == [2, 2, 2, 2]


class Workers:
    """Workers that come and go, and make what they are given."""

    def __init__(self, schedule, num_workers, chance):
        self.schedule = schedule
        self.num_workers = num_workers
        self.chance = chance
        self.present = {}
        self.made_by = {}

    def come(self, index):
        self.present.setdefault(index, SimpleNamespace(index=index, tasks=deque()))

    def go(self, index):
        for key in self.present.pop(index).tasks:
            self.schedule.requeue(key)

    def work(self):
        """One of them makes a batch, or the reader takes one; False: nobody can do anything."""
        workers = sorted(self.present.values(), key=lambda worker: worker.index)
        for worker, key in assign_tasks(self.schedule, workers):
            worker.tasks.append(key)
        if isinstance(handed_to_the_user(self.schedule), Delivered):
            return True
        busy = [worker for worker in workers if worker.tasks]
        if not busy:
            return False
        worker = self.chance.choice(busy)
        key = worker.tasks.popleft()
        self.made_by[self.schedule.plan.stream_of(key.step)] = worker.index
        self.schedule.finish(key, Delivered(key))
        return True


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 9),
    st.integers(1, 5),
    st.integers(1, 8),
    st.integers(1, 3),
    st.randoms(use_true_random=False),
)
def test_streams_are_made_by_whoever_is_there_and_shared_fairly_once_all_have_come(
    num_streams, num_workers, window, world_size, chance
):
    plan = StepPlan(num_streams, chance.randrange(world_size), world_size)
    schedule = Schedule(plan, window, num_workers, stateless=False)
    workers = Workers(schedule, num_workers, chance)
    for _ in range(12):
        index = chance.randrange(num_workers)
        if index in workers.present and len(workers.present) > 1:
            workers.go(index)
        workers.come(chance.randrange(num_workers))
        for _ in range(chance.randrange(20)):
            assert workers.work(), "a batch is due, and nobody makes it"
    for index in range(num_workers):
        workers.come(index)
    for _ in range(60 * num_streams):
        assert workers.work()
    workers.made_by.clear()
    for _ in range(30 * num_streams):
        assert workers.work()
    makers = list(workers.made_by.values())
    numbers = [makers.count(index) for index in range(num_workers)]
    # In a smaller window nobody is ever idle while another has two to make.
    if window >= num_streams * 2:
        assert max(numbers) - min(numbers) <= 1


@pytest.mark.parametrize(
    ("limit", "num_steps", "total"), [(None, None, None), (7, None, 7), (None, 9, 9), (7, 9, 7)]
)
def test_total_is_the_smaller_of_what_the_user_and_the_loader_say(limit, num_steps, total):
    source = resolve_source([1], None, limit)
    source.num_steps = num_steps
    source.length_hint = None
    assert source.total_batches == total


@pytest.mark.parametrize(("num_processes", "window"), [(3, 5), (0, 1)])
def test_the_window_has_what_is_made_and_what_is_kept_ready_and_one_step_without_workers(
    num_processes, window
):
    options = {"num_processes": num_processes, "seed": 1}
    augmenter = DeterministicAugmenter.from_dataset([1, 2], 1, **options)
    assert augmenter._schedule.window == window
