"""The arithmetic of steps, streams, turns and ranks."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from detaug.pipeline.plan import TAILS, StepPlan

streams = st.integers(1, 40)
steps = st.integers(0, 10_000)


@given(streams, steps)
def test_step_stream_and_turn_follow_from_each_other(num_streams, step):
    plan = StepPlan(num_streams)
    assert plan.step_of(plan.stream_of(step), plan.turn_of(step)) == step


def steps_of_rank(plan: StepPlan, first: int) -> list[int]:
    """Return the steps of a plan's rank, from the first one to the epoch's end."""
    end = plan.end(plan.phase_of(first))
    return list(range(first, end, plan.world_size))


@given(streams, st.integers(1, 9), st.integers(0, 200), st.sampled_from(TAILS), st.integers(0, 60))
def test_ranks_take_every_step_once_but_for_the_tail(
    num_streams, world_size, num_steps, tail, origin
):
    # Another number of ranks has taken the steps before the origin.
    origin = min(origin, num_steps)
    all_steps = []
    # In the padded tail a rank makes the batch of an earlier step.
    all_made_at = []
    for rank in range(world_size):
        plan = StepPlan(num_streams, rank, world_size, num_steps, tail)
        rank_steps = steps_of_rank(plan, origin + rank)
        assert len(rank_steps) == plan.share_of(num_steps - origin)
        all_steps += rank_steps
        all_made_at += [plan.step_at(step) for step in rank_steps]
    num_left = (num_steps - origin) % world_size
    num_padded = (world_size - num_left) % world_size
    if tail == "drop":
        expected = list(range(origin, num_steps - num_left))
        assert sorted(all_steps) == sorted(all_made_at) == expected
        return
    padding = [i % num_steps for i in range(num_padded)]
    assert sorted(all_steps) == list(range(origin, num_steps + num_padded))
    assert sorted(all_made_at) == sorted([*range(origin, num_steps), *padding])
