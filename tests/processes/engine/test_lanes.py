"""Batches that take microseconds come through a ring in shared memory: the same ones, whatever happens."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

from detaug import BatchError, DeterministicAugmenter, current
from detaug.engine.local import lanes
from detaug.engine.local.coordinator import Coordinator
from detaug.errors import ReproducibilityError, WorkerDied
from tests.support.augmenters import Maker

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not hasattr(os, "eventfd"), reason="there are no eventfds here"),
]


class Tiny(DataLoader):
    """A few numbers from every generator, and now and then something that no lane carries."""

    def __init__(self, event: str = "", at: int = -1, flag: Path | None = None) -> None:
        super().__init__(None, 1, infinite=True)
        self.event, self.at, self.flag = event, at, flag

    def generate_train_batch(self) -> Any:
        now = current()
        if self.event == "counts" and now.step >= self.at:
            return now.step, time.time_ns()
        batch = (now.epoch, now.step, random.random(), float(np.random.random()), int(now.generator.integers(2**40)))
        if now.step != self.at or (self.flag is not None and self.flag.exists()):
            return batch
        if self.flag is not None:
            self.flag.touch()
        match self.event:
            case "is large":
                return (*batch, np.random.random(100_000).tolist())
            case "takes long":
                time.sleep(0.7)
            case "raises":
                raise LookupError("no such case")
            case "ends":
                os._exit(7)
            case "is killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hangs":
                time.sleep(1000)
            case "has buffers":
                return (*batch, np.random.random(200).tobytes(), np.random.random(100))
        return batch


class Counting(SlimDataLoaderBase):
    """A stream that knows how many it has given."""

    def __init__(self) -> None:
        super().__init__(None, 1)
        self.number = 0

    def generate_train_batch(self) -> Any:
        self.number += 1
        return self.number, random.random(), current().step


class Noting(Counting):
    """It notes each of its steps."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log

    def generate_train_batch(self) -> Any:
        with self.log.open("a") as file:
            file.write(f"{current().step}\n")
        return super().generate_train_batch()


@pytest.fixture(autouse=True)
def lanes_open_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_OPENS_AFTER", 16)
    monkeypatch.setattr(lanes, "_OPENS_AT", 40.0)  # on a machine that does other things as well
    monkeypatch.setattr(lanes, "_WORTH", 1)
    monkeypatch.setattr(lanes, "_MOST_PATIENT", 16)


def expected(epoch: int, steps: range) -> list[Any]:
    """What `replay` gives. Most tests want the same first batches, which are made once."""
    for step in steps:
        if (epoch, step) not in KNOWN:
            first = steps[steps.index(step) :]
            KNOWN.update(zip(((epoch, each) for each in first), replayed(epoch, first), strict=True))
    return [KNOWN[epoch, step] for step in steps]


#: Batches of `Tiny` by (epoch, step).
KNOWN: dict[tuple[int, int], Any] = {}


def replayed(epoch: int, steps: range, loader: Tiny | None = None) -> list[Any]:
    with DeterministicAugmenter(loader or Tiny(), None, 0, seed=3, check_every=0) as here:
        return [here.replay(epoch, step) for step in steps]


def lane_of(augmenter: DeterministicAugmenter) -> Any:
    """The open lane, or None. The engine may end it at any time."""
    engine = augmenter._engine
    assert isinstance(engine, Coordinator)
    return engine._schedule.lane


def in_lane(augmenter: DeterministicAugmenter) -> bool:
    return lane_of(augmenter) is not None


def take_until_in_lane(augmenter: DeterministicAugmenter) -> list[Any]:
    """Batches until some of them came through a lane."""
    batches, deadline = [], time.monotonic() + 40.0
    while time.monotonic() < deadline:
        batches.append(next(augmenter))
        lane = lane_of(augmenter)
        if lane is not None and augmenter.step > lane.first.step + 100:
            return batches
    raise AssertionError("no lane was opened")


@pytest.mark.parametrize("start_method", ["fork", "spawn"])
@pytest.mark.parametrize("processes", [1, 3])
def test_batches_are_those_that_are_asked_for_one_by_one(make: Maker, processes: int, start_method: str) -> None:
    augmenter = make(Tiny(), None, processes, seed=3, start_method=start_method)
    batches = take_until_in_lane(augmenter)
    batches += [next(augmenter) for _ in range(500)]
    assert batches == expected(0, range(len(batches)))


def await_workers(augmenter: DeterministicAugmenter, number: int) -> None:
    """Until so many are ready: what one makes for another that starts later is made twice."""
    augmenter._start()
    assert augmenter._engine is not None
    while len(augmenter._engine.worker_pids(ready=True)) < number:
        time.sleep(0.01)


def test_several_workers_take_turns(make: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_WORTH_ANOTHER", 1e-9)
    augmenter = make(Tiny(), None, 3, seed=3, start_method="fork")
    await_workers(augmenter, 3)
    batches = take_until_in_lane(augmenter)
    # The first lane tells what a batch takes.
    while not in_lane(augmenter) or len(augmenter._engine._schedule.lane.workers) < 3:  # type: ignore[union-attr]
        batches.append(next(augmenter))
    batches += [next(augmenter) for _ in range(1000)]
    assert batches == expected(0, range(len(batches)))


@pytest.mark.parametrize("world_size", [1, 3])
def test_epochs_end_where_they_do_and_the_next_one_follows(make: Maker, world_size: int) -> None:
    options = {"seed": 3, "rank": world_size - 1, "world_size": world_size, "batches_per_epoch": 400 * world_size}
    augmenter = make(Tiny(), None, 2, start_method="fork", **options)
    opened = 0
    for epoch in range(3):
        batches = []
        for batch in augmenter:
            batches.append(batch)
            opened += in_lane(augmenter)
        steps = range(world_size - 1, 400 * world_size, world_size)
        assert batches == expected(epoch, steps)
    assert opened > 400


def test_batches_with_buffers_are_writable_and_their_own(make: Maker) -> None:
    augmenter = make(Tiny("has buffers", at=400), None, 2, seed=3, start_method="fork")
    batches = [next(augmenter) for _ in range(1000)]
    *_, text, numbers = batches[400]
    numbers += 1
    *_, same_text, same_numbers = replayed(0, range(400, 401), Tiny("has buffers", at=400))[0]
    assert text == same_text
    np.testing.assert_array_equal(numbers, same_numbers + 1)


@pytest.mark.parametrize(("world_size", "processes"), [(1, 1), (1, 2), (3, 4)])
def test_streams_go_on_in_their_workers(make: Maker, world_size: int, processes: int) -> None:
    place = {"seed": 3, "rank": world_size - 1, "world_size": world_size}
    augmenter = make(Counting(), None, processes, start_method="fork", **place)
    batches = take_until_in_lane(augmenter)
    os.kill(augmenter._engine._schedule.lane.workers[0].pid, signal.SIGKILL)  # type: ignore[union-attr]
    batches += [next(augmenter) for _ in range(300)]
    state = augmenter.state_dict()
    batches += [next(augmenter) for _ in range(100)]
    here = make(Counting(), None, 0, check_every=0, **place)
    assert batches == [next(here) for _ in batches]
    augmenter.load_state_dict(state)
    assert [next(augmenter) for _ in range(100)] == batches[-100:]


def test_streams_need_not_be_stepped_forward_when_a_lane_ends(make: Maker, tmp_path: Path) -> None:
    log = tmp_path / "made"
    augmenter = make(Noting(log), None, 2, seed=3, start_method="fork", check_every=0)  # a check would note steps too
    take_until_in_lane(augmenter)
    while in_lane(augmenter):
        time.sleep(0.05)
    before = log.read_text().split()
    for _ in range(150):
        next(augmenter)
    after = log.read_text().split()[len(before) :]
    assert after, "batches behind the lane's"
    assert not set(after) & set(before)
    assert len(after) == len(set(after))


@pytest.mark.parametrize("event", ["is large", "takes long"])
def test_what_is_no_lanes_business_comes_in_its_place(make: Maker, event: str) -> None:
    augmenter = make(Tiny(event, at=700), None, 2, seed=3, start_method="fork")
    batches = [next(augmenter) for _ in range(1500)]
    right = expected(0, range(1500))
    if event == "is large":
        (right[700],) = replayed(0, range(700, 701), Tiny(event, at=700))
    assert batches == right


def test_error_is_raised_in_its_place_and_what_comes_before_it_is_not_lost(make: Maker) -> None:
    augmenter = make(Tiny("raises", at=700), None, 2, seed=3, start_method="fork")
    assert [next(augmenter) for _ in range(700)] == expected(0, range(700))
    for _ in range(2):
        with pytest.raises(BatchError, match=r"(?s)no such case.* epoch 0, step 700 "):
            next(augmenter)
    augmenter.set_epoch(1)
    assert [next(augmenter) for _ in range(100)] == expected(1, range(100))


def test_error_is_left_out_where_that_is_wanted(make: Maker, caplog: pytest.LogCaptureFixture) -> None:
    augmenter = make(Tiny("raises", at=700), None, 2, seed=3, start_method="fork", on_error="skip")
    steps = [batch[1] for batch in (next(augmenter) for _ in range(1000))]
    assert steps == [step for step in range(1001) if step != 700]
    assert "epoch 0, step 700" in caplog.text


@pytest.mark.parametrize("event", ["ends", "is killed"])
def test_batch_of_a_worker_that_ended_is_made_again_and_named(
    make: Maker, tmp_path: Path, caplog: pytest.LogCaptureFixture, event: str
) -> None:
    augmenter = make(Tiny(event, 700, tmp_path / "ended"), None, 2, seed=3, start_method="fork")
    assert [next(augmenter) for _ in range(1500)] == expected(0, range(1500))
    assert "while making epoch 0, step 700 " in caplog.text


@pytest.mark.parametrize("event", ["ends", "hangs"])
def test_batch_that_ends_every_worker_is_an_error(make: Maker, event: str) -> None:
    options = {"stall_timeout": 1.0} if event == "hangs" else {}
    augmenter = make(Tiny(event, 700), None, 2, seed=3, start_method="fork", max_restarts=2, **options)
    assert [next(augmenter) for _ in range(700)] == expected(0, range(700))
    with pytest.raises(WorkerDied, match=r"epoch 0, step 700 "):
        next(augmenter)


@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGSTOP])
def test_worker_that_is_killed_or_stopped_at_any_moment_costs_no_batch(make: Maker, which: signal.Signals) -> None:
    augmenter = make(Tiny(), None, 2, seed=3, start_method="fork", stall_timeout=2.0, max_restarts=100)
    batches = []
    for _ in range(3):
        batches += take_until_in_lane(augmenter)
        victim = random.Random(len(batches)).choice(augmenter._engine._schedule.lane.workers)  # type: ignore[union-attr]
        os.kill(victim.pid, which)
    batches += [next(augmenter) for _ in range(500)]
    assert batches == expected(0, range(len(batches)))


def test_jumps_states_and_restarts_in_the_middle(make: Maker) -> None:
    augmenter = make(Tiny(), None, 2, seed=3, start_method="fork", num_cached=100)
    done = len(take_until_in_lane(augmenter))
    state = augmenter.state_dict()
    more = [next(augmenter) for _ in range(300)]
    assert more == expected(0, range(done, done + 300))
    augmenter.load_state_dict(state)
    assert [next(augmenter) for _ in range(300)] == more
    take_until_in_lane(augmenter)
    augmenter.set_epoch(5)
    assert [next(augmenter) for _ in range(300)] == expected(5, range(300))
    take_until_in_lane(augmenter)
    assert augmenter.replay(5, 7) == expected(5, range(7, 8))[0]
    augmenter.restart()
    assert next(augmenter) == expected(5, range(1))[0]
    other = make(Tiny(), None, 3, seed=3, start_method="fork")
    other.load_state_dict(state)
    assert [next(other) for _ in range(300)] == more


def test_interrupts_lose_no_batch(make: Maker) -> None:
    augmenter = make(Tiny(), None, 2, seed=3, start_method="fork")
    batches = take_until_in_lane(augmenter)
    interrupts, taking = 0, False

    def interrupted(*_: object) -> None:
        nonlocal interrupts, taking
        if taking:
            interrupts, taking = interrupts + 1, False
            raise KeyboardInterrupt

    def interrupt() -> None:
        while not over.wait(chance.uniform(0.0, 0.003)):
            os.kill(os.getpid(), signal.SIGINT)

    chance, over = random.Random(1), threading.Event()
    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, interrupted)
    thread.start()
    try:
        while len(batches) < 3_000 or interrupts <= 20:
            with suppress(KeyboardInterrupt):
                taking = True
                batch = next(augmenter)
                # The caller has it from here on; an interrupt before that left it due.
                batches.append(batch)
                taking = False
    finally:
        taking = False
        over.set()
        thread.join()
        signal.signal(signal.SIGINT, before)
    steps = [batch[1] for batch in batches]
    # One that was given between `return` and `append` is the caller's loss; none comes twice, and none out of order.
    assert steps == sorted(set(steps))
    missing = set(range(steps[-1])) - set(steps)
    assert len(missing) <= interrupts
    assert next(augmenter)[1] == augmenter.step - 1


def test_several_threads_share_the_stream(make: Maker) -> None:
    augmenter = make(Tiny(), None, 2, seed=3, start_method="fork")
    taken: Counter[int] = Counter()

    def loop() -> None:
        for _ in range(1500):
            taken[next(augmenter)[1]] += 1

    threads = [threading.Thread(target=loop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == Counter(range(6000))


def test_close_in_the_middle_ends_a_thread_that_waits_and_leaves_nothing_open(make: Maker) -> None:
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        augmenter = make(Tiny("hangs", at=1000), None, 2, seed=3, start_method="fork")
        augmenter._start()
        engine = augmenter._engine
        assert isinstance(engine, Coordinator)
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(lambda engine=engine: [engine.next() for _ in range(2000)])
            while engine._schedule.position.step < 1000:
                time.sleep(0.01)
            augmenter.close()
            with pytest.raises(RuntimeError, match="was closed"):
                waiting.result(20)
        del engine, waiting
    del augmenter, threads
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_lane_ends_when_nothing_is_taken_and_another_opens_when_it_is(make: Maker) -> None:
    augmenter = make(Tiny(), None, 2, seed=3, start_method="fork")
    batches = take_until_in_lane(augmenter)
    deadline = time.monotonic() + 20
    while in_lane(augmenter):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    batches += take_until_in_lane(augmenter)
    assert batches == expected(0, range(len(batches)))


def test_run_time_check_looks_at_batches_of_lanes(make: Maker) -> None:
    augmenter = make(Tiny("counts", at=640), None, 1, seed=3, start_method="fork", check_every=20, on_mismatch="raise")
    with pytest.raises(ReproducibilityError, match=r"epoch 0, step (?!\d\d\b|[1-5]\d\d\b)\d+"):
        deque((next(augmenter) for _ in range(8_000)), maxlen=0)
