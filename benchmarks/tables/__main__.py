"""`python -m benchmarks tables`: write the pages' tables, and the picture of ratios.

They show the results of every machine: `benchmarks/results` has a file for each, which
`python -m benchmarks headline` writes, ``gpu-*.json`` for each card, by
`python -m benchmarks gpu --json`, ``epochs-*.json``, by `python -m benchmarks epochs`, and
``fidelity.jsonl``, by `python -m benchmarks fidelity`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchmarks.tables.cpus import product_name
from benchmarks.tables.studies import study_blocks
from detaug.tools.cli.options import Command
from detaug.tools.pictures.charts import COLOURS, figure_of

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
PICTURE = REPOSITORY / "docs" / "images" / "ratios.png"
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))

#: A block of a page: its name, and what lies between its marks.
BLOCK = re.compile(
    r"(?P<begin><!-- table (?P<name>\w+), by `python -m benchmarks tables` -->\n)"
    r".*?(?P<end><!-- end of the table -->)",
    re.DOTALL,
)

#: A file of `benchmarks/results`: ``environment`` and ``rows``.
Result = dict[str, Any]

NNUNET = "nnU-Net"
STOCK = "NonDetMultiThreadedAugmenter"
TORCH = "torch's DataLoader"
BGV2 = "batchgeneratorsv2"


@dataclass(frozen=True)
class Line:
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
PIPELINE_3D = "nnU-Net's 3-D pipeline, mean per sample"
PIPELINE_2D = "nnU-Net's 2-D pipeline, mean per sample"
IN_SLOT = "transport, made in the slot"

TABLES: dict[str, tuple[Line, ...]] = {
    "headline": (
        Line(
            f"{LOADER_3D}, read and augment",
            NNUNET,
            "3-D loader and transforms, 128³, batch 2",
            "nnU-Net's own",
        ),
        Line(
            f"{LOADER_2D}, read and augment",
            NNUNET,
            "2-D loader and transforms, 320², batch 32",
            "nnU-Net's own",
        ),
        Line(PIPELINE_3D, BGV2, "nnU-Net's 3-D transforms, 205³ → 128³", BGV2),
        Line(PIPELINE_2D, BGV2, "nnU-Net's 2-D transforms, 822×602 → 512×512", BGV2),
        Line("transport", STOCK, "a ready 25 MB batch between processes, copied", STOCK),
        Line(IN_SLOT, STOCK, "the same, made in shared memory", STOCK),
    ),
    "engine": (
        Line("transport", STOCK, "transport, copied", STOCK),
        Line("transport", TORCH, "transport, copied", TORCH),
        Line("transport", "clone + memcpy", "transport, copied", "clone + memcpy in one process"),
        Line(IN_SLOT, STOCK, "made in the slot", STOCK),
        Line(IN_SLOT, TORCH, "made in the slot", TORCH),
        Line(IN_SLOT, "clone + memcpy", "made in the slot", "clone + memcpy in one process"),
        Line(
            "nnU-Net's 3-D loader and transforms",
            STOCK,
            "nnU-Net's own 3-D loader and transforms",
            STOCK,
        ),
        Line(
            "heavy-tailed cost, num_cached=10",
            STOCK,
            "one batch in twenty takes ten times as long",
            STOCK,
        ),
        Line("first batch, ready loader", STOCK, "the first batch, from the start on", STOCK),
    ),
    "loader": (
        Line(f"{LOADER_3D}, read and augment", NNUNET, LOADER_3D, "nnU-Net's own"),
        Line(f"{LOADER_2D}, read and augment", NNUNET, LOADER_2D, "nnU-Net's own"),
    ),
    "pipelines": (
        Line(PIPELINE_3D, BGV2, "nnU-Net's default, 3-D, 205³ → 128³", BGV2),
        Line(PIPELINE_2D, BGV2, "nnU-Net's default, 2-D, 822×602 → 512×512", BGV2),
    ),
}

#: The front page's picture has a bar for each of these lines of the headline.
CHART = tuple(TABLES["headline"][number] for number in (0, 1, 2, 4))

#: Blocks of `studies`.
STUDIES = ("dice", "spread", "epochs")

#: The block with what was found on GPUs.
GPU = "gpu"

#: Of the front page's line on a GPU.
GPU_WORKERS = 8
GPU_PATCH = (128, 128, 128)

#: Packages that the table of machines has the versions of.
PACKAGES = ("torch", "numpy", "batchgenerators", "batchgeneratorsv2", "nnunetv2")


def kept() -> list[Result]:
    """Return the results of all machines."""
    files = RESULTS.glob("*.json")
    return _read(file for file in files if not file.name.startswith(("gpu-", "epochs-")))


def kept_of_gpus() -> list[Result]:
    """Return what `python -m benchmarks gpu` found, on all cards: ``environment`` and ``parts``."""
    return _read(RESULTS.glob("gpu-*.json"))


def _read(files: Iterable[Path]) -> list[Result]:
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(files)]


@dataclass(frozen=True)
class Measured:
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
    found = [
        Measured(product_name(result["environment"]["cpu"]), row, comparison)
        for result in results
        for row in result["rows"]
        for comparison in row["comparisons"]
        if (row["name"], comparison["against"]) == (line.row, line.against)
    ]
    return sorted(found, key=lambda each: each.ratio["median"])


# --- tables ---------------------------------------------------------------------------------------


def table_of(results: Sequence[Result], name: str) -> str:
    """Return a table in Markdown."""
    if name == GPU:
        return gpu_table(kept_of_gpus())
    if name in COMPUTED:
        return COMPUTED[name](results)
    table = ratios_table(results, TABLES[name])
    if name == "headline":
        table += gpu_line(kept_of_gpus())
    return table


def ratios_table(results: Sequence[Result], lines: Sequence[Line]) -> str:
    """Return for each line that was measured the ratio on every machine, with its range."""
    text = ["| what | against | speed-up (slowest machine first) |", "|---|---|---|"]
    for line in lines:
        ratios = [f"{_ratio_text(each)} {each.cpu}" for each in measured(results, line)]
        if ratios:
            text.append(f"| {line.shown} | {line.other} | {'; '.join(ratios)} |")
    return "\n".join(text) + "\n"


def machines_table(results: Sequence[Result]) -> str:
    """Return what was measured on, when, and with which versions."""
    heading = ["CPU", "cores", "measured", "commit", "versions"]
    text = [f"| {' | '.join(heading)} |", f"|{'---|' * len(heading)}"]
    for result in results:
        record = result["environment"]
        versions = [f"Python {record['python']}"]
        versions += [f"{package} {record['packages'][package]}" for package in PACKAGES]
        cells = [product_name(record["cpu"])]
        cells += [str(record[key]) for key in ("cores", "date", "commit")]
        cells.append(", ".join(versions))
        text.append(f"| {' | '.join(cells)} |")
    return "\n".join(text) + "\n"


def batches_table(results: Sequence[Result]) -> str:
    """Return how long one core takes for a 3-D batch, on every machine."""
    line = TABLES["loader"][0]
    text = ["| CPU | nnU-Net's loader and transforms | detaug's |", "|---|---|---|"]
    for each in measured(results, line):
        theirs = each.comparison["theirs"]
        text.append(f"| {each.cpu} | {theirs:.0f} ms | {each.row['ours']:.0f} ms |")
    return "\n".join(text) + "\n"


#: Blocks that are no ratios over machines.
COMPUTED: dict[str, Callable[[Sequence[Result]], str]] = {
    "machines": machines_table,
    "batches": batches_table,
}


def gpu_table(results: Sequence[Result]) -> str:
    """Return every finding on every card; a sentence that says so where none was measured."""
    if not results:
        return "**Not measured yet**: no card's results are in `benchmarks/results`.\n"
    text = ""
    for result in results:
        about = result["environment"]
        text += (
            f"On {about['card']} (driver {about['driver']}, cuDNN {about['cudnn']}, torch "
            f"{about['packages']['torch']}, commit {about['commit']}, {about['date']}):\n\n"
            "| part | what | result |\n|---|---|---|\n"
        )
        for part, findings in result["parts"].items():
            for finding in findings:
                words = "<br>".join(finding["text"].splitlines())
                text += f"| {part} | {finding['name']} | {words} |\n"
        text += "\n"
    return text.rstrip("\n") + "\n"


def gpu_line(results: Sequence[Result]) -> str:
    """Return the headline's line on a training step on a GPU."""
    shown = f"a training step on a GPU, 128³, batch 2, {GPU_WORKERS} workers"
    ratios = []
    for result in results:
        milliseconds = {
            finding["values"]["system"]: finding["values"]["ms_per_step"]
            for finding in result["parts"].get("epoch", ())
            if finding["values"].get("workers") == GPU_WORKERS
            and tuple(finding["values"]["plan"]["patch"]) == GPU_PATCH
        }
        if len(milliseconds) > 1:
            ratio = milliseconds["nnUNetTrainer"] / milliseconds["nnUNetTrainerDetAugFast"]
            ratios.append(f"{_number(ratio)}× {result['environment']['card']}")
    result = "; ".join(ratios) or "not measured"
    return f"| {shown} | nnU-Net's own | {result} |\n"


def _ratio_text(measurement: Measured) -> str:
    ratio = measurement.ratio
    spread = f"{_number(ratio['lowest'])}–{_number(ratio['highest'])}"
    return f"{_number(ratio['median'])}× ({spread})"


def _number(value: float) -> str:
    if value < 2:
        return f"{value:.2f}"
    if value < 20:
        return f"{value:.1f}"
    return f"{value:.0f}"


def with_tables(page: str, results: Sequence[Result]) -> str:
    """Return the page with its tables written again."""
    studies = study_blocks(RESULTS)

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        if name not in studies:
            return f"{found['begin']}\n{table_of(results, name)}\n{found['end']}"
        if not studies[name]:  # what an earlier study found stays until this one has results
            return found[0]
        return f"{found['begin']}\n{studies[name]}\n{found['end']}"

    return BLOCK.sub(block, page)


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
    cpus = sorted({measurement.cpu for _, measurement in bars})
    figure = figure_of(f"Times as fast as what it replaces, on {' and '.join(cpus)}", 9, 3.4)
    axes = figure.subplots()
    for position, (_, measurement) in enumerate(bars):
        _draw_bar(axes, position, measurement, COLOURS[cpus.index(measurement.cpu) % len(COLOURS)])
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


def _draw_bar(axes: Any, position: int, measurement: Measured, colour: str) -> None:
    ratio = measurement.ratio
    value = ratio["median"]
    errors = [[value - ratio["lowest"]], [ratio["highest"] - value]]
    axes.barh(position, value, 0.7, xerr=errors, color=colour, capsize=3)
    axes.text(ratio["highest"] + 0.25, position, f"{_number(value)}×", va="center", fontsize=11)


def drawn(results: Sequence[Result]) -> str:
    """Return what the picture shows, as text in its file: a test compares it with the results."""
    bars = [
        f"{measurement.cpu}: {line.shown}: {_ratio_text(measurement)}"
        for line, measurement in bars_of(results)
    ]
    return "; ".join(bars).encode("ascii", "replace").decode()


@click.command(cls=Command)
def main() -> None:
    """Write the pages' tables from benchmarks/results, and draw the front page's picture."""
    results = kept()
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        page.write_text(with_tables(text, results), encoding="utf-8")
    draw(results, PICTURE)


if __name__ == "__main__":
    main()
