"""The rows of the stress suite: what is done to the engine, and what is looked at."""

from __future__ import annotations

import os
import random
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

from detaug import LocalProcesses
from detaug.memory.limits import private_memory
from tests.stress.injecting import Injector
from tests.stress.outcome import Outcome
from tests.stress.resources import Resources, judge_flatness
from tests.stress.streams import Counting, Endless, EndsItsProcess, Leaking, made, prints, undisturbed

_MIB = 2**20


def under_signals(kind: type[Endless], method: str, number: int, batches: int, faults: int, **limits: Any) -> Outcome:
    """That many signals, spread evenly over the batches and each sent to a random process at a random moment."""
    outcome = Outcome(f"{signal.Signals(number).name} of workers, {kind.__name__.lower()} loader, {method}")
    found = []
    with made(kind(), 3, executor=LocalProcesses(method, 1000, **limits)) as augmenter:
        found.append(next(augmenter))
        injector = Injector(augmenter, number, seed=batches)
        with injector.at_work():
            half = batches // (2 * faults)
            for step in range(1, batches):
                if (step + half) * faults // batches != (step + half - 1) * faults // batches:
                    injector.order()
                found.append(next(augmenter))
            deadline = time.monotonic() + 30
            while not injector.at_rest and time.monotonic() < deadline:  # on a busy machine the last one comes late
                found.append(next(augmenter))
            found.append(next(augmenter))  # made after the last signal, or again
    if injector.sent < faults:
        outcome.failures.append(f"only {injector.sent} of {faults} signals were sent")
    outcome.faults = injector.sent
    outcome.compare(prints(found), undisturbed(kind, len(found)))
    return outcome


def own_endings(batches: int, every: int) -> Outcome:
    """Workers that crash and exit by themselves, in every way there is."""
    outcome = Outcome("segmentation faults, SIGKILL, exits and closed descriptors in the loader, fork")
    with (
        tempfile.TemporaryDirectory() as folder,
        made(EndsItsProcess(folder, every), 3, stateless=True) as augmenter,
    ):
        found = prints(next(augmenter) for _ in range(batches))
    outcome.faults = batches // every
    outcome.compare(found, undisturbed(Endless, batches))
    return outcome


def interrupts(
    batches: int, faults: int, kind: type[Endless] = Endless, processes: int = 2, within: float = 0.006
) -> Outcome:
    """Ctrl-C at any moment, at most `within` seconds after the one before, and the loop goes on. For the main thread."""
    where = "fork" if processes else "in process"
    outcome = Outcome(f"SIGINT of the training process at any moment, {kind.__name__.lower()} loader, {where}")
    stop, chance = threading.Event(), random.Random(faults)
    longest = within  # more after one that came before the next batch: a machine may be too slow to get anywhere

    def interrupt() -> None:
        while not stop.wait(chance.uniform(0.0, longest)):
            os.kill(os.getpid(), signal.SIGINT)

    seen: list[tuple[int, str]] = []
    before = signal.signal(signal.SIGINT, _interrupt_the_engine)
    thread = threading.Thread(target=interrupt)
    with made(kind(), processes) as augmenter:
        next(augmenter)
        thread.start()
        try:
            while len(seen) < batches or outcome.faults < faults:
                try:
                    step = augmenter.step
                    batch = next(augmenter)
                except KeyboardInterrupt:
                    outcome.faults += 1
                    longest *= 1.2
                else:
                    longest = within
                    seen += zip([step], prints([batch]), strict=True)
        finally:
            stop.set()
            thread.join()
            signal.signal(signal.SIGINT, before)
    expected = undisturbed(kind, seen[-1][0] + 1)
    outcome.compare([found for _, found in seen], [expected[step] for step, _ in seen])
    lost = seen[-1][0] - len(seen)
    outcome.notes.append(f"{lost} batches went with the exception")
    if lost > 0.01 * outcome.faults:
        outcome.failures.append("batches were lost")
    return outcome


def _interrupt_the_engine(number: int, frame: FrameType | None) -> None:
    """As Python's own handler, but only inside the engine: the suite's loop could not catch it everywhere."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("_pytest."):
            return  # its hook for exceptions in destructors, which the engine's garbage has called
        if name.startswith("detaug.engine."):
            raise KeyboardInterrupt
        frame = frame.f_back


def resumes(times: int, each: int) -> Outcome:
    """Ended and resumed at random steps, each time with other processes."""
    outcome = Outcome("end and resume with other process counts, fork")
    chance = random.Random(times)
    state, found = None, []
    for _ in range(times):
        kind, processes = Counting, chance.randint(0, 4)
        with made(kind(), processes, num_cached=chance.randint(0, 5)) as augmenter:
            if state is not None:
                augmenter.load_state_dict(state)
            found += prints(next(augmenter) for _ in range(chance.randint(1, 2 * each)))
            state = augmenter.state_dict()
    outcome.faults = times
    outcome.compare(found, undisturbed(Counting, len(found)))
    return outcome


def leaks(batches: int) -> Outcome:
    """A loader that leaks, and max_worker_memory."""
    outcome = Outcome("loader that leaks 20 MB a batch, max_worker_memory, fork")
    limit = private_memory() + 300 * _MIB
    pids: set[int] = set()
    with made(Leaking(), 2, executor=LocalProcesses(max_restarts=1000, max_worker_memory=limit)) as augmenter:
        found = []
        for _ in range(batches):
            found += prints([next(augmenter)])
            pids.update(augmenter._engine.worker_pids())  # type: ignore[union-attr]
    outcome.faults = len(pids) - 2
    outcome.notes.append(f"{len(pids)} workers followed each other")
    outcome.compare(found, undisturbed(Endless, batches))
    return outcome


def many_batches(batches: int) -> Outcome:
    """One long epoch."""
    outcome = Outcome(f"{batches:,} batches, fork")
    expected = undisturbed(Endless, batches)
    with made(Endless(0.0), 2) as augmenter:
        warm = batches // 10
        found = prints(next(augmenter) for _ in range(warm))
        before = Resources.now()
        found += prints(next(augmenter) for _ in range(batches - warm))
        judge_flatness(outcome, before, lambda: next(augmenter))
    outcome.compare(found, expected)
    return outcome


def many_epochs(epochs: int) -> Outcome:
    """Many short ones."""
    outcome = Outcome(f"{epochs} epochs of 10 batches, fork")
    with made(Counting(0.0), 0, batches_per_epoch=10) as alone:
        expected = [fingerprint for _ in range(epochs) for fingerprint in prints(alone)]
    found: list[str] = []
    with made(Counting(0.0), 2, batches_per_epoch=10) as augmenter:
        before = None
        for epoch in range(epochs):
            augmenter.set_epoch(epoch)
            found += prints(augmenter)
            if epoch == epochs // 10:
                before = Resources.now()
        assert before is not None
        judge_flatness(outcome, before, lambda: list(augmenter))
    outcome.compare(found, expected)
    return outcome


def many_starts(times: int) -> Outcome:
    """Started, a batch taken, ended."""
    outcome = Outcome(f"{times:,} starts and stops, fork")
    expected = undisturbed(Endless, 1)
    before = None
    for number in range(times):
        with made(Endless(0.0), 1) as augmenter:
            outcome.compare(prints([next(augmenter)]), expected)
        if number == times // 10:
            before = Resources.now()
    assert before is not None
    judge_flatness(outcome, before)
    return outcome


def speed_after_kills(method: str, kills: int) -> Outcome:
    """How many batches it takes after a kill until they come as fast as before: batches of 50 ms, two workers."""
    outcome = Outcome(f"throughput after SIGKILL, batches of 50 ms, two workers, {method}")
    waits: list[int] = []
    with made(Steady(), 2, executor=LocalProcesses(method, 1000)) as augmenter:
        _settle(augmenter)
        usual = statistics.median(_intervals(augmenter, 40))
        for number in range(kills):
            pids = augmenter._engine.worker_pids()  # type: ignore[union-attr]
            os.kill(random.Random(number).choice(pids), signal.SIGKILL)
            after = _intervals(augmenter, 40)
            waits.append(_batches_until_usual(after, usual))
            _settle(augmenter)
    outcome.faults = kills
    outcome.notes.append(
        f"usual interval {usual * 1000:.0f} ms; back to it after {statistics.median(waits):g} batches (median), "
        f"{max(waits)} (most)"
    )
    return outcome


class Steady(Endless):
    """Batches that take 50 ms each."""

    def __next__(self) -> dict[str, Any]:
        time.sleep(0.05)
        return {"step": 1}


def _settle(augmenter: Any) -> None:
    """Until all workers are there."""
    next(augmenter)
    while len(augmenter._engine.worker_pids()) < 2:
        next(augmenter)


def _intervals(augmenter: Any, number: int) -> list[float]:
    found, last = [], time.monotonic()
    for _ in range(number):
        next(augmenter)
        now = time.monotonic()
        found.append(now - last)
        last = now
    return found


def _batches_until_usual(intervals: list[float], usual: float) -> int:
    """The number of batches before the first four (two rounds of two workers) whose mean is near the usual."""
    for start in range(len(intervals) - 4):
        if statistics.mean(intervals[start : start + 4]) < 1.35 * usual:
            return start
    return len(intervals)


def long_form() -> list[Callable[[], Outcome]]:
    """What takes minutes."""
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    return [
        lambda: under_signals(Endless, "fork", kill, 1000, 100),
        lambda: under_signals(Counting, "fork", kill, 1000, 100),
        lambda: under_signals(Endless, "forkserver", kill, 1000, 100),
        lambda: under_signals(Endless, "fork", stop, 300, 15, stall_timeout=0.5),
        lambda: own_endings(1000, 10),
        lambda: interrupts(2000, 300),
        lambda: interrupts(300, 50, Counting, 0, within=0.5),
        lambda: resumes(30, 20),
        lambda: leaks(300),
        lambda: speed_after_kills("fork", 10),
        lambda: speed_after_kills("forkserver", 10),
        lambda: many_epochs(200),
        lambda: many_batches(10_000),
        lambda: speed_after_kills("spawn", 10),
        lambda: under_signals(Endless, "spawn", kill, 1000, 100),
        lambda: many_starts(1000),
    ]


def short_form() -> dict[str, Callable[[], Outcome]]:
    """The same in seconds, for every change."""
    kill, stop = signal.SIGKILL, signal.SIGSTOP
    return {
        "kills": lambda: under_signals(Endless, "fork", kill, 100, 10),
        "kills of streams": lambda: under_signals(Counting, "fork", kill, 100, 10),
        "stops": lambda: under_signals(Endless, "fork", stop, 40, 2, stall_timeout=0.5),
        "endings": lambda: own_endings(80, 10),
        "resumes": lambda: resumes(5, 10),
        "leaks": lambda: leaks(45),
        "batches": lambda: many_batches(600),
        "epochs": lambda: many_epochs(20),
        "starts": lambda: many_starts(10),
    }
