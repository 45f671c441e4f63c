"""`python -m benchmarks tables`: write the table of ratios into the pages, from the results of every machine.

`benchmarks/results/*.json` are what ``--json`` writes, one or more files for each machine. Of one CPU's results for a row, those
of the latest date count.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import click

from detaug.cli.options import Command

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
PAGES = ("README.md", "docs/benchmarks.md")
BEGIN = "<!-- from benchmarks/results, by `python -m benchmarks tables` -->\n"
END = "<!-- end of the table -->\n"

_NNUNET, _STOCK = "nnU-Net, CPU time", "NonDetMultiThreadedAugmenter"
#: A row's name in the results, which of its comparisons is shown, and what the pages say of both.
LINES = (
    (
        "3d_fullres, 128³, batch 2, read and augment",
        _NNUNET,
        "3-D loader and transforms, 128³, batch 2",
        "nnU-Net's own",
    ),
    ("2d, 320², batch 32, read and augment", _NNUNET, "2-D loader and transforms, 320², batch 32", "nnU-Net's own"),
    ("transport", _STOCK, "a ready 25 MB batch between processes, copied", f"`{_STOCK}`"),
    ("transport, made in the slot", _STOCK, "the same, made in shared memory", f"`{_STOCK}`"),
)


def table_of(results: Iterable[dict[str, Any]]) -> str:
    """Markdown: for each of `LINES` the ratio on every machine with its range over rounds, the lowest first."""
    by_date = sorted(results, key=lambda each: each["environment"].get("date") or "")
    lines = ["| what | against | ratio, the lowest first |\n", "|---|---|---|\n"]
    for name, against, shown, other in LINES:
        found = {
            result["environment"]["cpu"]: check
            for result in by_date
            for row in result["rows"]
            for check in row["checks"]
            if (row["name"], check["against"]) == (name, against)
        }
        machines = sorted(found.items(), key=lambda machine: machine[1]["value"])
        ratios = [f"{_ratio(check['value'], check['spread'])} {cpu}" for cpu, check in machines]
        if ratios:
            lines.append(f"| {shown} | {other} | {'; '.join(ratios)} |\n")
    return "".join(lines)


def _ratio(value: float, spread: Sequence[float] | None) -> str:
    return f"{value:.{1 if value < 10 else 0}f}×" + ("" if spread is None else f" ({spread[0]:.1f}–{spread[1]:.1f})")


def with_table(page: str, table: str) -> str:
    """The page with the table between its marks."""
    before, _, rest = page.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"the page has no table between {BEGIN.strip()!r} and {END.strip()!r}")
    return f"{before}{BEGIN}\n{table}\n{END}{after}"


def kept() -> list[dict[str, Any]]:
    """The results of all machines."""
    return [json.loads(file.read_text(encoding="utf-8")) for file in sorted(RESULTS.glob("*.json"))]


@click.command(cls=Command)
def main() -> None:
    """Write the table of ratios over machines into the pages."""
    table = table_of(kept())
    for name in PAGES:
        page = REPOSITORY / name
        page.write_text(with_table(page.read_text(encoding="utf-8"), table), encoding="utf-8")


if __name__ == "__main__":
    main()
