"""The schedule: which batch is made next, which is due, and where epochs end."""

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

#: Stands for a thread's identifier; no thread has this one.
THREAD = -1


def handed_to_the_user(schedule: Schedule) -> Any:
    """Take the due outcome and mark it as received by the user; return it."""
    outcome = schedule.take(THREAD).outcome
    schedule.on_the_way.pop(THREAD, None)
    return outcome


def workers_of(number: int) -> list[SimpleNamespace]:
    """Return workers without tasks."""
    return [SimpleNamespace(index=index, tasks=deque()) for index in range(number)]


def run(
    schedule: Schedule, lengths: list[int] | None, num_workers: int, choose, num_batches: int
) -> list[BatchKey]:
    """Simulate workers until enough batches are handed out or the epoch ends; return the batches.

    Args:
        schedule: gives the workers their tasks.
        lengths: number of batches in each stream; None if streams do not end.
        num_workers: number of workers.
        choose: function that chooses which busy worker finishes next.
        num_batches: most batches that are handed out.
    """
    plan = schedule.plan
    handed_out = []
    workers = workers_of(num_workers)
    while len(handed_out) < num_batches:
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
        key = choose(busy).tasks.popleft()
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
    # Each run is (world size, batches per rank). The last one continues to the end of the epoch.
    lengths = [len(range(stream, num_steps, num_streams)) for stream in range(num_streams)]
    position = None
    steps = []
    for number, (world_size, num_batches) in enumerate(runs):
        is_last = number == len(runs) - 1
        num_batches = min(num_batches, (num_steps - len(steps)) // world_size)
        if is_last:
            num_batches = 10**6
        batches_of_ranks = []
        for rank in range(world_size):
            plan = StepPlan(num_streams, rank, world_size, num_steps)
            schedule = Schedule(plan, chance.randint(1, 5), 2, False)
            if position is not None:
                schedule.position = position._replace(step=len(steps) + rank)
            batches_of_ranks.append(run(schedule, lengths, 2, chance.choice, num_batches))
            if is_last:
                assert schedule.position == Position(1, rank, 0)
        for batches in zip(*batches_of_ranks, strict=True):
            steps += [key.step for key in batches]
        assert steps == list(range(len(steps)))
        position = Position(0, 0, 0, num_before_resize=len(steps))
    assert num_steps - len(steps) < runs[-1][0]


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
    """Draw a schedule, its reference, and the number of batches in each stream.

    With None for these numbers, streams do not end.
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
    finite = st.lists(st.integers(0, 5), min_size=num_streams, max_size=num_streams)
    lengths = draw(st.none() | finite)
    return Schedule(**arguments), ReferenceSchedule(**arguments), lengths


@settings(max_examples=100, deadline=None)
@given(schedules(), st.randoms(use_true_random=False), st.integers(10, 60))
def test_schedule_knows_at_every_event_what_a_walk_through_the_window_finds(both, chance, events):
    schedule, reference, lengths = both
    plan = schedule.plan
    num_workers = 1 if schedule.stateless else schedule._num_workers
    in_flight = []
    last_taken = None
    present = range(num_workers)

    def start():
        worker = chance.randrange(num_workers)
        key = schedule.next_for(worker, present, False)
        if key is not None:
            in_flight.append(key)
            schedule.start(key, worker)
            reference.start(key)

    def pop_in_flight():
        return in_flight.pop(chance.randrange(len(in_flight)))

    def finish():
        key = pop_in_flight()
        if lengths is None or plan.turn_of(key.step) < lengths[plan.stream_of(key.step)]:
            outcomes = [Delivered(key), Skipped(ValueError(), "", ""), Failed(ValueError())]
            (outcome,) = chance.choices(outcomes, [8, 1, 1])
            schedule.finish(key, outcome)
            reference.finish(key, outcome)
        elif plan.world_size == 1:
            schedule.end_stream(key)
            reference.end_stream(key)
        else:
            schedule.end_stream(key)
            reference.finish(key, schedule.outcomes.get(key, Failed(ValueError())))

    def take():
        nonlocal last_taken
        schedule.on_the_way.clear()
        last_taken = schedule.take(THREAD)[:2]
        reference.hand_out(*last_taken)

    def put_back():
        nonlocal last_taken
        if last_taken is None:
            return
        position, outcome = last_taken
        schedule.put_back(THREAD)
        if isinstance(outcome, Delivered):
            reference.outcomes[schedule.key_at(position)] = outcome
        if isinstance(outcome, (Delivered, EpochEnd)):
            reference.position = position
        last_taken = None

    def move():
        epoch = max(0, schedule.position.epoch + chance.randrange(-1, 3))
        turn = chance.randrange(8)
        in_mid_epoch = Position(epoch, plan.rank + turn * plan.world_size, turn)
        # Another number of ranks has taken the epoch's first batches.
        num_before_resize = chance.randrange(12)
        num_taken = chance.randrange(3)
        step = num_before_resize + plan.rank + num_taken * plan.world_size
        after_resize = Position(epoch, step, num_taken, num_before_resize)
        position = chance.choice([schedule.start_of(epoch), in_mid_epoch, after_resize])
        schedule.position = position
        reference.position = position

    def lose():
        key = pop_in_flight()
        schedule.requeue(key)
        reference.requeue(key)

    def be_interrupted():
        schedule._computed_for = None

    def forget_failures():
        schedule.forget_failures()
        reference.forget_failures()

    always_possible = [*[start] * 3, *[take] * 3, be_interrupted]
    with_tasks_in_flight = [*always_possible, *[finish] * 4, *[lose] * 2]
    rare = [move, put_back, forget_failures]
    for _ in range(events):
        event = chance.choice(with_tasks_in_flight if in_flight else always_possible)
        if chance.random() < 0.08:
            event = chance.choice(rare)
        if event is not take and event is not put_back:
            last_taken = None
            schedule.on_the_way.clear()
        event()
        assert list(schedule.window_tasks()) == reference.window_tasks()
        reference.prune()
        assert schedule.position == reference.position
        assert schedule.outcomes == reference.outcomes
        assert schedule.in_flight == reference.in_flight
        assert schedule.due() == reference.due()
        for worker in range(num_workers):
            assert schedule.next_for(worker, present, False) == reference.next_for(worker)


def tasks_per_worker(schedule, workers):
    """Assign all tasks that can be assigned; return the number of tasks of each worker."""
    for worker, key in assign_tasks(schedule, workers):
        worker.tasks.append(key)
    return [len(worker.tasks) for worker in workers]


def test_a_worker_has_one_task_in_hand_and_at_most_one_waiting_and_each_has_a_first_before_any_has_a_second():
    workers = workers_of(4)
    assert sorted(tasks_per_worker(Schedule(StepPlan(1), 6, 4, True), workers)) == [1, 1, 2, 2]
    assert sorted(worker.tasks[0].step for worker in workers) == [0, 1, 2, 3]
    assert tasks_per_worker(Schedule(StepPlan(1), 100, 4, True), workers) == [2, 2, 2, 2]


class Workers:
    """Simulated workers that start, end, and make the batches that they are assigned.

    Attributes:
        present: the running workers by index.
        made_by: stream -> index of the worker that made its last batch.
    """

    def __init__(self, schedule, num_workers, chance):
        self.schedule = schedule
        self.num_workers = num_workers
        self.chance = chance
        self.present = {}
        self.made_by = {}

    def start(self, index):
        """Start a worker, if it does not run."""
        self.present.setdefault(index, SimpleNamespace(index=index, tasks=deque()))

    def end(self, index):
        """End a worker and put its tasks back."""
        for key in self.present.pop(index).tasks:
            self.schedule.requeue(key)

    def work(self):
        """Take a batch, or let a worker make one; return whether either was possible."""
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
            workers.end(index)
        workers.start(chance.randrange(num_workers))
        for _ in range(chance.randrange(20)):
            assert workers.work(), "a batch is due, and nobody makes it"
    for index in range(num_workers):
        workers.start(index)
    for _ in range(60 * num_streams):
        assert workers.work()
    workers.made_by.clear()
    for _ in range(30 * num_streams):
        assert workers.work()
    makers = list(workers.made_by.values())
    num_streams_of = [makers.count(index) for index in range(num_workers)]
    # In a smaller window no worker is idle while another has two tasks, so streams need not move.
    if window >= num_streams * 2:
        assert max(num_streams_of) - min(num_streams_of) <= 1


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
