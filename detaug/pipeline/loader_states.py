"""Loaders' own states (`state_dict`), so that their streams continue from there.

A state names the turn that its stream's copy gives next. Any other turn is reached by stepping
forward from the latest state before it, or from the start: states save time and are never needed.
Each is assumed to hold everything that the loader's batches depend on; `detaug verify` compares.

Invariants:
- A state is plain JSON: going through text changes nothing about it.
- Which states are from before the reader's position follows from the position alone, so that a
  batch that is due again (Ctrl-C) takes its state back with it.
- Objects that other threads read are replaced whole, never changed in place.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from detaug.pipeline.plan import BatchKey
from detaug.pipeline.sources import Source
from detaug.seeding.tree import positive_int, spawn_key_element

#: The most characters of a state's text. A larger state is not kept, since messages to workers and
#: state dicts would carry it.
LARGEST = 65_536
#: How many states of a stream are kept from before the reader's position.
_BEHIND = 3
#: How many are kept from after it.
_AHEAD = 64


class NotPlain(Exception):
    """A loader's state is not plain JSON, or too large."""


class CannotRestore(Exception):
    """A loader's ``load_state_dict`` raised."""


class LoaderState(NamedTuple):
    """The position of a stream's copy; see `detaug.pipeline.streams.StreamCursor`.

    Attributes:
        stream: the stream.
        epoch: the epoch of the batch that the copy gives next.
        turn: that batch's turn.
        in_mid_pass: the epoch before ended in the middle of a pass.
        text: the loader's own state as JSON.
    """

    stream: int
    epoch: int
    turn: int
    in_mid_pass: bool
    text: str

    def last_step(self, num_streams: int) -> BatchKey:
        """Return the batch after which the state was taken."""
        return BatchKey(self.epoch, (self.turn - 1) * num_streams + self.stream)


def text_of(state: Any) -> str:
    """Return a loader's state as JSON.

    Raises:
        NotPlain: reading it again would give another value, or it is too large.
    """
    try:
        text = json.dumps(state, allow_nan=False)
        # By their texts, which tell a tuple from a list, and a subclass from its base.
        if repr(json.loads(text)) != repr(state):
            raise NotPlain(
                "only dicts with string keys, lists, str, int, float, bool and None come back "
                "unchanged from JSON"
            )
    except (TypeError, ValueError, RecursionError) as error:
        raise NotPlain(f"it cannot be written as JSON: {type(error).__name__}: {error}") from error
    if len(text) > LARGEST:
        raise NotPlain(f"it has more than {LARGEST} characters as JSON")
    return text


def leads(
    source: Source, stream: int, num_streams: int, start: tuple[int, int], target: tuple[int, int]
) -> bool:
    """Return whether stepping a copy forward arrives at a batch of its stream.

    Args:
        source: the loader's source.
        stream: the stream.
        num_streams: the number of streams.
        start: the (epoch, turn) that the copy gives next.
        target: the (epoch, turn) of the batch.
    """
    epoch, turn = start
    target_epoch, target_turn = target
    if epoch == target_epoch:
        return turn <= target_turn
    if epoch > target_epoch or not source.continues_epochs:
        return False
    # Beyond its epoch's turns a copy has given batches that belong to the next epoch as well.
    turns = source.turns_per_epoch(stream, num_streams)
    return turns is None or turn <= turns


class LoaderStates:
    """The known states of an augmenter's streams: those that were loaded, and this run's."""

    def __init__(self, source: Source, num_streams: int) -> None:
        self._source = source
        self._num_streams = num_streams
        self._loaded: dict[int, LoaderState] = {}
        self._of_run: dict[int, tuple[LoaderState, ...]] = {}

    def load(self, states: list[LoaderState]) -> None:
        """Replace all states by these; by none if the loader has no state any more."""
        self._of_run = {}
        self._loaded = {}
        if self._source.keeps_states:
            self._loaded = {state.stream: state for state in states}

    def add(self, state: LoaderState, due: BatchKey) -> None:
        """Add a state of this run.

        Args:
            state: the state.
            due: the reader's next batch.
        """
        # A set: a batch that is remade (its worker died) brings its state again.
        known_states = self._of_run.get(state.stream, ())
        states = sorted({*known_states, state})
        before = [known for known in states if known.last_step(self._num_streams) < due]
        after = states[len(before) :]
        self._of_run[state.stream] = (*before[-_BEHIND:], *after[:_AHEAD])

    def loaded(self, key: BatchKey) -> LoaderState | None:
        """Return the loaded state from which that batch can be reached, if there is one."""
        state = self._loaded.get(key.step % self._num_streams)
        if state is None or not self._leads_to(state, key):
            return None
        return state

    def latest(self, key: BatchKey, copy: tuple[int, int] | None = None) -> LoaderState | None:
        """Return the latest state from which that batch can be reached.

        Args:
            key: the batch.
            copy: the (epoch, turn) that a running copy of the batch's stream gives next. None is
                returned unless a state is nearer to the batch than the copy.
        """
        states = [state for state in self._all_of(key) if self._leads_to(state, key)]
        if not states:
            return None
        state = max(states)
        if copy is None or not self._leads(copy, key):
            return state
        # A copy that is as near is preferred, because a state has to be loaded into a new copy.
        if copy >= (state.epoch, state.turn):
            return None
        return state

    def as_text(self, due: BatchKey) -> str:
        """Return the states from before the reader's next batch as JSON; "" for none."""
        entries = {}
        for stream in sorted({*self._loaded, *self._of_run}):
            # Rounded up to the stream's first turn whose step is not before the reader's.
            turn = max(0, -(-(due.step - stream) // self._num_streams))
            next_key = BatchKey(due.epoch, turn * self._num_streams + stream)
            usable = []
            for state in self._all_of(next_key):
                # Workers are ahead of the reader: a later state would skip batches.
                is_before = state.last_step(self._num_streams) < due
                if is_before and self._leads_to(state, next_key):
                    usable.append(state)
            if usable:
                latest = max(usable)
                entries[str(stream)] = {
                    "epoch": latest.epoch,
                    "turn": latest.turn,
                    "in_mid_pass": latest.in_mid_pass,
                    "state": json.loads(latest.text),
                }
        if not entries:
            return ""
        return json.dumps(entries)

    def num_batches_to(self, key: BatchKey) -> int:
        """Return how many batches a new copy makes until it has made that one.

        Earlier epochs of a loader whose passes have no known length are not counted.
        """
        if self._source.stateless:
            return 1
        turn, stream = divmod(key.step, self._num_streams)
        first_epoch = 0 if self._source.continues_epochs else key.epoch
        first_turn = 0
        state = self.loaded(key)
        if state is not None:
            first_epoch = state.epoch
            first_turn = state.turn
        if first_epoch == key.epoch:
            return 1 + turn - first_turn
        turns = self._source.turns_per_epoch(stream, self._num_streams)
        if turns is None:
            return 1 + turn
        return 1 + (key.epoch - first_epoch) * turns + turn - first_turn

    def _all_of(self, key: BatchKey) -> list[LoaderState]:
        """Return all states of that batch's stream."""
        stream = key.step % self._num_streams
        states = [*self._of_run.get(stream, ())]
        if stream in self._loaded:
            states.append(self._loaded[stream])
        return states

    def _leads_to(self, state: LoaderState, key: BatchKey) -> bool:
        return self._leads((state.epoch, state.turn), key)

    def _leads(self, start: tuple[int, int], key: BatchKey) -> bool:
        turn, stream = divmod(key.step, self._num_streams)
        return leads(self._source, stream, self._num_streams, start, (key.epoch, turn))


def read_states(text: str, num_streams: int) -> list[LoaderState]:
    """Return the states that `LoaderStates.as_text` wrote.

    Raises:
        ValueError: the text is anything else.
    """
    try:
        states = []
        for stream, entry in json.loads(text or "{}").items():
            states.append(_read_state(int(stream), num_streams, **entry))
        return states
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"the state dict's 'loader_states' is not what state_dict() gave: {error}"
        ) from error


def _read_state(
    stream: int, num_streams: int, *, epoch: Any, turn: Any, in_mid_pass: Any, state: Any
) -> LoaderState:
    if not 0 <= stream < num_streams:
        raise ValueError(f"there is no stream {stream}, only 0 ... {num_streams - 1}")
    epoch = spawn_key_element("epoch", epoch)
    # At least 1, because a state is only taken after a batch.
    turn = spawn_key_element("turn", positive_int("turn", turn))
    if type(in_mid_pass) is not bool:
        raise ValueError(f"in_mid_pass must be true or false, got {in_mid_pass!r}")
    return LoaderState(stream, epoch, turn, in_mid_pass, json.dumps(state))
