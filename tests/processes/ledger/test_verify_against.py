"""`detaug verify --against`: batches of a recorded run made again, and compared with its ledger."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detaug import Check, Skip
from detaug.ledger.lines import encoded
from detaug.ledger.reading import read_header
from detaug.tools.cli import main
from detaug.verification.replay import spread
from detaug.versions import NUMERICS, SEED_SCHEME
from tests.support.ledgers import pipelines
from tests.support.ledgers.pipelines import Sums
from tests.support.ledgers.runs import digest, lines, rewritten, run
from tests.support.preloaded import run_code

PIPELINES = "tests.support.ledgers.pipelines"


def verify(ledger: Path, factory: str = "plain", *options: Any) -> Result:
    words = ["verify", f"{PIPELINES}:{factory}", "--against", ledger, *options]
    return CliRunner().invoke(main, [str(word) for word in words], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of three epochs of four batches."""
    return run(tmp_path_factory.mktemp("kept") / "run.jsonl")


# --- equal


@pytest.mark.parametrize("factory", ["plain", "as_augmenter"])
def test_a_run_that_is_made_again_is_equal(kept: Path, factory: str) -> None:
    done = verify(kept, factory)
    assert done.exit_code == 0, done.output
    assert f"12 batches of 3 whole epochs, digest {digest(kept)}\n" in done.output
    assert done.output.endswith("12 of 12 batches are equal\n")


def test_twenty_batches_are_made_again_unless_told_otherwise(tmp_path: Path) -> None:
    """Of streams that keep state too, which are walked through once."""
    options: dict[str, Any] = {"loader": Sums(), "num_streams": 2, "batches_per_epoch": 20}
    ledger = run(tmp_path / "run.jsonl", 60, name="train/a", **options)
    assert "20 of 20 batches are equal" in verify(ledger, "sums").output
    assert "5 of 5 batches are equal" in verify(ledger, "sums", "--batches", 5).output


@pytest.mark.parametrize(
    ("total", "number", "indices"),
    [
        (3, 20, [0, 1, 2]),
        (10, 4, [0, 3, 6, 9]),
        (11, 2, [0, 10]),
        (5, 1, [0]),
        (250_000, 3, [0, 124_999, 249_999]),
    ],
)
def test_batches_are_spread_from_the_first_to_the_last(
    total: int, number: int, indices: list[int]
) -> None:
    assert spread(total, number) == indices


def test_a_ledger_that_ends_in_mid_epoch_or_leaves_steps_out_is_compared(tmp_path: Path) -> None:
    ledger = run(tmp_path / "run.jsonl", 6, loader=pipelines.Draws(fails_at=(1,)), on_error=Skip())
    done = verify(ledger, "failing")
    assert done.exit_code == 0, done.output
    assert "6 of 6 batches are equal" in done.output


def test_keys_that_the_ledger_leaves_out_are_said(tmp_path: Path) -> None:
    ledger = run(tmp_path / "run.jsonl", check=Check(every=0, ignore=("at",)))
    done = verify(ledger)
    assert done.exit_code == 0, done.output
    assert "the ledger has no fingerprints of 'at'" in done.output


def test_another_machine_that_makes_equal_batches_is_no_difference(
    kept: Path, tmp_path: Path
) -> None:
    def elsewhere(found: list[dict[str, Any]]) -> None:
        found[0]["environment"]["cpu"]["model"] = "Another CPU"

    done = verify(rewritten(kept, tmp_path / "run.jsonl", elsewhere))
    assert (done.exit_code, "Another CPU" in done.output) == (0, False), done.output


# --- different


def test_a_batch_that_differs_is_named_with_its_keys(kept: Path, tmp_path: Path) -> None:
    def change(found: list[dict[str, Any]]) -> None:
        batches = [line for line in found if (line.get("epoch"), line.get("step")) == (1, 2)]
        batches[0]["keys"]["data"] = "0" * 32

    ledger = rewritten(kept, tmp_path / "run.jsonl", change, fitting=True)
    done = verify(ledger, "plain", "--json", tmp_path / "found.json")
    assert done.exit_code == 1
    assert "epoch 1, step 2 differs in 'data'\n11 of 12 batches are equal\n" in done.output
    found = json.loads((tmp_path / "found.json").read_text())
    assert (found["ok"], found["compared"]) == (False, 12)
    assert found["different"] == [{"epoch": 1, "step": 2, "keys": ["data"]}]


def test_changed_data_are_named_by_key(kept: Path) -> None:
    done = verify(kept, "changed_data")
    assert done.exit_code == 1
    assert done.output.count("differs in 'data'") == 8
    assert "and 4 batches more\n0 of 12 batches are equal" in done.output
    assert "data or code behind the same names changed" in done.output


def test_declared_parameters_and_versions_that_differ_are_named(kept: Path, tmp_path: Path) -> None:
    def earlier(found: list[dict[str, Any]]) -> None:
        found[0]["environment"]["cpu"]["model"] = "Another CPU"
        found[0]["environment"]["packages"]["numpy"] = "1.0"
        found[0]["environment"]["kernel_cache"]["compiled"] = 7

    done = verify(rewritten(kept, tmp_path / "run.jsonl", earlier), "another")
    assert done.exit_code == 1
    scale = "pipeline: data_loader.scale: 1.0 in the ledger, 2.0 here"
    numpy = "packages.numpy: 1.0 in the ledger"
    cpu = "cpu.model: Another CPU in the ledger"
    places = [done.output.find(text) for text in (scale, numpy, cpu)]
    assert -1 not in places, done.output
    assert places == sorted(places), "the most likely cause first"
    assert "kernel_cache" not in done.output, "it changes from one minute to the next"


# --- what cannot be compared


def test_a_pipeline_whose_data_are_gone_exits_with_2(kept: Path) -> None:
    done = verify(kept, "lost_data")
    assert done.exit_code == 2, done.output
    assert (
        "epoch 0, step 0 cannot be made here: FileNotFoundError: [Errno 2] No such file or "
        "directory: 'case_07.b2nd'" in done.output
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"numerics": 1}, f"numerics version: the ledger has 1, this detaug has {NUMERICS}"),
        ({"seed_scheme": 1}, f"seed scheme: the ledger has 1, this detaug has {SEED_SCHEME}"),
        ({"num_streams": 0}, "no augmenter can be made from the ledger's header"),
        ({"what": "something else"}, "is no ledger"),
    ],
)
def test_a_ledger_that_cannot_be_made_again_here_exits_with_2(
    kept: Path, tmp_path: Path, changes: dict[str, Any], why: str
) -> None:
    done = verify(
        rewritten(
            kept, tmp_path / "run.jsonl", lambda found: found[0].update(changes), fitting=True
        )
    )
    assert (done.exit_code, why in done.output) == (2, True), done.output


def test_a_step_that_the_pipeline_does_not_have_exits_with_2(kept: Path, tmp_path: Path) -> None:
    ledger = run(tmp_path / "run.jsonl", 4, loader=lambda: iter(range(9)), num_streams=1)
    done = verify(ledger, "three_batches")
    assert (done.exit_code, "epoch 0 has no step 3 here" in done.output) == (2, True), done.output


def test_a_ledger_without_a_batch_exits_with_2(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(encoded(lines(kept)[0]))
    done = verify(tmp_path / "run.jsonl")
    assert (done.exit_code, "has no batch" in done.output) == (2, True), done.output


@pytest.mark.parametrize("command", ["verify", "diff"])
def test_foreign_and_absent_files_exit_with_2(kept: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "foreign.csv").write_text("a,b\n1,2\n")
    for name in ("foreign.csv", "none.jsonl"):
        ledger = tmp_path / name
        words = ["diff", str(ledger), str(kept)]
        done = verify(ledger) if command == "verify" else CliRunner().invoke(main, words)
        assert (done.exit_code, name in done.output) == (2, True), done.output
    assert (tmp_path / "foreign.csv").read_text() == "a,b\n1,2\n"


@pytest.mark.parametrize("option", [("--seed", 0), ("--processes", 1), ("--start-method", "fork")])
def test_options_without_effect_are_refused(kept: Path, option: tuple[str, Any]) -> None:
    done = verify(kept, "plain", *option)
    assert done.exit_code == 2
    assert f"{option[0]} has no effect with --against" in " ".join(done.output.split())


# --- scripts

SCRIPT = """
import sys
import numpy as np
from detaug import DeterministicAugmenter, current

class Loader:
    def __init__(self, size):
        self.size = size
    def __iter__(self):
        return self
    def __next__(self):
        return {"data": current().generator.standard_normal(self.size)}

def make(size=3, **options):
    return DeterministicAugmenter(Loader(size), None, 0, seed=1, batches_per_epoch=4, stateless=True, **options)

def longer():
    return make(4)

if __name__ == "__main__":
    with make(ledger="run.jsonl") as augmenter:
        print(len(list(augmenter)))
"""


def test_a_training_that_was_run_as_a_script_is_imported_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "script_that_trains.py").write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = run_code(tmp_path / "script_that_trains.py", folder=tmp_path, environment=environment)
    assert done.stdout == "4\n", done.stderr
    assert "data_loader = __main__.Loader" in read_header(tmp_path / "run.jsonl")["declared"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for factory, text in (
        ("make", "4 of 4 batches are equal"),
        ("longer", "  pipeline: data_loader.size: 3 in the ledger, 4 here"),
    ):
        words = ["verify", f"script_that_trains:{factory}", "--against", "run.jsonl"]
        found = CliRunner().invoke(main, words)
        assert text in found.output.splitlines(), found.output
