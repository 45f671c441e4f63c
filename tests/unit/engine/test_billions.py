"""Up to 4,096 ranks and 10⁹ steps per epoch: every step exactly once, whatever happens to the ranks, and a step costs the same.

So many steps cannot be counted one by one. What is counted is what the schedule and the state dict do themselves, in exact
arithmetic: the ranks of one stretch of an epoch start at steps next to each other and each walks in strides of their number, so
that together they take every step of the stretch once if the stretches join and the ranks' numbers of steps add up.
"""

from __future__ import annotations

import json
import random
import sys
import tracemalloc

import pytest

from detaug.engine.order.outcomes import Delivered, EpochEnd, Position
from detaug.engine.order.schedule import Schedule
from detaug.engine.state import State
from detaug.pipeline.plan import Plan

STEPS = 10**9
STREAMS = 12
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 48, 64, 100, 997, 1000, 1024, 2048, 4095, 4096)


def plan_of(rank: int, world_size: int, num_steps: int = STEPS, tail: str = "drop") -> Plan:
    return Plan(STREAMS, rank, world_size, num_steps, tail, num_steps if tail == "pad" else None)


def state_at(position: Position, rank: int, world_size: int) -> State:
    """What is read of the state dict that is saved there."""
    saved = State(1, "", *position[:3], rank, world_size, STREAMS, ["x = 1"], before=position.before)
    return State.from_dict(json.loads(json.dumps(saved.as_dict())))


def at_round(number: int, rank: int, world_size: int, first: Position) -> Position:
    return first._replace(step=first.step + number * world_size, taken=first.taken + number)


def end_of(first: Position, plan: Plan) -> int:
    """How many steps of its own a rank takes from there on: found by asking `is_over`, in O(log) questions."""
    schedule = Schedule(plan, 1, 1, True)
    below, above = 0, STEPS + plan.world_size
    while below < above:
        middle = (below + above) // 2
        if schedule.is_over(at_round(middle, plan.rank, plan.world_size, first)):
            above = middle
        else:
            below = middle + 1
    return below


@pytest.mark.parametrize("seed", range(20))
def test_stretches_of_any_number_of_ranks_join_without_gap_or_overlap(seed):
    """Through state dicts, as JSON, of whichever rank saves."""
    chance = random.Random(seed)
    reached, stretches = 0, []
    world_size = chance.choice([*SIZES, chance.randint(1, 4096)])
    state = None
    while reached < STEPS:
        samples = sorted({0, world_size - 1, *(chance.randrange(world_size) for _ in range(6))})
        firsts = {
            rank: Schedule(plan_of(rank, world_size), 1, 1, True).start_of(0)
            if state is None
            else state.position_for(rank, world_size)
            for rank in samples
        }
        assert all(first.step == reached + rank for rank, first in firsts.items())
        rounds = {rank: end_of(first, plan_of(rank, world_size)) for rank, first in firsts.items()}
        assert set(rounds.values()) == {(STEPS - reached) // world_size}, "all ranks have equally many"
        number = rounds[0]
        if chance.random() < 0.9:  # else to the end
            number = chance.choice([min(number, 1), min(number, 3), chance.randint(0, number)])
        saver = chance.choice(samples)
        state = state_at(at_round(number, saver, world_size, firsts[saver]), saver, world_size)
        stretches.append((reached, number, world_size))
        reached += number * world_size
        world_size = 1 if len(stretches) == 30 else chance.choice([*SIZES, chance.randint(1, 4096)])
    assert sum(number * size for _, number, size in stretches) == STEPS
    assert Schedule(plan_of(0, 1), 1, 1, True).is_over(state.position_for(0, 1))


@pytest.mark.parametrize(("rank", "world_size"), [(0, 1), (2047, 4096)])
def test_a_step_costs_the_same_wherever_it_is_and_however_many_there_are(rank, world_size):
    """Time counted in lines of Python that run, and memory in bytes."""
    few = cost_of_a_step(rank, world_size, 10**6, after=1)
    for after in (0, 1, 10**9 // world_size // 2, 10**9 // world_size - 60):
        many = cost_of_a_step(rank, world_size, STEPS, after)
        assert many[0] <= 1.1 * few[0]
        assert many[1] <= 1.5 * few[1] + 2000


def cost_of_a_step(rank: int, world_size: int, num_steps: int, after: int) -> tuple[float, int]:
    first = Position(0, rank, 0) if after == 0 else Position(0, rank + 5 + after * world_size, after, 5)
    lines, steps = 0, 20

    def count(_frame, event, _argument):
        nonlocal lines
        lines += event == "line"
        return count

    tracemalloc.start()
    schedule = Schedule(plan_of(rank, world_size, num_steps), 4, 2, True)
    schedule.position = state_at(first, rank, world_size).position_for(rank, world_size)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        for _ in range(steps):
            task = schedule.next_for(0)
            schedule.start(task.key)
            schedule.finish(task.key, Delivered(None))
            taken = schedule.take()
            assert not isinstance(taken.outcome, EpochEnd)
    finally:
        sys.settrace(before)
        memory = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return lines / steps, memory
