"""`bench`: batches per second of a pipeline under each system."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from detaug.bench.measuring import (
    MeasurementError,
    Ratio,
    consume,
    in_fresh_process,
    interleaved,
)
from detaug.bench.systems import SYSTEMS, Workers
from detaug.demo.loader import demo_pipeline
from detaug.engine.warming import warm_up
from detaug.errors import UnusableError
from detaug.memory.limits import usable_cores
from detaug.pictures.charts import COLOURS, figure_of
from detaug.reports.progress import Progress
from detaug.reports.rows import collected_notices
from detaug.training.machine import environment
from detaug.verification.handed_in import HandedIn, call_factory, load_factory

#: How often each rate is measured, the systems in turn.
ROUNDS = 3

#: Batches that may wait for the training, for every system.
NUM_CACHED = 4

#: The least number of batches that are timed, however long they take.
LEAST_BATCHES = 4

#: The share of a run's seconds that passes before its batches are timed.
WARM_UP = 0.4

#: Edge of the demo's patches, in voxels.
DEMO_PATCH = 64


@dataclass(frozen=True)
class Rate:
    """One system with one number of processes: batches per second in each round, or the `reason` why it could not be measured;
    how many times as fast detaug is."""

    system: str
    processes: int
    batches_per_second: tuple[float, ...] = ()
    times: Ratio | None = None
    reason: str = ""


@dataclass(frozen=True)
class Benchmark:
    """What was measured, and on which machine."""

    target: str | None
    seconds_per_run: float
    rates: tuple[Rate, ...]
    environment: dict[str, Any]

    def shown(self) -> Iterator[RenderableType]:
        """A table, and what a reader has to know of its numbers."""
        rates = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        rates.add_column("system", overflow="fold")
        for name in ("processes", "batches/s", "detaug over it"):
            rates.add_column(name, justify="right", no_wrap=True, overflow="fold")
        for each in self.rates:
            times, cells = each.times, ("not run", "")
            if each.batches_per_second:
                ratio = (
                    ""
                    if times is None
                    else f"{times.median:.2g} ({times.lowest:.2g}-{times.highest:.2g})"
                )
                cells = (f"{median(each.batches_per_second):.3g}", ratio)
            rates.add_row(each.system, str(each.processes), *cells)
        yield from (rates, Text())
        missing = {each.system: each.reason for each in self.rates if each.reason}
        for name, reason in missing.items():
            yield Text(f"{name}: not measured, because {reason.rstrip('.')}.")
        yield Text(
            f"Medians of {ROUNDS} rounds of {self.seconds_per_run:g} s, every system with up to {NUM_CACHED} batches ready, "
            "detaug without its check. Detaug over it: how many times as fast detaug is."
        )

    def png(self) -> bytes:
        """Bars of the batches per second."""
        title = f"{self.target or 'detaug bench, demo'}: {self.environment['cpu']['model']}"
        figure = figure_of(title, 9, 4)
        axes = figure.subplots()
        counts = sorted({each.processes for each in self.rates})
        measured = [each for each in self.rates if each.batches_per_second]
        systems = list(dict.fromkeys(each.system for each in measured))
        for n, system in enumerate(systems):
            rates = [each for each in measured if each.system == system]
            places = [
                counts.index(each.processes) + 0.27 * (n - (len(systems) - 1) / 2) for each in rates
            ]
            heights = [median(each.batches_per_second) for each in rates]
            axes.bar_label(
                axes.bar(places, heights, 0.25, color=COLOURS[n], label=system), fmt="%.3g"
            )
        axes.set_xticks(range(len(counts)), counts)
        axes.set(title="batches per second", xlabel="processes")
        axes.margins(y=0.2)
        axes.legend(ncols=len(SYSTEMS), frameon=False, loc="upper left")
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=150)
        return file.getvalue()


def bench(
    target: str | None, processes: Sequence[int], seconds: float, shown: Progress
) -> Benchmark:
    """Measure a pipeline (None: the demo's) under detaug, NonDetMultiThreadedAugmenter and torch's DataLoader with these numbers
    of processes (none: one, and as many as there are cores), each run for so long.

    Raises:
        UnusableError: detaug itself cannot run the pipeline.
    """
    if target is None:
        from detaug.demo.mri import load_template

        load_template()  # once for all
    counts = sorted({*(processes or (1, usable_cores()))})
    shown.update("start", total=len(SYSTEMS) * ROUNDS * len(counts))
    rates: list[Rate] = []
    for number in counts:
        found = interleaved(
            tuple(SYSTEMS), ROUNDS, partial(_measured, shown, target, seconds, number)
        )
        rates += [_summary(system, number, found) for system in SYSTEMS]
    return Benchmark(target, seconds, tuple(rates), environment())


def _summary(system: str, processes: int, found: dict[str, list[Any]]) -> Rate:
    reasons = [each for each in found[system] if isinstance(each, str)]
    if reasons:
        return Rate(system, processes, reason=reasons[0])
    times = None if system == "detaug" else Ratio.of(found["detaug"], found[system])
    return Rate(system, processes, tuple(found[system]), times)


def _measured(
    shown: Progress, target: str | None, seconds: float, processes: int, system: str
) -> float | str:
    """Batches per second in a process of its own, or why there are none. UnusableError: detaug has none."""
    shown.update(f"{system}, processes: {processes}")
    try:
        found = in_fresh_process(_rate_or_reason, target, seconds, processes, system)
    except MeasurementError as error:
        found = str(error)
    if system == "detaug" and isinstance(found, str):
        raise UnusableError(f"the pipeline cannot be measured: {found}")
    shown.advance()
    return found


def _rate_or_reason(target: str | None, seconds: float, processes: int, system: str) -> float | str:
    try:
        workers = Workers(processes, NUM_CACHED)
        with collected_notices(), SYSTEMS[system](_made(target), workers) as batches:
            timed = consume(
                batches, warm_up_seconds=WARM_UP * seconds, least=LEAST_BATCHES, seconds=seconds
            )
            return timed.batches / timed.wall
    except KeyboardInterrupt:
        return "interrupted"
    except BaseException as error:  # the user's code may raise anything
        # torch's loader puts the traceback of its worker before the message
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return lines[-1 if lines[0].startswith("Caught ") else 0]


def _made(target: str | None) -> HandedIn:
    """The user's pipeline, or the demo's, with its kernels compiled."""
    made = call_factory(
        partial(demo_pipeline, DEMO_PATCH) if target is None else load_factory(target)
    )
    warm_up(made.transform, made.source.loader)
    return made
