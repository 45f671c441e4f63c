"""`detaug.verify` where there is no file: notebooks."""

from __future__ import annotations

from pathlib import Path

import pytest

CELLS = """
import numpy as np
import detaug

SCALE = 2.0
seen = []

class Loader:
    def __next__(self):
        return {"data": np.random.rand(2, 3)}

def noise(**batch):
    return {"data": SCALE * batch["data"] + np.random.default_rng().random()}

def make():
    return Loader(), None

def make_noise():
    return Loader(), noise

QUICK = dict(batches=3, processes=[1])
"""
LINE = (
    CELLS.splitlines().index(
        '    return {"data": SCALE * batch["data"] + np.random.default_rng().random()}'
    )
    + 1
)


@pytest.mark.slow
def test_notebook_verifies_what_its_cells_define(tmp_path: Path) -> None:
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    cells = [
        CELLS.strip(),
        "detaug.verify(make, **QUICK)",
        "print(detaug.verify(make_noise, **QUICK).cause)",
    ]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client.NotebookClient(
        book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    table = next(
        each for each in book.cells[1].outputs if each.output_type == "execute_result"
    ).data["text/plain"]
    said = "".join(each.text for each in book.cells[2].outputs if each.get("name") == "stdout")
    assert "\nequal: the same bytes in the same order in every row" in table
    assert "1 process, spawn" in table
    assert f":{LINE - 1}: `return {{" in said, "the line within the cell"
