"""How many free slots a worker keeps: what all may have together, and its share in any case."""

from __future__ import annotations

import resource
import sys
from typing import Any

import numpy as np
import pytest

from detaug.transport.slots import ParentSlots, Stock, WorkerSlots
from detaug.transport.transfer import pack

SHARE, WORKERS = 2, 2


class Clock:
    """Stands still."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


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


def test_far_beyond_what_all_may_have_slots_are_dropped() -> None:
    one = Pair(Stock(SHARE * WORKERS, Clock()))
    one.deliver(2 * SHARE * WORKERS + 3)
    one.return_slots()
    assert one.dropped == 3 + SHARE * WORKERS // 2


def test_beyond_what_all_may_have_one_slot_is_dropped_from_time_to_time() -> None:
    clock = Clock()
    one = Pair(Stock(SHARE * WORKERS, clock))
    number = SHARE * WORKERS + 2
    for dropped in (1, 1, 1):  # the time stands still: no more than one is dropped, and made again
        one.deliver(number)
        one.return_slots()
        assert one.dropped == dropped
    assert one.made == number + 1
    for dropped in (2, 3, 3):
        clock.seconds += 60
        one.deliver(SHARE)
        one.return_slots()
        assert one.dropped == dropped


def test_workers_that_take_turns_in_getting_ahead_do_not_make_slots_for_ever() -> None:
    stock = Stock(SHARE * WORKERS, Clock())
    pairs = [Pair(stock) for _ in range(WORKERS)]
    for turn in range(40):
        pairs[turn % WORKERS].deliver(SHARE + 1)
        pairs[turn % WORKERS].return_slots()
    assert sum(pair.made for pair in pairs) <= WORKERS * (SHARE + 1) + 1


def test_another_worker_has_its_share_and_the_first_gives_up_what_is_beyond_its_own() -> None:
    clock = Clock()
    stock = Stock(SHARE * WORKERS, clock)
    one, other = Pair(stock), Pair(stock)
    one.deliver(SHARE * WORKERS)
    one.return_slots()
    for _ in range(2):
        other.deliver(SHARE)
        other.return_slots()
    assert (other.made, other.dropped) == (SHARE, 0)
    for _ in range(SHARE + 1):
        clock.seconds += 60
        one.deliver(SHARE)
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


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pages are mapped one by one")
def test_filling_a_slot_meets_no_unmapped_page() -> None:
    one = Pair(Stock(SHARE))
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
