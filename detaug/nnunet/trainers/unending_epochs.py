"""`UnendingEpochs`: batches for nnU-Net's trainers, which take as many in an epoch as they like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.ledger.writing import LedgerWriter


class UnendingEpochs(DeterministicAugmenter):
    """An augmenter that begins another epoch only where `set_epoch` says so.

    nnU-Net's own augmenters never end, and trainers may take more batches than ``num_iterations_per_epoch``: theirs are the
    epoch's next steps. ``batches_per_epoch`` says what the workers make ahead, so that the next epoch's first batches are
    ready when an epoch of the usual length is over.

    Args:
        replaced: what makes the batches in place of the loader, given the loader; itself where it stays. It is asked once,
            when the first batch is: until then attributes of the loader (`generator`) may be set.
        facts: further entries of the ledger's header.

    Attributes:
        given: the loader that was replaced; None: none was.
    """

    given: Any = None

    _goes_beyond = True

    def __init__(
        self,
        data_loader: Any,
        *arguments: Any,
        replaced: Callable[[Any], Any] | None = None,
        facts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(data_loader, *arguments, **options)
        self._ledger_facts = facts or {}
        self._replaced, self._as_given = replaced, (arguments, options)

    def settle(self) -> None:
        """Decide what makes the batches, if that is not decided yet, and take the loader's attributes as they are now."""
        if self._replaced is None:
            return
        replaced, self._replaced = self._replaced, None
        loader = replaced(self.generator)
        if loader is not self.generator:
            self.given = self.generator
        position, (arguments, options) = self._schedule.position, self._as_given
        super().__init__(loader, *arguments, **{**options, "check": self.check})
        self._schedule.position = position

    def _start_once(self) -> None:
        self.settle()
        super()._start_once()

    def replay(self, epoch: int, step: int) -> Any:
        """See `DeterministicAugmenter.replay`."""
        self.settle()
        return super().replay(epoch, step)

    def __next__(self) -> Any:
        """The batch that is due; StopIteration: the loader itself has ended."""
        position = self._schedule.position
        try:
            return super().__next__()
        except StopIteration:
            if self._schedule.limit is None:
                raise
        self._schedule.end_after(None)
        self._move(position)
        self._health.epoch_begins(position.taken)
        return super().__next__()

    def set_epoch(self, epoch: int) -> None:
        """Go to step 0 of an epoch. What was prefetched for it is kept."""
        self._schedule.end_after(self.batches_per_epoch)
        super().set_epoch(epoch)

    def _saw_the_end(self, ledger: LedgerWriter) -> None:
        """More batches of the epoch may follow."""

    @property
    def _has_had_all_of_an_epoch(self) -> bool:
        position, limit = self._schedule.position, self.batches_per_epoch
        return limit is not None and position.taken >= self._schedule.plan.share_of(limit)

    def _pass_over_the_end(self) -> None:
        """There is none."""
