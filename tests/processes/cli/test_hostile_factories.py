"""Every command that takes a factory, with factories that do what none should: status 1 is for
bytes that differ.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.tools.cli import main
from tests.support import hostile
from tests.support.ledgers.runs import run
from tests.support.preloaded import run_code
from tests.support.processes import environment_of_a_script

COMMANDS = {
    "verify": "verify {target} --batches 2 --processes 1 --start-method fork",
    "preview": "preview {target} --samples 1 -o found.png",
    "bench": "bench {target} --processes 1 --seconds 0.1 -o found.png",
    "against": "verify {target} --against run.jsonl --batches 2",
}
PROGRAM = "from detaug.tools.cli import main; main(prog_name='detaug')"


def arguments(command: str, target: str) -> list[str]:
    return COMMANDS[command].format(target=target).split()


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    run(folder / "run.jsonl", 4, loader=hostile.Loader())
    return folder


@pytest.fixture
def folder(kept: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for file in kept.glob("found.*"):
        file.unlink()
    monkeypatch.chdir(kept)
    return kept


#: Whatever is wrong, by the command that costs the least; and one of them by all commands.
UNUSABLE = [
    *(("against", name) for name in hostile.UNUSABLE),
    *((command, "raises") for command in COMMANDS),
]


@pytest.mark.parametrize(("command", "name"), UNUSABLE)
def test_unusable_factory_is_one_message_and_status_2(
    command: str, name: str, folder: Path
) -> None:
    done = CliRunner().invoke(main, arguments(command, f"tests.support.hostile:{name}"))
    assert done.exit_code == 2, done.output
    last = done.stderr.splitlines()[-1]
    assert last.startswith("Error: "), "one line for all of it"
    assert hostile.UNUSABLE[name][1] in last
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("1 / 0", "user.py, when it is imported, raises ZeroDivisionError: division by zero ("),
        ("def make(:", "user.py, when it is imported, raises "),
        ("import sys; sys.exit(3)", "user.py, when it is imported, ends the program: sys.exit(3)"),
        ("import os; os.chdir('/'); raise OSError('gone')", "raises OSError: gone"),
        ("make = 3", "user.py:make is not callable: it is 3"),
    ],
)
def test_unusable_module_is_one_message_and_status_2(code: str, said: str, folder: Path) -> None:
    (folder / "user.py").write_text(code)
    done = CliRunner().invoke(main, arguments("against", "user.py:make"))
    assert done.exit_code == 2, done.output
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.output


@pytest.mark.parametrize("command", COMMANDS)
def test_interrupt_within_a_factory_is_no_difference(command: str, folder: Path) -> None:
    done = CliRunner().invoke(main, arguments(command, "tests.support.hostile:interrupts"))
    assert done.exit_code == (2 if command == "bench" else 130), done.output
    assert "interrupted" in done.stderr
    assert "Traceback" not in done.output


@pytest.mark.parametrize("name", hostile.ODD)
def test_odd_factory_gives_its_result(name: str, folder: Path) -> None:
    words = arguments("against", f"tests.support.hostile:{name}")
    done = run_code(PROGRAM, *words, folder=folder, environment=environment_of_a_script())
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout.endswith("2 of 2 batches are equal\n")
