"""Which worker gets which tasks, without processes."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug.engine.local.assignments import QUICK, Assignments
from detaug.engine.order.outcomes import Delivered, EpochEnd, Task
from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import Plan

SLOW = 10 * QUICK


@dataclass
class Place:
    number: int
    index: int
    since: float = 0.0
    tasks: deque[tuple[int, Task]] = field(default_factory=deque)
    begun: int = 0

    def task(self) -> int:
        return self.begun


class World:
    """Workers that exist in a list only."""

    def __init__(self, schedule: Schedule, num_workers: int) -> None:
        self.schedule = schedule
        self.assignments: Assignments[Place] = Assignments(schedule, num_workers)
        self.places = [Place(i, i) for i in range(num_workers)]

    def join_all(self) -> None:
        for place in self.places:
            self.assignments.join(place)

    def give_out(self) -> None:
        for place, entries in self.assignments.give_out():
            place.tasks.extend(entries)

    def answer(self, place: Place, seconds: float) -> None:
        ticket, task = place.tasks.popleft()
        self.assignments.answered(place, ticket, task, seconds)
        self.schedule.finish(task.key, Delivered(task.key))

    def steps(self, place: Place) -> list[int]:
        return [task.key.step for _, task in place.tasks]


def test_each_worker_has_a_first_task_before_any_has_a_second():
    world = World(Schedule(Plan(1), 6, 4, True), 4)
    world.join_all()
    world.give_out()
    assert sorted(len(place.tasks) for place in world.places) == [1, 1, 2, 2]
    assert sorted(place.tasks[0][1].key.step for place in world.places) == [0, 1, 2, 3]


def test_slow_workers_have_two_tasks_and_quick_ones_more():
    world = World(Schedule(Plan(1), 100, 2, True), 2)
    world.join_all()
    quick, slow = world.places
    for _ in range(60):
        world.give_out()
        world.answer(quick, QUICK / 2)
        world.answer(slow, SLOW)
        while isinstance(world.schedule.due()[1], Delivered):
            world.schedule.hand_out(*world.schedule.due())
    world.give_out()
    assert len(slow.tasks) == 2
    assert 8 <= len(quick.tasks) <= 16


def test_nobody_is_given_more_than_a_share_of_the_window():
    world = World(Schedule(Plan(1), 8, 2, True), 2)
    world.assignments.join(world.places[0])
    for _ in range(30):
        world.give_out()
        assert len(world.places[0].tasks) <= 4
        world.answer(world.places[0], QUICK / 2)
        world.schedule.hand_out(*world.schedule.due())


def test_idle_worker_takes_over_what_waits_behind_a_slow_batch():
    world = World(Schedule(Plan(1), 3, 2, True), 2)
    world.join_all()
    world.give_out()
    behind = next(place for place in world.places if len(place.tasks) == 2)
    other = next(place for place in world.places if place is not behind)
    assert world.assignments.to_take_over(now=1.0) is None, "nobody is idle"
    waiting = behind.tasks[1]
    world.answer(other, SLOW)
    assert world.assignments.to_take_over(now=1.0) == (behind, waiting[0], waiting[1].key)
    behind.tasks.remove(waiting)
    world.assignments.taken_back(behind, waiting[0], waiting[1].key)
    world.schedule.lose(waiting[1].key)
    world.give_out()
    assert [entry[1] for entry in other.tasks] == [waiting[1]]
    assert world.assignments.to_take_over(now=1.0) is None


def test_batch_that_was_begun_is_not_taken_over_though_earlier_answers_have_yet_to_come():
    world = World(Schedule(Plan(1), 22, 2, True), 2)
    place, other = world.places
    world.assignments.join(place)
    for _ in range(20):
        world.give_out()
        world.answer(place, QUICK / 2)
        world.schedule.hand_out(*world.schedule.due())
    world.give_out()
    assert len(place.tasks) > 5
    world.assignments.join(other)
    place.begun = 4
    taken = []
    while (found := world.assignments.to_take_over(now=2 * QUICK)) is not None:
        _, ticket, key = found
        taken.append(key)
        world.assignments.taken_back(place, ticket, key)
    assert place.tasks[4][1].key not in taken
    assert place.tasks[5][1].key in taken


def test_stream_bound_tasks_are_never_taken_over():
    world = World(Schedule(Plan(2), 6, 2, stateless=False), 2)
    world.join_all()
    world.give_out()
    first, second = world.places
    while second.tasks:
        world.answer(second, SLOW)
    assert len(first.tasks) == 2
    assert world.assignments.to_take_over(now=1.0) is None
    assert not world.assignments.may_take_over


def test_worker_that_is_gone_or_cannot_read_is_given_nothing():
    world = World(Schedule(Plan(1), 8, 2, True), 2)
    world.join_all()
    world.assignments.leave(world.places[0])
    world.assignments.rest(world.places[1])
    assert world.assignments.give_out() == []
    assert not world.assignments.hungry
    world.assignments.wake(world.places[1])
    world.give_out()
    assert world.steps(world.places[1]) == [0, 1]


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 12),
    st.integers(1, 4),
    st.booleans(),
    st.lists(st.integers(0, 9), min_size=4, max_size=4),
    st.integers(0, 2**32),
)
def test_every_task_is_given_out_whatever_happens(num_workers, window, num_streams, stateless, lengths, seed):
    chance = random.Random(seed)
    schedule = Schedule(Plan(num_streams), window, num_workers, stateless)
    world = World(schedule, num_workers)
    world.join_all()
    taken = []
    while True:
        position, outcome = schedule.due()
        if outcome is not None:
            schedule.hand_out(position, outcome)
            if isinstance(outcome, EpochEnd):
                break
            taken.append(outcome.batch.step)
            continue
        world.give_out()
        busy = [place for place in world.places if place.tasks]
        assert busy, "something is due, and nobody works"
        place = chance.choice(busy)
        if chance.random() < 0.1:  # it dies, and another takes its place
            world.assignments.leave(place)
            for _, task in place.tasks:
                schedule.lose(task.key)
            world.places[place.index] = Place(max(p.number for p in world.places) + 1, place.index)
            world.assignments.join(world.places[place.index])
            continue
        ticket, task = place.tasks.popleft()
        world.assignments.answered(place, ticket, task, chance.choice([QUICK / 500, QUICK / 2, SLOW]))
        if task.key.step // num_streams >= lengths[task.key.step % num_streams]:
            schedule.end_stream(task.key)
        else:
            schedule.finish(task.key, Delivered(task.key))
    assert taken == sorted(turn * num_streams + s for s in range(num_streams) for turn in range(lengths[s]))


@pytest.mark.parametrize("stateless", [True, False])
def test_workers_without_work_make_a_moved_position_news(stateless):
    world = World(Schedule(Plan(4), 2, 2, stateless), 2)
    world.join_all()
    world.give_out()
    assert world.assignments.hungry, "each has but one"
    wide = World(Schedule(Plan(4), 8, 2, stateless), 2)
    wide.join_all()
    wide.give_out()
    assert not wide.assignments.hungry
