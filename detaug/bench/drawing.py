"""A bench as charts, and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from detaug.bench.result import Result, count
from detaug.bench.settings import INTEGER, READY, SYSTEMS
from detaug.pictures.charts import SERIES, Chart, png_of
from detaug.pictures.page import Page

Colours = Mapping[str, str]

_ENGINE_WORDS = {
    READY: "A worker clones it; what remains is its way to the training.",
    INTEGER: "What every batch costs, however small it is.",
}


def png(result: Result) -> bytes:
    """All charts in one picture. Raises NotInstalled."""
    return png_of(f"Benchmark of {result.title}", charts(result))


def html(result: Result) -> str:
    """The page. Raises NotInstalled."""
    columns = ("System", "Processes", "Batches per second", "First batch", "Time waited", "Peak memory")
    return Page(
        f"Benchmark of {result.title}",
        result.sentences,
        charts(result),
        columns,
        result.cells(),
        result.notes,
        _facts(result),
    ).html()


def charts(result: Result) -> list[Chart]:
    """Those for which there are numbers."""
    most = count(result.settings.counts[-1])
    found = [
        Chart(
            "Batches per second",
            "A training that asks for the next batch at once. More is better.",
            lambda axes, colours: _rates(result, axes, colours),
        )
    ]
    if any(each.taken is not None for each in result.waits):
        found.append(
            Chart(
                "Waiting for the next batch",
                "How long the steps of a training waited for their batch, the shortest first. A step takes "
                f"{1000 * result.step:.3g} ms, with {most}. Less is better. In brackets: the share of all time that was waited.",
                lambda axes, colours: _waits(result, axes, colours),
            )
        )
    found += [
        Chart(
            f"The engine alone: {load}",
            f"Batches per second with {most}. {_ENGINE_WORDS[load]} More is better.",
            lambda axes, colours, load=load: _engine(result, load, axes, colours),  # type: ignore[misc]
            0.45,
        )
        for load in dict.fromkeys(each.load for each in result.engine)
    ]
    timed = [each for each in result.times if each.times is not None]
    if timed:
        names = len({_plain(name) for each in timed for name in each.times.seconds})  # type: ignore[union-attr]
        words = "Mean milliseconds for a sample in one process; where a transform is not applied, it counts 0."
        if len(timed) > 1:
            words += " detaug interpolates images linearly, as nnU-Net v2 does, batchgenerators by cubic splines."
        found.append(
            Chart(
                "Time per transform",
                words,
                lambda axes, colours: _times(result, axes, colours),
                max(0.8, 0.25 + 0.11 * names),
            )
        )
    if any(each.memory for each in result.waits):
        found.append(
            Chart(
                "Memory over time",
                f"Megabytes of all processes together, shared ones counted once, with {most}. Less is better, and flat.",
                lambda axes, colours: _memory(result, axes, colours),
            )
        )
    return found


def _colour(system: str, colours: Colours) -> str:
    return colours[SERIES[SYSTEMS.index(system)]]


def _short(system: str) -> str:
    """Short enough for a legend on a phone."""
    return {"NonDetMultiThreadedAugmenter": "NonDetMultiThreaded"}.get(system, system)


def _rates(result: Result, axes: Any, colours: Colours) -> None:
    counts = list(result.settings.counts)
    width = 0.8 / len(SYSTEMS)
    for n, system in enumerate(SYSTEMS):
        bars = [
            (counts.index(each.processes), each.taken.rate)
            for each in result.rates
            if each.system == system and each.taken
        ]
        if not bars:  # it would be in the legend, in another system's colour
            continue
        places = [place + (n - (len(SYSTEMS) - 1) / 2) * width for place, _ in bars]
        drawn = axes.bar(
            places, [rate for _, rate in bars], width * 0.92, color=_colour(system, colours), label=_short(system)
        )
        axes.bar_label(drawn, fmt=_number, fontsize=8.5, padding=1, color=colours["ink"])
    axes.set_xticks(range(len(counts)), [count(each) for each in counts])
    axes.tick_params(length=0)
    axes.grid(axis="x", visible=False)
    axes.margins(y=0.18)
    _legend(axes)


def _waits(result: Result, axes: Any, colours: Colours) -> None:
    for each in result.waits:
        if each.taken is None:
            continue
        waits = sorted(1000 * wait for wait in each.taken.waits[each.taken.counted])
        shares = [100 * (n + 1) / len(waits) for n in range(len(waits))]
        label = f"{_short(each.system)} ({100 * each.waited:.0f} %)"
        axes.step([0, *shares], [waits[0], *waits], linewidth=1.8, color=_colour(each.system, colours), label=label)
    axes.set_xlim(0, 100)
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("% of the steps")
    axes.set_ylabel("waited at most (ms)")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    _legend(axes, 1)


def _engine(result: Result, load: str, axes: Any, colours: Colours) -> None:
    measured = [each for each in result.engine if each.load == load and each.rate is not None]
    names = [_short(each.system) for each in measured]
    drawn = axes.barh(
        range(len(measured)),
        [each.rate for each in measured],
        0.72,
        color=[_colour(each.system, colours) for each in measured],
    )
    axes.bar_label(drawn, [f"{each.rate:,.0f}" for each in measured], fontsize=8.5, padding=2, color=colours["ink"])
    axes.set_yticks(range(len(measured)), names, fontsize=9)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.14)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.locator_params(axis="x", nbins=5)


def _times(result: Result, axes: Any, colours: Colours) -> None:
    timed = [(each.name, each.times.seconds) for each in result.times if each.times is not None]
    names = list(dict.fromkeys(_plain(name) for _, times in timed for name in times))
    height = 0.8 / len(timed)
    for n, (whose, times) in enumerate(timed):
        seconds = {_plain(name): value for name, value in times.items()}
        places = [row + (n - (len(timed) - 1) / 2) * height for row, name in enumerate(names) if name in seconds]
        values = [1000 * seconds[name] for name in names if name in seconds]
        drawn = axes.barh(places, values, height * 0.92, color=colours[SERIES[n]], label=whose or None)
        axes.bar_label(drawn, fmt=_number, fontsize=8.5, padding=2, color=colours["ink"])
    axes.set_yticks(range(len(names)), names, fontsize=9)
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.14)
    axes.set_xlabel("ms")
    if len(timed) > 1:
        _legend(axes, 1)


def _memory(result: Result, axes: Any, colours: Colours) -> None:
    for each in result.waits:
        if not each.memory:
            continue
        seconds, sizes = zip(*each.memory, strict=True)
        axes.plot(
            seconds,
            [size / 1e6 for size in sizes],
            marker=".",
            linewidth=1.6,
            color=_colour(each.system, colours),
            label=_short(each.system),
        )
    highest = max((size for each in result.waits for _, size in each.memory), default=1e6)
    axes.set_ylim(0, 1.08 * highest / 1e6)
    axes.set_xlabel("seconds")
    axes.set_ylabel("MB")
    _legend(axes)


def _legend(axes: Any, columns: int = 2) -> None:
    """Above the axes, where it covers nothing."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=columns,
        handlelength=1.1,
        columnspacing=1.2,
        borderaxespad=0.1,
    )


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 99.5 else f"{value:.2g}"


def _plain(name: str) -> str:
    """batchgenerators' names for what detaug has under batchgeneratorsv2's."""
    plain = name.removesuffix("Transform") or name
    return {"BrightnessMultiplicative": "MultiplicativeBrightness"}.get(plain, plain)


def _facts(result: Result) -> list[tuple[str, str]]:
    about = result.environment
    packages = {name: version for name, version in about["packages"].items() if version}
    return [
        (
            "Processor",
            f"{about['cpu']['model'] or about['cpu']['architecture']}, {about['cpu']['usable_cores']} usable cores",
        ),
        ("Python", about["python"]["version"]),
        ("detaug", about["detaug"]["version"]),
        *((name, packages[name]) for name in ("torch", "batchgenerators", "numpy", "numba") if name in packages),
        ("Seed", str(result.settings.seed)),
        ("Took", f"{result.seconds:.0f} s"),
    ]
