"""What holds for every command: its help, its lines in a pipe, and a stdout without room."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from detaug.tools.cli import main
from tests.support.waiting import PATIENCE


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs Linux: a device without room is meant"
)
@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["nnunet", "path"]])
def test_a_stdout_without_room_is_one_message_and_status_2(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "detaug", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    assert (done.returncode, done.stderr) == (2, "Error: [Errno 28] No space left on device\n")


def _commands(group: click.Group, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield from (
            _commands(command, *path, name) if isinstance(command, click.Group) else [(*path, name)]
        )


@pytest.mark.parametrize("width", [60, 120])
@pytest.mark.parametrize(
    "path",
    [(), *_commands(main)],
    ids=" ".join,
)
def test_help_fits_the_terminal_and_shows_no_empty_default(
    path: tuple[str, ...], width: int
) -> None:
    result = CliRunner().invoke(main, [*path, "--help"], terminal_width=width)
    assert result.exit_code == 0, result.output
    assert "[default: none]" not in result.output.lower()
    assert '[default: ""]' not in result.output
    assert max(len(line) for line in result.output.splitlines()) <= width


@pytest.mark.parametrize("path", [("preview",), ("nnunet", "verify")], ids=" ".join)
def test_help_says_where_code_in_data_is_run(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert "runs code that is in them" in " ".join(result.output.split())


def test_the_commands_are_those_of_the_page() -> None:
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text(encoding="utf-8")
    shown = re.findall(r"`detaug ((?:nnunet )?[a-z]+)[^`]*`", re.sub(r"(?m)^(?!\| `).*", "", page))
    assert {" ".join(path) for path in _commands(main)} == set(shown)
