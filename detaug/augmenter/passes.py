"""Passes over an augmenter: which epoch each one gives, and where the loop stands in it.

    set_epoch, load_state_dict                    iter()
              │                                     │
           Epochs       says which epoch is next    │
              │                                     │
           Passes  ──── moves the stream there ─── a generator of one epoch's batches
              │
          state_dict    stands after the batch that the loop was given last

Two passes never give the same epoch, whatever `set_epoch` is called between them: libraries count
epochs in ways of their own (from 1, from 0 again after a resume, once for several passes). Only a
fixed epoch is given again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

from torch.utils.data import DistributedSampler

from detaug.seeding.tree import spawn_key_element

#: What a loader's state dict must hold. ``named`` and ``left`` may be missing.
_REQUIRED = frozenset({"augmenter", "next_epoch", "in_epoch"})
_ALLOWED = _REQUIRED | {"named", "left"}


class BatchStream(Protocol):
    """What passes need of an augmenter.

    Attributes:
        epoch: the epoch of the batch that is due.
        position: where the stream stands; compared, kept, and returned to `move_to`.
        next_key: (epoch, step) of the batch that is due; None at an epoch's end.
        has_finished_epoch: whether all batches of the epoch were taken, as far as that is known
            beforehand.
    """

    @property
    def epoch(self) -> int: ...

    @property
    def position(self) -> Any: ...

    @property
    def next_key(self) -> tuple[int, int] | None: ...

    @property
    def has_finished_epoch(self) -> bool: ...

    def __next__(self) -> Any: ...

    def move_to(self, position: Any) -> None:
        """Continue from a position."""

    def start_epoch(self, epoch: int) -> None:
        """Go to the first batch of an epoch."""

    def seek(self, epoch: int, step: int) -> bool:
        """Go to a batch. False: it is none of this rank's."""

    def replay(self, epoch: int, step: int) -> Any:
        """Make a batch in this process, wherever the stream stands."""

    def state_at(self, position: Any) -> dict[str, Any]:
        """Return the state dict for a position; None: for the current one."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was taken."""


class Rest(NamedTuple):
    """What a loaded state leaves of an epoch.

    Attributes:
        epoch: the epoch.
        name: what the library called it when the state was saved; None: nothing.
        is_empty: all its batches had been taken.
        was_left: the loop had left the pass before the state was saved.
    """

    epoch: int
    name: int | None
    is_empty: bool
    was_left: bool


class Epochs:
    """Which epoch the next pass gives.

    Args:
        fixed: the epoch of every pass; None: one after the other.
        sampler: a DistributedSampler whose `set_epoch` counts as the loader's own.
    """

    def __init__(
        self, fixed: int | None = None, sampler: DistributedSampler[Any] | None = None
    ) -> None:
        self.fixed = fixed
        #: The epoch of the next pass, unless a later one is named.
        self.next = 0
        #: The epoch that began last.
        self.begun = 0
        #: From a loaded state, until a pass begins.
        self.rest: Rest | None = None
        self._sampler = sampler
        self._name: int | None = None
        #: The name that the loader's own set_epoch gave last.
        self._firm_name: int | None = None
        self._is_named_since_load = sampler is not None
        #: How often an epoch was named; a loaded state counts as said for good.
        self._num_namings = 0

    @property
    def name(self) -> int | None:
        """What the library calls the current epoch; None: it never said."""
        return self._name if self._sampler is None else self._sampler.epoch

    def set_epoch(self, epoch: int, is_firm: bool = True) -> None:
        """Name the next pass. `is_firm`: the user said so, and not a library through the sampler."""
        name = spawn_key_element("epoch", epoch)
        self._name = name
        if self._sampler is not None:
            self._sampler.set_epoch(name)
        self._firm_name = name if is_firm else None
        self._is_named_since_load = True
        self._num_namings += 1

    @property
    def is_guessed(self) -> bool:
        """Whether nobody but Accelerate's own count, which starts at 0 in every process, has named
        the epoch.
        """
        return self.fixed is None and self._num_namings <= 1 and not self.name

    def load(self, next_epoch: int, rest: Rest | None) -> None:
        """Continue as a state says. What was named before is forgotten."""
        self.next = next_epoch
        self.rest = rest
        self._name = self._firm_name = None
        self._is_named_since_load = self._sampler is not None
        self._num_namings = 2

    def upcoming(self) -> int:
        """Return the epoch of the next pass that begins at its start."""
        if self.fixed is not None:
            return self.fixed
        name = self.name
        return self.next if name is None else max(self.next, name)

    def begin(self, name_at_iter: int | None) -> tuple[int, bool]:
        """Return the epoch of the pass that begins now, and whether it is the rest of one.

        Args:
            name_at_iter: `name` when ``iter()`` was called, which may be earlier.
        """
        rest, self.rest = self.rest, None
        if rest is not None and self._continues(rest, name_at_iter):
            self.has_begun(rest.epoch)
            return rest.epoch, True
        epoch = self.upcoming()
        self.has_begun(epoch)
        return epoch, False

    def has_begun(self, epoch: int) -> None:
        """Note that a pass gives this epoch."""
        self.begun = epoch
        self.next = max(self.next, epoch + 1)

    def _continues(self, rest: Rest, name_at_iter: int | None) -> bool:
        if self.fixed is not None:
            return rest.epoch == self.fixed and not rest.is_empty
        name = self.name
        name_at_save = rest.epoch if rest.name is None else rest.name
        if rest.is_empty:
            # A loop over the epochs from the saved one on gets nothing more of it.
            return self._is_named_since_load and name == name_at_save
        if name is None or name <= name_at_save:
            return True
        # The library has gone on to its next epoch. Lightning names it after iter(), and wants a
        # new pass; Ignite and MONAI name it before, through the sampler, and would have stayed in
        # the pass that was open.
        return name == name_at_iter and name != self._firm_name and not rest.was_left


class Passes:
    """The passes of one loader.

    Args:
        epochs: says which epoch comes next.
        stream: returns what batches are read from; is called when a pass begins.
        on_batch: is called with every batch before the loop gets it; None: nothing is.
    """

    def __init__(
        self,
        epochs: Epochs,
        stream: Callable[[], BatchStream],
        on_batch: Callable[[Any], None] | None = None,
    ) -> None:
        self.epochs = epochs
        self._stream = stream
        self._on_batch = on_batch
        #: After the batch that was given last, by whichever pass; None: that one's epoch is over,
        #: or none was given.
        self._position: Any = None
        #: The pass that gave it.
        self._reader: object = None
        #: What the library called the epoch then.
        self._name: int | None = None
        self._was_left = False
        self._num_loads = 0

    def new(self) -> Iterator[Any]:
        """Return an iterator over one epoch. It begins when its first batch is asked for."""
        return self._pass(self.epochs.name)

    def _pass(self, name_at_iter: int | None) -> Iterator[Any]:
        me = object()
        stream = self._stream()
        epoch, is_rest = self.epochs.begin(name_at_iter)
        num_loads = self._num_loads
        if not is_rest:
            stream.start_epoch(epoch)
        position = stream.position
        try:
            while True:
                if stream.position != position:  # another pass went on from elsewhere
                    stream.move_to(position)
                try:
                    batches = [next(stream)]
                except StopIteration:
                    if num_loads == self._num_loads:
                        self._position = None
                    return
                position = stream.position
                # A pass that was open when a state was loaded is no longer the loop's.
                if num_loads == self._num_loads:
                    self._note(me, position)
                if self._on_batch is not None:
                    self._on_batch(batches[0])
                # This frame must not hold the batch while the loop works on it.
                yield batches.pop()
        except GeneratorExit:
            self._was_left = self._was_left or self._reader is me
            raise

    def _note(self, reader: object, position: Any) -> None:
        self._position = position
        self._reader = reader
        self._name = self.epochs.name
        self._was_left = False

    def state_dict(self, stream: BatchStream) -> dict[str, Any]:
        """Return where the loop stands in this stream: after the batch that it was given last."""
        epochs = self.epochs
        position = self._position
        name = self._name
        if epochs.rest is None and epochs.fixed is None and self._has_moved_on():
            # That pass is over, and the next one is to begin.
            position = None
            name = epochs.name
        state: dict[str, Any] = {
            "augmenter": stream.state_at(position),
            "next_epoch": epochs.upcoming() if position is None else epochs.next,
            "in_epoch": position is not None,
        }
        if name is not None:
            state["named"] = name
        if self._was_left and position is not None:
            state["left"] = True
        return state

    def _has_moved_on(self) -> bool:
        """Return whether the library has named another epoch since the last batch."""
        name = self.epochs.name
        return name is not None and (self._name is None or name > self._name)

    def load_state_dict(self, state: Any, load_stream: Callable[[dict[str, Any]], Any]) -> None:
        """Continue where `state_dict` was called.

        Args:
            state: what `state_dict` returned.
            load_stream: loads the stream's own part of it, and returns the stream.

        Raises:
            TypeError, ValueError: it is no such state; nothing has changed then.
        """
        if not isinstance(state, dict) or not _REQUIRED <= set(state) <= _ALLOWED:
            raise ValueError(
                f"this is no state of a loader: {state!r:.200}. A state of the augmenter goes into "
                "aug.load_state_dict"
            )
        next_epoch = spawn_key_element("the state's 'next_epoch'", state["next_epoch"])
        name = state.get("named")
        if name is not None:
            name = spawn_key_element("the state's 'named'", name)
        for flag in ("in_epoch", "left"):
            if not isinstance(state.get(flag, False), bool):
                raise ValueError(
                    f"the state's {flag!r} must be True or False, got {state[flag]!r:.200}"
                )
        stream: BatchStream = load_stream(state["augmenter"])
        rest = None
        self._position = None
        if state["in_epoch"]:
            rest = Rest(stream.epoch, name, stream.has_finished_epoch, state.get("left", False))
            self._position = stream.position
        self.epochs.load(next_epoch, rest)
        self._num_loads += 1
        self._reader = None
        self._name = name
        self._was_left = state.get("left", False)
