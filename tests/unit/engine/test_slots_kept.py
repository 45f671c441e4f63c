"""How many free slots a worker keeps: what all may have together, and its share in any case."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.transport.slots import ParentSlots, Stock, WorkerSlots
from detaug.transport.transfer import pack

SHARE, WORKERS = 2, 2


class Pair:
    """Both sides of one worker's slots."""

    def __init__(self, stock: Stock) -> None:
        self.worker, self.parent = WorkerSlots(), ParentSlots(SHARE, stock)
        self.made = self.dropped = 0

    def deliver(self, batches: int) -> list[Any]:
        """So many batches, one held beside the other."""
        return [self._one() for _ in range(batches)]

    def _one(self) -> Any:
        parcel, descriptor = self.worker.write(pack({"data": np.arange(10_000)}))
        self.made += descriptor is not None
        self.parent.map(parcel, descriptor)
        return self.parent.open(parcel)

    def return_slots(self) -> None:
        """Of what is held no more."""
        again, dropped = self.parent.take_returned()
        self.dropped += len(dropped)
        self.worker.give_back(again)
        self.worker.drop(dropped)


def test_a_worker_that_makes_more_batches_than_its_share_keeps_their_slots() -> None:
    one = Pair(Stock(SHARE * WORKERS))
    for _ in range(3):
        one.deliver(SHARE * WORKERS)
        one.return_slots()
    assert (one.made, one.dropped) == (SHARE * WORKERS, 0)


def test_beyond_what_all_may_have_slots_are_dropped() -> None:
    one = Pair(Stock(SHARE * WORKERS))
    one.deliver(SHARE * WORKERS + 3)
    one.return_slots()
    assert one.dropped == 3


def test_another_worker_has_its_share_and_the_first_gives_up_what_is_beyond_its_own() -> None:
    stock = Stock(SHARE * WORKERS)
    one, other = Pair(stock), Pair(stock)
    one.deliver(SHARE * WORKERS)
    one.return_slots()
    for _ in range(2):
        other.deliver(SHARE)
        other.return_slots()
    assert (other.made, other.dropped) == (SHARE, 0)
    one.deliver(SHARE * WORKERS)
    one.return_slots()
    assert one.dropped == SHARE
    assert stock.here == stock.most


def test_slots_of_a_worker_that_is_gone_count_no_more() -> None:
    stock = Stock(SHARE * WORKERS)
    one = Pair(stock)
    one.deliver(SHARE)
    one.return_slots()
    assert stock.here == SHARE
    one.parent.close()
    assert stock.here == 0
