"""`detaug replay`: what one batch of a ledger went through."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detaug import fingerprint
from detaug.cli import main
from detaug.ledger.lines import prints_of
from detaug.ledger.reading import read_header
from detaug.remaking.pipelines import remaker_of
from detaug.remaking.replaying import watched
from detaug.versions import NUMERICS
from tests.support.ledgers import pipelines
from tests.support.ledgers.runs import lines, rewritten, run
from tests.support.preloaded import run_code

PIPELINES = "tests.support.ledgers.pipelines"


def replay(ledger: Path, epoch: int = 1, step: int = 2) -> Result:
    arguments = ["replay", ledger, f"{PIPELINES}:native", "--epoch", epoch, "--step", step]
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    loader, transform = pipelines.native()
    return run(
        tmp_path_factory.mktemp("kept") / "native.jsonl", 8, loader=loader, transform=transform
    )


def test_every_transforms_params_and_the_fingerprint_behind_it_are_shown(kept: Path) -> None:
    done = replay(kept)
    assert done.exit_code == 0, done.output
    assert done.output.count("sample ") == 2
    assert re.search(
        r"^  [0-9a-f]{12}  (Mirror: axes=\[|InvertImage: apply=True)", done.output, re.M
    )
    (line,) = (each for each in lines(kept) if (each.get("epoch"), each.get("step")) == (1, 2))
    assert f"epoch 1, step 2: {line['whole']}\n  'data': {line['keys']['data']}\n" in done.output
    assert done.output.endswith("as the ledger has it\n")


def test_watching_changes_nothing_and_the_last_fingerprint_is_that_of_the_sample(
    kept: Path,
) -> None:
    remaker = remaker_of(pipelines.native, read_header(kept))
    plain = remaker.make(1, 2)
    batch, stages = watched(remaker, 1, 2)
    assert fingerprint(batch) == fingerprint(plain)
    for sample in (0, 1):
        last = [stage for stage in stages if stage.sample == sample][-1]
        arrays = {"image": batch["data"][sample], "segmentation": batch["seg"][sample]}
        assert last.fingerprint == prints_of(arrays)[0]


def test_a_batch_that_differs_exits_with_1_and_names_its_keys(kept: Path, tmp_path: Path) -> None:
    def change(found: list[dict[str, Any]]) -> None:
        next(each for each in found if (each.get("epoch"), each.get("step")) == (1, 2))["keys"][
            "seg"
        ] = "0" * 32

    done = replay(rewritten(kept, tmp_path / "run.jsonl", change))
    assert done.exit_code == 1
    assert "not as the ledger has it: it differs in 'seg'" in done.output


def test_a_batch_that_the_ledger_does_not_have_exits_with_2(kept: Path) -> None:
    done = replay(kept, step=9)
    assert done.exit_code == 2, done.output
    assert "has no batch of epoch 1, step 9; its last is epoch 1, step 3" in done.output


def test_other_numerics_are_refused(kept: Path, tmp_path: Path) -> None:
    other = rewritten(kept, tmp_path / "run.jsonl", lambda found: found[0].update(numerics=1))
    assert f"numerics version: the ledger has 1, this detaug has {NUMERICS}" in replay(other).output


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
    monkeypatch.syspath_prepend(tmp_path)
    made: list[Any] = ["replay", tmp_path / "run.jsonl", "--epoch", 0, "--step", 1]
    for factory, code, text in (
        ("make", 0, "as the ledger has it\n"),
        ("longer", 2, "size: here 4, in the ledger 3\n"),
    ):
        found = CliRunner().invoke(
            main, [str(each) for each in (*made, f"script_that_trains:{factory}")]
        )
        assert (found.exit_code, found.output.endswith(text)) == (code, True), found.output
