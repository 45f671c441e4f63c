"""Figures in README and docs: each is of a kept result, with date, commit and versions."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.command import REPOSITORY, RESULTS
from benchmarks.fidelity.results import Result, read
from benchmarks.fidelity.training import DETAUG, STOCK
from benchmarks.markdown import read_results
from benchmarks.tables.__main__ import (
    BLOCK,
    PACKAGES,
    PAGES,
    PICTURE,
    TABLES,
    all_blocks,
    batches_table,
    drawn,
    kept,
    machines_table,
    measured,
    with_tables,
)
from benchmarks.tables.cpus import product_name
from benchmarks.tables.studies import dice_text, epochs_text

#: A number that is a multiple or a share; not the × of a shape (128×128, 2 × 64).
FIGURE = re.compile(r"\d\s?(?:×(?!\s?\d)|x\b|%|times as\b|times faster|times slower)")


def test_every_kept_result_has_date_commit_and_versions() -> None:
    results = kept()
    assert results
    gpus = read_results(RESULTS, "gpu-*.json")
    for result in (*results, *(result for _, result in gpus)):
        record = result["environment"]
        datetime.date.fromisoformat(record["date"])
        assert re.fullmatch(r"[0-9a-f]{10,40}", record["commit"]), "not of a changed work tree"
        assert record["python"]
        assert all(record["packages"][package] for package in PACKAGES)
    for result in results:
        assert all(row["ours"] > 0 and row["rounds"] >= 3 for row in result["rows"])
        assert all(each["theirs"] > 0 for row in result["rows"] for each in row["comparisons"])
    cpus = {result["environment"]["cpu"] for result in results}
    assert len(cpus) == len(results)
    trainings = read(RESULTS / "fidelity.jsonl")
    epochs = read_results(RESULTS, "epochs-*.json")
    for training in trainings:
        datetime.date.fromisoformat(training.date)
        assert re.fullmatch(r"[0-9a-f]{10,40}", training.commit or "")
        assert training.settings["versions"]
    for _, measurement in epochs:
        datetime.date.fromisoformat(measurement["environment"]["date"])
        assert re.fullmatch(r"[0-9a-f]{10,40}", measurement["environment"]["commit"])
    stress = (RESULTS / "stress.txt").read_text(encoding="utf-8")
    assert re.match(r"commit [0-9a-f]{10}, \d{4}-\d\d-\d\d, ", stress)
    files = len(results) + len(gpus) + len(epochs) + bool(trainings) + bool(stress)
    assert files == len(list(RESULTS.iterdir()))


def test_the_page_on_faults_shows_the_kept_output_of_the_stress_suite() -> None:
    stress = (RESULTS / "stress.txt").read_text(encoding="utf-8")
    rows = re.findall(r"^.* \| ([\d,]+) \| ([\d,]+) \| 0$", stress, re.MULTILINE)
    commit = stress.split(",")[0]
    page = (REPOSITORY / "docs" / "reliability.md").read_text(encoding="utf-8")
    table = page.partition(commit)[2].partition("The number of descriptors")[0]
    shown = re.findall(r"\| \**([\d,]+)\** \| \**([\d,]+)\** \| \**0\** \|$", table, re.MULTILINE)
    assert shown == rows


def test_the_pages_tables_are_what_the_kept_results_give() -> None:
    names = []
    blocks_of_pages = all_blocks(kept())
    for file in PAGES:
        page = file.read_text(encoding="utf-8")
        assert with_tables(page, blocks_of_pages) == page, "python -m benchmarks tables"
        blocks = [block["name"] for block in BLOCK.finditer(page)]
        assert len(blocks) == page.count("<!-- table") == page.count("<!-- end of the table")
        names += blocks
    assert set(names) == set(blocks_of_pages)


def test_the_front_pages_picture_is_of_the_same_results() -> None:
    assert Image.open(PICTURE).info["Comment"] == drawn(kept()), "python -m benchmarks tables"
    assert drawn([]) != drawn(kept())


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_no_ratio_or_share_is_typed_by_hand(file: Path) -> None:
    page = BLOCK.sub("", file.read_text(encoding="utf-8"))
    assert [line for line in page.splitlines() if FIGURE.search(line)] == []


@pytest.mark.parametrize(
    ("record", "name"),
    [
        ("AMD EPYC, family 26, model 2", "AMD EPYC 9005"),
        ("AMD EPYC, family 25, model 17", "AMD EPYC 9004"),
        ("Intel(R) Xeon(R) Processor, family 6, model 143", "Intel Xeon Scalable, 4th generation"),
        (
            "AMD EPYC 9654 96-Core Processor, family 25, model 17",
            "AMD EPYC 9654 96-Core Processor",
        ),
        ("a CPU of tomorrow, family 99, model 1", "a CPU of tomorrow, family 99, model 1"),
    ],
)
def test_pages_call_cpus_by_their_products(record: str, name: str) -> None:
    assert product_name(record) == name


def test_a_simulated_epoch_has_the_seconds_of_250_steps() -> None:
    systems = {
        "nnU-Net": {"per_step": 0.2, "waiting": 0.11},
        "detaug": {"per_step": 0.09, "waiting": 0.0},
    }
    environment = {"cpu": "AMD EPYC, family 26, model 2", "commit": "0" * 10, "date": "2026-01-01"}
    rows = [{"step": 0.09, "workers": 2, "systems": systems}]
    text = epochs_text([{"environment": environment, "rows": rows}])
    assert "| 90 ms | 2 | 50 s | 28 s | 22 s | 0 s |" in text
    assert "*simulated step*, on AMD EPYC 9005" in text


@pytest.mark.parametrize(
    ("gain", "conclusion"),
    [(0.0, "**No difference was found**"), (0.1, "**A difference was found**")],
)
def test_the_study_says_whether_its_interval_contains_0(gain: float, conclusion: str) -> None:
    results = []
    for run in range(1, 6):
        for arm, dice in ((STOCK, 0.8 + 0.001 * run), (DETAUG, 0.806 + gain - 0.001 * run)):
            date = f"2026-01-0{run}"
            results.append(Result("a", arm, run, {}, dice, date=date, commit="0" * 10))
    text = dice_text(results)
    assert conclusion in text
    assert text.startswith("Measured 2026-01-01 to 2026-01-05, commit 0000000000:")


def test_a_difference_on_one_task_is_told_although_all_tasks_together_show_none() -> None:
    offsets = {"a": 0.04, "b": -0.03}
    results = [
        Result(task, arm, run, {}, 0.8 + 0.001 * run + offset, date="2026-01-01", commit="0" * 10)
        for task, gain in offsets.items()
        for arm, offset in ((STOCK, 0.0), (DETAUG, gain))
        for run in range(5)
    ]
    noise = [
        Result("c", arm, run, {}, 0.8 + 0.05 * run, date="2026-01-01", commit="0" * 10)
        for arm in (STOCK, DETAUG)
        for run in range(5)
    ]
    text = dice_text([*results, *noise])
    assert "**A difference was found on single tasks** (a, b)" in text


def test_every_line_of_the_headline_has_a_machine() -> None:
    results = kept()
    assert all(measured(results, line) for line in TABLES["headline"])
    for table in (machines_table(results), batches_table(results)):
        assert table.count("\n") == len(results) + 2
