"""The rows of the stress suite: each injects one kind of fault and compares every batch."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

from detaug import LocalProcesses
from tests.stress.resources import flat_since, resources
from tests.stress.streams import (
    Counting,
    Endless,
    EndsItsProcess,
    fingerprints,
    make_augmenter,
    undisturbed,
)
from tests.support.processes import worker_pids
from tests.support.waiting import exit_code, join

#: Deaths in a row that one batch may cause: more than any row has.
_MANY_RESTARTS = 1000
#: Workers of a row that has several.
_WORKERS = 3
#: Seconds. A signal is sent at a random moment within this time after its turn has come.
_SIGNAL_DELAY = 0.03
#: Seconds after which a worker that was stopped is killed.
_STALL_TIMEOUT = 0.5
#: Seconds for which a child of the training process keeps a batch at most.
_CHILD_SECONDS = 0.05


@dataclass
class Outcome:
    """What a row has done and found.

    Attributes:
        name: the row, in words.
        faults: number of faults injected.
        batches: number of batches compared with an undisturbed run.
        remark: what else was measured.
    """

    name: str
    faults: int = 0
    batches: int = 0
    remark: str = ""

    def compare(self, found: Sequence[str], expected: Sequence[str]) -> None:
        """Count the batches of a run, and raise an AssertionError if any differs."""
        self.batches += len(found)
        pairs = zip(found, expected, strict=True)
        different = [index for index, (ours, theirs) in enumerate(pairs) if ours != theirs]
        assert not different, f"{self.name}: batches {different} of {len(found)} differ"

    def __str__(self) -> str:
        text = f"{self.name}: {self.faults} faults, {self.batches} batches, 0 differences"
        if self.remark:
            return f"{text}. {self.remark}"
        return text


def signals(
    kind: type[Endless],
    method: str,
    number: int,
    batches: int,
    faults: int,
    stall_timeout: float | None = None,
) -> Outcome:
    """Send signals to random workers, spread evenly over the batches.

    Args:
        kind: the loader.
        method: the start method.
        number: the signal.
        batches: number of batches.
        faults: number of signals.
        stall_timeout: seconds, as of `LocalProcesses`.
    """
    signal_name = signal.Signals(number).name
    outcome = Outcome(f"{signal_name} of workers, {kind.__name__.lower()} loader, {method}")
    chance = random.Random(batches)
    every = batches // faults
    timers: list[threading.Timer] = []
    found = []
    executor = LocalProcesses(method, _MANY_RESTARTS, stall_timeout=stall_timeout)
    with make_augmenter(kind(), _WORKERS, executor=executor) as augmenter:
        for step in range(batches):
            if step % every == every // 2:
                delay = chance.uniform(0.0, _SIGNAL_DELAY)
                timer = threading.Timer(delay, _signal_a_worker, (number, chance))
                timer.daemon = True
                timer.start()
                timers.append(timer)
            found.append(next(augmenter))
        # On a busy machine the last signal comes late.
        while any(timer.is_alive() for timer in timers):
            found.append(next(augmenter))
        # This one was made, or made again, after the last signal.
        found.append(next(augmenter))
    outcome.faults = len(timers)
    outcome.compare(fingerprints(found), undisturbed(kind, len(found)))
    return outcome


def _signal_a_worker(number: int, chance: random.Random) -> None:
    """Send a signal to a random worker, as soon as there is one."""
    while True:
        try:
            os.kill(chance.choice(sorted(worker_pids())), number)
            return
        except (IndexError, ProcessLookupError):
            time.sleep(0.005)


def endings(batches: int, every: int) -> Outcome:
    """Have the loader end its worker, in every way there is.

    Args:
        batches: number of batches.
        every: steps from one end to the next.
    """
    outcome = Outcome(
        "segmentation faults, SIGKILL, exits and closed descriptors in the loader, fork"
    )
    with tempfile.TemporaryDirectory() as folder:
        loader = EndsItsProcess(folder, every)
        with make_augmenter(loader, _WORKERS, stateless=True) as augmenter:
            found = fingerprints(next(augmenter) for _ in range(batches))
    outcome.faults = batches // every
    outcome.compare(found, undisturbed(Endless, batches))
    return outcome


def interrupts(
    batches: int,
    faults: int,
    kind: type[Endless] = Endless,
    num_processes: int = 2,
    longest_pause: float = 0.006,
) -> Outcome:
    """Press Ctrl-C at random moments, and go on with the loop each time. For the main thread.

    Args:
        batches: least number of batches.
        faults: least number of interrupts.
        kind: the loader.
        num_processes: of the augmenter.
        longest_pause: seconds from one interrupt to the next, at most.
    """
    where = "fork" if num_processes else "in process"
    outcome = Outcome(
        f"SIGINT of the training process at any moment, {kind.__name__.lower()} loader, {where}"
    )
    chance = random.Random(faults)
    stop = threading.Event()
    # It grows after each interrupt that came before the next batch: a slow machine would make none.
    pause = longest_pause

    def interrupt() -> None:
        while not stop.wait(chance.uniform(0.0, pause)):
            os.kill(os.getpid(), signal.SIGINT)

    steps: list[int] = []
    found: list[str] = []
    previous_handler = signal.signal(signal.SIGINT, _interrupt_the_engine)
    thread = threading.Thread(target=interrupt)
    with make_augmenter(kind(), num_processes) as augmenter:
        next(augmenter)
        thread.start()
        try:
            while len(steps) < batches or outcome.faults < faults:
                try:
                    step = augmenter.step
                    batch = next(augmenter)
                except KeyboardInterrupt:
                    outcome.faults += 1
                    pause *= 1.2
                    continue
                pause = longest_pause
                steps.append(step)
                found += fingerprints([batch])
        finally:
            stop.set()
            join(thread, "the thread that interrupts has ended")
            signal.signal(signal.SIGINT, previous_handler)
    expected = undisturbed(kind, steps[-1] + 1)
    outcome.compare(found, [expected[step] for step in steps])
    lost = steps[-1] - len(steps)
    outcome.remark = f"{lost} batches went with the exception"
    assert lost <= 0.01 * outcome.faults, outcome.remark
    return outcome


def _interrupt_the_engine(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, but only inside the engine.

    The suite's own loop could not catch it everywhere.
    """
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("_pytest."):
            # Its hook for exceptions in destructors, which the engine's garbage has called.
            return
        if name.startswith("detaug.engine."):
            raise KeyboardInterrupt
        frame = frame.f_back


def forks(batches: int, faults: int) -> Outcome:
    """Fork the training process between batches; each child keeps the latest batch for a while.

    Args:
        batches: number of batches.
        faults: number of forks, spread evenly over the batches.
    """
    outcome = Outcome("forks of the training process, which look at a batch later, fork")
    chance = random.Random(faults)
    every = batches // faults
    expected = undisturbed(Endless, batches)
    children = []
    found = []
    with make_augmenter(Endless(), _WORKERS) as augmenter:
        for step in range(batches):
            batch = next(augmenter)
            if step % every == every // 2:
                seconds = chance.uniform(0.0, _CHILD_SECONDS)
                children.append(_fork(batch, expected[step], seconds))
            found += fingerprints([batch])
    outcome.faults = len(children)
    outcome.compare(found, expected)
    codes = [exit_code(child, "a child has looked at its batch") for child in children]
    assert not any(codes), f"{outcome.name}: children ended with {codes}"
    return outcome


def _fork(batch: Any, expected: str, seconds: float) -> int:
    """Return the pid of a child that ends with 0 if its batch is still the expected one later."""
    with warnings.catch_warnings():
        # Python 3.12+ warns of threads at a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        time.sleep(seconds)
        code = int(fingerprints([batch]) != [expected])
    finally:
        os._exit(code)


def resumes(kind: type[Endless], batches: int, faults: int) -> Outcome:
    """Go on from a saved state at random steps, each time with another number of processes.

    Args:
        kind: the loader.
        batches: number of batches.
        faults: number of times.
    """
    outcome = Outcome(f"resumes with 0 to {_WORKERS} processes, {kind.__name__.lower()} loader")
    chance = random.Random(batches)
    last_steps = sorted(chance.sample(range(1, batches), faults))
    found: list[str] = []
    state = None
    for last_step in [*last_steps, batches]:
        with make_augmenter(kind(), chance.randint(0, _WORKERS)) as augmenter:
            if state is not None:
                augmenter.load_state_dict(json.loads(state))
            found += fingerprints(next(augmenter) for _ in range(last_step - len(found)))
            state = json.dumps(augmenter.state_dict())
    outcome.faults = faults
    outcome.compare(found, undisturbed(kind, batches))
    return outcome


def many_batches(batches: int) -> Outcome:
    """Make one long epoch, and raise an AssertionError if anything grows."""
    outcome = Outcome(f"{batches:,} batches, fork")
    expected = undisturbed(Endless, batches)
    num_first = batches // 10
    with make_augmenter(Endless(0.0), 2) as augmenter:
        found = fingerprints(next(augmenter) for _ in range(num_first))
        before = resources()
        found += fingerprints(next(augmenter) for _ in range(batches - num_first))
        outcome.remark = flat_since(before, partial(next, augmenter))
    outcome.compare(found, expected)
    return outcome


def many_starts(times: int) -> Outcome:
    """Start, take a batch and close, and raise an AssertionError if anything grows."""
    outcome = Outcome(f"{times:,} starts and stops, fork")
    expected = undisturbed(Endless, 1)
    for number in range(times):
        with make_augmenter(Endless(0.0), 1) as augmenter:
            outcome.compare(fingerprints([next(augmenter)]), expected)
        if number == times // 10:
            before = resources()
    outcome.remark = flat_since(before)
    return outcome


@dataclass(frozen=True)
class Row:
    """A row in its two forms.

    Attributes:
        run: injects the faults.
        long: its arguments in the form that takes minutes.
        short: its arguments in the form that takes seconds, for every change of the code.
    """

    run: Callable[..., Outcome]
    long: tuple[Any, ...]
    short: tuple[Any, ...]


#: Numbers of batches and of faults.
_LONG = (1000, 100)
_SHORT = (100, 10)

ROWS = {
    "kills": Row(partial(signals, Endless, "fork", signal.SIGKILL), _LONG, _SHORT),
    "kills of streams": Row(partial(signals, Counting, "fork", signal.SIGKILL), _LONG, _SHORT),
    "kills, forkserver": Row(
        partial(signals, Endless, "forkserver", signal.SIGKILL), _LONG, (30, 3)
    ),
    "kills, spawn": Row(partial(signals, Endless, "spawn", signal.SIGKILL), _LONG, (10, 1)),
    "stops": Row(
        partial(signals, Endless, "fork", signal.SIGSTOP, stall_timeout=_STALL_TIMEOUT),
        (300, 15),
        (40, 2),
    ),
    "endings": Row(endings, (1000, 10), (80, 10)),
    "interrupts": Row(interrupts, (2000, 300), (200, 30)),
    "interrupts of streams": Row(
        interrupts, (300, 50, Counting, 0, 0.5), (200, 30, Counting, 0, 0.2)
    ),
    "forks": Row(forks, _LONG, _SHORT),
    "resumes": Row(partial(resumes, Endless), _LONG, (60, 4)),
    "resumes of streams": Row(partial(resumes, Counting), (1000, 50), (60, 4)),
    "batches": Row(many_batches, (10_000,), (600,)),
    "starts": Row(many_starts, (1000,), (10,)),
}


def run_row(name: str, *, is_short: bool) -> Outcome:
    """Run a row, and return what it has found.

    Raises:
        AssertionError: a batch differs, or something has grown.
    """
    row = ROWS[name]
    arguments = row.short if is_short else row.long
    return row.run(*arguments)
