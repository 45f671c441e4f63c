"""How many free slots a worker keeps."""

from __future__ import annotations

import resource
import sys
from typing import Any

import numpy as np
import pytest

from detaug.transport.slots import ParentSlots, WorkerSlots
from detaug.transport.transfer import pack

KEPT = 4


class Pair:
    """Both sides of one worker's slots."""

    def __init__(self) -> None:
        self.worker, self.parent = WorkerSlots(), ParentSlots(KEPT)
        self.made = self.dropped = 0

    def deliver(self, batches: int) -> list[Any]:
        """So many batches, one held beside the other."""
        return [self._one() for _ in range(batches)]

    def _one(self) -> Any:
        contents, descriptor = self.worker.write(pack({"data": np.arange(10_000)}))
        self.made += descriptor is not None
        self.parent.map(contents, descriptor)
        return self.parent.open(contents)

    def return_slots(self) -> None:
        """Of what is held no more."""
        again, dropped = self.parent.take_returned()
        self.dropped += len(dropped)
        self.worker.give_back(again)
        self.worker.drop(dropped)


def test_slots_are_filled_again_and_those_beyond_what_is_kept_are_dropped() -> None:
    one = Pair()
    for _ in range(3):
        one.deliver(KEPT)
        one.return_slots()
    assert (one.made, one.dropped) == (KEPT, 0)
    one.deliver(KEPT + 3)
    one.return_slots()
    assert (one.made, one.dropped) == (KEPT + 3, 3)
    one.deliver(KEPT)
    assert one.made == KEPT + 3


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are mapped one by one")
def test_filling_a_slot_meets_no_unmapped_page() -> None:
    one = Pair()
    array = np.ones(4_000_000, np.uint8)
    pages = array.nbytes // resource.getpagesize()
    worker = one.worker
    first = worker.take(array.nbytes)
    assert first is not None
    for _ in range(3):  # a new slot, which is mapped at once, and the same one again
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        first[:] = array
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < pages // 4
        del first
        worker.abandon()
        first = worker.take(array.nbytes)
        assert first is not None
    assert worker._made == 1
