"""Which worker gets which tasks, without processes."""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from detaug.engine.order.outcomes import Delivered, EpochEnd, Position, Task
from detaug.engine.order.schedule import Schedule
from detaug.engine.prefetching import given_out
from detaug.pipeline.plan import Plan


@dataclass
class Place:
    index: int
    tasks: deque[Task] = field(default_factory=deque)


class World:
    """Workers that exist in a list only."""

    def __init__(self, schedule: Schedule, num_workers: int) -> None:
        self.schedule = schedule
        self.places = [Place(i) for i in range(num_workers)]

    def give_out(self) -> None:
        for place, task in given_out(self.schedule, self.places):
            place.tasks.append(task)

    def answer(self, place: Place) -> None:
        task = place.tasks.popleft()
        self.schedule.finish(task.key, Delivered(task.key))


def test_each_worker_has_a_first_task_before_any_has_a_second():
    world = World(Schedule(Plan(1), 6, 4, True), 4)
    world.give_out()
    assert sorted(len(place.tasks) for place in world.places) == [1, 1, 2, 2]
    assert sorted(place.tasks[0].key.step for place in world.places) == [0, 1, 2, 3]


def test_a_worker_has_one_task_in_hand_and_at_most_one_waiting():
    world = World(Schedule(Plan(1), 100, 2, True), 2)
    for _ in range(60):
        world.give_out()
        assert [len(place.tasks) for place in world.places] == [2, 2]
        world.answer(random.Random(0).choice(world.places))
        while isinstance(world.schedule.due()[1], Delivered):
            world.schedule.hand_out(*world.schedule.due())


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
    taken = []
    while True:
        position, outcome = schedule.due()
        if outcome is not None:
            schedule.hand_out(position, outcome)
            if isinstance(outcome, EpochEnd):
                break
            taken.append(outcome.batch.step)
            if chance.random() < 0.1:  # the user goes back, whatever is there, being made, or known of ends
                number = chance.randrange(len(taken))
                schedule.position, taken = Position(0, taken[number], number), taken[:number]
            continue
        world.give_out()
        busy = [place for place in world.places if place.tasks]
        assert busy, "something is due, and nobody works"
        place = chance.choice(busy)
        if chance.random() < 0.1:  # it dies, and another takes its place
            for task in place.tasks:
                schedule.lose(task.key)
            world.places[place.index] = Place(place.index)
            continue
        task = place.tasks.popleft()
        if task.key.step // num_streams >= lengths[task.key.step % num_streams]:
            schedule.end_stream(task.key)
        else:
            schedule.finish(task.key, Delivered(task.key))
    assert taken == sorted(turn * num_streams + s for s in range(num_streams) for turn in range(lengths[s]))
