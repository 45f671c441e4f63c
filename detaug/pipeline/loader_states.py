"""What loaders say of where they stand (`state_dict`), so that their streams go on there without being stepped forward.

A state names the turn that its stream's copy gives next. What is not known is stepped forward from the latest state before
it, or from the start: states save time and are never needed.

Invariants:
- A state is plain JSON: going through text changes nothing about it.
- Which states are behind the reader follows from the position alone, so that a batch that is due again (Ctrl-C) takes
  its state back with it.
- What other threads read is replaced whole, never changed in place.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from detaug.pipeline.plan import BatchKey
from detaug.seeding.tree import positive_int, spawn_key_element
from detaug.sources import Source

#: Characters of a state's text. Larger ones are not taken.
LARGEST = 65_536
#: States of a stream that are kept behind the reader, and ahead of it.
_BEHIND, _AHEAD = 3, 64


class NotPlain(Exception):
    """A loader's state is not plain JSON, or too large."""


class CannotRestore(Exception):
    """A loader's ``load_state_dict`` raised."""


class LoaderState(NamedTuple):
    """Where the copy of a stream stands: see `detaug.pipeline.streams.StreamCopy`; `text` is the loader's own state as JSON."""

    stream: int
    epoch: int
    turn: int
    in_mid_pass: bool
    text: str

    def last_step(self, num_streams: int) -> BatchKey:
        """The batch after which it was taken."""
        return BatchKey(self.epoch, (self.turn - 1) * num_streams + self.stream)


def text_of(state: Any) -> str:
    """A loader's state as JSON. NotPlain: reading it again would give something else, or it is too large."""
    try:
        text = json.dumps(state, allow_nan=False)
        # By their texts, which tell a tuple from a list, and a subclass from its base.
        if repr(json.loads(text)) != repr(state):
            raise NotPlain(
                "only dicts with keys of text, lists, str, int, float, bool and None come back from JSON as they were"
            )
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPlain(f"it cannot be written as JSON: {type(error).__name__}: {error}") from error
    if len(text) > LARGEST:
        raise NotPlain(f"it has more than {LARGEST} characters as JSON")
    return text


def leads(
    source: Source, stream: int, num_streams: int, at: tuple[int, int], to: tuple[int, int]
) -> bool:
    """Whether stepping forward a copy that gives (epoch, turn) `at` next arrives at `to`."""
    if at[0] == to[0]:
        return at[1] <= to[1]
    if at[0] > to[0] or not source.goes_on:
        return False
    # Beyond its epoch's turns a copy has given batches that belong to the next epoch as well.
    turns = source.turns_per_epoch(stream, num_streams)
    return turns is None or at[1] <= turns


class LoaderStates:
    """The states that are known of an augmenter's streams."""

    def __init__(self, source: Source, num_streams: int) -> None:
        self._source = source
        self._num_streams = num_streams
        self._loaded: dict[int, LoaderState] = {}
        self._taken: dict[int, tuple[LoaderState, ...]] = {}
        #: The loader has any; nothing speaks against them.
        self.enabled = self.trusted = source.keeps_states
        #: Rises whenever states are loaded.
        self.generation = 0
        #: A batch made from a state was found equal to the running stream's; a stream was restored from a state.
        self.verified = self.used = False

    def load(self, states: list[LoaderState]) -> None:
        """From now on go by these alone."""
        self._taken = {}
        self._loaded = {state.stream: state for state in states} if self.enabled else {}
        self.trusted, self.verified, self.used = self.enabled, False, False
        self.generation += 1

    def give(self, state: LoaderState) -> None:
        """As `load`, for one stream."""
        self._loaded = {**self._loaded, state.stream: state}

    def add(self, state: LoaderState, due: BatchKey) -> None:
        """A stream's copy stands there; `due` is the reader's next batch."""
        if not self.trusted:
            return
        states = {*self._taken.get(state.stream, ()), state}
        behind = sorted(each for each in states if each.last_step(self._num_streams) < due)
        ahead = sorted(states.difference(behind))
        self._taken[state.stream] = (*behind[-_BEHIND:], *ahead[:_AHEAD])

    def distrust(self) -> None:
        """Going on from them gives other batches: forget them, and take no others."""
        self.trusted = self.verified = False
        self._taken, self._loaded = {}, {}

    def before(self, stream: int, epoch: int, turn: int) -> LoaderState | None:
        """The latest state from which that batch can be reached; of this run's once one was seen to be right."""
        states = self._all_of(stream, taken=self.verified)
        return max((state for state in states if self._leads_to(state, epoch, turn)), default=None)

    def as_text(self, due: BatchKey) -> str:
        """Those that belong to what lies before the reader's next batch, as JSON; empty if there are none."""
        entries = {}
        for stream in sorted({*self._loaded, *self._taken}):
            turn = -(-(due.step - stream) // self._num_streams)  # its next one
            usable = [
                state
                for state in self._all_of(stream)
                if state.last_step(self._num_streams) < due
                and self._leads_to(state, due.epoch, max(turn, 0))
            ]
            if usable:
                _, *place, text = max(usable)
                values = (*place, json.loads(text))
                entries[str(stream)] = dict(
                    zip(("epoch", "turn", "in_mid_pass", "state"), values, strict=True)
                )
        return json.dumps(entries) if entries else ""

    def _all_of(self, stream: int, taken: bool = True) -> list[LoaderState]:
        loaded = [self._loaded[stream]] if stream in self._loaded else []
        return [*loaded, *self._taken.get(stream, ())] if taken else loaded

    def _leads_to(self, state: LoaderState, epoch: int, turn: int) -> bool:
        return leads(
            self._source, state.stream, self._num_streams, (state.epoch, state.turn), (epoch, turn)
        )


def read_states(text: str, num_streams: int) -> list[LoaderState]:
    """What `LoaderStates.as_text` wrote. ValueError: it is something else."""
    try:
        entries = json.loads(text or "{}")
        return [_read_state(int(key), num_streams, **entry) for key, entry in entries.items()]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"the state dict's 'loader_states' is not what state_dict() gave: {error}"
        ) from error


def _read_state(
    stream: int, num_streams: int, *, epoch: Any, turn: Any, in_mid_pass: Any, state: Any
) -> LoaderState:
    if not 0 <= stream < num_streams:
        raise ValueError(f"there is no stream {stream}, only 0 ... {num_streams - 1}")
    places = (
        spawn_key_element("epoch", epoch),
        spawn_key_element("turn", positive_int("turn", turn)),
    )
    if type(in_mid_pass) is not bool:
        raise ValueError(f"in_mid_pass must be true or false, got {in_mid_pass!r}")
    return LoaderState(stream, *places, in_mid_pass, json.dumps(state))
