"""A stream of a stream-bound loader (one that is not stateless): its own copy, stepped in order.

Invariants:
- `epoch` and `turn` name the batch that the copy gives next. A turn is used up by a batch or by an
  exception of the loader's (a loader that raises may have moved on, or may be dead), never by the
  end of a pass.
- Where a copy stands is a function of (epoch, turn) alone: running, resume, replay and a worker
  that takes over all step through the same turns. A loader's own state (`restore`) leads to the
  same place as stepping does, or it is a wrong one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from detaug.pipeline.copying.pipeline_snapshot import PipelineSnapshot
from detaug.pipeline.loader_states import CannotRestore, LoaderState, leads, text_of
from detaug.seeding.current import Current, SeedBranch, making
from detaug.seeding.generators import preserved_global_rngs, reseed_global_rngs
from detaug.system.interrupts import is_interrupt
from detaug.system.process_settings import ProcessSettings

#: Stepping a loader forward for longer than this (seconds) is logged, and again after twice, four
#: times ... as long.
_NOTICEABLE = 5.0
#: A pass that is walked through for the sake of a later epoch is treated as endless beyond this
#: many batches.
_LONGEST_PASS = 1_000_000


class StreamEnded(Exception):
    """The end of a stream in an epoch. It is no error: the step that was wanted is a gap."""


class StreamCursor:
    """A stream's own copy of a loader, and the (epoch, turn) of the batch that it gives next.

    Args:
        pipeline: the pipeline whose loader is copied.
        batch: the batch that it is made for; its epoch and stream are what counts.
        branch: the branch of the seed tree that batches are seeded from.
        log: logs a message for the user.
        state: a state of this stream's loader, from which the new copy continues.

    Raises:
        CannotRestore: the loader raises an exception when it loads the state.
    """

    def __init__(
        self,
        pipeline: PipelineSnapshot,
        batch: Current,
        branch: SeedBranch,
        log: Callable[[str], None],
        state: LoaderState | None = None,
    ) -> None:
        self.loader = pipeline.new_loader()
        source = self.loader.source
        # Another stream's first batch may have shown how the loader's epochs end.
        source.learn_from(pipeline.source)
        self.source = source
        self._global_generators = pipeline.shared
        self._stream = batch.stream
        self._branch = branch
        self._num_streams = branch.num_streams
        self._log = log
        self._turns = source.turns_per_epoch(batch.stream, branch.num_streams)
        # A copy that continues from epoch to epoch is stepped through the earlier epochs. Any other
        # starts with this epoch.
        self.epoch = 0 if source.continues_epochs else batch.epoch
        self.turn = 0
        self.ended = False
        #: The epoch before ended while its pass did not, as far as is known.
        self.in_mid_pass = False
        # What is drawn for a whole epoch is the same in all streams.
        child = branch.tree.sequence(self.epoch)
        self._seed(child, seeds_loader=True)
        begin = partial(source.begin, batch.stream, branch.num_streams, self.epoch, child)
        self.loader.settings = ProcessSettings.changed_by(begin)
        # After the seeds: `set_epoch` may draw an order.
        if hasattr(source.loader, "set_epoch"):
            source.loader.set_epoch(self.epoch)
        if state is not None:
            self._restore(state)

    def leads_to(self, epoch: int, turn: int) -> bool:
        """Return whether stepping this copy forward arrives at that batch."""
        start = (self.epoch, self.turn)
        return leads(self.source, self._stream, self._num_streams, start, (epoch, turn))

    def _restore(self, state: LoaderState) -> None:
        try:
            self.source.loader.load_state_dict(json.loads(state.text))
        except Exception as error:
            kind = type(self.source.loader).__name__
            raise CannotRestore(
                f"{kind}.load_state_dict raised {type(error).__name__}: {error}"
            ) from error
        self.epoch = state.epoch
        self.turn = state.turn
        self.in_mid_pass = state.in_mid_pass
        # Loading the state may have replaced the loader's generators.
        self.loader.find_generators_again("data_loader", self.source.loader)

    def take_state(self) -> LoaderState:
        """Return the loader's state as it is now.

        Raises:
            NotPlain: it is not plain JSON, or too large.
        """
        # `state_dict` is the user's code, and may draw.
        with preserved_global_rngs():
            text = text_of(self.source.loader.state_dict())
        return LoaderState(self._stream, self.epoch, self.turn, self.in_mid_pass, text)

    def step_forward_to(self, epoch: int, turn: int) -> None:
        """Take and drop the batches before that batch, each seeded as if it were kept.

        Raises:
            StreamEnded: there is no such batch.
            RuntimeError: the epoch begins at the end of a pass that has no end.
        """
        started = time.monotonic()
        noticeable = _NOTICEABLE
        # Batch by batch, because only the loader knows what it carries from one to the next.
        while (self.epoch, self.turn) < (epoch, turn):
            is_earlier_epoch = self.epoch < epoch
            if is_earlier_epoch and (self.ended or self.turn == self._turns):
                self._next_epoch()
                continue
            if self.ended:
                raise StreamEnded
            # For a loader without an end this loop would never end.
            if is_earlier_epoch and self._turns is None and self.turn >= _LONGEST_PASS:
                raise RuntimeError(
                    f"epoch {epoch} begins when the loader's pass ends, but stream {self._stream} "
                    f"has given {self.turn} batches of epoch {self.epoch} and has not ended. "
                    f"{_ADVICE}"
                )
            self._drop_one()
            if time.monotonic() - started > noticeable:
                noticeable *= 2
                self._log_progress(epoch, turn)

    def _log_progress(self, epoch: int, turn: int) -> None:
        message = (
            f"stream {self._stream} is being stepped forward to epoch {epoch}, turn {turn} (now at "
            f"epoch {self.epoch}, turn {self.turn}); a stateless loader would not need it"
        )
        if self._turns is None and not self.source.pass_per_epoch:
            # The loader's pass may have no end.
            message += f". {_ADVICE}"
        self._log(message)

    def take(self, batch: Current) -> Any:
        """Return the next raw batch, which is `batch`.

        An exception of the loader's uses the turn up.

        Raises:
            StreamEnded: the pass has ended.
        """
        if self.ended:
            raise StreamEnded
        try:
            item = self._next_item(batch)
        except StopIteration:
            # No batch was made, so `turn` stays the number of batches that this pass gave.
            self.ended = True
            self._warn_if_items_come_again()
            raise StreamEnded from None
        except BaseException:
            # Also after an interrupt (Ctrl-C), though the copy is not used any more then.
            self.turn += 1
            raise
        self.turn += 1
        return item

    def _next_item(self, batch: Current) -> Any:
        """Return the raw batch, which may be the first of the next pass."""
        try:
            return self._make(batch)
        except StopIteration:
            if not self.in_mid_pass or self.turn > 0:
                raise
            # The pass ended just where the epoch before did.
            self.source.next_pass()
            return self._make(batch)

    def _make(self, batch: Current) -> Any:
        # Generators that shuffle data which the streams share are in one state in all of them:
        # seeded per batch, each stream would have another order.
        self._seed(batch.sequence(), seeds_loader=not self.source.streams_share_data)
        with making(batch):
            return self.source.make(batch)

    def _seed(self, child: np.random.SeedSequence, seeds_loader: bool) -> None:
        reseed_global_rngs(child)
        self._global_generators.reseed(child, self.loader if seeds_loader else None)

    def _warn_if_items_come_again(self) -> None:
        if self.source.may_end:
            # A warning about it was logged at the start.
            return
        if not self.source.endless or self.source.streams_share_data or self._num_streams == 1:
            return
        kind = type(self.source.loader).__name__
        self._log(
            f"{kind} ends, although it did not declare that: each of its {self._num_streams} "
            f"streams gives all items, so that every item comes {self._num_streams} times. Pass "
            "num_streams=1, or let its copies split the items among themselves by "
            "number_of_threads_in_multithreaded"
        )

    def _drop_one(self) -> None:
        step = self.turn * self._num_streams + self._stream
        batch = Current(self._branch, self.epoch, step)
        try:
            self.take(batch)
        except StreamEnded:
            pass
        except BaseException as error:
            if is_interrupt(error):
                raise
            # It is that batch's failure, and not that of the batch which is wanted.
            self._log(
                f"stepping stream {self._stream} forward: the loader raised "
                f"{type(error).__name__}: {error} at epoch {batch.epoch}, step {batch.step}; the "
                "step is skipped, as on_error=Skip() does"
            )

    def _next_epoch(self) -> None:
        # An interrupt between these lines does no harm: the producer drops the copy.
        self.in_mid_pass = not self.ended
        if self.ended:
            self.source.next_pass()
        self.epoch += 1
        self.turn = 0
        self.ended = False


_ADVICE = (
    "If the loader has no end, pass batches_per_epoch=...: each epoch then continues where the one "
    "before ended. Or give it a method set_epoch(epoch), or declare it stateless=True if it keeps "
    "nothing between batches"
)
