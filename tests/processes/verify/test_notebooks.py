"""`detaug.verify` where there is no file: notebooks, ``python -c``, programs from the standard input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.preloaded import run_code
from tests.support.processes import environment_of_a_script

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

QUICK = dict(batches=3, processes=[1], start_methods=["fork"], hash_seeds=())
"""
LINE = CELLS.splitlines().index('    return {"data": SCALE * batch["data"] + np.random.default_rng().random()}') + 1
SHOW = "print(detaug.verify(make, **QUICK).ok, detaug.verify(make_noise, **QUICK).cause)"
SAID = "True {file}:{line}: "


@pytest.mark.slow  # objects that are handed in: test_handed_in.py
def test_python_c_verifies_what_it_defines(tmp_path: Path) -> None:
    done = run_code(f"{CELLS}\n{SHOW}", folder=tmp_path, environment=environment_of_a_script())
    assert done.stdout.startswith(SAID.format(file="<string>", line=LINE)), done.stdout + done.stderr
    assert "draws random numbers from the operating system" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("spawned", [False, True])
def test_notebook_verifies_what_its_cells_define(tmp_path: Path, spawned: bool) -> None:
    pytest.importorskip("ipykernel")
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    how = "batches=3, processes=[1]" if spawned else "**QUICK"
    cells = [CELLS.strip(), f"detaug.verify(make, {how})", f"print(detaug.verify(make_noise, {how}).cause)"]
    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client.NotebookClient(book, timeout=240, resources={"metadata": {"path": str(tmp_path)}}).execute()
    table = next(each for each in book.cells[1].outputs if each.output_type == "execute_result").data["text/plain"]
    said = "".join(each.text for each in book.cells[2].outputs if each.get("name") == "stdout")
    assert "\nequal: the same bytes in the same order in every row" in table
    assert ("1 process, spawn" in table) == spawned
    assert f":{LINE - 1}: `return {{" in said, "the line within the cell"
