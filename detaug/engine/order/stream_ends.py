"""Where streams have ended, and where an epoch ends because of that."""

from __future__ import annotations

from dataclasses import dataclass, field

from detaug.pipeline.plan import BatchKey, Plan


@dataclass
class _Ends:
    """What is known of the ends of one epoch's streams.

    Attributes:
        turns: of each stream that ended, the first turn that it does not have.
        known: (phase, the first step behind the epoch's end where rounds have that phase; None while it is not known).
    """

    turns: dict[int, int] = field(default_factory=dict)
    known: tuple[int, int | None] = (0, None)


class StreamEnds:
    """The ends of streams by epoch, as far as workers have found them.

    Args:
        plan: steps, streams, ranks.
        probing: an epoch ends with the last round of steps that is complete on all ranks, else with this rank's last step.
        stride: this rank's streams are every so-maniest; which, changes with the phase.

    Attributes:
        epochs: those in which a stream has ended. While it is empty there are no gaps and no ends to ask for.
    """

    def __init__(self, plan: Plan, probing: bool, stride: int) -> None:
        self.epochs: dict[int, _Ends] = {}
        self._plan, self._probing, self._stride = plan, probing, stride

    def is_gap(self, key: BatchKey) -> bool:
        """Whether that step's stream has ended at or before its turn."""
        ends = self.epochs.get(key.epoch)
        turn = None if ends is None else ends.turns.get(self._plan.stream_of(key.step))
        return turn is not None and self._plan.turn_of(key.step) >= turn

    def epochs_end(self, epoch: int, phase: int) -> int | None:
        """The first step behind the epoch's end, as far as the streams' ends tell."""
        ends = self.epochs.get(epoch)
        if ends is None:
            return None
        if ends.known[0] != phase:
            ends.known = (phase, self._end_by(ends.turns, phase))
        return ends.known[1]

    def note(self, key: BatchKey, phase: int) -> None:
        """There is no such step."""
        ends = self.epochs.setdefault(key.epoch, _Ends())
        stream, turn = self._plan.stream_of(key.step), self._plan.turn_of(key.step)
        ends.turns[stream] = min(turn, ends.turns.get(stream, turn))
        ends.known = (phase, self._end_by(ends.turns, phase))

    def forget_before(self, epoch: int) -> None:
        """Nobody asks about earlier epochs any more."""
        for number in [number for number in self.epochs if number < epoch]:
            del self.epochs[number]

    def _end_by(self, turns: dict[int, int], phase: int) -> int | None:
        if self._probing:
            # The first round that is not complete is where all ranks stop.
            missing = (self._plan.step_of(stream, turn) for stream, turn in turns.items())
            return min((self._plan.round_of(step, phase).start for step in missing), default=None)
        own = range((phase + self._plan.rank) % self._stride, self._plan.num_streams, self._stride)
        if len(turns) < len(own) or not all(stream in turns for stream in own):
            return None
        return max(self._plan.step_of(stream, turns[stream] - 1) for stream in own) + 1
