"""The rest of an epoch, which a loop gets after it has loaded a state."""

from __future__ import annotations


class RestOfEpoch:
    """The epoch of a state that was loaded, until the loop goes on.

    A loop that resumes names the loaded epoch before it takes a batch: ``for e in range(aug.epoch,
    E): aug.set_epoch(e)``. This one call keeps the position, which may be in mid-epoch or at the
    epoch's end. Any other names an epoch that starts with step 0.

    Attributes:
        is_next: the loop has named the loaded epoch: its next pass is the rest of that epoch, which
            may be empty.
    """

    def __init__(self) -> None:
        self._epoch: int | None = None
        self.is_next = False

    def load(self, epoch: int) -> None:
        """Wait for the loop to name this epoch."""
        self._epoch = epoch
        self.is_next = False

    def is_named_by(self, epoch: int) -> bool:
        """Return whether a loop that names this epoch means the rest of the loaded one."""
        self.is_next = self._epoch == epoch
        # Once: to name the same epoch again means its start.
        self._epoch = None
        return self.is_next

    def forget(self) -> None:
        """Forget the loaded epoch: the loop goes on without naming it."""
        self._epoch = None
        self.is_next = False
