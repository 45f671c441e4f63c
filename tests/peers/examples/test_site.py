"""The site is built without a warning.

It has pages that are made of other files, and links to the repository that a variable names.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from detaug.versions import __version__
from tests.support.waiting import run_program

REPOSITORY = Path(__file__).parents[3]
ADDRESS = "https://example.org/someone/detaug"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that builds the site for a repository's address, and returns its folder."""

    @cache
    def built(address: str) -> Path:
        for module in ("mkdocs", "material", "mkdocstrings", "nbconvert"):
            pytest.importorskip(module)
        folder = tmp_path_factory.mktemp("site")
        build(folder, address)
        return folder

    return built


def build(folder: Path, address: str) -> None:
    """Build the site with links to the repository's address, or with none."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "DETAUG_REPO_URL": address, "NO_MKDOCS_2_WARNING": "1"}
    done = run_program(command, cwd=REPOSITORY, env=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "address",
    [pytest.param("", marks=pytest.mark.slow, id="none"), ADDRESS],
)
def test_one_variable_makes_the_links_to_the_repository(
    address: str, site: Callable[[str], Path]
) -> None:
    folder = site(address)
    tutorial = (folder / "tutorial.html").read_text()
    assert "epoch 1, batch 3 of 8" in tutorial, "the kept outputs"
    assert (folder / "changelog.html").exists()
    loops = (folder / "loops.html").read_text()
    assert f"detaug {__version__}" in loops
    assert (f"{address}/edit/main/docs/loops.md" in loops) == bool(address)
    assert (f"{address}/blob/main/examples/torch_dataset.py" in loops) == bool(address)
    home = (folder / "index.html").read_text()
    assert 'href="tutorial.html"' in home
    assert 'href="migrate.html">migrate.md' not in home, "links are named by titles"
    assert home.count('class="md-button') == 3
    assert "<title>detaug</title>" in home
    repository_names = re.findall(r'class="md-source__repository">\s*(\S+)', home)
    assert ("detaug" in repository_names) == bool(address)
    assert "javascripts/iframe-worker.js" in home, "search works from the file system"
    assert not re.search(r'<(?:script|link|img)[^>]* (?:src|href)="https?:', home), "all is local"


def test_search_works_from_the_file_system(site: Callable[[str], Path]) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("needs chromium")
    address = f"file://{site(ADDRESS)}/index.html?q=replay"
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        "--virtual-time-budget=20000",
        address,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert re.search(r"\d+ matching documents", done.stdout)
