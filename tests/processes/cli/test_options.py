"""What holds for every command: interrupts, `--json`, progress, and lines that are not broken in
files.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from detaug.system.progress import progress
from detaug.tools.cli import main
from tests.support.ledgers.runs import run
from tests.support.processes import heed_interrupts
from tests.support.waiting import PATIENCE, wait_for_line

REPOSITORY = Path(__file__).parents[3]
DETAUG = (sys.executable, "-m", "detaug")
ENVIRONMENT = {
    **{k: v for k, v in os.environ.items() if k != "COLUMNS"},
    "PYTHONPATH": str(REPOSITORY),
}


def test_ctrl_c_ends_a_command_with_130_and_one_line() -> None:
    process = subprocess.Popen(
        [*DETAUG, "verify", "tests.support.hostile:hangs"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        preexec_fn=heed_interrupts,
        start_new_session=True,
    )
    assert process.stderr is not None
    wait_for_line(process.stderr, "HANGING", "the pipeline hangs")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_a_reader_that_goes_away_is_no_difference(tmp_path: Path) -> None:
    ledger = run(tmp_path / "run.jsonl", 2)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*DETAUG, "diff", str(ledger), str(ledger)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env=ENVIRONMENT,
        timeout=PATIENCE,
    )
    os.close(writer)
    assert done.returncode == 141, "and not 1, which would mean that they differ"
    assert "Error" not in done.stderr


@pytest.mark.parametrize("command", [["bench"], ["verify", "a:b"]])
def test_file_in_no_folder_is_refused_before_the_work(command: list[str]) -> None:
    for file, message in (
        ("nowhere/found.json", "its folder does not exist"),
        ("/dev/null", "is no file"),
    ):
        done = CliRunner().invoke(main, [*command, "--json", file])
        assert done.exit_code == 2
        assert message in done.output
    assert not Path("/dev/null").is_file()


def test_work_within_work_shares_the_bar_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # stderr counts as a terminal
    with progress("outer", 2) as outer:
        with progress("inner", 1) as inner:
            inner.advance()
            assert type(inner) is type(outer)
        outer.advance()
    with progress("next", 1) as after:
        after.advance()


def test_progress_in_a_log_is_a_line_for_whatever_begins(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with progress("work", 3) as shown:
        for name in "abc":
            shown.update(name)
            shown.advance()
    assert capsys.readouterr().err.splitlines() == [
        f"work: {i}/3, 0 s: {name}" for i, name in enumerate("abc")
    ]


def _seed_options(
    command: click.Command, name: str = "detaug"
) -> list[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        return [
            found
            for key, each in command.commands.items()
            for found in _seed_options(each, f"{name} {key}")
        ]
    return [(name, option) for option in command.params if option.name == "seed"]


@pytest.mark.parametrize(
    ("name", "option"), _seed_options(main), ids=lambda value: value if type(value) is str else ""
)
def test_every_command_takes_the_seeds_that_python_takes(
    name: str, option: click.Parameter
) -> None:
    for text, seed in (("0", 0), (str(2**70), 2**70), ("1,2", [1, 2]), ("7,", [7])):
        assert option.type_cast_value(click.Context(main), text) == seed
    for text in ("-1", "1.5", "a", "1,,2", ""):
        with pytest.raises(click.BadParameter, match="non-negative integer"):
            option.type_cast_value(click.Context(main), text)
    assert {each for each, _ in _seed_options(main)} >= {"detaug verify", "detaug nnunet verify"}
