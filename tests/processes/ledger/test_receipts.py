"""Receipts: what is in one, and how `detaug check` names everything that is wrong with a ledger."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detaug import Check, Skip, fingerprint
from detaug.cli import main
from detaug.ledger import receipt as receipts
from detaug.ledger.header import digest as digest_of
from detaug.ledger.lines import encoded
from detaug.versions import NUMERICS
from tests.support.ledgers import pipelines
from tests.support.ledgers.pipelines import Sums
from tests.support.ledgers.runs import digest, lines, rewritten, run

PIPELINES = "tests.support.ledgers.pipelines"


def detaug(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def receipt_of(ledger: Path, *more: Any) -> Path:
    file = ledger.with_name("receipt.json")
    done = detaug("receipt", ledger, "-o", file, *more)
    assert done.exit_code == 0, done.output
    return file


def check(file: Path, ledger: Path, factory: str = "plain", *more: Any) -> Result:
    return detaug("check", file, f"{PIPELINES}:{factory}", "--ledger", ledger, *more)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of three epochs, and its receipt beside it."""
    ledger = run(tmp_path_factory.mktemp("kept") / "run.jsonl")
    receipt_of(ledger)
    return ledger


# --- what a receipt is


def test_a_receipt_says_what_was_run_and_how_it_ends(tmp_path: Path) -> None:
    (tmp_path / "checkpoint_final.pth").write_bytes(b"weights")
    ledger = run(tmp_path / "run.jsonl")
    file = receipt_of(ledger, "--checkpoint", tmp_path / "checkpoint_final.pth")
    found = json.loads(file.read_text())
    assert file.stat().st_size <= 4000
    assert (found["seed"], found["batches"], found["epochs"], found["digest"]) == (
        1,
        12,
        3,
        digest(ledger),
    )
    assert found["pipeline"] == lines(ledger)[0]["pipeline"]
    assert (found["missing"], found["first"], found["last"]) == (0, [0, 0], [2, 3])
    assert {"detaug", "python", "torch", "numpy"} <= found["versions"].keys()
    assert found["checkpoints"] == {"checkpoint_final.pth": hashlib.sha256(b"weights").hexdigest()}
    assert (
        detaug("receipt", ledger).output
        == json.dumps({**found, "checkpoints": {}}, indent=1) + "\n"
    )


def test_receipts_need_no_nnunet(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"weights")
    without = "import sys; sys.modules['nnunetv2'] = None; from detaug.cli import main; main()"
    checkpoint, receipt = ["--checkpoint", tmp_path / "weights.pt"], tmp_path / "receipt.json"
    for command in (
        ["receipt", kept, *checkpoint, "-o", receipt],
        ["check", receipt, f"{PIPELINES}:plain", "--ledger", kept, *checkpoint, "--samples", "1"],
    ):
        done = subprocess.run(
            [sys.executable, "-c", without, *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_receipt_in_the_middle_of_an_epoch_is_checked(tmp_path: Path) -> None:
    ledger = run(tmp_path / "run.jsonl", 6)
    assert check(receipt_of(ledger), ledger).exit_code == 0


def test_what_is_tested_is_drawn_from_the_digest(kept: Path) -> None:
    head = digest(kept)
    numbers = receipts.drawn(head, 250_000, 20)
    assert numbers == receipts.drawn(head, 250_000, 20)
    assert len({*numbers}) == 20
    other = hashlib.sha256(bytes.fromhex(head)).hexdigest()
    assert not {*numbers} & {*receipts.drawn(other, 250_000, 20)}
    assert sorted(receipts.drawn(head, 12, 50)) == list(range(12))
    first = hashlib.sha256(bytes.fromhex(head) + bytes(8)).digest()
    assert numbers[0] == int.from_bytes(first, "big") % 250_000


def test_a_ledger_whose_author_has_found_one_that_the_draw_misses_is_found_with_a_salt(
    kept: Path, tmp_path: Path
) -> None:
    """The author tries contents for a batch until what the digest draws is another."""
    for number in range(100):

        def change(found: list[dict[str, Any]], number: int = number) -> None:
            batch = next(each for each in found if each["kind"] == "batch")
            batch["whole"] = f"{number:032x}"

        forged = rewritten(kept, tmp_path / "forged.jsonl", change, fitting=True)
        own = receipts.make_receipt(forged)
        if 0 not in receipts.drawn(own["digest"], own["batches"], 2):
            break
    (tmp_path / "own.json").write_text(receipts.as_text(own))
    assert check(tmp_path / "own.json", forged, "plain", "--samples", "2").exit_code == 0
    salt = next(
        each
        for each in map(str, range(100))
        if 0 in receipts.drawn(own["digest"], own["batches"], 2, each)
    )
    done = check(tmp_path / "own.json", forged, "plain", "--samples", "2", "--salt", salt)
    assert done.exit_code == 1
    assert "wrong: epoch 0, step 0" in done.output
    assert f"1 of 2 batches, drawn from the digest and the salt {salt!r}, are as" in done.output


# --- what is right


@pytest.mark.parametrize("factory", ["plain", "as_augmenter"])
def test_a_true_ledger_is_as_its_receipt_says(kept: Path, factory: str) -> None:
    done = check(kept.with_name("receipt.json"), kept, factory, "--samples", "5")
    assert done.exit_code == 0, done.output
    assert "5 of 5 batches, drawn from the digest, are as the ledger has them" in done.output
    assert (
        "these samples would have found it, at least: 1% with 4.9%, 5% with 22.6%, 10% with 41.0%"
        in done.output
    )
    assert "as the receipt says" in done.output


def test_loaders_that_keep_state_are_walked_through_once(tmp_path: Path) -> None:
    ledger = run(
        tmp_path / "run.jsonl",
        60,
        loader=Sums(),
        num_streams=2,
        batches_per_epoch=20,
        name="train/a",
    )
    done = check(receipt_of(ledger), ledger, "sums")
    assert done.exit_code == 0, done.output
    assert "20 of 20 batches" in done.output


def test_checkpoints_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint_final.pth"
    file.write_bytes(b"weights")
    ledger = run(tmp_path / "run.jsonl", 2)
    receipt = receipt_of(ledger, "--checkpoint", file)
    assert check(receipt, ledger, "plain", "--checkpoint", file).exit_code == 0
    file.write_bytes(b"other weights")
    done = check(receipt, ledger, "plain", "--checkpoint", file)
    assert done.exit_code == 1
    assert "wrong: checkpoint_final.pth has another SHA-256 than in the receipt" in done.output


# --- cheats: the table of docs/ledger.md


def at(found: list[dict[str, Any]], epoch: int, step: int) -> int:
    return next(
        i
        for i, each in enumerate(found)
        if (each["kind"], each.get("epoch"), each.get("step")) == ("batch", epoch, step)
    )


def end(found: list[dict[str, Any]], epoch: int) -> dict[str, Any]:
    return next(each for each in found if each["kind"] == "epoch" and each["epoch"] == epoch)


def reorder(found: list[dict[str, Any]]) -> None:
    one, other = at(found, 1, 1), at(found, 1, 2)
    found[one], found[other] = found[other], found[one]


def drop(found: list[dict[str, Any]]) -> None:
    del found[at(found, 1, 2)]
    end(found, 1)["batches"] = 3


def describe(found: list[dict[str, Any]]) -> None:
    declared = [line for line in found[0]["declared"] if not line.startswith("transform")] + [
        "transform = Mirror"
    ]
    found[0].update(declared=declared, pipeline=digest_of(declared))


def leave_out(found: list[dict[str, Any]]) -> None:
    """Says that data were never to be compared."""
    found[0]["left_out"] = ["data"]
    for each in found:
        if each["kind"] == "batch":
            del each["keys"]["data"]
            each["whole"] = fingerprint(each["keys"])


def mute(found: list[dict[str, Any]]) -> None:
    """Says that data have no bytes that would be the same everywhere."""
    for each in found:
        if each["kind"] == "batch":
            each["keys"]["data"] = None
            each["whole"] = fingerprint(each["keys"])


def nothing_by_key(found: list[dict[str, Any]]) -> None:
    for each in found:
        if each["kind"] == "batch":
            each.update(keys={}, whole=None)


def pad(found: list[dict[str, Any]]) -> None:
    """One batch twelve times, as if the epoch were padded."""
    found[0].update(tail="pad")
    for each in found:
        if each["kind"] == "batch":
            each.update(place=each["step"], step=0)


#: What is changed; what names it where digests are not made anew; what finds it where digests and receipt are made to fit: the
#: words of `detaug receipt`, which refuses such a ledger, or of `detaug check`. None: the same words. Empty: it is then a true
#: ledger, of what it says.
CHEATS: dict[str, tuple[Callable[[list[dict[str, Any]]], Any], str, str | None]] = {
    "a fingerprint changed": (
        lambda found: found[at(found, 1, 2)]["keys"].update(data="0" * 32),
        "line 9 (epoch 1, step 2) does not follow",
        "epoch 1, step 2: made again, it differs in 'data'",
    ),
    "lines reordered": (
        reorder,
        "line 8 (epoch 1, step 2) does not follow",
        "line 9 (epoch 1, step 1) stands behind epoch 1, step 2",
    ),
    "a line dropped": (
        drop,
        "line 9 (epoch 1, step 3) does not follow",
        "",
    ),
    "one batch passed off as padding": (
        pad,
        "tail: 'drop' in the receipt, 'pad' in the ledger",
        "line 3 (epoch 0, step 1): no epoch has step 0 there",
    ),
    "the file cut off": (
        lambda found: found.__delitem__(slice(-4, None)),
        "batches: 12 in the receipt, 9 in the ledger",
        "",
    ),
    "a count edited": (
        lambda found: end(found, 1).update(batches=5),
        "line 11 (the end of epoch 1) does not follow",
        None,
    ),
    "a digest edited": (
        lambda found: end(found, 1).update(digest="ab" * 32),
        "line 11 (the end of epoch 1) does not follow",
        "",
    ),
    "lines of another rank": (
        lambda found: found[0].update(rank=1, world_size=2),
        "line 3 (epoch 0, step 1) is none of rank 1 of 2",
        None,
    ),
    "lines of another name": (
        lambda found: found[at(found, 1, 2)].update(name="val"),
        "line 9 (epoch 1, step 2) is of 'val', not of ''",
        None,
    ),
    "another seed": (
        lambda found: found[0].update(seed=2),
        "seed: 1 in the receipt, 2 in the ledger",
        "made again, it differs in 'data'",
    ),
    "other numerics": (
        lambda found: found[0].update(numerics=1),
        f"numerics version: {NUMERICS} in the receipt, 1 in the ledger",
        f"numerics version: the receipt has 1, this detaug has {NUMERICS}",
    ),
    "another num_streams": (
        lambda found: found[0].update(num_streams=3),
        "num_streams: 12 in the receipt, 3 in the ledger",
        "epoch 0, step 3: made again, it differs in 'data'",
    ),
    "another description of the pipeline": (
        lambda found: found[0]["declared"].append("transform = Mirror"),
        "the header's description of the pipeline is not the one of which it has the digest",
        None,
    ),
    "another description with its digest": (
        describe,
        "pipeline: ",
        "this is another pipeline than the ledger's: transform: here None, in the ledger Mirror",
    ),
    "keys left out": (
        leave_out,
        "left_out: [] in the receipt, ['data'] in the ledger",
        "has no fingerprint of 'data'",
    ),
    "keys said to have no bytes": (mute, "there is no fingerprint of 'data'", None),
    "no fingerprints at all": (
        nothing_by_key,
        "is damaged: there is no fingerprint of 'the batch'",
        None,
    ),
    "versions edited": (
        lambda found: found[0]["environment"]["packages"].update(numpy="1.0"),
        "'numpy': '1.0'",
        "",
    ),
    "a line of a foreign kind": (
        lambda found: found[at(found, 1, 2)].update(kind="bach"),
        "there are no lines of the kind 'bach'",
        None,
    ),
}


@pytest.mark.parametrize("what", CHEATS)
def test_a_ledger_that_was_changed_is_not_the_receipts(
    kept: Path, tmp_path: Path, what: str
) -> None:
    change, named, _ = CHEATS[what]
    done = check(
        kept.with_name("receipt.json"), rewritten(kept, tmp_path / "run.jsonl", change), "plain"
    )
    assert (done.exit_code, named in done.output) == (1, True), done.output


@pytest.mark.parametrize("what", [name for name, (_, _, found) in CHEATS.items() if found != ""])
def test_a_ledger_with_digests_and_receipt_made_to_fit_is_found(
    kept: Path, tmp_path: Path, what: str
) -> None:
    change, named, found = CHEATS[what]
    forged = rewritten(kept, tmp_path / "run.jsonl", change, fitting=True)
    done = detaug("receipt", forged, "-o", tmp_path / "own.json")
    if done.exit_code == 0:
        done = check(tmp_path / "own.json", forged)
    assert done.exit_code in (1, 2), done.output
    assert (named if found is None else found) in done.output, done.output


@pytest.mark.parametrize(
    "name", ["batches", "epochs", "missing", "last", "versions", "cpu", "left_out", "data"]
)
def test_whatever_a_receipt_says_is_compared_with_the_ledger(
    kept: Path, tmp_path: Path, name: str
) -> None:
    found = json.loads(kept.with_name("receipt.json").read_text())
    found[name] = {"batches": 11, "epochs": 4, "missing": 1, "last": [2, 2]}.get(name, {"data": 1})
    (tmp_path / "own.json").write_text(json.dumps(found))
    done = check(tmp_path / "own.json", kept, "plain", "--samples", "1")
    assert (
        done.exit_code,
        f"wrong: {name}: " in done.output or "wrong: digest: " in done.output,
    ) == (1, True)


def test_the_keys_that_are_compared_are_those_of_the_pipeline_here(
    kept: Path, tmp_path: Path
) -> None:
    done = check(kept.with_name("receipt.json"), kept, "plain", "--samples", "1")
    assert "compared: 'data', 'at'" in done.output
    ledger = run(tmp_path / "run.jsonl", check=Check(every=0, ignore=("at",)))
    assert check(receipt_of(ledger), ledger, "without_at").exit_code == 0
    done = check(tmp_path / "receipt.json", ledger, "plain")
    assert (done.exit_code, "the ledger has no fingerprint of 'at'" in done.output) == (1, True)
    done = check(kept.with_name("receipt.json"), kept, "without_at", "--samples", "1")
    assert (done.exit_code, "made again, it differs in 'at'" in done.output) == (1, True)


def test_steps_that_were_skipped_or_ended_are_no_fault(tmp_path: Path) -> None:
    skipped = run(tmp_path / "a.jsonl", 8, loader=pipelines.Draws(fails_at=(1,)), on_error=Skip())
    done = check(receipt_of(skipped), skipped, "failing")
    assert done.exit_code == 0, done.output
    assert "note: 3 steps have no line" in done.output


def test_another_machine_is_named_and_no_fault_where_batches_are_equal(
    kept: Path, tmp_path: Path
) -> None:
    def elsewhere(found: list[dict[str, Any]]) -> None:
        found[0]["environment"]["cpu"]["model"] = "Another CPU"
        found[0]["environment"]["packages"]["numpy"] = "1.0"
        found[0]["environment"]["kernel_cache"]["compiled"] = 7

    ledger = rewritten(kept, tmp_path / "run.jsonl", elsewhere)
    done = check(receipt_of(ledger), ledger, "plain", "--samples", "2")
    assert done.exit_code == 0, done.output
    numpy, cpu = "packages.numpy: 1.0 in the ledger", "cpu.model: Another CPU in the ledger"
    assert -1 < done.output.index(numpy) < done.output.index(cpu), "the most likely cause first"
    assert "kernel_cache" not in done.output, "it changes from one minute to the next"


def test_changed_data_are_named_by_key(kept: Path) -> None:
    done = check(kept.with_name("receipt.json"), kept, "changed_data")
    assert done.exit_code == 1
    assert "step 2: made again, it differs in 'data'" in done.output
    assert done.output.count("made again, it differs in 'data'") == 12
    assert "data, code behind the same names, or the machine are not what they were" in done.output


# --- what cannot be checked


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        (
            "another",
            "another pipeline than the ledger's: data_loader.scale: here 2.0, in the ledger 1.0",
        ),
        (
            "lost_data",
            "cannot be made here: FileNotFoundError: [Errno 2] No such file or directory: 'case_07.b2nd'",
        ),
    ],
)
def test_a_pipeline_that_is_not_the_ledgers_exits_with_2(
    kept: Path, factory: str, why: str
) -> None:
    done = check(kept.with_name("receipt.json"), kept, factory)
    assert done.exit_code == 2, done.output
    assert why in done.output


def test_receipts_of_other_versions_are_refused_with_both_numbers(
    kept: Path, tmp_path: Path
) -> None:
    found = json.loads(kept.with_name("receipt.json").read_text())
    file = tmp_path / "receipt.json"
    for changes, why in (
        ({"numerics": 1}, f"numerics version: the receipt has 1, this detaug has {NUMERICS}"),
        ({"seed_scheme": 1}, "seed scheme: the receipt has 1, this detaug has 2"),
        ({"format": 1}, "has format 1; this version of detaug reads format 2"),
        ({"what": "something else"}, "is no receipt"),
        ({"digest": "xyz"}, "digest missing or wrong"),
        ({"batches": 0}, "batches missing or wrong"),
    ):
        file.write_text(json.dumps({**found, **changes}))
        done = check(file, kept)
        assert (done.exit_code, why in done.output) == (2, True), done.output
    for name, value in (("versions", []), ("cpu", None), ("checkpoints", ["a"])):
        file.write_text(json.dumps({**found, name: value}))
        done = check(file, kept, "plain", "--checkpoint", kept)
        assert (
            done.exit_code,
            f"no receipt of this version: {name} missing or wrong" in done.output,
        ) == (2, True)
    file.write_bytes(b"\x00" * 100_000)
    assert check(file, kept).exit_code == 2


def test_foreign_and_absent_files_exit_with_2(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign.csv").write_text("a,b\n1,2\n")
    receipt = kept.with_name("receipt.json")
    for ledger in (tmp_path / "foreign.csv", tmp_path / "none.jsonl"):
        for done in (
            check(receipt, ledger),
            detaug("receipt", ledger),
            detaug("diff", ledger, kept),
        ):
            assert done.exit_code == 2, done.output
            assert ledger.name in done.output
    assert check(tmp_path / "none.json", kept).exit_code == 2
    assert detaug("check", receipt, "--ledger", kept).exit_code == 2
    done = detaug("receipt", kept, "-o", tmp_path / "no folder" / "receipt.json")
    assert done.exit_code == 2
    assert "does not exist" in done.output
    assert (tmp_path / "foreign.csv").read_text() == "a,b\n1,2\n"


def test_a_ledger_without_a_batch_has_no_receipt(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "run.jsonl").write_bytes(encoded(lines(kept)[0]))
    done = detaug("receipt", tmp_path / "run.jsonl")
    assert done.exit_code == 2
    assert "has no batch" in done.output
