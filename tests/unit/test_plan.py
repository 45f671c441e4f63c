"""Steps, streams, turns and ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detaug.pipeline.plan import Plan

streams = st.integers(1, 40)
steps = st.integers(0, 10_000)


@given(streams, steps)
def test_step_stream_and_turn_follow_from_each_other(num_streams, step):
    plan = Plan(num_streams)
    assert plan.step_of(plan.stream_of(step), plan.turn_of(step)) == step


@given(streams, st.integers(1, 9), st.integers(0, 200))
def test_ranks_take_every_step_once_but_the_tail(num_streams, world_size, num_steps):
    taken = []
    for rank in range(world_size):
        plan = Plan(num_streams, rank, world_size, num_steps)
        own, step = [], plan.first_step()
        while step < plan.end:
            own.append(step)
            step = plan.next_step(step)
        assert len(own) == plan.steps_per_rank
        taken += own
    assert sorted(taken) == list(range(num_steps - num_steps % world_size))


@given(st.integers(1, 9), steps)
def test_a_round_has_one_step_of_each_rank(world_size, step):
    found = Plan(1, 0, world_size).round_of(step)
    assert step in found
    assert sorted(s % world_size for s in found) == list(range(world_size))
