"""`bench`: batches per second of a pipeline under each system, and the time of each of its transforms."""

from __future__ import annotations

import io
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from detaug.bench.measuring import MeasurementError, Ratio, in_fresh_process, interleaved
from detaug.bench.systems import NUM_CACHED, SYSTEMS, NotForThis, detaug
from detaug.demo.loader import demo_pipeline
from detaug.doctor.machine import environment
from detaug.engine.warming import warm_up
from detaug.errors import UnusableError
from detaug.pictures.charts import COLOURS, figure_of
from detaug.previews.views import name_of, samples_of
from detaug.processes import cores
from detaug.processes.threads import one_thread
from detaug.reports.progress import Progress
from detaug.reports.rows import collected_notices
from detaug.transforms.building.stages import observed
from detaug.verification.handed_in import HandedIn, call_factory, load_factory

#: How often each rate is measured, the systems in turn.
ROUNDS = 3

#: Batches that are timed at least, however long they take, and that much of the time goes by before they are.
LEAST, WARM_UP = 4, 0.4

#: Of detaug's batches.
SEED = 1234

#: Edge of the demo's patches, in voxels.
DEMO_PATCH = 64


@dataclass(frozen=True)
class Rate:
    """One system with one number of processes: batches per second in each round, or the `reason` why it could not be measured;
    seconds until the first batch; how many times as fast detaug is."""

    system: str
    processes: int
    batches_per_second: tuple[float, ...] = ()
    first: float = 0.0
    times: Ratio | None = None
    reason: str = ""


@dataclass(frozen=True)
class Result:
    """What was measured: rates, and mean seconds per sample of each transform (or why there are none)."""

    target: str | None
    seconds: float
    rates: tuple[Rate, ...]
    times: dict[str, float]
    untimed: str
    environment: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return {
            "target": self.target,
            "seconds_per_run": self.seconds,
            "rates": [{**vars(each), "times": each.times and vars(each.times)} for each in self.rates],
            "seconds_per_sample": self.times,
            "environment": self.environment,
        }

    def shown(self) -> Iterator[RenderableType]:
        """Two tables, and what a reader has to know of their numbers."""
        rates = _table("system", "processes", "batches/s", "first", "detaug over it")
        for each in self.rates:
            times, cells = each.times, ("not run", "", "")
            if each.batches_per_second:
                ratio = "" if times is None else f"{times.median:.2g} ({times.lowest:.2g}-{times.highest:.2g})"
                cells = (f"{median(each.batches_per_second):.3g}", f"{each.first:.2f} s", ratio)
            rates.add_row(each.system, str(each.processes), *cells)
        transforms = _table("transform", "ms per sample")
        for name, seconds in self.times.items():
            transforms.add_row(name, f"{1000 * seconds:.3g}")
        yield from (rates, Text(), transforms, Text()) if self.times else (rates, Text())
        missing = {each.system: each.reason for each in self.rates if each.reason}
        if self.untimed:
            missing["time per transform"] = self.untimed
        for name, reason in missing.items():
            yield Text(f"{name}: not measured, because {reason.rstrip('.')}.")
        yield Text(
            f"Medians of {ROUNDS} rounds of {self.seconds:g} s, every system with up to {NUM_CACHED} batches ready, "
            "detaug without its check. First: the time until the first batch. Detaug over it: how many times as fast detaug is."
        )

    def png(self) -> bytes:
        """Bars of the batches per second, and of the transforms' times."""
        title = f"{self.target or 'detaug bench, demo'}: {self.environment['cpu']['model']}"
        figure = figure_of(title, 9, 7 if self.times else 4)
        above, *below = figure.subplots(1 + bool(self.times), 1, squeeze=False)[:, 0]
        counts = sorted({each.processes for each in self.rates})
        measured = [each for each in self.rates if each.batches_per_second]
        systems = list(dict.fromkeys(each.system for each in measured))
        for n, system in enumerate(systems):
            rates = [each for each in measured if each.system == system]
            places = [counts.index(each.processes) + 0.27 * (n - (len(systems) - 1) / 2) for each in rates]
            heights = [median(each.batches_per_second) for each in rates]
            above.bar_label(above.bar(places, heights, 0.25, color=COLOURS[n], label=system), fmt="%.3g")
        above.set_xticks(range(len(counts)), counts)
        above.set(title="batches per second", xlabel="processes")
        above.margins(y=0.2)
        above.legend(ncols=len(SYSTEMS), frameon=False, loc="upper left")
        for axes in below:
            times = axes.barh(list(self.times), [1000 * seconds for seconds in self.times.values()], color=COLOURS[0])
            axes.bar_label(times, fmt="%.2g", padding=2)
            axes.invert_yaxis()
            axes.set(title="ms per sample of each transform, on one core")
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150)
        return file.getvalue()


def bench(target: str | None, processes: Sequence[int], seconds: float, shown: Progress) -> Result:
    """Measure a pipeline (None: the demo's) under detaug, NonDetMultiThreadedAugmenter and torch's DataLoader with these numbers
    of processes (none: one, and as many as there are cores), each run for so long; and each of its transforms.

    Raises:
        UnusableError: detaug itself cannot run the pipeline.
    """
    if target is None:
        from detaug.demo.mri import load_template

        load_template()  # once for all
    counts = sorted({*(processes or (1, cores.usable()))})
    shown.update("start", total=len(SYSTEMS) * ROUNDS * len(counts) + 1)
    rates: list[Rate] = []
    for number in counts:

        def measure(system: str, number: int = number) -> Any:
            shown.update(f"{system}, processes: {number}")
            found = _measured(_rate, target, seconds, system, number)
            shown.advance()
            if system == "detaug" and isinstance(found, str):
                raise UnusableError(f"the pipeline cannot be measured: {found}")
            return found

        found = interleaved(tuple(SYSTEMS), ROUNDS, measure)
        rates += [_summary(system, number, found) for system in SYSTEMS]
    shown.update("the time of each transform")
    found = _measured(_transform_times, target, seconds)
    times, untimed = ({}, found) if isinstance(found, str) else (found, "")
    return Result(target, seconds, tuple(rates), times, untimed, environment())


def _summary(system: str, processes: int, found: dict[str, list[Any]]) -> Rate:
    reasons = [each for each in found[system] if isinstance(each, str)]
    if reasons:
        return Rate(system, processes, reason=reasons[0])
    rates, firsts = zip(*found[system], strict=True)
    ours = [each[0] for each in found["detaug"]]
    times = None if system == "detaug" else Ratio.of(ours, rates)
    return Rate(system, processes, tuple(rates), median(firsts), times)


def _measured(function: Callable[..., Any], *arguments: Any) -> Any:
    """What it returns in a process of its own, or why it returns nothing."""
    try:
        return in_fresh_process(_or_reason, function, *arguments)
    except MeasurementError as error:
        return str(error)


def _or_reason(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        with collected_notices():
            return function(*arguments)
    except KeyboardInterrupt:
        return "interrupted"
    except BaseException as error:  # the user's code may raise anything
        # torch's loader puts the traceback of its worker before the message
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[-1 if lines[0].startswith("Caught ") else 0]


def _rate(target: str | None, seconds: float, system: str, processes: int) -> tuple[float, float]:
    """(batches per second, seconds until the first)."""
    made = _made(target)
    began = time.perf_counter()
    with SYSTEMS[system](made, processes) as batches:
        next(batches)
        first = time.perf_counter() - began
        settled = time.perf_counter() + WARM_UP * seconds
        while time.perf_counter() < settled:
            next(batches)
        began, count = time.perf_counter(), 0
        while count < LEAST or time.perf_counter() - began < seconds:
            next(batches)
            count += 1
        return count / (time.perf_counter() - began), first


def _made(target: str | None) -> HandedIn:
    """The user's pipeline, or the demo's, with its kernels compiled."""
    made = call_factory(partial(demo_pipeline, DEMO_PATCH) if target is None else load_factory(target))
    warm_up(made.transform, made.source.loader)
    return replace(made, seed=SEED)


def _transform_times(target: str | None, seconds: float) -> dict[str, float]:
    """Make batches in this process, and clock every transform."""
    made = _made(target)
    spent: defaultdict[tuple[tuple[int, ...], str], float] = defaultdict(float)

    def observe(root: Any, workspace: Any, params: dict[str, Any]) -> None:
        for stage in root.stages(params):
            began = time.perf_counter()
            stage.transform.apply_in(workspace, stage.params)
            spent[stage.place, name_of(stage.transform)] += time.perf_counter() - began

    samples = 0
    with detaug(made, 0) as batches, one_thread(), observed(observe):
        next(batches)  # the first one loads libraries and fills caches
        spent.clear()
        until = time.perf_counter() + seconds
        while samples < LEAST or time.perf_counter() < until:
            samples += len(samples_of(next(batches)))
    if not spent:
        raise NotForThis("its transforms are not known one by one: none of them is detaug's")
    return {name: seconds / samples for (_, name), seconds in sorted(spent.items())}


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for n, name in enumerate(columns):
        table.add_column(name, justify="right" if n else "left", no_wrap=bool(n), overflow="fold")
    return table
