"""`bench`: batches per second of a pipeline under each system."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from detaug.augmenter.warm_up import warm_up
from detaug.demo.loader import demo_pipeline
from detaug.errors import UnusableError
from detaug.system.limits import usable_cores
from detaug.system.progress import Progress
from detaug.tools.bench.systems import OURS, SYSTEMS, Workers
from detaug.tools.bench.timing import (
    Consumption,
    MeasurementError,
    Ratio,
    consume,
    in_fresh_process,
    interleaved,
    usable_core_numbers,
)
from detaug.tools.pictures.charts import COLOURS, figure_of
from detaug.training.machine import environment
from detaug.verification.factories import FactoryResult, call_factory, load_factory
from detaug.verification.rows import collected_notices

#: How often each rate is measured, the systems in turn.
ROUNDS = 3

#: Batches that may wait for the training, for every system.
NUM_CACHED = 4

#: The least number of batches that are timed, however long they take.
LEAST_BATCHES = 4

#: The share of a run's seconds that passes before its batches are timed.
WARM_UP = 0.4

#: Figures are valid while other programs use less than this share of the cores.
MOST_ELSEWHERE = 0.1

#: Edge of the demo's patches, in voxels.
DEMO_PATCH = 64

RED = "#D55E00"

#: Names of systems in the table, which a narrow terminal shows without breaking them.
_SHORT_NAMES = {"NonDetMultiThreadedAugmenter": "batchgenerators"}


@dataclass(frozen=True)
class Rate:
    """One system with one number of processes.

    Attributes:
        system: its name.
        processes: worker processes.
        batches_per_second: in each round; empty if it could not be measured.
        times: how many times as fast detaug is; None for detaug itself.
        reason: why it could not be measured.
    """

    system: str
    processes: int
    batches_per_second: tuple[float, ...] = ()
    times: Ratio | None = None
    reason: str = ""


@dataclass(frozen=True)
class Load:
    """The load by other programs while a benchmark ran.

    Attributes:
        cores: that this program may use.
        cores_elsewhere: how many of them other programs kept busy, on average over all runs.
        average_before, average_after: the system's load average of one minute.
        is_valid: whether the cores were idle enough for figures.
    """

    cores: int
    cores_elsewhere: float
    average_before: float
    average_after: float
    is_valid: bool

    @classmethod
    def of(cls, elsewhere: Sequence[float], before: float, after: float) -> Load:
        """Return the load of some runs.

        Args:
            elsewhere: cores that other programs kept busy, on average, in each run.
            before, after: the system's load average of one minute.
        """
        cores = len(usable_core_numbers())
        mean = 0.0
        if elsewhere:
            mean = fmean(elsewhere)
        return cls(cores, mean, before, after, mean < MOST_ELSEWHERE * cores)

    @property
    def warning(self) -> str:
        """A sentence for readers of the figures; empty if they are valid."""
        if self.is_valid:
            return ""
        return (
            f"other programs use {self.cores_elsewhere:.1f} of {self.cores} cores: "
            "these figures are not valid"
        )


@dataclass(frozen=True)
class Benchmark:
    """The result of a benchmark, and the machine that it was measured on.

    Attributes:
        target: the pipeline's factory, as MODULE:FACTORY; None: the demo.
        seconds_per_run: that each run was measured for.
        rates: of each system with each number of processes.
        load: by other programs, meanwhile.
        environment: as `detaug.training.environment` returns it.
    """

    target: str | None
    seconds_per_run: float
    rates: tuple[Rate, ...]
    load: Load
    environment: dict[str, Any]

    def render(self) -> Iterator[RenderableType]:
        """Yield a table, and sentences on how far its numbers can be trusted."""
        rates = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        rates.add_column("system", overflow="fold")
        for name in ("processes", "batches/s", "detaug over it"):
            rates.add_column(name, justify="right", no_wrap=True, overflow="fold")
        for rate in self.rates:
            name = _SHORT_NAMES.get(rate.system, rate.system)
            rates.add_row(name, str(rate.processes), *_cells(rate))
        yield rates
        yield Text()
        if self.load.warning:
            load = self.load
            averages = (
                f" (load average {load.average_before:.1f} before, {load.average_after:.1f} after)"
            )
            yield Text(f"{load.warning}{averages}.", "bold red")
        reasons = {rate.system: rate.reason for rate in self.rates if rate.reason}
        for system, reason in reasons.items():
            yield Text(f"{system}: not measured, because {reason.rstrip('.')}.")
        yield Text(
            f"Medians of {ROUNDS} rounds of {self.seconds_per_run:g} s, every system with up to "
            f"{NUM_CACHED} batches ready, detaug without its check. Detaug over it: how many times "
            "as fast detaug is."
        )

    def png(self) -> bytes:
        """Return a picture: bars of the batches per second."""
        file = io.BytesIO()
        self.figure().savefig(file, format="png", dpi=150)
        return file.getvalue()

    def figure(self) -> Any:
        """Draw a bar for each system and number of processes."""
        title = f"{self.target or 'detaug bench, demo'}: {self.environment['cpu']['model']}"
        figure = figure_of(title, 9, 4)
        axes = figure.subplots()
        counts = sorted({rate.processes for rate in self.rates})
        measured = [rate for rate in self.rates if rate.batches_per_second]
        systems = list(dict.fromkeys(rate.system for rate in measured))
        for index, system in enumerate(systems):
            rates = [rate for rate in measured if rate.system == system]
            # Bars of width 0.25 at distances of 0.27, centred on the tick of their process count.
            offset = 0.27 * (index - (len(systems) - 1) / 2)
            positions = [counts.index(rate.processes) + offset for rate in rates]
            heights = [median(rate.batches_per_second) for rate in rates]
            bars = axes.bar(positions, heights, 0.25, color=COLOURS[index], label=system)
            axes.bar_label(bars, fmt="%.3g")
        axes.set_xticks(range(len(counts)), counts)
        axes.set(title="batches per second", xlabel="processes")
        if self.load.warning:
            axes.set_title(self.load.warning, color=RED)
        axes.margins(y=0.2)
        axes.legend(ncols=len(SYSTEMS), frameon=False, loc="upper left")
        return figure


def _cells(rate: Rate) -> tuple[str, str]:
    """Return the table's cells of a rate: batches per second, and detaug's speed-up over it."""
    if not rate.batches_per_second:
        return "not run", ""
    batches = f"{median(rate.batches_per_second):.3g}"
    if rate.times is None:
        return batches, ""
    return batches, f"{rate.times.median:.2g} ({rate.times.lowest:.2g}-{rate.times.highest:.2g})"


def bench(target: str | None, processes: Sequence[int], seconds: float, bar: Progress) -> Benchmark:
    """Measure a pipeline under detaug, NonDetMultiThreadedAugmenter and torch's DataLoader.

    Args:
        target: of the factory; None: the demo's pipeline.
        processes: numbers of worker processes; empty: one, and as many as there are cores.
        seconds: that each run is measured for.
        bar: shows the runs.

    Raises:
        UnusableError: detaug itself cannot run the pipeline.
    """
    if target is None:
        from detaug.demo.mri import load_template

        # Here, so that the runs, which are forks of this process, need not read the file.
        load_template()
    # A container's limit counts, and not the cores of its host.
    counts = sorted(set(processes or (1, usable_cores())))
    bar.update("start", total=len(SYSTEMS) * ROUNDS * len(counts))
    load_before = os.getloadavg()[0]
    rates: list[Rate] = []
    # Of all runs: their mean decides, so that one busy second does not invalidate the figures.
    elsewhere: list[float] = []
    for count in counts:
        measure = partial(_measured, bar, target, seconds, count)
        results = interleaved(tuple(SYSTEMS), ROUNDS, measure)
        rates += [_rate(system, count, results) for system in SYSTEMS]
        for runs in results.values():
            elsewhere += [run.elsewhere for run in runs if isinstance(run, Consumption)]
    load = Load.of(elsewhere, load_before, os.getloadavg()[0])
    return Benchmark(target, seconds, tuple(rates), load, environment())


def _rate(system: str, processes: int, results: dict[str, list[Consumption | str]]) -> Rate:
    """Return the rate of a system.

    Args:
        system: its name.
        processes: worker processes.
        results: of all systems; a result is a run, or the reason why there was none.
    """
    runs = [run for run in results[system] if isinstance(run, Consumption)]
    reasons = [run for run in results[system] if isinstance(run, str)]
    # A system that failed in one round has no rate, whatever it did in the others.
    if reasons:
        return Rate(system, processes, reason=reasons[0])
    batches_per_second = tuple(run.batches / run.wall for run in runs)
    if system == OURS:
        return Rate(system, processes, batches_per_second)
    own_runs = [run for run in results[OURS] if isinstance(run, Consumption)]
    own_rates = [run.batches / run.wall for run in own_runs]
    # Paired by round, so that a slow minute of the machine affects both rates of a ratio.
    return Rate(system, processes, batches_per_second, Ratio.of(own_rates, batches_per_second))


def _measured(
    bar: Progress, target: str | None, seconds: float, processes: int, system: str
) -> Consumption | str:
    """Return the run of a system in a process of its own, or the reason why there was none.

    Raises:
        UnusableError: detaug itself could not run.
    """
    bar.update(f"{system}, processes: {processes}")
    try:
        result = in_fresh_process(_run, target, seconds, processes, system)
    except MeasurementError as error:
        result = str(error)
    if system == OURS and isinstance(result, str):
        raise UnusableError(f"the pipeline cannot be measured: {result}")
    bar.advance()
    return result


def _run(target: str | None, seconds: float, processes: int, system: str) -> Consumption | str:
    """Run a system in this process; return the run, or the reason why there is none."""
    workers = Workers(processes, NUM_CACHED)
    try:
        # Notices are collected and dropped, as they would break up the progress bar.
        with collected_notices(), SYSTEMS[system](_pipeline(target), workers) as batches:
            return consume(
                batches, warm_up_seconds=WARM_UP * seconds, least=LEAST_BATCHES, seconds=seconds
            )
    except KeyboardInterrupt:
        return "interrupted"
    except BaseException as error:
        # The user's code may raise anything, SystemExit as well.
        lines = str(error).strip().splitlines() or [type(error).__name__]
        if lines[0].startswith("Caught "):
            # torch's loader puts the traceback of its worker before the message.
            return lines[-1]
        return lines[0]


def _pipeline(target: str | None) -> FactoryResult:
    """Return the user's pipeline, or the demo's, with its kernels compiled."""
    if target is None:
        pipeline = call_factory(partial(demo_pipeline, DEMO_PATCH))
    else:
        pipeline = call_factory(load_factory(target))
    # Here, once: every system starts workers of its own.
    warm_up(pipeline.transform, pipeline.source.loader)
    return pipeline
