"""The tutorial runs in an empty folder, and its page shows what it gives. examples/README.md and the site name every example."""

from __future__ import annotations

import ast
import copy
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


def given(notebook: Any) -> list[str]:
    """What any machine gives: the ledger's digest, and the fingerprint of the batch that is replayed."""
    text = [str(output) for cell in notebook.cells for output in cell.get("outputs", [])]
    return re.findall(r"equal: all \d+ batches|digest [0-9a-f]{16}|'[0-9a-f]{32}'", "\n".join(text))


@pytest.mark.slow
def test_the_tutorial_runs_and_its_outputs_are_those_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    pytest.importorskip("nilearn")
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    kept = nbformat.read(EXAMPLES / "tutorial.ipynb", 4)
    fresh = copy.deepcopy(kept)
    options = {"timeout": 280, "coalesce_streams": True, "resources": {"metadata": {"path": str(tmp_path)}}}
    client.NotebookClient(fresh, **options).execute()
    assert len(given(fresh)) == 4
    assert sorted(given(fresh)) == sorted(given(kept))
    pictures = [
        [cell.outputs for cell in each.cells if "image/png" in str(cell.get("outputs"))] for each in (kept, fresh)
    ]
    assert len(pictures[0]) == len(pictures[1]) == 1


def test_every_example_is_listed_and_says_what_it_shows() -> None:
    listed = re.findall(
        r"^\| \[([\w.]+)\]\(\1\) \| \w.*\|$", (EXAMPLES / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    programs = sorted(file.name for file in EXAMPLES.iterdir() if file.suffix in (".py", ".ipynb"))
    assert sorted(listed) == programs
    for name in programs:
        if name.endswith(".py"):
            said = ast.get_docstring(ast.parse((EXAMPLES / name).read_text(encoding="utf-8"))) or ""
            assert re.match(r"[^\n]+[.?](\n|$)", said), name
