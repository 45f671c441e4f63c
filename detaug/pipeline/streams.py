"""One stream of a stream-bound loader (one that is not stateless): its own copy, stepped forward in
order.

Invariants:
- `epoch` and `turn` name the batch that the copy gives next. A turn is used up by a batch, by an
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

#: Stepping a loader forward for longer than this (seconds) is logged, and how far it is after
#: twice, four times ... as long.
_NOTICEABLE = 5.0
#: A pass that is walked through to its end, for the sake of a later epoch, and is longer than this
#: has none.
_LONGEST_PASS = 1_000_000


class StreamEnded(Exception):
    """The stream that was to give this batch has no more in this epoch. Not an error: the step is a
    gap.
    """


class StreamCursor:
    """One stream's own copy of a loader, and which batch it gives next.

    Args:
        batch: for which it is made; its epoch and stream are what counts.
        state: stand where another copy of this stream stood when its loader had that state.
            CannotRestore: the loader raises.
    """

    def __init__(
        self,
        pristine: PipelineSnapshot,
        batch: Current,
        branch: SeedBranch,
        log: Callable[[str], None],
        state: LoaderState | None = None,
    ) -> None:
        self.loader = pristine.new_loader()
        self.source = source = self.loader.source
        source.learn(pristine.source)
        self._shared = pristine.shared
        self._stream = batch.stream
        self._branch = branch
        self._num_streams = num_streams = branch.num_streams
        self._log = log
        self._turns = source.turns_per_epoch(batch.stream, num_streams)
        self.epoch = 0 if source.goes_on else batch.epoch
        self.turn = 0
        self.ended = False
        #: The epoch before was over while its pass was not, as far as one knows.
        self.in_mid_pass = False
        # What is drawn for a whole epoch is the same in all streams.
        child = branch.tree.sequence(self.epoch)
        self._seed(child, owned=True)
        self.loader.settings = ProcessSettings.changed_by(
            partial(source.begin, batch.stream, num_streams, self.epoch, child)
        )
        if hasattr(source.loader, "set_epoch"):
            source.loader.set_epoch(self.epoch)
        if state is not None:
            self._restore(state)

    def leads_to(self, epoch: int, turn: int) -> bool:
        """Whether stepping this copy forward arrives at that batch."""
        return leads(
            self.source, self._stream, self._num_streams, (self.epoch, self.turn), (epoch, turn)
        )

    def _restore(self, state: LoaderState) -> None:
        try:
            self.source.loader.load_state_dict(json.loads(state.text))
        except Exception as error:
            kind = type(self.source.loader).__name__
            raise CannotRestore(
                f"{kind}.load_state_dict raised {type(error).__name__}: {error}"
            ) from error
        self.epoch, self.turn, self.in_mid_pass = state.epoch, state.turn, state.in_mid_pass
        self.loader.find_again("data_loader", self.source.loader)  # it may have made new generators

    def take_state(self) -> LoaderState:
        """Return what its loader says of where it stands now.

        Raises:
            NotPlain: What it says cannot be kept.
        """
        with preserved_global_rngs():
            text = text_of(self.source.loader.state_dict())
        return LoaderState(self._stream, self.epoch, self.turn, self.in_mid_pass, text)

    def step_forward_to(self, epoch: int, turn: int) -> None:
        """Take and drop what comes before that batch, seeding each as if it were kept. StreamEnded:
        there is no such batch. RuntimeError: the epoch lies behind the end of a pass that has none.
        """
        started, noticeable = time.monotonic(), _NOTICEABLE
        while (self.epoch, self.turn) < (epoch, turn):
            if self.epoch < epoch and (self.ended or self.turn == self._turns):
                self._next_epoch()
                continue
            if self.ended:
                raise StreamEnded
            if self.epoch < epoch and self._turns is None and self.turn >= _LONGEST_PASS:
                raise RuntimeError(
                    f"epoch {epoch} begins where the loader's pass ends, but stream {self._stream} "
                    f"gave {self.turn} "
                    f"batches of epoch {self.epoch} without an end. {_ADVICE}"
                )
            self._drop_one()
            if time.monotonic() - started > noticeable:
                noticeable *= 2
                self._log(
                    f"stream {self._stream} is being stepped forward to epoch {epoch}, turn {turn} "
                    f"(now at epoch {self.epoch}, turn {self.turn}); a stateless loader would not "
                    "need it"
                    + (
                        f". {_ADVICE}"
                        if self._turns is None and not self.source.pass_per_epoch
                        else ""
                    )
                )

    def take(self, batch: Current) -> Any:
        """The next raw batch, which is `batch`. StreamEnded: the pass is over. With an exception of
        the loader's the turn is used up.
        """
        if self.ended:
            raise StreamEnded
        try:
            try:
                item = self._make(batch)
            except StopIteration:
                if not self.in_mid_pass or self.turn > 0:
                    raise
                # The pass ended just where the epoch before did.
                self.source.next_pass()
                item = self._make(batch)
        except StopIteration:
            self.ended = True
            self._tell_if_items_come_again()
            raise StreamEnded from None
        except BaseException:
            # After an interrupt (Ctrl-C) the copy is not used any more.
            self.turn += 1
            raise
        self.turn += 1
        return item

    def _make(self, batch: Current) -> Any:
        # Generators that shuffle what the streams share are in one state in all of them: reseeding
        # would tear them apart.
        self._seed(batch.sequence(), owned=not self.source.streams_share_data)
        with making(batch):
            return self.source.make(batch)

    def _seed(self, child: np.random.SeedSequence, owned: bool) -> None:
        reseed_global_rngs(child)
        self._shared.reseed(child, self.loader if owned else None)

    def _tell_if_items_come_again(self) -> None:
        if self.source.may_end:
            return  # that was told at the start
        if self.source.endless and not self.source.streams_share_data and self._num_streams > 1:
            kind = type(self.source.loader).__name__
            self._log(
                f"{kind} ends, which it did not say: each of its {self._num_streams} streams gives "
                "all of its items, so every "
                "item comes as often. Pass num_streams=1, or let its copies share the items out by "
                "number_of_threads_in_multithreaded"
            )

    def _drop_one(self) -> None:
        batch = Current(self._branch, self.epoch, self.turn * self._num_streams + self._stream)
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
                f"{type(error).__name__}: {error} at epoch "
                f"{batch.epoch}, step {batch.step}, which is passed over as on_error=Skip() does"
            )

    def _next_epoch(self) -> None:
        self.in_mid_pass = not self.ended
        if self.ended:
            self.source.next_pass()
        self.epoch, self.turn, self.ended = self.epoch + 1, 0, False


_ADVICE = (
    "If the loader has no end, pass batches_per_epoch=...: its epochs then go on from one another. "
    "Or give it a "
    "method set_epoch(epoch), or declare it stateless=True if it keeps nothing between batches"
)
