"""Each example, and the tutorial, runs as a reader would run it, and reaches its last line."""

from __future__ import annotations

import ast
import copy
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.preloaded import Preloaded, run_code

EXAMPLES = Path(__file__).parents[3] / "examples"

#: The last line that each example prints.
LAST_LINES = {
    "cluster_with_fsspec.py": (
        "6 batches through fsspec, the same from this process and from a Ray cluster"
    ),
    "custom_loop_resume.py": "same batches, same weights",
    "nnunet_loader.py": "nnU-Net's batches are the same with 1 and with 2 processes",
    "own_transform.py": "own transforms are as reproducible as detaug's",
    "torch_dataset.py": "same batches with 0 and with 2 workers; another order in each epoch",
}
#: Examples that first let nnU-Net preprocess a data set, or start a Ray cluster.
SLOW = {"nnunet_loader.py", "cluster_with_fsspec.py"}


def scripts() -> list[Any]:
    """Return a parameter for every example."""
    parameters = []
    for name in sorted(LAST_LINES):
        marks = [pytest.mark.slow] if name in SLOW else []
        parameters.append(pytest.param(name, marks=marks))
    return parameters


@pytest.mark.parametrize("script", scripts())
def test_example_says_what_it_shows(script: str, interpreter: Preloaded) -> None:
    if script == "nnunet_loader.py":
        pytest.importorskip("nnunetv2")
    if script == "cluster_with_fsspec.py":
        pytest.importorskip("ray")
    done = run_code(
        EXAMPLES / script, folder=Path.cwd(), environment=os.environ, interpreter=interpreter
    )
    assert done.returncode == 0, done.stderr
    if script == "cluster_with_fsspec.py":
        assert "as expected: while fetching item 12" in done.stdout
        assert "on node" in done.stdout
    assert done.stdout.splitlines()[-1] == LAST_LINES[script]


def reproducible_outputs(notebook: Any) -> list[str]:
    """Return the outputs that are the same on any machine, sorted.

    These are the ledger's digest, the verdict of `detaug diff`, and the fingerprint of the batch
    that is replayed.
    """
    outputs: list[str] = []
    for cell in notebook.cells:
        outputs.extend(str(output) for output in cell.get("outputs", []))
    pattern = r"equal: all \d+ batches|digest [0-9a-f]{16}|'[0-9a-f]{32}'"
    return sorted(re.findall(pattern, "\n".join(outputs)))


def num_cells_with_pictures(notebook: Any) -> int:
    """Return the number of cells that have a picture among their outputs."""
    return sum("image/png" in str(cell.get("outputs")) for cell in notebook.cells)


@pytest.mark.slow
def test_the_tutorial_runs_and_its_outputs_are_those_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nilearn")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    kept = nbformat.read(EXAMPLES / "tutorial.ipynb", 4)
    fresh = copy.deepcopy(kept)
    run = client.NotebookClient(
        fresh,
        timeout=280,
        coalesce_streams=True,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    run.execute()
    assert len(reproducible_outputs(fresh)) == 3
    assert reproducible_outputs(fresh) == reproducible_outputs(kept)
    assert num_cells_with_pictures(kept) == 1
    assert num_cells_with_pictures(fresh) == 1


def docstring_of(path: Path) -> str:
    """Return the docstring of a program, or ""."""
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def test_every_example_is_run_listed_and_says_what_it_shows() -> None:
    readme = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| \[([\w.]+)\]\(\1\) \| \w.*\|$", readme, re.MULTILINE)
    programs = [file.name for file in EXAMPLES.iterdir() if file.suffix in (".py", ".ipynb")]
    assert sorted(listed) == sorted(programs)
    # Those whose name begins with loop_ are run in tests/peers/loops.
    run_here = {name for name in programs if not name.startswith("loop_")}
    assert run_here == {*LAST_LINES, "mri_slices.py", "tutorial.ipynb"}
    for name in programs:
        if name.endswith(".py"):
            docstring = docstring_of(EXAMPLES / name)
            assert re.match(r"[^\n]+[.?](\n|$)", docstring), name
