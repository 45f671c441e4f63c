"""`python -m benchmarks tables`: write the pages' tables, and the picture of ratios.

They show the results of every machine: `benchmarks/results` has a file for each, which
`python -m benchmarks headline` writes, ``gpu-*.json`` for each card, by
`python -m benchmarks gpu --json`, ``epochs-*.json``, by `python -m benchmarks epochs`, and
``fidelity.jsonl``, by `python -m benchmarks fidelity`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import click

from benchmarks.command import REPOSITORY, RESULTS
from benchmarks.fidelity.results import read
from benchmarks.markdown import Result, markdown_table, number_text, read_results
from benchmarks.tables.cpus import product_name
from benchmarks.tables.gpus import gpu_line, gpu_table
from benchmarks.tables.studies import dice_text, epochs_text, spread_text
from detaug.tools.cli.options import Command
from detaug.tools.pictures.charts import COLOURS, figure_of

PICTURE = REPOSITORY / "docs" / "images" / "ratios.png"
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))

#: A block of a page: its name, and what lies between its marks.
BLOCK = re.compile(
    r"(?P<begin><!-- table (?P<name>\w+), by `python -m benchmarks tables` -->\n)"
    r".*?(?P<end><!-- end of the table -->)",
    re.DOTALL,
)

NNUNET = "nnU-Net"
STOCK = "NonDetMultiThreadedAugmenter"
TORCH = "torch's DataLoader"
BGV2 = "batchgeneratorsv2"
FLOOR = "clone + memcpy"


class Line(NamedTuple):
    """A line of a table.

    Attributes:
        row: a row's name in the results.
        against: which of its comparisons.
        shown: what the pages call the row.
        other: what the pages call the other one.
    """

    row: str
    against: str
    shown: str
    other: str


LOADER_3D = "3d_fullres, 128³, batch 2"
LOADER_2D = "2d, 320², batch 32"
READ_3D = f"{LOADER_3D}, read and augment"
READ_2D = f"{LOADER_2D}, read and augment"
OWN = "nnU-Net's own"
PIPELINE_3D = "nnU-Net's 3-D pipeline, mean per sample"
PIPELINE_2D = "nnU-Net's 2-D pipeline, mean per sample"
COPIED = "transport, copied"
IN_SLOT = "transport, made in the slot"
ONE_PROCESS = f"{FLOOR} in one process"
OWN_BY_ENGINE = "nnU-Net's own 3-D loader and transforms"
TAIL = "one batch in twenty takes ten times as long"

TABLES: dict[str, tuple[Line, ...]] = {
    "headline": (
        Line(READ_3D, NNUNET, "3-D loader and transforms, 128³, batch 2", OWN),
        Line(READ_2D, NNUNET, "2-D loader and transforms, 320², batch 32", OWN),
        Line(PIPELINE_3D, BGV2, "nnU-Net's 3-D transforms, 205³ → 128³", BGV2),
        Line(PIPELINE_2D, BGV2, "nnU-Net's 2-D transforms, 822×602 → 512×512", BGV2),
        Line("transport", STOCK, "a ready 25 MB batch between processes, copied", STOCK),
        Line(IN_SLOT, STOCK, "the same, made in shared memory", STOCK),
    ),
    "engine": (
        Line("transport", STOCK, COPIED, STOCK),
        Line("transport", TORCH, COPIED, TORCH),
        Line("transport", FLOOR, COPIED, ONE_PROCESS),
        Line(IN_SLOT, STOCK, "made in the slot", STOCK),
        Line(IN_SLOT, TORCH, "made in the slot", TORCH),
        Line(IN_SLOT, FLOOR, "made in the slot", ONE_PROCESS),
        Line("nnU-Net's 3-D loader and transforms", STOCK, OWN_BY_ENGINE, STOCK),
        Line("heavy-tailed cost, num_cached=10", STOCK, TAIL, STOCK),
        Line("first batch, ready loader", STOCK, "the first batch, from the start on", STOCK),
    ),
    "loader": (
        Line(READ_3D, NNUNET, LOADER_3D, OWN),
        Line(READ_2D, NNUNET, LOADER_2D, OWN),
    ),
    "pipelines": (
        Line(PIPELINE_3D, BGV2, "nnU-Net's default, 3-D, 205³ → 128³", BGV2),
        Line(PIPELINE_2D, BGV2, "nnU-Net's default, 2-D, 822×602 → 512×512", BGV2),
    ),
}

#: The front page's picture has a bar for each of these lines of the headline.
CHART = tuple(TABLES["headline"][number] for number in (0, 1, 2, 4))

#: Packages that the table of machines has the versions of.
PACKAGES = ("torch", "numpy", "batchgenerators", "batchgeneratorsv2", "nnunetv2")


def kept() -> list[Result]:
    """Return what `python -m benchmarks headline` kept of all machines."""
    return [
        result
        for file, result in read_results(RESULTS, "*.json")
        if not file.name.startswith(("gpu-", "epochs-"))
    ]


class Measured(NamedTuple):
    """A line as one machine has it."""

    cpu: str
    row: dict[str, Any]
    comparison: dict[str, Any]

    @property
    def ratio(self) -> dict[str, float]:
        """The median with ``lowest`` and ``highest``."""
        ratio: dict[str, float] = self.comparison["ratio"]
        return ratio


def measured(results: Sequence[Result], line: Line) -> list[Measured]:
    """Return the line on every machine that has it, the lowest ratio first."""
    machines = []
    for result in results:
        cpu = product_name(result["environment"]["cpu"])
        for row in result["rows"]:
            for comparison in row["comparisons"]:
                if (row["name"], comparison["against"]) == (line.row, line.against):
                    machines.append(Measured(cpu, row, comparison))
    return sorted(machines, key=lambda machine: machine.ratio["median"])


# --- tables ---------------------------------------------------------------------------------------


def ratios_table(lines: Sequence[Line], results: Sequence[Result]) -> str:
    """Return for each line that was measured the ratio on every machine, with its range."""
    rows = []
    for line in lines:
        ratios = [f"{_ratio_text(machine)} {machine.cpu}" for machine in measured(results, line)]
        if ratios:
            rows.append([line.shown, line.other, "; ".join(ratios)])
    return markdown_table(["what", "against", "speed-up (slowest machine first)"], rows)


def headline_table(results: Sequence[Result]) -> str:
    """Return the ratios of the headline, with the line on GPUs."""
    return ratios_table(TABLES["headline"], results) + gpu_line(_kept_of_gpus())


def machines_table(results: Sequence[Result]) -> str:
    """Return the CPUs that the tables' figures are from, with versions."""
    rows = []
    for result in results:
        record = result["environment"]
        versions = [f"Python {record['python']}"]
        versions += [f"{package} {record['packages'][package]}" for package in PACKAGES]
        cpu = product_name(record["cpu"])
        cores = str(record["cores"])
        rows.append([cpu, cores, record["date"], record["commit"], ", ".join(versions)])
    return markdown_table(["CPU", "cores", "measured", "commit", "versions"], rows)


def batches_table(results: Sequence[Result]) -> str:
    """Return how long one core takes for a 3-D batch, on every machine."""
    rows = []
    for machine in measured(results, TABLES["loader"][0]):
        theirs = machine.comparison["theirs"]
        rows.append([machine.cpu, f"{theirs:.0f} ms", f"{machine.row['ours']:.0f} ms"])
    return markdown_table(["CPU", "nnU-Net's loader and transforms", "detaug's"], rows)


#: Block → what writes it from the results of `python -m benchmarks headline`.
BLOCKS: dict[str, Callable[[Sequence[Result]], str]] = {
    **{name: partial(ratios_table, lines) for name, lines in TABLES.items()},
    "headline": headline_table,
    "machines": machines_table,
    "batches": batches_table,
}


def _kept_of_gpus() -> list[Result]:
    return [result for _, result in read_results(RESULTS, "gpu-*.json")]


def other_blocks(folder: Path) -> dict[str, str]:
    """Return blocks that come from files of their own, "" where a folder has none for them."""
    trainings = read(folder / "fidelity.jsonl")
    return {
        "gpu": gpu_table(_kept_of_gpus()),
        "dice": dice_text(trainings),
        "spread": spread_text(trainings),
        "epochs": epochs_text([result for _, result in read_results(folder, "epochs-*.json")]),
    }


def all_blocks(results: Sequence[Result]) -> dict[str, str]:
    """Return block name → text."""
    return {**{name: write(results) for name, write in BLOCKS.items()}, **other_blocks(RESULTS)}


def _ratio_text(machine: Measured) -> str:
    ratio = machine.ratio
    spread = f"{number_text(ratio['lowest'])}–{number_text(ratio['highest'])}"
    return f"{number_text(ratio['median'])}× ({spread})"


def with_tables(page: str, blocks: Mapping[str, str]) -> str:
    """Return the page with its tables written again."""

    def written(block: re.Match[str]) -> str:
        text = blocks[block["name"]]
        if not text:  # what an earlier study found stays until this one has results
            return block[0]
        return f"{block['begin']}\n{text}\n{block['end']}"

    return BLOCK.sub(written, page)


# --- the picture ----------------------------------------------------------------------------------


def bars_of(results: Sequence[Result]) -> list[tuple[Line, Measured]]:
    """Return the chart's lines, each as measured on the machine where detaug gains least."""
    bars = []
    for line in CHART:
        machines = measured(results, line)
        if machines:
            bars.append((line, machines[0]))
    return bars


def draw(results: Sequence[Result], file: Path) -> None:
    """Draw a bar for each line of the chart, with the range over its rounds."""
    bars = bars_of(results)
    cpus = sorted({machine.cpu for _, machine in bars})
    figure = figure_of(f"Times as fast as what it replaces, on {' and '.join(cpus)}", 9, 3.4)
    axes = figure.subplots()
    for position, (_, machine) in enumerate(bars):
        _draw_bar(axes, position, machine, COLOURS[cpus.index(machine.cpu) % len(COLOURS)])
    labels = [f"{line.shown}\nagainst {line.other}" for line, _ in bars]
    axes.axvline(1, color="#202124", linewidth=1)
    axes.set_yticks(range(len(bars)), labels, fontsize=10)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if len(cpus) > 1:
        for number, cpu in enumerate(cpus):
            axes.barh(0, 0, color=COLOURS[number % len(COLOURS)], label=cpu)
        axes.legend(frameon=False, loc="lower right", fontsize=10)
    figure.savefig(file, dpi=120, metadata={"Software": None, "Comment": drawn(results)})


def _draw_bar(axes: Any, position: int, machine: Measured, colour: str) -> None:
    ratio = machine.ratio
    value = ratio["median"]
    errors = [[value - ratio["lowest"]], [ratio["highest"] - value]]
    axes.barh(position, value, 0.7, xerr=errors, color=colour, capsize=3)
    axes.text(ratio["highest"] + 0.25, position, f"{number_text(value)}×", va="center", fontsize=11)


def drawn(results: Sequence[Result]) -> str:
    """Return what the picture shows, as text in its file: a test compares it with the results."""
    bars = [
        f"{machine.cpu}: {line.shown}: {_ratio_text(machine)}" for line, machine in bars_of(results)
    ]
    return "; ".join(bars).encode("ascii", "replace").decode()


@click.command(cls=Command)
def main() -> None:
    """Write the pages' tables from benchmarks/results, and draw the front page's picture."""
    results = kept()
    blocks = all_blocks(results)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_tables(text, blocks), encoding="utf-8")
    draw(results, PICTURE)
