"""Every code block of README and docs runs as it is written, in the order of its page, as its reader would run it."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from detaug.cli import main
from tests.support.preloaded import run_code

REPOSITORY = Path(__file__).parents[3]
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

#: Console lines that other tests run, or that no test can run; all others run here.
ELSEWHERE = {
    "pip install": "an installation; .ci/run makes one",
    "nnUNetv2_train": "1000 epochs; tests/peers/nnunet/trainers/test_command_line.py runs it for two",
    "detaug nnunet verify": "tests/peers/nnunet/verification runs it on a data set of its own",
    "detaug diff RESULTS": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet export": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet demo": "tests/peers/nnunet/test_toy_training.py runs it",
    "python -m tests.stress": "tests/stress/test_short_form.py runs the short form",
    "detaug preview my_package": "its loader has no images here; tests/processes/cli/test_preview_command.py has one that has",
    "detaug preview --nnunet": "tests/peers/nnunet/test_preview.py runs it on a data set of its own",
    "detaug bench": "tests/processes/cli/test_bench_command.py runs it for less than a minute",
    "python -m benchmarks": "tests/processes/benchmarks runs it",
}


def blocks(page: Path, *languages: str) -> list[tuple[int, str]]:
    """(line, code) of the page's blocks in these languages."""
    text = page.read_text(encoding="utf-8")
    found = [match for match in BLOCK.finditer(text) if match[1] in languages]
    return [(text.count("\n", 0, match.start(2)) + 1, match[2]) for match in found]


#: Pages whose blocks take half a minute.
SLOW = {"verify.md", "loader.md"}

#: Pages whose blocks need a package that not everybody has.
NEEDS = {
    "elsewhere.md": "torchio",
    "nnunet.md": "nnunetv2",
    "loader.md": "nnunetv2",
    "own-transforms.md": "batchgeneratorsv2",
    "cluster.md": "ray",
}


def program(page: Path) -> str:
    """The page's Python, one block after the other, each line at its place in the page: lines of an error are the page's own."""
    lines: list[str] = []
    for line, code in blocks(page, "python"):
        lines += [""] * (line - 1 - len(lines)) + code.splitlines()
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(REPOSITORY)), marks=[pytest.mark.slow] if page.name in SLOW else [])
        for page in PAGES
        if blocks(page, "python")
    ],
)
def test_python_blocks_of_a_page_run_as_pasted(page: Path, tmp_path: Path) -> None:
    pytest.importorskip(NEEDS.get(page.name, "nilearn"))
    script = tmp_path / "pasted.py"
    script.write_text(program(page), encoding="utf-8")
    done = run_code(script, folder=tmp_path, environment=os.environ, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


def console_lines() -> list[Any]:
    found = []
    for page in PAGES:
        for line, code in blocks(page, "bash", "console", "sh"):
            for offset, command in enumerate(code.splitlines()):
                if command.strip() and not any(part in command for part in ELSEWHERE):
                    marks = [pytest.mark.slow] if "detaug verify" in command else []
                    found.append(pytest.param(command, id=f"{page.name}:{line + offset}", marks=marks))
    return found


@pytest.fixture
def console(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the pipeline that the pages speak of, and an environment with `detaug` on the PATH."""
    script = tmp_path / ".venv" / "bin" / "detaug"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detaug "$@"\n')
    script.chmod(0o755)
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pipelines.py").write_text(
        "import numpy as np\n\nclass Loader:\n    def __next__(self):\n        return {'data': np.random.rand(3)}\n\n"
        "def make():\n    return Loader(), None\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    return tmp_path, {**environment, "PATH": f"{script.parent}{os.pathsep}{environment['PATH']}"}


def test_the_training_page_has_the_three_lines_first_and_the_comparison_last() -> None:
    text = (REPOSITORY / "docs" / "training.md").read_text(encoding="utf-8")
    parts = [
        "seed = seed_everything(1234, deterministic=True)",
        "make_deterministic(model)",
        '"optimizer": optimizer.state_dict()',
        "set_rng_state(checkpoint",
        "**Promised**",
        "**Not promised**",
        "**Costs**",
        "## One page per task",
        *(
            "(training-seed.md)",
            "(training-resume.md)",
            "(training-publish.md)",
            "(training-find.md)",
            "(training-gpu.md)",
        ),
        "## Side by side",
        "| what | MMEngine |",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)
    assert text[: places[0]].count("\n") < 12
    assert not re.search(r"^#", text[places[-1] :], re.MULTILINE)
    assert all((REPOSITORY / "docs" / name).exists() for name in re.findall(r"\((training-\w+\.md)\)", text))


def keep_ledgers(folder: Path, environment: dict[str, str]) -> None:
    """What a reader has of a run of theirs."""
    code = """
from detaug import DeterministicAugmenter
from my_package.pipelines import make
for name in ("run", "a", "b"):
    with DeterministicAugmenter(*make(), 0, seed=1234, batches_per_epoch=4, ledger=f"{name}.jsonl") as aug:
        list(aug)
from detaug.cli import main
main(["receipt", "run.jsonl", "-o", "receipt.json"])
"""
    (folder / "checkpoint_final.pth").write_bytes(b"weights")
    done = run_code(code, folder=folder, environment=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", console_lines())
def test_console_line_runs(command: str, console: tuple[Path, dict[str, str]]) -> None:
    folder, environment = console
    if ".jsonl" in command:
        keep_ledgers(folder, environment)
    words = shlex.split(command, comments=True)
    if words[0] == "detaug" and not set(command.partition("#")[0]) & set("|<>;&$`*?\\"):
        # what the script above does, without an interpreter of its own to import torch
        code = "from detaug.cli import main; main(prog_name='detaug')"
        done = run_code(code, *words[1:], folder=folder, environment=environment, timeout=280)
    else:
        done = subprocess.run(
            ["bash", "-euc", command], cwd=folder, env=environment, capture_output=True, text=True, timeout=280,
            check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def commands_named() -> list[str]:
    """Every command with its options, in blocks and in sentences."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    quoted = re.findall(r"`(detaug [a-z][^`]*)`", text)
    console = "\n".join(code for language, code in BLOCK.findall(text) if language == "bash")
    code = re.findall(r"\b(detaug [a-z][^#)\n]*)", re.sub(r"#.*", "", console))
    return sorted({" ".join(each.split()) for each in (*quoted, *code)})


@pytest.mark.parametrize("command", commands_named())
def test_commands_that_pages_name_exist_with_their_options(command: str) -> None:
    words = command.split()[1:]
    found: click.Command = main
    while isinstance(found, click.Group) and words:
        name = words.pop(0)
        assert name in found.commands, f"there is no command {name!r}"
        found = found.commands[name]
    if found.context_settings.get("ignore_unknown_options"):
        return  # the rest are another program's
    known = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert {word for word in words if word.startswith("-") and word != "-"} <= known | {"--help"}
