"""Every Python block of README and docs runs as it is written, in the order of its page."""

from __future__ import annotations

import ast
import os
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.support.preloaded import Preloaded, run_code

REPOSITORY = Path(__file__).parents[3]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """Return (first line in the page, code) of the page's blocks in these languages."""
    text = page.read_text(encoding="utf-8")
    matching = []
    for match in BLOCK.finditer(text):
        if match[1] in languages:
            line = text.count("\n", 0, match.start(2)) + 1
            matching.append((line, match[2]))
    return matching


#: Pages whose blocks take half a minute. Faster tests show the same: for nnunet.md those of
#: trainers in tests/peers/nnunet, for migrate.md test_migration_page.py, for training.md those in
#: tests/unit/training.
SLOW = {
    "verify.md",
    "nnunet.md",
    "migrate.md",
    "training.md",
}

#: Modules that a page's blocks need in addition.
NEEDS = {
    "nnunet.md": "nnunetv2",
    "own-transforms.md": "torchio",
    "cluster.md": "ray",
}


def program(page: Path) -> str:
    """Return all Python blocks of a page, on the lines that they have in the page.

    An error then names the page's line.
    """
    lines: list[str] = []
    for line, code in blocks(page, "python"):
        num_missing = line - 1 - len(lines)
        lines.extend([""] * num_missing)
        lines.extend(code.splitlines())
    return "\n".join(lines) + "\n"


def pages_with_python() -> list[Any]:
    """Return a parameter for every page that has Python blocks."""
    pages = []
    for page in PAGES:
        if blocks(page, "python"):
            marks = [pytest.mark.slow] if page.name in SLOW else []
            pages.append(pytest.param(page, id=str(page.relative_to(REPOSITORY)), marks=marks))
    return pages


@pytest.mark.parametrize("page", pages_with_python())
def test_python_blocks_of_a_page_run_as_pasted(
    page: Path, tmp_path: Path, interpreter: Preloaded
) -> None:
    pytest.importorskip(NEEDS.get(page.name, "nilearn"))
    script = tmp_path / "pasted.py"
    script.write_text(program(page), encoding="utf-8")
    done = run_code(
        script, folder=tmp_path, environment=os.environ, timeout=280, interpreter=interpreter
    )
    assert done.returncode == 0, done.stdout + done.stderr


SLOW_PAGES = [page for page in PAGES if page.name in SLOW]


@pytest.mark.parametrize("page", SLOW_PAGES, ids=[page.name for page in SLOW_PAGES])
def test_slow_pages_compile_and_what_they_import_of_detaug_is_there(page: Path) -> None:
    for node in ast.walk(ast.parse(program(page))):
        if not isinstance(node, ast.ImportFrom):
            continue
        module = node.module or ""
        if not module.startswith("detaug"):
            continue
        for alias in node.names:
            place = f"{page.name}:{node.lineno}: {alias.name}"
            assert hasattr(import_module(module), alias.name), place
