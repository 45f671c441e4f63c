"""`detaug diff`: where two runs begin to differ."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detaug.ledger.comparing import compare
from detaug.ledger.lines import encoded
from detaug.tools.cli import main
from tests.support.ledgers.runs import Draws, augmenter, lines, rewritten, run, take


def diff(a: Path, b: Path) -> Result:
    return CliRunner().invoke(main, ["diff", str(a), str(b)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("kept") / "a.jsonl")


def test_equal_runs_are_equal_with_any_workers_and_interruption(kept: Path, tmp_path: Path) -> None:
    with augmenter(tmp_path / "b.jsonl", 2) as made:
        take(made, 6)
        made.set_epoch(0)
        take(made, 12)
    done = diff(kept, tmp_path / "b.jsonl")
    assert (done.exit_code, done.output) == (0, "equal: all 12 batches\n")


def test_the_first_difference_is_named_with_its_keys_and_how_many_follow(
    kept: Path, tmp_path: Path
) -> None:
    class Odd(Draws):
        def generate_train_batch(self) -> dict[str, Any]:
            batch = super().generate_train_batch()
            if batch["at"] >= (1, 2) and batch["at"] != (2, 0):
                batch["data"] = batch["data"] + 1
            return batch

    Odd.__module__, Odd.__qualname__ = Draws.__module__, Draws.__qualname__
    other = run(tmp_path / "b.jsonl", loader=Odd())
    done = diff(kept, other)
    assert done.exit_code == 1
    assert "epoch 1, step 2 is the first batch that differs, in 'data'" in done.output
    assert "equal: 7; different: 5; only in a: 0; only in b: 0" in done.output
    assert "the headers do not differ: the pipeline itself may not be deterministic" in done.output


def elsewhere(found: list[dict[str, Any]]) -> None:
    found[0]["environment"]["cpu"]["model"] = "Another CPU"


def test_what_differs_in_the_headers_is_named_the_most_likely_cause_first(
    kept: Path, tmp_path: Path
) -> None:
    other = rewritten(
        run(tmp_path / "b.jsonl", seed=2, loader=Draws(2.0)),
        tmp_path / "c.jsonl",
        elsewhere,
        fitting=True,
    )
    done = diff(kept, other)
    named = [
        "epoch 0, step 0 is the first",
        "seed: 1 in a, 2 in b",
        "pipeline: data_loader.scale: 1.0 in a, 2.0 in b",
        "cpu.model: ",
    ]
    places = [done.output.find(each) for each in named]
    assert -1 not in places, done.output
    assert places == sorted(places)


def test_headers_that_changed_nothing_are_no_difference(kept: Path, tmp_path: Path) -> None:
    done = diff(kept, rewritten(kept, tmp_path / "b.jsonl", elsewhere))
    assert done.exit_code == 0
    assert (
        "equal: all 12 batches\nwhat differs in the headers has changed no batch:\n  cpu.model:"
        in done.output
    )


@pytest.mark.parametrize(("a", "b", "where"), [(12, 9, "a"), (9, 12, "b")])
def test_a_shorter_run_is_equal_as_far_as_it_goes(
    tmp_path: Path, a: int, b: int, where: str
) -> None:
    done = diff(run(tmp_path / "a.jsonl", a), run(tmp_path / "b.jsonl", b))
    assert done.exit_code == 1
    assert "epoch 2, step 1 is the first batch that is only in " in done.output
    assert f"only in {where}: 3" in done.output
    assert "whatever both have is equal: one run ended earlier" in done.output
    assert "may not be deterministic" not in done.output


@pytest.mark.slow
def test_two_runs_of_250_000_batches_are_compared_in_bounded_memory(
    kept: Path, tmp_path: Path
) -> None:
    """As many batches as a training of nnU-Net's has; the last one differs."""
    header, first = lines(kept)[:2]
    for name, last in (("a", first["whole"]), ("b", "0" * 32)):
        with (tmp_path / name).open("wb") as file:
            file.write(encoded(header))
            for number in range(249_999):
                file.write(encoded({**first, "epoch": number // 250, "step": number % 250}))
            file.write(encoded({**first, "epoch": 999, "step": 249, "whole": last}))
    tracemalloc.start()
    try:
        found = compare(tmp_path / "a", tmp_path / "b")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert found.counts == {"equal": 249_999, "different": 1}
