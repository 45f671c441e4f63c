"""The examples loop_*.py are short and do what docs/loops.md's table says of their libraries."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.peers.loops.pages import table_of
from tests.peers.loops.table import CLAIMS, EXAMPLES, FOLDER, Training, measure, steps, weights


@pytest.fixture(params=EXAMPLES)
def training(request: pytest.FixtureRequest) -> Iterator[Training]:
    """Return the training of each example whose library is installed."""
    library, _, _ = EXAMPLES[request.param].module.partition(".")
    if not (find_spec(library) and find_spec("nilearn")):
        pytest.skip(f"needs {library}, of the extra peers")
    example_training = Training.of(request.param)
    yield example_training
    example_training.close()


# Slow, since faster tests show the parts: test_*_loops.py resumes by each library's own means, and
# a test below kills a training of two ranks.
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_row_of_the_table(training: Training, tmp_path: Path) -> None:
    written = table_of(*CLAIMS)
    assert measure(training, tmp_path) == written[training.example.library]


@pytest.mark.slow
@pytest.mark.parametrize(
    "training", ["loop_accelerate.py", "loop_lightning.py", "loop_trainer.py"], indirect=True
)
def test_two_ranks_that_are_killed_go_on_to_the_same_weights(
    training: Training, tmp_path: Path
) -> None:
    whole = training.run(tmp_path / "whole", 2, num_ranks=2)
    assert weights(whole[0]) == weights(whole[1])
    training.run(tmp_path / "killed", 1, num_ranks=2, killed_at=5)
    resumed = training.run(tmp_path / "killed", 2, num_ranks=2)
    assert [steps(rank) for rank in resumed] == [steps(rank)[4:] for rank in whole]
    assert [weights(rank) for rank in resumed] == [weights(rank) for rank in whole]


@pytest.mark.parametrize("training", ["loop_ddp.py"], indirect=True)
def test_one_rank_goes_on_with_the_batches_and_to_the_weights_of_two(
    training: Training, tmp_path: Path
) -> None:
    (whole,) = training.run(tmp_path / "whole", 2)
    killed = training.run(tmp_path / "killed", 1, num_ranks=2, killed_at=5)
    assert [steps(rank) for rank in killed] == [steps(whole)[0:10:2], steps(whole)[1:10:2]]
    (resumed,) = training.run(tmp_path / "killed", 2)
    assert steps(resumed) == steps(whole)[8:]
    assert weights(resumed) == weights(whole)


def test_every_loop_is_in_the_table() -> None:
    programs = {path.name for path in FOLDER.glob("loop_*.py")}
    assert programs == set(EXAMPLES)
    libraries = {example.library for example in EXAMPLES.values()}
    assert set(table_of(*CLAIMS)) == libraries | {"Ray Train"}


@pytest.mark.parametrize("name", [*EXAMPLES, "torch_dataset.py"])
def test_an_example_has_at_most_forty_lines_and_knows_the_dataloader_alone(name: str) -> None:
    source = (FOLDER / name).read_text()
    assert lines_of_program(source) <= 40
    (statement,) = [
        node
        for node in ast.parse(source).body
        if isinstance(node, ast.ImportFrom) and node.module == "detaug"
    ]
    imported = {alias.name for alias in statement.names}
    assert {"DataLoader"} <= imported <= {"DataLoader", "current", "fingerprint"}


def lines_of_program(source: str) -> int:
    """Count the lines that are no comment, docstring or blank."""
    ignored = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and token.string.startswith('"""')
        if token.type not in ignored and not is_docstring and token.string:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines)
