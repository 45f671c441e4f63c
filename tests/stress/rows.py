"""The rows of the stress suite: what is done to the engine, and what is looked at."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from detaug import LocalProcesses
from tests.stress.injecting import Injector
from tests.stress.outcome import Outcome
from tests.stress.resources import Resources, judge_flatness
from tests.stress.streams import Counting, Endless, EndsItsProcess, made, prints, undisturbed


def under_signals(kind: type[Endless], method: str, number: int, batches: int, faults: int, **limits: Any) -> Outcome:
    """That many signals, spread evenly over the batches and each sent to a random process at a random moment."""
    outcome = Outcome(f"{signal.Signals(number).name} of workers, {kind.__name__.lower()} loader, {method}")
    found = []
    with made(kind(), 3, executor=LocalProcesses(method, 1000, **limits)) as augmenter:
        found.append(next(augmenter))
        injector = Injector(augmenter, number, seed=batches)
        half = batches // (2 * faults)
        for step in range(1, batches):
            if (step + half) * faults // batches != (step + half - 1) * faults // batches:
                injector.order()
            found.append(next(augmenter))
        while not injector.at_rest:  # on a busy machine the last one comes late
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


_KILL, _STOP = signal.SIGKILL, signal.SIGSTOP
#: What each row does in minutes, and in seconds (`short`) for every change.
ROWS: dict[str, Callable[[bool], Outcome]] = {
    "kills": lambda short: under_signals(Endless, "fork", _KILL, *((100, 10) if short else (1000, 100))),
    "kills of streams": lambda short: under_signals(Counting, "fork", _KILL, *((100, 10) if short else (1000, 100))),
    "kills, forkserver": lambda short: under_signals(
        Endless, "forkserver", _KILL, *((30, 3) if short else (1000, 100))
    ),
    "kills, spawn": lambda short: under_signals(Endless, "spawn", _KILL, *((10, 1) if short else (1000, 100))),
    "stops": lambda short: under_signals(Endless, "fork", _STOP, *((40, 2) if short else (300, 15)), stall_timeout=0.5),
    "endings": lambda short: own_endings(80 if short else 1000, 10),
    "interrupts": lambda short: interrupts(*((200, 30) if short else (2000, 300))),
    "interrupts of streams": lambda short: interrupts(
        *((200, 30) if short else (300, 50)), Counting, 0, within=0.2 if short else 0.5
    ),
    "batches": lambda short: many_batches(600 if short else 10_000),
    "starts": lambda short: many_starts(10 if short else 1000),
}
