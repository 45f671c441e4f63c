"""What holds for every command: interrupts, `--json`, progress, and lines that are not broken in files."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.live import Live

from detaug.cli import main
from detaug.cli.options import Commands, json_option
from detaug.reports.progress import progress
from tests.support.ledgers.runs import run
from tests.support.preloaded import run_code
from tests.support.processes import heed_interrupts

REPOSITORY = Path(__file__).parents[3]
QUICK = ("--batches", "3", "--processes", "2", "--start-method", "fork", "--hash-seeds", "")
DETAUG = (sys.executable, "-m", "detaug")
ENVIRONMENT = {**{k: v for k, v in os.environ.items() if k != "COLUMNS"}, "PYTHONPATH": str(REPOSITORY)}


def detaug(*arguments: str, folder: Path = REPOSITORY) -> subprocess.CompletedProcess[str]:
    code = "from detaug.cli import main; main(prog_name='detaug')"
    return run_code(code, *arguments, folder=folder, environment=ENVIRONMENT)


def test_python_m_detaug_is_the_command_line() -> None:
    done = subprocess.run([*DETAUG, "--help"], capture_output=True, text=True, check=False, env=ENVIRONMENT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Usage: detaug [OPTIONS] COMMAND")


def test_ctrl_c_ends_a_command_with_130_and_one_line() -> None:
    process = subprocess.Popen(
        [*DETAUG, "verify", "tests.processes.verify.sleeping:make"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env=ENVIRONMENT,
        preexec_fn=heed_interrupts,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("verify: ")
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize("more", [(), ("--json", "-")], ids=["text", "json"])
def test_a_reader_that_goes_away_is_no_difference(tmp_path: Path, more: tuple[str, ...]) -> None:
    ledger = run(tmp_path / "run.jsonl", 2)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*DETAUG, "diff", str(ledger), str(ledger), *more],
        stdout=writer, stderr=subprocess.PIPE, text=True, check=False, env=ENVIRONMENT,
    )  # fmt: skip
    os.close(writer)
    assert done.returncode == 141, "and not 1, which would mean that they differ"
    assert "Error" not in done.stderr


@click.group(cls=Commands)
def outer() -> None: ...


@outer.group()
def inner() -> None: ...


@inner.command()
def stopped() -> None:
    raise KeyboardInterrupt


def test_ctrl_c_in_a_command_of_a_group_within_a_group_ends_with_130() -> None:
    done = CliRunner().invoke(outer, ["inner", "stopped"])
    assert (done.exit_code, done.output) == (130, "interrupted\n")


@click.command()
@json_option
def prints(json_target: object) -> None:
    json_target.console().print("for people", "x" * 150)  # type: ignore[attr-defined]
    json_target.write({"found": 1})  # type: ignore[attr-defined]


def test_json_to_a_file_leaves_stdout_to_people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    done = CliRunner().invoke(prints, ["--json", str(tmp_path / "found.json")])
    assert json.loads((tmp_path / "found.json").read_text()) == {"found": 1}
    assert done.stdout == "for people " + "x" * 150 + "\n"


def test_json_to_a_minus_leaves_stdout_to_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(prints, ["--json", "-"])
    assert json.loads(done.stdout) == {"found": 1}
    assert done.stderr.startswith("for people")
    assert not list(tmp_path.iterdir())


def test_width_of_a_file_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, CliRunner().invoke(prints).stdout.splitlines())) == 60


def no_room_for_files() -> None:
    """Files can be made and not filled, as on a disk that is full."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def test_full_disk_is_found_before_the_work(tmp_path: Path) -> None:
    done = subprocess.run(
        [*DETAUG, "verify", "nowhere:make", "--json", str(tmp_path / "found.json")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**ENVIRONMENT, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=no_room_for_files,
    )
    assert done.returncode == 2, done.stderr
    assert f"cannot write '{tmp_path / 'found.json'}': File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_disk_that_is_full_by_the_end_is_one_line_and_status_2() -> None:
    done = CliRunner().invoke(prints, ["--json", "/dev/full"])
    assert done.exit_code == 2
    assert done.stderr == "Error: cannot write '/dev/full': No space left on device\n"
    assert not Path("/dev/full").is_file()


@pytest.mark.parametrize("command", [["demo"], ["verify", "a:b"], ["nnunet", "verify", "1", "3d_fullres"]])
def test_file_in_no_folder_is_refused_before_the_work(command: list[str]) -> None:
    done = CliRunner().invoke(main, [*command, "--json", "nowhere/found.json"])
    assert done.exit_code == 2
    assert "the folder 'nowhere' does not exist" in done.output


def test_verify_in_a_pipe_tells_its_rows_on_stderr_and_keeps_each_cause_on_a_line() -> None:
    done = detaug("verify", "tests.processes.verify.pipelines:default_rng", *QUICK, "--json", "-")
    assert done.returncode == 1, done.stderr
    lines = done.stderr.splitlines()
    told = [line for line in lines if line.startswith("verify: ")]
    assert any("2 processes, fork" in line for line in told)
    assert json.loads(done.stdout)["ok"] is False
    cause = next(line for line in lines if line.startswith("cause: "))
    assert len(cause) > 120
    assert "tests/processes/verify/pipelines.py:" in cause


def test_work_within_work_shares_the_bar_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # stderr counts as a terminal
    with progress("outer", 2) as outer:
        with progress("inner", 1) as inner:
            inner.advance()
            assert type(inner) is type(outer)
        outer.advance()
    with progress("next", 1) as after:
        after.advance()


def test_bar_of_the_program_itself_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Live("the program's own", console=Console(stderr=True)), progress("work", 1) as shown:
        shown.update("begun")
    assert "begun" in capsys.readouterr().err


def test_progress_in_a_log_is_a_line_for_whatever_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("work", 3) as shown:
        for name in "abc":
            shown.update(name)
            shown.advance()
    assert capsys.readouterr().err.splitlines() == [f"work: {i}/3, 0 s: {name}" for i, name in enumerate("abc")]


def _seed_options(command: click.Command, name: str = "detaug") -> list[tuple[str, click.Parameter]]:
    if isinstance(command, click.Group):
        return [found for key, each in command.commands.items() for found in _seed_options(each, f"{name} {key}")]
    return [(name, option) for option in command.params if option.name == "seed"]


@pytest.mark.parametrize(("name", "option"), _seed_options(main), ids=lambda value: value if type(value) is str else "")
def test_every_command_takes_the_seeds_that_python_takes(name: str, option: click.Parameter) -> None:
    for text, seed in (("0", 0), (str(2**70), 2**70), ("1,2", [1, 2]), ("7,", [7])):
        assert option.type_cast_value(click.Context(main), text) == seed
    for text in ("-1", "1.5", "a", "1,,2", ""):
        with pytest.raises(click.BadParameter, match="non-negative integer"):
            option.type_cast_value(click.Context(main), text)
    assert {each for each, _ in _seed_options(main)} >= {"detaug verify", "detaug nnunet verify", "detaug nnunet demo"}
