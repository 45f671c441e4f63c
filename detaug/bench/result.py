"""What a bench found, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from detaug.bench.settings import DETAUG, NUM_CACHED, Settings
from detaug.reports.rows import Result as Shown
from detaug.reports.rows import Row

if TYPE_CHECKING:
    from detaug.bench.child import Taken, Times


#: Cores that other programs may keep busy without being mentioned.
_DISTURBING = 0.2


@dataclass(frozen=True)
class Measured:
    """One system with one number of processes.

    Attributes:
        system, processes: which.
        taken: the batches; None: it could not be measured.
        reason: why not.
        memory: (seconds, bytes) of all of its processes; empty where the system does not tell.
        load: which of the engine's `LOADS`; empty: the pipeline.
    """

    system: str
    processes: int
    taken: Taken | None
    reason: str = ""
    memory: tuple[tuple[float, int], ...] = ()
    load: str = ""

    @property
    def rate(self) -> float | None:
        """Batches per second; None: not measured."""
        return None if self.taken is None else self.taken.rate

    @property
    def waited(self) -> float:
        """The share of the time after the warm-up that the training waited."""
        assert self.taken is not None
        first: int = self.taken.counted.start
        stamps = self.taken.stamps
        return sum(self.taken.waits[first + 1 :]) / max(1e-9, stamps[-1] - stamps[first])

    @property
    def peak(self) -> int | None:
        """Bytes."""
        return max((each for _, each in self.memory), default=None)

    def as_json(self) -> dict[str, Any]:
        """Plain numbers: seconds and bytes."""
        taken = self.taken
        found: dict[str, Any] = {"system": self.system, "processes": self.processes, "not_run": self.reason or None}
        if taken is None:
            return found
        return {
            **found,
            "batches_per_second": round(taken.rate, 4),
            "first_batch_seconds": round(taken.stamps[0], 4),
            "waited_share": round(self.waited, 4),
            "waits_seconds": [round(each, 5) for each in taken.waits],
            "memory": [[round(seconds, 2), size] for seconds, size in self.memory],
        }


@dataclass(frozen=True)
class TransformTimes:
    """How long each transform takes.

    Attributes:
        name: whose transforms they are; empty: the user's.
        times: None: they could not be measured.
        reason: why not.
    """

    name: str
    times: Times | None
    reason: str = ""


@dataclass(frozen=True)
class Result(Shown[Row]):
    """What was measured.

    Attributes:
        settings: what was asked for.
        rates: for a training that asks at once.
        step: seconds of a step of the training that `waits` are for.
        waits: with the most processes.
        times: of the transforms.
        environment: the machine.
        seconds: that all took.
        cores_elsewhere: how many cores other programs kept busy meanwhile; None where the system does not tell.
        engine: the engine alone, beside the demo.
    """

    settings: Settings
    rates: tuple[Measured, ...]
    step: float
    waits: tuple[Measured, ...]
    times: tuple[TransformTimes, ...]
    environment: dict[str, Any]
    seconds: float
    cores_elsewhere: float | None = None
    engine: tuple[Measured, ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def title(self) -> str:
        """What was measured."""
        return self.settings.target or "detaug's demo: patches of an MRI"

    @property
    def sentences(self) -> list[str]:
        """What was found, in words."""
        most = self.settings.counts[-1]
        rates = {
            each.system: each.taken.rate for each in self.rates if each.processes == most and each.taken is not None
        }
        made = ", ".join(f"{name} made {rate:.3g} batches per second" for name, rate in rates.items())
        told = [f"With {count(most)}, {made}."]
        waits = {each.system: each.waited for each in self.waits if each.taken is not None}
        told.append(
            f"A training with steps of {1000 * self.step:.3g} ms waited "
            + ", ".join(f"{100 * share:.0f} % of its time for {name}" for name, share in waits.items())
            + "."
        )
        for load in dict.fromkeys(each.load for each in self.engine):
            first, *others = [each for each in self.engine if each.load == load and each.rate is not None]
            told.append(
                f"Through the engine alone, {load} came {first.rate:,.0f} times per second with {first.system}"
                + "".join(f", {each.rate:,.0f} with {each.system}" for each in others)
                + "."
            )
        elsewhere, cores = self.cores_elsewhere or 0.0, self.environment["cpu"]["usable_cores"]
        if elsewhere > _DISTURBING:
            told.append(
                f"Other programs kept {elsewhere:.1f} of {cores} cores busy meanwhile, so that these numbers are rough, and may "
                "rank the systems wrongly."
            )
        return told

    @property
    def notes(self) -> list[str]:
        """What a reader has to know of the numbers."""
        missing = {each.system: each.reason for each in (*self.rates, *self.waits, *self.engine) if each.taken is None}
        missing |= {each.name or "Time per transform": each.reason for each in self.times if each.times is None}
        cores = self.environment["cpu"]["usable_cores"]
        told = [f"{name}: not measured, because {reason}." for name, reason in missing.items()]
        told.append(
            f"Batches per second are of the faster of two runs of {self.settings.seconds:g} s on {cores} cores; all else is of "
            "one run."
        )
        told.append(
            f"Every system keeps up to {NUM_CACHED} batches ready. detaug's check, which makes one batch in a hundred twice, is "
            "off."
        )
        return told

    def as_json(self) -> dict[str, Any]:
        return {
            "target": self.settings.target,
            "processes": list(self.settings.counts),
            "seconds_per_run": self.settings.seconds,
            "seed": self.settings.seed,
            "engine": [
                {
                    "load": each.load,
                    "system": each.system,
                    "processes": each.processes,
                    "not_run": each.reason or None,
                    "batches_per_second": None if each.rate is None else round(each.rate, 2),
                }
                for each in self.engine
            ],
            "throughput": [each.as_json() for each in self.rates],
            "step_seconds": round(self.step, 5),
            "waiting": [each.as_json() for each in self.waits],
            "transforms": [
                {
                    "name": each.name,
                    "not_run": each.reason or None,
                    "seconds_per_sample": None if each.times is None else each.times.seconds,
                    "samples": 0 if each.times is None else each.times.samples,
                }
                for each in self.times
            ],
            "environment": self.environment,
            "seconds": round(self.seconds, 1),
            "cores_elsewhere": None if self.cores_elsewhere is None else round(self.cores_elsewhere, 2),
        }

    def shown(self) -> Sequence[RenderableType]:
        return [self.table(), Text(), *map(Text, self.sentences), *(Text(each, "dim") for each in self.notes)]

    def table(self) -> Table:
        """A line for each system and number of processes."""
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        for n, name in enumerate(("system", "processes", "batches/s", "first batch", "waited", "peak memory")):
            table.add_column(name, justify="right" if n else "left", no_wrap=True)
        for cells in self.cells():
            table.add_row(*cells, style="bold" if cells[0].split(",")[0] == DETAUG else "")
        return table

    def cells(self) -> list[tuple[str, ...]]:
        """The table's."""
        waits = {(each.system, each.processes): each for each in self.waits}
        found: list[tuple[str, ...]] = []
        for each in self.rates:
            wait = waits.get((each.system, each.processes))
            if each.taken is None:
                found.append((each.system, str(each.processes), "not run", "", "", ""))
                continue
            peak = None if wait is None else wait.peak
            found.append(
                (
                    each.system,
                    str(each.processes),
                    f"{each.taken.rate:.3g}",
                    f"{each.taken.stamps[0]:.2f} s",
                    "" if wait is None or wait.taken is None else f"{100 * wait.waited:.0f} %",
                    "" if peak is None else f"{peak / 1e6:.0f} MB",
                )
            )
        for each in self.engine:
            rate = "not run" if each.rate is None else f"{each.rate:,.0f}"
            found.append((f"{each.system}, {each.load}", str(each.processes), rate, "", "", ""))
        return found


def count(processes: int) -> str:
    """ "1 process", "2 processes"."""
    return f"{processes} process" + ("es" if processes > 1 else "")
