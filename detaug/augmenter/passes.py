"""Passes over an augmenter: the epoch of each pass, and the loop's position in it.

    set_epoch, load_state_dict                    iter()
              │                                     │
           Epochs       chooses the next epoch      │
              │                                     │
           Passes  ──── moves the stream there ─── a generator of one epoch's batches
              │
          state_dict    the position after the last batch that the loop got

Two passes never read the same epoch, whatever `set_epoch` is called between them. Libraries count
epochs in different ways: from 1, from 0 again after a resume, once for several passes. Only a fixed
epoch is read again and again.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol

from torch.utils.data import DistributedSampler

from detaug.seeding.tree import spawn_key_element
from detaug.system.platform import at_fork

#: The keys that a loader's state dict must have. ``named`` and ``left`` may be missing.
_REQUIRED = frozenset({"augmenter", "next_epoch", "in_epoch"})
_ALLOWED = _REQUIRED | {"named", "left"}


class BatchStream(Protocol):
    """The part of an augmenter that passes read.

    Attributes:
        epoch: the epoch of the batch that is due.
        position: the stream's position; it can be compared, kept, and passed to `move_to`.
        next_key: (epoch, step) of the batch that is due; None at an epoch's end.
        has_finished_epoch: True if all batches of the epoch were taken, as far as that is known
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
        """Go to a batch. Return False if this rank does not have it."""

    def replay(self, epoch: int, step: int) -> Any:
        """Return a batch that is made in this process; the stream's position does not change."""

    def state_at(self, position: Any) -> dict[str, Any]:
        """Return the state dict for a position; None: for the current one."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where the state was saved."""


class Rest(NamedTuple):
    """The rest of an epoch in which a state was saved.

    Attributes:
        epoch: the epoch.
        name: the library's number of the epoch when the state was saved; None: it named none.
        is_empty: all batches of the epoch had been taken.
        was_left: the loop had left the pass before the state was saved.
    """

    epoch: int
    name: int | None
    is_empty: bool
    was_left: bool


class Epochs:
    """The choice of the next pass's epoch.

    A library *names* an epoch when it calls ``set_epoch`` of the loader or its sampler. Libraries
    count differently, so that the name need not be the epoch.

    Args:
        fixed: the epoch of every pass; None: each pass is the next epoch.
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
        #: The name from the last call of the loader's own set_epoch.
        self._firm_name: int | None = None
        self._is_named_since_load = sampler is not None
        #: How often an epoch was named. A loaded state counts as two, so that it is no guess.
        self._num_namings = 0

    @property
    def name(self) -> int | None:
        """The library's number of the current epoch; None: it has named none."""
        if self._sampler is not None:
            return self._sampler.epoch
        return self._name

    def set_epoch(self, epoch: int, is_firm: bool = True) -> None:
        """Name the epoch of the next pass.

        Args:
            epoch: 0 ... 2**32 - 1.
            is_firm: True: set_epoch of the loader was called; False: set_epoch of its sampler,
                batch sampler or data set, as libraries do.
        """
        name = spawn_key_element("epoch", epoch)
        self._name = name
        if self._sampler is not None:
            self._sampler.set_epoch(name)
        self._firm_name = name if is_firm else None
        self._is_named_since_load = True
        self._num_namings += 1

    @property
    def is_guessed(self) -> bool:
        """True if at most Accelerate's own count has named the epoch.

        That count starts at 0 in every process.
        """
        return self.fixed is None and self._num_namings <= 1 and not self.name

    def load(self, next_epoch: int, rest: Rest | None) -> None:
        """Continue from a state, and forget which epochs were named before."""
        self.next = next_epoch
        self.rest = rest
        self._name = None
        self._firm_name = None
        self._is_named_since_load = self._sampler is not None
        self._num_namings = 2

    def upcoming(self) -> int:
        """Return the epoch of the next pass that starts at an epoch's first batch."""
        if self.fixed is not None:
            return self.fixed
        name = self.name
        if name is None:
            return self.next
        # Never an epoch that was read before: a library that counts from 0 again would repeat it.
        return max(self.next, name)

    def begin(self, name_at_iter: int | None) -> tuple[int, bool]:
        """Return the epoch of the pass that begins now, and whether it is the rest of that epoch.

        Args:
            name_at_iter: `name` when ``iter()`` was called, which may be earlier.
        """
        # Only one pass may be the rest of a loaded epoch. The one after it is a new epoch.
        rest = self.rest
        self.rest = None
        if rest is not None and self._continues(rest, name_at_iter):
            self.has_begun(rest.epoch)
            return rest.epoch, True
        epoch = self.upcoming()
        self.has_begun(epoch)
        return epoch, False

    def has_begun(self, epoch: int) -> None:
        """Record that a pass reads this epoch."""
        self.begun = epoch
        self.next = max(self.next, epoch + 1)

    def _continues(self, rest: Rest, name_at_iter: int | None) -> bool:
        """Return whether the pass that begins now is the rest of a loaded state's epoch."""
        if self.fixed is not None:
            return rest.epoch == self.fixed and not rest.is_empty
        name = self.name
        name_at_save = rest.epoch if rest.name is None else rest.name
        if rest.is_empty:
            # A loop over the epochs that begins with the saved one gets an empty pass for it.
            return self._is_named_since_load and name == name_at_save
        if name is None or name <= name_at_save:
            return True
        # The library has named a later epoch. Lightning does so after iter(), and wants a new pass.
        # Ignite and MONAI do so before iter(), through the sampler, and without a resume would have
        # stayed in the pass that was open.
        return name == name_at_iter and name != self._firm_name and not rest.was_left


class Pass(Iterator[Any]):
    """An iterator over one epoch, which begins when its first batch is requested.

    Its length is the number of batches of a whole epoch, as with torch's own.

    Args:
        batches: yields the batches.
        passes: those of the loader.
    """

    def __init__(self, batches: Generator[Any, None, None], passes: Passes) -> None:
        self._batches = batches
        self._passes = passes
        #: The class of the exception that has ended the pass.
        self._failure: str | None = None

    def __next__(self) -> Any:
        """Return the next batch.

        Raises:
            RuntimeError: the batch before it could not be read. A StopIteration would look like the
                epoch's end.
        """
        # All passes move and read the same stream, and threads may read different ones.
        with self._passes.lock:
            if self._failure is not None:
                raise RuntimeError(
                    f"this pass over a loader was ended by {self._failure}: begin another one, or "
                    "pass on_error=Skip(...) to leave out batches that fail"
                )
            try:
                return next(self._batches)
            except StopIteration:
                raise
            except BaseException as error:
                self._failure = type(error).__name__
                raise

    def __len__(self) -> int:
        return self._passes.length()

    def close(self) -> None:
        """Leave the pass, as a loop does by ``break``."""
        self._batches.close()


class Passes:
    """The passes of one loader.

    Args:
        epochs: chooses the epoch of each pass.
        stream: returns the stream of batches; called when a pass begins.
        length: returns the number of batches of a whole epoch.
        on_batch: called with every batch before the loop gets it, or None.
    """

    def __init__(
        self,
        epochs: Epochs,
        stream: Callable[[], BatchStream],
        length: Callable[[], int],
        on_batch: Callable[[Any], None] | None = None,
    ) -> None:
        self.epochs = epochs
        self._stream = stream
        self.length = length
        #: Held while a pass moves and reads the stream.
        self.lock = threading.RLock()
        _all_passes.add(self)
        self._on_batch = on_batch
        #: The position after the last batch of any pass; None: its epoch is over, or no batch was
        #: read.
        self._position: Any = None
        #: The identity of the pass that read the last batch.
        self._reader: object = None
        #: The library's number of the epoch at the last batch.
        self._name: int | None = None
        #: The loop left the last batch's pass before its end.
        self._was_left = False
        self._num_loads = 0

    def new(self, is_read_ahead: bool = False) -> Pass:
        """Return an iterator over one epoch.

        Args:
            is_read_ahead: a library reads each batch before it gives the loop the one before it.
        """
        return Pass(self._pass(self.epochs.name, is_read_ahead), self)

    def empty(self) -> Pass:
        """Return an iterator over an epoch that has no batch."""
        no_batches: tuple[Any, ...] = ()
        return Pass((batch for batch in no_batches), self)

    def _pass(self, name_at_iter: int | None, is_read_ahead: bool) -> Generator[Any, None, None]:
        """Yield one epoch's batches, or the rest of them."""
        # A generator runs from the first `next()` on. The epoch must not be chosen earlier:
        # Lightning names it after `iter()`.
        reader = object()
        stream = self._stream()
        epoch, is_rest = self.epochs.begin(name_at_iter)
        num_loads = self._num_loads
        if not is_rest:
            stream.start_epoch(epoch)
        position = stream.position
        try:
            while True:
                # Another pass may have moved the stream.
                if stream.position != position:
                    stream.move_to(position)
                try:
                    batches = [next(stream)]
                except StopIteration:
                    if num_loads == self._num_loads:
                        # Read ahead: the loop has the last batch, and has seen no end.
                        self._position = position if is_read_ahead else None
                    return
                before = position
                position = stream.position
                # The loop no longer reads a pass that was open when a state was loaded.
                if num_loads == self._num_loads:
                    self._record(reader, before if is_read_ahead else position)
                if self._on_batch is not None:
                    self._on_batch(batches[0])
                # This frame must not hold the batch while the loop works on it: its memory could
                # not be used again.
                yield batches.pop()
        except GeneratorExit:
            self._was_left = self._was_left or self._reader is reader
            raise

    def _record(self, reader: object, position: Any) -> None:
        """Record the position of the loop after a batch."""
        self._position = position
        self._reader = reader
        self._name = self.epochs.name
        self._was_left = False

    def state_dict(self, stream: BatchStream) -> dict[str, Any]:
        """Return the loop's position in this stream, after the last batch that it got."""
        # Not the stream's position: a library that reads ahead has taken batches from it that the
        # loop has not got yet.
        epochs = self.epochs
        position = self._position
        name = self._name
        if epochs.rest is None and epochs.fixed is None and self._has_named_later_epoch():
            # The last batch's pass is over, and the next one will begin.
            position = None
            name = epochs.name
        is_in_epoch = position is not None
        state: dict[str, Any] = {
            "augmenter": stream.state_at(position),
            "next_epoch": epochs.next if is_in_epoch else epochs.upcoming(),
            "in_epoch": is_in_epoch,
        }
        if name is not None:
            state["named"] = name
        if self._was_left and is_in_epoch:
            state["left"] = True
        return state

    def renew_lock(self) -> None:
        """Forget a lock that a thread of the parent process held at a fork."""
        self.lock = threading.RLock()

    def _has_named_later_epoch(self) -> bool:
        """Return whether the library has named a later epoch since the last batch."""
        name = self.epochs.name
        return name is not None and (self._name is None or name > self._name)

    def load_state_dict(self, state: Any, load_stream: Callable[[dict[str, Any]], Any]) -> None:
        """Continue where `state_dict` was called.

        Args:
            state: the result of `state_dict`.
            load_stream: loads the stream's own part of the state, and returns the stream.

        Raises:
            TypeError, ValueError: it is not such a state. Nothing has changed then.
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
        # After all checks, and before any field is set: it may raise as well.
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


_all_passes: weakref.WeakSet[Passes] = weakref.WeakSet()


def _renew_locks() -> None:
    for passes in _all_passes:
        passes.renew_lock()


at_fork(after_in_child=_renew_locks)
