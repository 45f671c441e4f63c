"""The rows of the stress suite: what is done to the engine, and what is looked at."""

from __future__ import annotations

import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from detaug import LocalProcesses
from tests.stress.resources import flat_since, resources
from tests.stress.streams import Counting, Endless, EndsItsProcess, made, prints, undisturbed
from tests.support.processes import worker_pids
from tests.support.waiting import join


@dataclass
class Outcome:
    """A row: what was done, how many faults were injected, batches compared with an undisturbed
    run, and what else was seen.
    """

    name: str
    faults: int = 0
    batches: int = 0
    also: str = ""

    def compare(self, found: Sequence[str], expected: Sequence[str]) -> None:
        """An AssertionError where batches of one run differ."""
        self.batches += len(found)
        different = [
            place
            for place, pair in enumerate(zip(found, expected, strict=True))
            if pair[0] != pair[1]
        ]
        assert not different, f"{self.name}: batches {different} of {len(found)} differ"

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.faults} faults, {self.batches} batches, 0 differences. {self.also}"
        )


def under_signals(
    kind: type[Endless], method: str, number: int, batches: int, faults: int, **limits: Any
) -> Outcome:
    """That many signals, spread evenly over the batches and each sent to a random process at a
    random moment.
    """
    outcome = Outcome(
        f"{signal.Signals(number).name} of workers, {kind.__name__.lower()} loader, {method}"
    )
    found, timers, chance, every = [], [], random.Random(batches), batches // faults
    with made(kind(), 3, executor=LocalProcesses(method, 1000, **limits)) as augmenter:
        for step in range(batches):
            if step % every == every // 2:
                timers.append(threading.Timer(chance.uniform(0.0, 0.03), _send, (number, chance)))
                timers[-1].daemon = True
                timers[-1].start()
            found.append(next(augmenter))
        # On a busy machine the last one comes late.
        while any(timer.is_alive() for timer in timers):
            found.append(next(augmenter))
        # Made after the last signal, or again.
        found.append(next(augmenter))
    outcome.faults = len(timers)
    outcome.compare(prints(found), undisturbed(kind, len(found)))
    return outcome


def _send(number: int, chance: random.Random) -> None:
    """To a random worker, as soon as there is one."""
    while True:
        try:
            os.kill(chance.choice(sorted(worker_pids())), number)
            return
        except (IndexError, ProcessLookupError):
            time.sleep(0.005)


def own_endings(batches: int, every: int) -> Outcome:
    """Workers that crash and exit by themselves, in every way there is."""
    outcome = Outcome(
        "segmentation faults, SIGKILL, exits and closed descriptors in the loader, fork"
    )
    with (
        tempfile.TemporaryDirectory() as folder,
        made(EndsItsProcess(folder, every), 3, stateless=True) as augmenter,
    ):
        found = prints(next(augmenter) for _ in range(batches))
    outcome.faults = batches // every
    outcome.compare(found, undisturbed(Endless, batches))
    return outcome


def interrupts(
    batches: int,
    faults: int,
    kind: type[Endless] = Endless,
    processes: int = 2,
    within: float = 0.006,
) -> Outcome:
    """Ctrl-C at any moment, at most `within` seconds after the one before, and the loop goes on.
    For the main thread.
    """
    where = "fork" if processes else "in process"
    outcome = Outcome(
        f"SIGINT of the training process at any moment, {kind.__name__.lower()} loader, {where}"
    )
    stop, chance = threading.Event(), random.Random(faults)
    # more after one that came before the next batch: a machine may be too slow to get anywhere
    longest = within

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
            join(thread, "the thread that interrupts has ended")
            signal.signal(signal.SIGINT, before)
    expected = undisturbed(kind, seen[-1][0] + 1)
    outcome.compare([found for _, found in seen], [expected[step] for step, _ in seen])
    lost = seen[-1][0] - len(seen)
    outcome.also = f"{lost} batches went with the exception"
    assert lost <= 0.01 * outcome.faults, outcome.also
    return outcome


def _interrupt_the_engine(number: int, frame: FrameType | None) -> None:
    """As Python's own handler, but only inside the engine: the suite's loop could not catch it
    everywhere.
    """
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("_pytest."):
            # Its hook for exceptions in destructors, which the engine's garbage has called.
            return
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
        before = resources()
        found += prints(next(augmenter) for _ in range(batches - warm))
        outcome.also = flat_since(before, lambda: next(augmenter))
    outcome.compare(found, expected)
    return outcome


def many_starts(times: int) -> Outcome:
    """Started, a batch taken, ended."""
    outcome = Outcome(f"{times:,} starts and stops, fork")
    expected = undisturbed(Endless, 1)
    for number in range(times):
        with made(Endless(0.0), 1) as augmenter:
            outcome.compare(prints([next(augmenter)]), expected)
        if number == times // 10:
            before = resources()
    outcome.also = flat_since(before)
    return outcome


_KILL, _STOP = signal.SIGKILL, signal.SIGSTOP
#: What each row does in minutes, and in seconds (`short`) for every change.
ROWS: dict[str, Callable[[bool], Outcome]] = {
    "kills": lambda short: under_signals(
        Endless, "fork", _KILL, *((100, 10) if short else (1000, 100))
    ),
    "kills of streams": lambda short: under_signals(
        Counting, "fork", _KILL, *((100, 10) if short else (1000, 100))
    ),
    "kills, forkserver": lambda short: under_signals(
        Endless, "forkserver", _KILL, *((30, 3) if short else (1000, 100))
    ),
    "kills, spawn": lambda short: under_signals(
        Endless, "spawn", _KILL, *((10, 1) if short else (1000, 100))
    ),
    "stops": lambda short: under_signals(
        Endless, "fork", _STOP, *((40, 2) if short else (300, 15)), stall_timeout=0.5
    ),
    "endings": lambda short: own_endings(80 if short else 1000, 10),
    "interrupts": lambda short: interrupts(*((200, 30) if short else (2000, 300))),
    "interrupts of streams": lambda short: interrupts(
        *((200, 30) if short else (300, 50)), Counting, 0, within=0.2 if short else 0.5
    ),
    "batches": lambda short: many_batches(600 if short else 10_000),
    "starts": lambda short: many_starts(10 if short else 1000),
}
