"""The site is built without a warning, with pages that are made of other files, and links to whoever's repository it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from detaug.versions import __version__

REPOSITORY = Path(__file__).parents[3]


@pytest.mark.parametrize(
    "address",
    [pytest.param("", marks=pytest.mark.slow, id="none"), "https://example.org/someone/detaug"],
)
def test_one_variable_makes_the_links_to_the_repository(address: str, tmp_path: Path) -> None:
    for needed in ("mkdocs", "material", "mkdocstrings", "nbconvert"):
        pytest.importorskip(needed)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "DETAUG_REPO_URL": address, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    tutorial, loops, examples = (
        (tmp_path / f"{name}.html").read_text() for name in ("tutorial", "loops", "examples")
    )
    assert "epoch 1, batch 3 of 8" in tutorial, "the kept outputs"
    assert 'href="tutorial.html"' in examples
    assert (tmp_path / "changelog.html").exists()
    assert f"detaug {__version__}" in loops
    assert (f"{address}/edit/main/docs/loops.md" in loops) == bool(address)
    assert (f"{address}/blob/main/examples/torch_dataset.py" in loops) == bool(address)
    assert 'href="migrate.html">migrate.md' not in (tmp_path / "index.html").read_text(), (
        "links are named by titles"
    )
