"""Figures in README and docs: each is of a kept result, with date, commit and versions."""

from __future__ import annotations

import datetime
import re
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.tables.__main__ import (
    BLOCK,
    COMPUTED,
    GPU,
    PACKAGES,
    PAGES,
    PICTURE,
    RESULTS,
    TABLES,
    drawn,
    kept,
    kept_of_gpus,
    measured,
    table_of,
    with_tables,
)

#: A number that is a multiple or a share; not the × of a shape (128×128, 2 × 64).
FIGURE = re.compile(r"\d\s?(?:×(?!\s?\d)|x\b|%|times as\b|times faster|times slower)")


def test_every_kept_result_has_date_commit_and_versions() -> None:
    results = kept()
    assert results
    for result in (*results, *kept_of_gpus()):
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
    assert len(results) + len(kept_of_gpus()) == len(list(RESULTS.iterdir()))


def test_the_pages_tables_are_what_the_kept_results_give() -> None:
    names = []
    for file in PAGES:
        page = file.read_text(encoding="utf-8")
        assert with_tables(page, kept()) == page, "python -m benchmarks tables"
        blocks = [block["name"] for block in BLOCK.finditer(page)]
        assert len(blocks) == page.count("<!-- table") == page.count("<!-- end of the table")
        names += blocks
    assert set(names) == {*TABLES, *COMPUTED, GPU}


def test_the_front_pages_picture_is_of_the_same_results() -> None:
    assert Image.open(PICTURE).info["Comment"] == drawn(kept()), "python -m benchmarks tables"
    assert drawn([]) != drawn(kept())


@pytest.mark.parametrize("file", PAGES, ids=lambda file: file.name)
def test_no_ratio_or_share_is_typed_by_hand(file: Path) -> None:
    page = BLOCK.sub("", file.read_text(encoding="utf-8"))
    assert [line for line in page.splitlines() if FIGURE.search(line)] == []


def test_every_line_of_the_headline_has_a_machine() -> None:
    results = kept()
    assert all(measured(results, line) for line in TABLES["headline"])
    for name in COMPUTED:
        assert table_of(results, name).count("\n") == len(results) + 2
