"""`python -m benchmarks tables`: write the tables and the picture of ratios, from the results of every machine.

`benchmarks/results` has a file for each machine, which `python -m benchmarks headline` writes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.nodes.needs import GPUS, USERS_SAMPLE, Machines, cores, nodes
from detaug.cli.options import Command

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
PICTURE = REPOSITORY / "docs" / "images" / "ratios.png"
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md")))

#: A block of a page: its name, and what lies between its marks.
BLOCK = re.compile(
    r"(?P<begin><!-- table (?P<name>\w+), by `python -m benchmarks tables` -->\n).*?(?P<end><!-- end of the table -->)",
    re.DOTALL,
)

NNUNET, STOCK, BGV2 = "nnU-Net, CPU time", "NonDetMultiThreadedAugmenter", "batchgeneratorsv2"
_CASES = "3d_fullres, 128³, batch 2"
#: A table's lines: a row's name in the results, which of its comparisons, and what the pages say of the row and of the other.
TABLES: dict[str, tuple[tuple[str, str, str, str], ...]] = {
    "headline": (
        (
            f"{_CASES}, read and augment",
            NNUNET,
            "3-D loader and transforms, 128³, batch 2",
            "nnU-Net's own",
        ),
        (
            "2d, 320², batch 32, read and augment",
            NNUNET,
            "2-D loader and transforms, 320², batch 32",
            "nnU-Net's own",
        ),
        ("nnU-Net's 3-D pipeline, mean per sample", BGV2, "its 3-D transforms, 205³ → 128³", BGV2),
        (
            "nnU-Net's 2-D pipeline, mean per sample",
            BGV2,
            "its 2-D transforms, 822×602 → 512×512",
            BGV2,
        ),
        ("transport", STOCK, "a ready 25 MB batch between processes, copied", STOCK),
        ("transport, made in the slot", STOCK, "the same, made in shared memory", STOCK),
    ),
    "engine": (
        *(
            (row, against, shown, f"{against}{more}")
            for row, shown in (
                ("transport", "transport, copied"),
                ("transport, made in the slot", "made in the slot"),
            )
            for against, more in (
                (STOCK, ""),
                ("MultiThreadedAugmenter", ""),
                ("torch", "'s DataLoader"),
                ("Grain", ""),
                ("bare processes", " that copy into one shared block each, and nothing else"),
                ("clone + memcpy", " in one process"),
            )
        ),
        (
            "nnU-Net's 3-D loader and transforms",
            STOCK,
            "nnU-Net's own 3-D loader and transforms",
            STOCK,
        ),
        (
            "heavy-tailed cost, num_cached=10",
            STOCK,
            "one batch in twenty takes ten times as long",
            STOCK,
        ),
        ("first batch, ready loader", STOCK, "the first batch, from the start on", STOCK),
    ),
    "loader": (
        *(
            (f"{name}, read and augment", NNUNET, name, "nnU-Net's own")
            for name in (_CASES, "2d, 320², batch 32", f"{_CASES}, 4 channels")
        ),
        (
            f"{_CASES}, 90 ms per step: share of time spent waiting",
            "nnU-Net",
            "time that a step of 90 ms waits for two workers",
            "nnU-Net's own",
        ),
    ),
    "pipelines": (
        (
            "nnU-Net's 3-D pipeline, mean per sample",
            BGV2,
            "nnU-Net's default, 3-D, 205³ → 128³",
            BGV2,
        ),
        (
            "nnU-Net's 3-D pipeline, 4 channels, mean per sample",
            BGV2,
            "the same with 4 channels",
            BGV2,
        ),
        ("DASegOrd0's pipeline, mean per sample", BGV2, "DASegOrd0, 205³ → 128³", BGV2),
        (
            "nnU-Net's 2-D pipeline, mean per sample",
            BGV2,
            "nnU-Net's default, 2-D, 822×602 → 512×512",
            BGV2,
        ),
        (
            "nnU-Net's 2-D pipeline, by turns, mean per sample",
            BGV2,
            "the same, sample by sample by turns",
            BGV2,
        ),
        ("DA5's pipeline, small patches, mean per sample", BGV2, "DA5, 93³ → 48³", BGV2),
        ("DA5ord0's pipeline, small patches, mean per sample", BGV2, "DA5ord0, 93³ → 48³", BGV2),
    ),
}


def kept() -> list[dict[str, Any]]:
    """The results of all machines."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))]


def machines(
    results: Iterable[dict[str, Any]], name: str, against: str
) -> list[tuple[str, Any, Any]]:
    """(CPU, row, its comparison) of every machine that has the row, the lowest ratio first."""
    found = [
        (result["environment"]["cpu"], row, check)
        for result in results
        for row in result["rows"]
        for check in row["checks"]
        if (row["name"], check["against"]) == (name, against)
    ]
    return sorted(found, key=lambda each: speed(each[2]))


def table_of(results: Sequence[dict[str, Any]], name: str) -> str:
    """Markdown: for each line the ratio on every machine with its range over rounds; or what is computed from the results."""
    if name in COMPUTED:
        return COMPUTED[name](results)
    lines = [
        "| what | against | detaug's speed over it, the lowest machine first |",
        "|---|---|---|",
    ]
    for row, against, shown, other in TABLES[name]:
        found = machines(results, row, against)
        if found:
            lines.append(
                f"| {shown} | {other} | {'; '.join(f'{_told(*each[1:])} {each[0]}' for each in found)} |"
            )
    return "\n".join(lines) + "\n"


def machines_table(results: Sequence[dict[str, Any]]) -> str:
    """What was measured on, when, and with what; a machine's file may know less."""
    packages = "torch", "numpy", "batchgenerators", "batchgeneratorsv2", "nnunetv2"
    lines = [
        f"| CPU | cores | measured | Python | commit | {' | '.join(packages)} |",
        f"|{'---|' * (5 + len(packages))}",
    ]
    for about in (result["environment"] for result in results):
        known = [about.get(key) for key in ("cpu", "cores", "date", "python", "commit")]
        known += [about["packages"].get(package) for package in packages]
        lines.append(f"| {' | '.join(str(each or '–') for each in known)} |")
    return "\n".join(lines) + "\n"


def _batch_seconds(results: Sequence[dict[str, Any]]) -> Iterable[tuple[str, float, float]]:
    """(CPU, nnU-Net's, detaug's CPU seconds of a 3-D batch) of every machine whose file has them."""
    for cpu, row, check in machines(results, f"{_CASES}, read and augment", NNUNET):
        if row["ours"] and check["theirs"]:
            yield cpu, check["theirs"] / 1000, row["ours"] / 1000


def nodes_table(results: Sequence[dict[str, Any]]) -> str:
    """As `python -m benchmarks nodes` computes it, for two speeds of cores."""
    text = ""
    for cpu, *seconds in _batch_seconds(results):
        text += (
            f"From {seconds[0]:.3f} CPU seconds a batch with nnU-Net's loader and transforms and {seconds[1]:.3f} with detaug's, "
            f"on {cpu}:\n\n| GPU (training step) | slowdown | cores: nnU-Net | detaug | nodes for 1 GPU: nnU-Net | detaug "
            f"| for 8 GPUs: nnU-Net | detaug |\n|{'---|' * 8}\n"
        )
        sample = {
            each[0]: each[2]["theirs"]
            for each in machines(results, "nnU-Net's 3-D pipeline, mean per sample", BGV2)
        }
        slower = (
            [Machines(slowdown=round(1000 * USERS_SAMPLE / sample[cpu], 1))]
            if cpu in sample
            else []
        )
        for at in (Machines(), *slower):
            for gpu in GPUS:
                cells = [f"{cores(each, gpu, at):.1f}" for each in seconds]
                cells += [str(nodes(each, gpu, at, gpus)) for gpus in (1, 8) for each in seconds]
                text += f"| {gpu.name} ({1e3 * gpu.step:.0f} ms) | {at.slowdown:g} | {' | '.join(cells)} |\n"
    return text


def cores_table(results: Sequence[dict[str, Any]]) -> str:
    """How often so many cores make a batch."""
    counts = 1, 2, 4, 8
    lines = [f"| cores | {' | '.join(map(str, counts))} |", f"|{'---|' * (1 + len(counts))}"]
    for cpu, _, ours in _batch_seconds(results):
        lines.append(f"| {cpu} | {' | '.join(f'{1000 * ours / n:.0f} ms' for n in counts)} |")
    return "\n".join(lines) + "\n"


#: Blocks that are no ratios over machines.
COMPUTED: dict[str, Callable[[Sequence[dict[str, Any]]], str]] = {
    "machines": machines_table,
    "nodes": nodes_table,
    "cores": cores_table,
}


def speed(check: dict[str, Any]) -> tuple[float, float, float] | tuple[float]:
    """How many times as fast detaug is: the median, and the range over rounds if it is known."""
    values = [check["value"], *(check["spread"] or ())]
    if check["relation"] == "<=":  # of times
        values = [1 / each for each in (values[0], *reversed(values[1:]))]
    return tuple(values)


def _told(row: dict[str, Any], check: dict[str, Any]) -> str:
    if row["unit"] == "%":
        return f"{row['ours']:.2g} % against {check['theirs']:.2g} %"
    ratio, *spread = map(_number, speed(check))
    return f"{ratio}× ({'–'.join(spread)})" if spread else f"{ratio}×"


def _number(value: float) -> str:
    return f"{value:.2f}" if value < 2 else f"{value:.1f}" if value < 20 else f"{value:.0f}"


def with_tables(page: str, results: Sequence[dict[str, Any]]) -> str:
    """The page with its tables made anew."""
    return BLOCK.sub(
        lambda found: f"{found['begin']}\n{table_of(results, found['name'])}\n{found['end']}", page
    )


def draw(results: Sequence[dict[str, Any]], file: Path) -> None:
    """Bars of the headline's ratios, one for each machine, with their ranges over the rounds."""
    from detaug.pictures.charts import COLOURS, figure_of

    bars = [
        (shown, other, *each)
        for name, against, shown, other in TABLES["headline"]
        for each in machines(results, name, against)
    ]
    cpus = sorted({each[2] for each in bars})
    figure = figure_of(
        "detaug: so many times as fast (the line is 1×; whiskers: the range over rounds)",
        10,
        0.9 + 0.36 * len(bars),
    )
    axes = figure.subplots()
    labels: list[tuple[float, str]] = []
    place = 0.0
    for n, (shown, other, cpu, _, check) in enumerate(bars):
        first = n == 0 or bars[n - 1][:2] != (shown, other)
        place += 1.5 if first and n else 1.0 if n else 0.0
        if first:
            count = sum(each[:2] == (shown, other) for each in bars)
            labels.append((place + (count - 1) / 2, f"{shown}\nagainst {other}"))
        value, low, high = (*speed(check), *2 * speed(check)[:1])[:3]
        errors = [[value - low], [high - value]]
        axes.barh(
            place,
            value,
            0.85,
            xerr=errors,
            color=COLOURS[cpus.index(cpu) % len(COLOURS)],
            capsize=3,
        )
        axes.text(high + 0.25, place, f"{_number(value)}×", va="center", fontsize=10)
    axes.axvline(1, color="#202124", linewidth=1)
    axes.set_yticks([each[0] for each in labels], [each[1] for each in labels], fontsize=9)
    axes.set_xticks([])
    axes.invert_yaxis()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for n, cpu in enumerate(cpus):
        axes.barh(0, 0, color=COLOURS[n % len(COLOURS)], label=cpu)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    figure.savefig(file, dpi=100, metadata={"Software": None, "Comment": drawn(results)})


def drawn(results: Sequence[dict[str, Any]]) -> str:
    """What the picture shows, as text: it lies in the picture's file, by which a test knows that it is of these results."""
    found = [
        f"{cpu}: {shown}: {' '.join(map(_number, speed(check)))}"
        for name, against, shown, _ in TABLES["headline"]
        for cpu, _, check in machines(results, name, against)
    ]
    return "; ".join(found).encode("ascii", "replace").decode()


@click.command(cls=Command)
def main() -> None:
    """Write the tables of ratios over machines into the pages, and draw the front page's picture of them."""
    results = kept()
    for page in PAGES:
        page.write_text(with_tables(page.read_text(encoding="utf-8"), results), encoding="utf-8")
    draw(results, PICTURE)


if __name__ == "__main__":
    main()
