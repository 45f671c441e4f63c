"""The rest of an epoch: what a loop gets first after it has loaded a state."""

from __future__ import annotations


class RestOfEpoch:
    """The epoch of a loaded state, until the loop names an epoch or takes a batch.

    A loop that resumes names the loaded epoch before it takes a batch: ``for e in range(aug.epoch,
    E): aug.set_epoch(e)``. This one call keeps the position, which may be in mid-epoch or at the
    epoch's end. Any other names an epoch that starts with step 0.

    Attributes:
        is_next: True if the loop has named the loaded epoch, so that its next pass is the rest of
            that epoch, which may be empty.
    """

    def __init__(self) -> None:
        self._epoch: int | None = None
        self.is_next = False

    def load(self, epoch: int) -> None:
        """Remember the epoch of a state that was loaded."""
        self._epoch = epoch
        self.is_next = False

    def is_named_by(self, epoch: int) -> bool:
        """Return whether naming this epoch means the rest of the loaded one, and set `is_next`."""
        self.is_next = self._epoch == epoch
        # Forgotten now: naming the same epoch once more means its start.
        self._epoch = None
        return self.is_next

    def forget(self) -> None:
        """Forget the loaded epoch, because the loop goes on without naming it."""
        self._epoch = None
        self.is_next = False
