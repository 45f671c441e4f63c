"""Steps that are made unasked, as far as the schedule knows of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from detaug.engine.order.outcomes import Position
from detaug.pipeline.plan import BatchKey


class Lane(Protocol):
    """Steps that are made unasked, and read where they are made. See `detaug.engine.local.lane`.

    Attributes:
        first: the position of its first batch; all from there on are its own, as long as it lasts.
    """

    first: Position

    def batch(self, step: int) -> tuple[Any] | None:
        """(the batch,) if it was made."""

    def made(self) -> Iterator[BatchKey]:
        """Those for which `batch` has one."""

    def advance(self, position: Position) -> None:
        """What lies before that position was taken."""

    def stop(self) -> None:
        """Nothing more is begun."""
