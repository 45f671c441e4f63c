"""`bench`: one measurement after another, each in a process of its own, whose memory is looked at meanwhile."""

from __future__ import annotations

import multiprocessing
import sys
import time
from typing import Any

from detaug.bench import child
from detaug.bench.child import STOCK_DEMO
from detaug.bench.cores import CoresElsewhere
from detaug.bench.memory import tree_memory
from detaug.bench.result import Measured, Result, TransformTimes, count
from detaug.bench.settings import DETAUG, LOADS, SYSTEMS, Run, Settings
from detaug.demo.mri import load_template
from detaug.doctor.machine import environment
from detaug.reports.progress import Progress
from detaug.verification.handed_in import UnusableError

#: Seconds between two looks at whether a measurement is done.
LOOK_EVERY = 0.1

#: A look at the memory of several processes costs tens of milliseconds of a core: it takes at most this share of one.
MEMORY_SHARE = 0.1

#: How often batches per second are measured, forwards and backwards by turns; the faster round is less disturbed by others.
ROUNDS = 2

#: A training's step takes this much longer than the quickest system's batch: one that keeps up never waits on average.
STEP = 1.15

#: Seconds after which a measurement has hung, above what it was to take.
_PATIENCE = 300.0

__all__ = ["Settings", "bench"]


def bench(settings: Settings, shown: Progress | None = None) -> Result:
    """Measure a pipeline under detaug, NonDetMultiThreadedAugmenter and torch's DataLoader.

    Where that is the demo, the engine alone as well, with the most processes: how fast a ready batch gets to the training, and
    what a batch costs that is nothing. Then the batches per second by the number of processes, for a training that asks for
    the next batch at once. Then, with the most processes, how long a training waits whose steps take `STEP` times as long as
    the quickest system's batch, and how much memory all processes use meanwhile. Then the time of each transform, in one
    process.

    Args:
        settings: what, and for how long.
        shown: shows every measurement.

    Raises:
        UnusableError: (a ValueError) detaug itself cannot run the pipeline.
        ModuleNotFoundError: nilearn, which holds the demo's MRI, is not installed.
    """
    shown = shown or Progress()
    timed = {"detaug's transforms": settings.target, "batchgenerators' transforms": STOCK_DEMO}
    if settings.target is not None:
        timed = {"": settings.target}
    most = settings.counts[-1]
    loads = LOADS if settings.target is None else ()
    kinds = [(load, most) for load in loads] + [("", processes) for processes in settings.counts]
    shown.update("start", total=len(SYSTEMS) * (ROUNDS * len(kinds) + 1) + len(timed))
    if settings.target is None:
        load_template()  # once for all
    # This process starts no threads but the progress bar's, and computes nothing, so that its forks begin alike.
    context = multiprocessing.get_context("fork" if sys.platform.startswith("linux") else None)
    began, elsewhere = time.perf_counter(), CoresElsewhere()

    rates: dict[tuple[str, int, str], Measured] = {}
    order = [(*kind, system) for kind in kinds for system in SYSTEMS]
    for number in range(ROUNDS):
        for each in order if number % 2 == 0 else order[::-1]:
            load, processes, system = each
            what = f", {load}" if load else ""
            shown.update(f"{system}{what}, {count(processes)}, round {number + 1} of {ROUNDS}")
            found = _measured(context, Run(settings, system, processes, load=load))
            if system == DETAUG and found.taken is None:
                raise UnusableError(f"the pipeline cannot be measured: {found.reason}")
            rates[each] = _faster(rates.get(each, found), found)
            shown.advance()
    fastest = max(rates["", most, system].rate or 0.0 for system in SYSTEMS)
    step = STEP / fastest
    waits = []
    for system in SYSTEMS:
        shown.update(f"{system}, {count(most)}, a training with steps of {1000 * step:.0f} ms")
        possible = rates["", most, system]
        run = Run(settings, system, most, step)
        waits.append(_measured(context, run) if possible.taken is not None else possible)
        shown.advance()
    times = []
    for name, target in timed.items():
        shown.update(f"the time of {name or 'each transform'}")
        run = Run(Settings(target, settings.processes, settings.seconds, settings.seed), "", 0)
        clocked, reason, _ = _result(context, run)
        times.append(TransformTimes(name, clocked, reason))
        shown.advance()
    return Result(
        settings,
        tuple(rates[each] for each in order if not each[0]),
        step,
        tuple(waits),
        tuple(times),
        environment(),
        time.perf_counter() - began,
        elsewhere.read(),
        tuple(rates[each] for each in order if each[0]),
    )


def _faster(one: Measured, other: Measured) -> Measured:
    if one.taken is None or other.taken is None:
        return one if one.taken is None else other
    return one if one.taken.rate >= other.taken.rate else other


def _measured(context: Any, run: Run) -> Measured:
    taken, reason, looks = _result(context, run)
    memory: tuple[tuple[float, int], ...] = ()
    if taken is not None:
        since = [(moment - taken.began, size) for moment, size in looks]
        memory = tuple(each for each in since if 0 <= each[0] <= taken.stamps[-1])
    return Measured(run.system, run.processes, taken, reason, memory, run.load)


def _result(context: Any, run: Run) -> tuple[Any, str, list[tuple[float, int]]]:
    """What a process found, or why it found nothing; and its memory, (`time.monotonic`, bytes)."""
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child.main, args=(sender, run), daemon=False)
    process.start()
    sender.close()
    memory = []
    began = due = time.monotonic()
    try:
        while not receiver.poll(LOOK_EVERY):
            now = time.monotonic()
            seconds = now - began
            # where batches per second are measured, nothing else is
            cost = time.thread_time()
            found = tree_memory(process.pid) if run.step and now >= due else None
            if found is not None:
                memory.append((now, found))
                due = now + (time.thread_time() - cost) / MEMORY_SHARE
            if seconds > _PATIENCE + 10 * run.seconds:
                return None, f"it was still running after {seconds:.0f} s", memory
        done, result = receiver.recv()
    except EOFError:
        process.join()
        return None, f"its process died with exit code {process.exitcode}", memory
    finally:
        receiver.close()
        process.join(5)  # what was measured is known by now
        if process.is_alive():
            process.kill()
            process.join()
    return (result, "", memory) if done else (None, str(result), memory)
