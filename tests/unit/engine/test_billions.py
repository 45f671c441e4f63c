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

import numpy as np
import pytest

from detaug.engine.order.outcomes import Delivered, EpochEnd, Position
from detaug.engine.order.schedule import Schedule
from detaug.engine.state import State
from detaug.pipeline.plan import TAILS, Plan

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


@pytest.mark.parametrize("tail", TAILS)
def test_every_step_has_one_rank_for_every_number_of_ranks(tail):
    chance = random.Random(5)
    for world_size in range(1, 4097):
        step = chance.randrange(STEPS)
        origin = chance.choice([0, chance.randrange(step + 1)])
        rank = (step - origin) % world_size
        plan = plan_of(rank, world_size, tail=tail)
        takes_it = step < plan.end(plan.phase_of(origin + rank))
        last = STEPS - (STEPS - origin) % world_size
        assert takes_it == (tail != "drop" or step < last)
        assert step in plan.round_of(step, plan.phase_of(step))
        others = {chance.randrange(world_size) for _ in range(3)} - {rank}
        assert all((step - origin - other) % world_size for other in others)
        assert (
            sum_of_shares(world_size, STEPS - origin, tail)
            == {
                "drop": last - origin,
                "pad": STEPS - origin + (origin - STEPS) % world_size,
                "uneven": STEPS - origin,
            }[tail]
        )


def sum_of_shares(world_size: int, batches: int, tail: str) -> int:
    """Shares fall with the rank, by one at most: so where they fall is found by halving."""
    shares = [plan_of(rank, world_size, tail=tail).share_of(batches) for rank in (0, world_size - 1)]
    assert 0 <= shares[0] - shares[1] <= 1
    if shares[0] == shares[1]:
        return shares[0] * world_size
    below, above = 0, world_size - 1
    while below < above:
        middle = (below + above) // 2
        if plan_of(middle, world_size, tail=tail).share_of(batches) == shares[0]:
            below = middle + 1
        else:
            above = middle
    return shares[0] * below + shares[1] * (world_size - below)


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


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("world_size", [1, 3, 64, 1000, 4096])
def test_all_steps_of_a_smaller_epoch_are_taken_once(world_size, tail):
    """Counted one by one: a million steps, of which 4,096 ranks took the first."""
    num_steps, counts = 1_000_003, np.zeros(1_000_003, np.int64)
    origin = 77 * 8
    for rank in range(8):
        counts[rank:origin:8] += 1
    state = state_at(Position(0, origin + 5, 77), 5, 8)
    for rank in range(world_size):
        plan = plan_of(rank, world_size, num_steps, tail)
        first = state.position_for(rank, world_size)
        end = plan.end(plan.phase_of(first.step))
        own = np.arange(first.step, end, world_size)
        assert len(own) == plan.share_of(num_steps - origin)
        np.add.at(counts, [plan.made_at(int(step)) for step in own[-2:]], 1)
        counts[own[:-2]] += 1
    left = (num_steps - origin) % world_size
    expected = np.ones_like(counts)
    if tail == "drop" and left:
        expected[-left:] = 0
    if tail == "pad" and left:
        expected[: world_size - left] += 1
    assert np.array_equal(counts, expected)


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
