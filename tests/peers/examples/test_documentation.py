"""Every Python block of README and docs runs as it is written, in the order of its page, as its
reader would run it.
"""

from __future__ import annotations

import ast
import os
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.support.preloaded import Preloaded, run_code

REPOSITORY = Path(__file__).parents[3]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """(line, code) of the page's blocks in these languages."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if match[1] in languages]
    return [(text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]


#: Pages whose blocks take half a minute. Each has a quick test of the same: of nnunet.md those of
#: trainers in tests/peers/nnunet, of migrate.md test_migration_page.py, of training.md those in
#: tests/unit/training.
SLOW = {
    "verify.md",
    "nnunet.md",
    "migrate.md",
    "training.md",
}

#: Pages whose blocks need a package that not everybody has.
NEEDS = {
    "nnunet.md": "nnunetv2",
    "own-transforms.md": "torchio",
    "cluster.md": "ray",
}


def program(page: Path) -> str:
    """The page's Python, one block after the other, each line at its place in the page: lines of an
    error are the page's own.
    """
    lines: list[str] = []
    for line, code in blocks(page, "python"):
        lines += [""] * (line - 1 - len(lines)) + code.splitlines()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(
            page,
            id=str(page.relative_to(REPOSITORY)),
            marks=[pytest.mark.slow] if page.name in SLOW else [],
        )
        for page in PAGES
        if blocks(page, "python")
    ],
)
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


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name in SLOW], ids=lambda page: page.name
)
def test_slow_pages_compile_and_what_they_import_of_detaug_is_there(page: Path) -> None:
    for node in ast.walk(ast.parse(program(page))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("detaug"):
            for name in node.names:
                assert hasattr(import_module(str(node.module)), name.name), (
                    f"{page.name}:{node.lineno}: {name.name}"
                )
