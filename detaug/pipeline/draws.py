"""A record of what a batch has drawn: the states in which it leaves the generators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from detaug.objects.fingerprints import lenient_fingerprint
from detaug.seeding.generators import state_of


class DrawRecord:
    """The states of the generators after each part of a batch: its samples, and the batch.

    Every part begins with newly seeded generators. Two makings of a batch that draw the same
    numbers leave them in the same states.
    """

    def __init__(self) -> None:
        self._fingerprints: list[str] | None = None

    @contextmanager
    def recording(self) -> Iterator[list[str]]:
        """Yield the list to which fingerprints of states are added inside the block."""
        fingerprints: list[str] = []
        self._fingerprints = fingerprints
        try:
            yield fingerprints
        finally:
            self._fingerprints = None

    def end_part(self, generators: Iterable[Any]) -> None:
        """Add the states of generators at the end of a part."""
        if self._fingerprints is None:
            return
        for generator in generators:
            self._fingerprints.append(lenient_fingerprint(state_of(generator)))

    def end_batch(self, generators: Iterable[Any]) -> None:
        """Add the states of generators at the end of the batch, and record nothing after it."""
        self.end_part(generators)
        self._fingerprints = None
