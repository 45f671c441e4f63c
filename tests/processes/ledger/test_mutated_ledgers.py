"""A ledger that a fault or somebody's hand has changed: every command that reads it says so in a
line, or gives its verdict.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.tools.cli import main
from tests.support.ledgers.runs import lines, run
from tests.support.mutations import ODD, check_ending, mutated_bytes, mutated_value

FACTORY = "tests.support.ledgers.pipelines:plain"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of two epochs and a batch."""
    return run(tmp_path_factory.mktemp("kept") / "run.jsonl", 9)


def _text(record: object) -> bytes:
    return json.dumps(record).encode() + b"\n"


def read_mutated(kept: Path, file: Path, command: str, seed: int) -> None:
    """Mutate a ledger and let a command read it."""
    draw = random.Random(f"{command}/{seed}")
    if draw.random() < 0.3:
        file.write_bytes(mutated_bytes(kept.read_bytes(), draw))
    else:
        records = lines(kept)
        number = draw.choice((0, 0, *range(len(records))))
        records[number] = mutated_value(records[number], draw)
        file.write_bytes(b"".join(map(_text, records)))
    words = ["diff", str(file), str(kept)]
    if command == "verify":
        words = ["verify", FACTORY, "--against", str(file), "--batches", "2"]
    check_ending(CliRunner().invoke(main, words))


@pytest.mark.parametrize(("command", "number"), [("diff", 200), ("verify", 60)])
def test_every_mutation_ends_with_a_verdict_or_a_line(
    kept: Path, tmp_path: Path, command: str, number: int
) -> None:
    for seed in range(number):
        read_mutated(kept, tmp_path / "mutated.jsonl", command, seed)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "number"), [("diff", 600), ("verify", 400)])
def test_a_thousand_mutations_end_with_a_verdict_or_a_line(
    kept: Path, tmp_path: Path, command: str, number: int
) -> None:
    for seed in range(1000, 1000 + number):
        read_mutated(kept, tmp_path / "mutated.jsonl", command, seed)


@pytest.mark.parametrize("odd", [text for text in ODD if isinstance(text, str)], ids=ascii)
def test_text_of_a_ledger_is_shown_escaped(kept: Path, tmp_path: Path, odd: str) -> None:
    """In values and names that both commands print: of the header, and of a batch's keys."""
    header, first = lines(kept)[:2]
    header["environment"]["cpu"] = {"model": odd, odd: 1}
    header["version"] = odd
    first["keys"] = {**first["keys"], odd: "0" * 32}
    file = tmp_path / "mutated.jsonl"
    file.write_bytes(b"".join(map(_text, (header, first))))
    for words in (
        ["diff", str(file), str(kept)],
        ["verify", FACTORY, "--against", str(file)],
    ):
        done = CliRunner().invoke(main, words)
        assert done.exit_code == 1, done.output
        check_ending(done)


@pytest.mark.parametrize("command", [["diff", "{}", "{}"], ["verify", FACTORY, "--against", "{}"]])
def test_devices_and_pipes_are_refused(tmp_path: Path, command: list[str]) -> None:
    os.mkfifo(tmp_path / "pipe")
    for file in ("/dev/zero", tmp_path / "pipe"):
        done = CliRunner().invoke(main, [word.format(file) for word in command])
        assert (done.exit_code, "is no regular file" in done.output) == (2, True), done.output


def test_a_line_without_an_end_is_refused_before_it_is_read(kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl"
    file.write_bytes(kept.read_bytes())
    with file.open("r+b") as opened:
        opened.truncate(1 << 32)  # a hole: it takes no room on the disk
    done = CliRunner().invoke(main, ["diff", str(file), str(kept)])
    assert done.exit_code == 2, done.output
    assert "it has a line of more than 64 MiB" in done.output
