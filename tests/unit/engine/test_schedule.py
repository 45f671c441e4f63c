"""What is made next and what is due, without processes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from detaug.engine.order.outcomes import Delivered, EpochEnd, Exists, Position
from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import BatchKey, Plan


def run(schedule: Schedule, lengths: list[int] | None, num_workers: int, order, batches: int) -> list[BatchKey]:
    """Play workers that finish in the order that `order` picks, until enough is handed out or the epoch ends."""
    plan, handed_out, working = schedule.plan, [], {}
    while len(handed_out) < batches:
        position, outcome = schedule.due()
        if isinstance(outcome, EpochEnd):
            schedule.hand_out(position, outcome)
            return handed_out
        if isinstance(outcome, Delivered):
            handed_out.append(outcome.batch)
            schedule.hand_out(position, outcome)
            continue
        for worker in range(num_workers):
            if worker not in working and (task := schedule.next_for(worker)) is not None:
                schedule.start(task.key)
                working[worker] = task
        assert working, "nothing is due and nobody works"
        worker = order(sorted(working))
        task = working.pop(worker)
        stream, turn = plan.stream_of(task.key.step), plan.turn_of(task.key.step)
        if lengths is not None and turn >= lengths[stream]:
            schedule.end_stream(task.key)
        else:
            schedule.finish(task.key, Exists() if task.probe else Delivered(task.key))
    return handed_out


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(0, 7), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=4),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_ranks_in_changing_numbers_share_a_finite_source_out_up_to_its_first_gap(lengths, runs, known, chance):
    """(world size, rounds) for each run; the last one goes on to the end of the epoch."""
    num_streams = len(lengths)
    if known:  # dealt out one by one
        num_steps = sum(lengths)
        lengths = [len(range(stream, num_steps, num_streams)) for stream in range(num_streams)]
    exists = {turn * num_streams + stream for stream, n in enumerate(lengths) for turn in range(n)}
    first_gap = next(step for step in range(100) if step not in exists)
    position, taken, reached = None, [], 0
    for number, (world_size, rounds) in enumerate(runs):
        last = number == len(runs) - 1
        rounds = min(rounds, (first_gap - reached) // world_size)
        of_ranks = []
        for rank in range(world_size):
            plan = Plan(num_streams, rank, world_size, num_steps if known else None)
            schedule = Schedule(plan, chance.randint(1, 5), 2, False, probing=not known)
            if position is not None:
                schedule.position = position._replace(step=reached + rank)
            of_ranks.append(run(schedule, lengths, 2, chance.choice, 10**6 if last else rounds))
            if last:
                assert schedule.position == Position(1, rank, 0)
        assert len({len(keys) for keys in of_ranks}) == 1
        if not last or world_size > 1 or known:
            taken += [key.step for at_once in zip(*of_ranks, strict=True) for key in at_once]
            reached = len(taken)
            assert taken == list(range(reached))
        else:  # a single process passes over gaps
            assert [key.step for key in of_ranks[0]] == sorted(step for step in exists if step >= reached)
        position = Position(0, 0, 0, before=reached)
    if runs[-1][0] > 1 or known:
        assert first_gap - reached < runs[-1][0]
