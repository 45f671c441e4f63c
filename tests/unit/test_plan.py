"""Steps, streams, turns and ranks."""

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


def places(plan: StepPlan, first: int) -> list[int]:
    """Those of one rank, from its first on."""
    found, step = [], first
    while step < plan.end(plan.phase_of(first)):
        found.append(step)
        step += plan.world_size
    return found


@given(streams, st.integers(1, 9), st.integers(0, 200), st.sampled_from(TAILS), st.integers(0, 60))
def test_ranks_take_every_step_once_but_for_the_tail(
    num_streams, world_size, num_steps, tail, origin
):
    """Also where they go on from a step up to which another number of ranks took them."""
    origin = min(origin, num_steps)
    taken, made = [], []
    for rank in range(world_size):
        plan = StepPlan(num_streams, rank, world_size, num_steps, tail)
        own = places(plan, origin + rank)
        assert len(own) == plan.share_of(num_steps - origin)
        taken += own
        made += [plan.step_at(step) for step in own]
    left = (num_steps - origin) % world_size
    padding = (world_size - left) % world_size
    if tail == "drop":
        assert sorted(taken) == sorted(made) == list(range(origin, num_steps - left))
    else:
        assert sorted(taken) == list(range(origin, num_steps + padding))
        assert sorted(made) == sorted(
            [*range(origin, num_steps), *(i % num_steps for i in range(padding))]
        )
