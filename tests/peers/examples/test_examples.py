"""Each example runs by itself, as a reader would run it, and reaches its last line; so does the
tutorial.
"""

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

LAST_LINES = {
    "cluster_with_fsspec.py": "6 batches through fsspec, the same from this process and from a Ray "
    "cluster",
    "custom_loop_resume.py": "same batches, same weights",
    "nnunet_loader.py": "nnU-Net's batches are the same with 1 and with 2 processes",
    "own_transform.py": "own transforms are as reproducible as detaug's",
    "torch_dataset.py": "same batches with 0 and with 2 workers; another order in each epoch",
}


#: nnU-Net plans and preprocesses a data set first; a Ray cluster starts.
SLOW = {"nnunet_loader.py", "cluster_with_fsspec.py"}


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(each, marks=pytest.mark.slow) if each in SLOW else each
        for each in sorted(LAST_LINES)
    ],
)
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


def given(notebook: Any) -> list[str]:
    """What any machine gives: the ledger's digest, and the fingerprint of the batch that is
    replayed.
    """
    text = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
    return re.findall(r"equal: all \d+ batches|digest [0-9a-f]{16}|'[0-9a-f]{32}'", "\n".join(text))


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
    options = {
        "timeout": 280,
        "coalesce_streams": True,
        "resources": {"metadata": {"path": str(tmp_path)}},
    }
    client.NotebookClient(fresh, **options).execute()
    assert len(given(fresh)) == 3
    assert sorted(given(fresh)) == sorted(given(kept))
    pictures = [
        [cell.outputs for cell in each.cells if "image/png" in str(cell.get("outputs"))]
        for each in (kept, fresh)
    ]
    assert len(pictures[0]) == len(pictures[1]) == 1


def test_every_example_is_run_listed_and_says_what_it_shows() -> None:
    listed = re.findall(
        r"^\| \[([\w.]+)\]\(\1\) \| \w.*\|$",
        (EXAMPLES / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    programs = sorted(file.name for file in EXAMPLES.iterdir() if file.suffix in (".py", ".ipynb"))
    assert sorted(listed) == programs
    elsewhere = {
        name for name in programs if name.startswith("loop_")
    }  # tests/peers/loops runs them
    assert {*programs} - elsewhere == {*LAST_LINES, "mri_slices.py", "tutorial.ipynb"}
    for name in programs:
        if name.endswith(".py"):
            said = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""
            assert re.match(r"[^\n]+[.?](\n|$)", said), name
