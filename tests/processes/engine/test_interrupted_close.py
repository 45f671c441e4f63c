"""An interrupt while workers are being ended: the next `close` ends them."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import psutil
import pytest

from detaug import DeterministicAugmenter
from detaug.engine.prefetching_engine import PrefetchingEngine
from tests.support.augmenters import Maker
from tests.support.processes import is_over, own_processes, wait_until

pytestmark = pytest.mark.timeout(120)


class Counter:
    """Yields its batches' numbers, without end."""

    def __init__(self) -> None:
        self.count = 0

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> dict[str, Any]:
        self.count += 1
        return {"number": self.count}


def interrupt_in(code: CodeType) -> None:
    """Raise a KeyboardInterrupt when this thread enters the code, once."""

    def trace(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            sys.settrace(None)
            raise KeyboardInterrupt

    sys.settrace(trace)


@pytest.mark.parametrize("method", [PrefetchingEngine.close, PrefetchingEngine._await_checks])
def test_an_interrupted_close_can_be_repeated(make: Maker, method: Any) -> None:
    augmenter: DeterministicAugmenter = make(Counter(), None, 1, seed=1)
    next(augmenter)
    processes: list[psutil.Process] = own_processes()
    assert processes
    interrupt_in(method.__code__)
    with pytest.raises(KeyboardInterrupt):
        augmenter.close()
    augmenter.close()
    wait_until(lambda: all(map(is_over, processes)), "the workers' end", patience=20.0)


def test_an_interrupted_close_leaves_a_working_augmenter(make: Maker) -> None:
    augmenter: DeterministicAugmenter = make(Counter(), None, 1, seed=1)
    numbers = [next(augmenter)["number"]]
    num_processes = len(own_processes())
    interrupt_in(PrefetchingEngine.close.__code__)
    with pytest.raises(KeyboardInterrupt):
        augmenter.close()
    numbers.append(next(augmenter)["number"])
    assert numbers == [1, 2]
    assert len(own_processes()) == num_processes, "no second set of workers was started"
