"""Every console line of README and docs runs, and every command that they name exists with its
options.
"""

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

from detaug.tools.cli import main
from tests.peers.examples.test_documentation import BLOCK, PAGES, REPOSITORY, blocks
from tests.support.preloaded import run_code

#: Console lines that other tests run, or that no test can run; all others run here.
ELSEWHERE = {
    "pip install": "an installation; .ci/run makes one",
    "pip wheel": "gigabytes of wheels",
    "nnUNetv2_train": "1000 epochs; tests/peers/nnunet/trainers/test_command_line.py runs it for "
    "two",
    "detaug nnunet verify": "tests/peers/nnunet/verification runs it on a data set of its own",
    "detaug diff RESULTS": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet export": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet demo": "tests/peers/nnunet/test_toy_training.py runs it",
    "python -m tests.stress": "tests/stress/test_short_form.py runs the short form",
    "detaug preview my_package": "its loader has no images here; "
    "tests/processes/cli/test_preview_command.py has one that has",
    "detaug preview --nnunet": "tests/peers/nnunet/test_preview.py runs it on a data set of its "
    "own",
    "detaug bench": "tests/processes/cli/test_bench_command.py runs it for less than a minute",
    "python -m benchmarks": "tests/processes/benchmarks runs it",
}


#: test_verify.py and test_demo_command.py have shorter runs of them.
SLOW = ("detaug verify", "detaug demo")


def console_lines() -> list[Any]:
    found = []
    for page in PAGES:
        for line, code in blocks(page, "bash", "console", "sh"):
            for offset, command in enumerate(code.splitlines()):
                is_command = command.strip() and not command.startswith("#")
                if is_command and not any(part in command for part in ELSEWHERE):
                    is_slow = any(part in command for part in SLOW) and "--against" not in command
                    marks = [pytest.mark.slow] if is_slow else []
                    found.append(
                        pytest.param(command, id=f"{page.name}:{line + offset}", marks=marks)
                    )
    return found


@pytest.fixture
def console(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A folder with the pipeline that the pages speak of, and an environment with `detaug` on the
    PATH.
    """
    script = tmp_path / ".venv" / "bin" / "detaug"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detaug "$@"\n')
    script.chmod(0o755)
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pipelines.py").write_text(
        "import numpy as np\n\nclass Loader:\n    def __next__(self):\n        return {'data': "
        "np.random.rand(3)}\n\n"
        "def make():\n    return Loader(), None\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{REPOSITORY}"}
    return tmp_path, {**environment, "PATH": f"{script.parent}{os.pathsep}{environment['PATH']}"}


def keep_ledgers(folder: Path, environment: dict[str, str]) -> None:
    """What a reader has of a run of theirs."""
    code = """
from detaug import DeterministicAugmenter
from my_package.pipelines import make
for name in ("run", "a", "b"):
    with DeterministicAugmenter(*make(), 0, seed=1234, batches_per_epoch=4, ledger=f"{name}.jsonl") as aug:
        list(aug)
"""
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
        code = "from detaug.tools.cli import main; main(prog_name='detaug')"
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
    known = {
        name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)
    }
    assert {word for word in words if word.startswith("-") and word != "-"} <= known | {"--help"}
