"""Every console line of README and docs runs.

Every command that they name exists with its options.
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

#: Parts of console lines that are not run here, and why: other tests run them, or no test can.
ELSEWHERE = {
    "pip install": "an installation; .ci/run makes one",
    "pip wheel": "gigabytes of wheels",
    "nnUNetv2_train": (
        "1000 epochs; tests/peers/nnunet/trainers/test_command_line.py runs it for two"
    ),
    "detaug nnunet verify": "tests/peers/nnunet/verification runs it on a data set of its own",
    "detaug diff RESULTS": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet export": "tests/peers/nnunet/trainers/test_results.py runs it",
    "detaug nnunet demo": "tests/peers/nnunet/test_toy_training.py runs it",
    "python -m tests.stress": "tests/stress/test_short_form.py runs the short form",
    "detaug preview my_package": (
        "its loader has no images here; that of tests/processes/cli/test_preview_command.py has"
    ),
    "detaug preview --nnunet": (
        "tests/peers/nnunet/test_preview.py runs it on a data set of its own"
    ),
    "detaug bench": "tests/processes/cli/test_bench_command.py runs it for less than a minute",
    "python -m benchmarks": "tests/processes/benchmarks runs it",
}
#: Slow, since test_verify.py and test_demo_command.py have shorter runs.
SLOW = ("detaug verify", "detaug demo")


def console_lines() -> list[Any]:
    """Return a parameter for every console line that is run here, with its place in the page."""
    lines = []
    for page in PAGES:
        for first_line, code in blocks(page, "bash", "console", "sh"):
            for line, command in enumerate(code.splitlines(), first_line):
                if not command.strip() or command.startswith("#"):
                    continue
                if any(part in command for part in ELSEWHERE):
                    continue
                is_slow = any(part in command for part in SLOW) and "--against" not in command
                marks = [pytest.mark.slow] if is_slow else []
                lines.append(pytest.param(command, id=f"{page.name}:{line}", marks=marks))
    return lines


#: What the pages call the reader's pipeline.
READERS_MODULE = """
import numpy as np

class Loader:
    def __next__(self):
        return {'data': np.random.rand(3)}

def make():
    return Loader(), None
"""


@pytest.fixture
def console(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """Return a folder with the reader's pipeline, and an environment with `detaug` on the PATH."""
    script = tmp_path / ".venv" / "bin" / "detaug"
    script.parent.mkdir(parents=True)
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m detaug "$@"\n')
    script.chmod(0o755)
    package = tmp_path / "my_package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "pipelines.py").write_text(READERS_MODULE)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(REPOSITORY)]),
        "PATH": os.pathsep.join([str(script.parent), os.environ["PATH"]]),
    }
    return tmp_path, environment


def keep_ledgers(folder: Path, environment: dict[str, str]) -> None:
    """Write the ledgers that a reader has of three runs."""
    code = """
from detaug import DeterministicAugmenter
from my_package.pipelines import make

for name in ("run", "a", "b"):
    loader, transform = make()
    with DeterministicAugmenter(
        loader, transform, 0, seed=1234, batches_per_epoch=4, ledger=f"{name}.jsonl"
    ) as aug:
        list(aug)
"""
    done = run_code(code, folder=folder, environment=environment)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", console_lines())
def test_console_line_runs(command: str, console: tuple[Path, dict[str, str]]) -> None:
    folder, environment = console
    if ".jsonl" in command:
        keep_ledgers(folder, environment)
    if needs_shell(command):
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    else:
        # What the script of the fixture does, in a fork: a new interpreter would import torch.
        code = "from detaug.tools.cli import main; main(prog_name='detaug')"
        _, *words = shlex.split(command, comments=True)
        done = run_code(code, *words, folder=folder, environment=environment, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr


def needs_shell(command: str) -> bool:
    """Return whether a console line is more than `detaug` with arguments."""
    if shlex.split(command, comments=True)[0] != "detaug":
        return True
    without_comment = command.partition("#")[0]
    return not set("|<>;&$`*?\\").isdisjoint(without_comment)


def commands_named() -> list[str]:
    """Return every command with its options, of blocks and of sentences."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    in_sentences = re.findall(r"`(detaug [a-z][^`]*)`", text)
    console = "\n".join(code for language, code in BLOCK.findall(text) if language == "bash")
    without_comments = re.sub(r"#.*", "", console)
    in_blocks = re.findall(r"\b(detaug [a-z][^#)\n]*)", without_comments)
    return sorted({" ".join(command.split()) for command in [*in_sentences, *in_blocks]})


@pytest.mark.parametrize("command", commands_named())
def test_commands_that_pages_name_exist_with_their_options(command: str) -> None:
    _, *words = command.split()
    named: click.Command = main
    while isinstance(named, click.Group) and words:
        name = words.pop(0)
        assert name in named.commands, f"there is no command {name!r}"
        named = named.commands[name]
    if named.context_settings.get("ignore_unknown_options"):
        # The other words are options of another program.
        return
    options = {"--help"}
    for parameter in named.params:
        options.update(parameter.opts, parameter.secondary_opts)
    for word in words:
        if word.startswith("-") and word != "-":
            assert word in options
