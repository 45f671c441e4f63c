"""An interrupt in any line between the schedule and the user, and a second one in any line after it:
no batch is lost, and none comes twice.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

from detaug import DeterministicAugmenter, current
from detaug.engine.in_process import InProcess
from detaug.engine.prefetching_engine import PrefetchingEngine
from detaug.engine.schedule import Schedule


class Numbers(SlimDataLoaderBase):
    """Says which batch it is."""

    def __init__(self) -> None:
        super().__init__(None, 1)

    def generate_train_batch(self) -> tuple[int, int]:
        return current().epoch, current().step


FUNCTIONS = (
    DeterministicAugmenter.__next__,
    PrefetchingEngine.wait,
    PrefetchingEngine._wait,
    PrefetchingEngine._delivered,
    PrefetchingEngine._finish_epoch,
    PrefetchingEngine.hand_over,
    PrefetchingEngine.put_back,
    InProcess.wait,
    InProcess._take,
    InProcess.hand_over,
    InProcess.put_back,
    Schedule.take,
    Schedule.put_back,
    Schedule.due,
    Schedule.position.fget,  # type: ignore[attr-defined]
    Schedule.position.fset,  # type: ignore[attr-defined]
)
CODES = {function.__code__ for function in FUNCTIONS}


class Interrupts:
    """Raises KeyboardInterrupt when so many lines of `FUNCTIONS` were reached, each time."""

    def __init__(self, engine: Any, *distances: int) -> None:
        self._lock = getattr(engine, "_lock", None)
        self._distances = list(distances)

    @property
    def all_raised(self) -> bool:
        return not self._distances

    @contextmanager
    def raised(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            yield
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code not in CODES:
            return None
        if event == "line" and self._distances and not self._is_unlocking(frame):
            self._distances[0] -= 1
            if self._distances[0] == 0:
                del self._distances[0]
                raise KeyboardInterrupt
        return self._trace

    def _is_unlocking(self, frame: FrameType) -> bool:
        """At the end of a `with` Python runs no handler of a signal before it has unlocked."""
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
        is_with = line.strip().startswith("with ")
        return is_with and (self._lock is None or self._lock.locked())


def taken_with_interrupts(processes: int, second: int, way: str) -> list[tuple[int, int]]:
    """Return the batches of a program that is interrupted in every line, one after the other."""
    taken: list[tuple[int, int]] = []
    distance = 0
    with DeterministicAugmenter(
        Numbers(), None, processes, seed=3, batches_per_epoch=7, stateless=True, check=False
    ) as augmenter:
        next(augmenter)
        engine = augmenter._engine
        while True:
            distance += 1
            interrupts = Interrupts(engine, distance, *[second] * bool(second))
            try:
                with interrupts.raised():
                    try:
                        taken.append(next(augmenter))
                    except KeyboardInterrupt:
                        if way == "looks at the position":
                            assert augmenter.state_dict()["epoch"] == augmenter.epoch
            except (KeyboardInterrupt, StopIteration):
                pass
            if way == "starts another pass":
                iter(augmenter)
            # Undisturbed: on a slow machine no batch would arrive between two interrupts.
            with suppress(StopIteration):
                taken.append(next(augmenter))
            if interrupts.all_raised:
                continue
            if distance > 70:
                return taken


@pytest.mark.parametrize("way", ["goes on", "looks at the position", "starts another pass"])
@pytest.mark.parametrize("processes", [0, 2])
def test_no_interrupt_loses_or_doubles_a_batch(processes: int, way: str) -> None:
    for second in (0, 1, 2, 4, 7):
        taken = taken_with_interrupts(processes, second, way)
        first_epoch, first_step = taken[0]
        start = 7 * first_epoch + first_step
        assert start == 1
        expected = [divmod(number, 7) for number in range(start, start + len(taken))]
        assert taken == expected
