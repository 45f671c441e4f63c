"""Receipts: what is in one, and how `detaug check` names everything that is wrong with a ledger."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detaug.cli import main
from detaug.ledger import receipt as receipts
from detaug.ledger.course import Course
from detaug.ledger.lines import FIRST_LINK, encoded, key_of
from detaug.versions import NUMERICS
from tests.support.ledgers import pipelines
from tests.support.ledgers.pipelines import Sums
from tests.support.ledgers.runs import augmenter, chain, lines, rewritten, run, take

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


def _made_to_fit(found: list[dict[str, Any]]) -> None:
    """Give every epoch the root and the chain that its batches have."""
    course = Course(found[0])
    for each in found:
        if each["kind"] == "batch":
            course.add(each, key_of(each))
        elif each["kind"] == "epoch":
            each.update(course.end_epoch())


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
    assert file.stat().st_size <= 8000
    assert (found["seed"], found["batches"], found["epochs"], found["head"]) == (1, 12, 3, chain(ledger))
    assert found["pipeline"] == lines(ledger)[0]["pipeline"]
    assert {"detaug", "python", "torch", "numpy"} <= found["versions"].keys()
    assert found["checkpoints"] == {"checkpoint_final.pth": hashlib.sha256(b"weights").hexdigest()}
    assert detaug("receipt", ledger).output == json.dumps({**found, "checkpoints": {}}, indent=1) + "\n"


def test_equal_runs_have_equal_receipts_with_any_interruption(tmp_path: Path) -> None:
    with augmenter(tmp_path / "resumed.jsonl.gz") as made:
        state = [take(made, 3), made.state_dict()][1]
        take(made, 2)
    with augmenter(tmp_path / "resumed.jsonl.gz") as made:
        made.load_state_dict(state)
        take(made, 9)
    straight = run(tmp_path / "straight.jsonl")
    assert receipts.make_receipt(tmp_path / "resumed.jsonl.gz") == receipts.make_receipt(straight)


def test_a_receipt_in_the_middle_of_an_epoch_is_checked_when_the_ledger_has_grown(tmp_path: Path) -> None:
    with augmenter(tmp_path / "run.jsonl") as made:
        take(made, 6)
        file = receipt_of(tmp_path / "run.jsonl")
        take(made, 6)
    done = check(file, tmp_path / "run.jsonl")
    assert done.exit_code == 0, done.output
    assert "the ledger goes on behind the receipt's last batch" in done.output


def test_a_receipt_has_at_most_8_kb(tmp_path: Path) -> None:
    files = []
    for number in range(100):
        files += ["--checkpoint", tmp_path / f"{number}.pth"]
        (tmp_path / f"{number}.pth").touch()
    done = detaug("receipt", run(tmp_path / "run.jsonl", 1), *files)
    assert done.exit_code == 2
    assert "may have 8,000: name fewer checkpoints" in done.output


def test_what_is_tested_is_drawn_from_the_head(kept: Path) -> None:
    head = chain(kept)
    numbers = receipts.drawn(head, 250_000, 20)
    assert numbers == receipts.drawn(head, 250_000, 20)
    assert len({*numbers}) == 20
    other = hashlib.sha256(bytes.fromhex(head)).hexdigest()
    assert not {*numbers} & {*receipts.drawn(other, 250_000, 20)}
    assert sorted(receipts.drawn(head, 12, 50)) == list(range(12))
    first = hashlib.sha256(bytes.fromhex(head) + bytes(8)).digest()
    assert numbers[0] == int.from_bytes(first, "big") % 250_000


def test_a_readers_salt_draws_others_that_the_author_cannot_foresee(kept: Path) -> None:
    head = chain(kept)
    numbers = receipts.drawn(head, 250_000, 20, "a reader's own")
    assert numbers == receipts.drawn(head, 250_000, 20, "a reader's own")
    assert not {*numbers} & {*receipts.drawn(head, 250_000, 20), *receipts.drawn(head, 250_000, 20, "another's")}
    assert receipts.drawn(head, 250_000, 20, "") == receipts.drawn(head, 250_000, 20)
    first = hashlib.sha256(bytes.fromhex(head) + bytes(8) + b"a reader's own").digest()
    assert numbers[0] == int.from_bytes(first, "big") % 250_000


def test_a_ledger_whose_author_has_found_one_that_the_draw_misses_is_found_with_a_salt(
    kept: Path, tmp_path: Path
) -> None:
    """The author tries contents for a batch until what the head draws is another."""
    for number in range(100):

        def change(found: list[dict[str, Any]], number: int = number) -> None:
            batch = next(each for each in found if each["kind"] == "batch")
            batch["whole"] = f"{number:032x}"
            _made_to_fit(found)

        forged = rewritten(kept, tmp_path / "forged.jsonl", change, links=True)
        own = receipts.make_receipt(forged)
        if 0 not in receipts.drawn(own["head"], own["batches"], 2):
            break
    (tmp_path / "own.json").write_text(receipts.as_text(own))
    assert check(tmp_path / "own.json", forged, "plain", "--samples", "2").exit_code == 0
    salt = next(each for each in map(str, range(100)) if 0 in receipts.drawn(own["head"], own["batches"], 2, each))
    done = check(tmp_path / "own.json", forged, "plain", "--samples", "2", "--salt", salt, "--json", tmp_path / "found")
    assert done.exit_code == 1
    assert "wrong: epoch 0, step 0" in done.output
    assert f"1 of 2 batches, drawn from the head and the salt {salt!r}, are as" in done.output
    assert json.loads((tmp_path / "found").read_text())["salt"] == salt


def test_the_chance_of_finding_wrong_batches_is_hypergeometric() -> None:
    assert receipts.chance_to_find(1, 250_000, 20) == pytest.approx(20 / 250_000)
    assert receipts.chance_to_find(2, 4, 2) == pytest.approx(1 - (2 * 1) / (4 * 3))
    assert receipts.chance_to_find(12, 12, 1) == 1
    assert receipts.chance_to_find(3, 5, 3) == 1
    assert receipts.chance_to_find(3, 12, 0) == 0
    assert receipts.chance_to_find(10, 100, 20) == pytest.approx(1 - math.comb(90, 20) / math.comb(100, 20))
    assert receipts.chance_to_find(10**10, 10**12, 3) == pytest.approx(1 - 0.99**3), "a receipt may say anything"


# --- what is right


@pytest.mark.parametrize("factory", ["plain", "as_augmenter"])
def test_a_true_ledger_is_as_its_receipt_says(kept: Path, factory: str) -> None:
    done = check(kept.with_name("receipt.json"), kept, factory, "--samples", "5")
    assert done.exit_code == 0, done.output
    assert "5 of 5 batches, drawn from the head, are as the ledger has them" in done.output
    assert "1 with 41.7%" in done.output
    assert "as the receipt says" in done.output


def test_loaders_that_keep_state_are_walked_through_once(tmp_path: Path) -> None:
    ledger = run(tmp_path / "run.jsonl.gz", 60, loader=Sums(), num_streams=2, batches_per_epoch=20, name="train/a")
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


# --- what is wrong: with and without links that were made to fit


def batch(found: list[dict[str, Any]], epoch: int, step: int) -> int:
    return next(
        i
        for i, each in enumerate(found)
        if (each["kind"], each.get("epoch"), each.get("step")) == ("batch", epoch, step)
    )


def change(found: list[dict[str, Any]]) -> None:
    found[batch(found, 1, 2)]["keys"]["data"] = "0" * 32


def drop(found: list[dict[str, Any]]) -> None:
    del found[batch(found, 1, 2)]


def swap(found: list[dict[str, Any]]) -> None:
    one, other = batch(found, 1, 1), batch(found, 1, 2)
    found[one], found[other] = found[other], found[one]


def swap_batches(found: list[dict[str, Any]]) -> None:
    one, other = found[batch(found, 1, 1)], found[batch(found, 1, 2)]
    for name in ("whole", "keys"):
        one[name], other[name] = other[name], one[name]


def exchange_root(found: list[dict[str, Any]]) -> None:
    next(each for each in found if each["kind"] == "epoch" and each["epoch"] == 1)["root"] = "ab" * 32


def exchange_chain(found: list[dict[str, Any]]) -> None:
    next(each for each in found if each["kind"] == "epoch" and each["epoch"] == 1)["chain"] = "ab" * 32


def cut_off(found: list[dict[str, Any]]) -> None:
    del found[batch(found, 1, 2) :]


def other_seed(found: list[dict[str, Any]]) -> None:
    found[0]["seed"] = 2


def other_numerics(found: list[dict[str, Any]]) -> None:
    found[0]["numerics"] = 1


def no_keys(found: list[dict[str, Any]]) -> None:
    found[batch(found, 1, 2)]["keys"] = ["data"]


def other_kind(found: list[dict[str, Any]]) -> None:
    found[batch(found, 1, 2)]["kind"] = "bach"


WRONG = {
    "a changed line": (change, "line 9 (epoch 1, step 2) does not follow", "epoch 1: its batches do not give the root"),
    "a dropped line": (
        drop,
        "line 9 (epoch 1, step 3) does not follow",
        "epoch 1 has 3 batches, and its last line says 4",
    ),
    "swapped lines": (
        swap,
        "line 8 (epoch 1, step 2) does not follow",
        "line 9, epoch 1, step 1, stands behind epoch 1, step 2",
    ),
    "swapped batches": (
        swap_batches,
        "line 8 (epoch 1, step 1) does not follow",
        "epoch 1: its batches do not give the root",
    ),
    "an exchanged root": (exchange_root, "line 11 (epoch) does not follow", "it is the root that was exchanged"),
    "an exchanged chain": (exchange_chain, "line 11 (epoch) does not follow", "epoch 1: its last line is not chained"),
    "a truncated file": (cut_off, "6 of the receipt's 12 batches; it ends at epoch 1, step 1", "6 of the receipt's 12"),
    "another seed": (other_seed, "seed: 1 in the receipt, 2 in the ledger", "seed: 1 in the receipt, 2 in the ledger"),
    "other numerics": (
        other_numerics,
        f"numerics version: {NUMERICS} in the receipt, 1 in the ledger",
        f"numerics version: {NUMERICS} in",
    ),
    "keys that are none": (no_keys, "line 9 (epoch 1, step 2) does not follow", "its fingerprints are not by key"),
    "a foreign kind": (other_kind, "line 9 (bach) does not follow", "there are no lines of the kind 'bach'"),
}


@pytest.mark.parametrize("links", [False, True], ids=["as it is", "with links that fit"])
@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named(kept: Path, tmp_path: Path, what: str, links: bool) -> None:
    manipulate, named, named_with_links = WRONG[what]
    ledger = rewritten(kept, tmp_path / "run.jsonl", manipulate, links)
    done = check(kept.with_name("receipt.json"), ledger, "plain", "--samples", "3")
    assert done.exit_code == 1, done.output
    assert (named_with_links if links else named) in done.output, done.output
    if what not in ("a truncated file", "another seed", "other numerics"):
        assert detaug("receipt", ledger).exit_code == 2, "and there is no receipt of it"


def test_a_root_and_all_behind_it_made_to_fit_are_found_by_the_head_and_the_samples(kept: Path, tmp_path: Path) -> None:
    """Somebody who writes a whole other ledger has another head; and who makes a receipt of that, other batches."""
    other = run(tmp_path / "run.jsonl", seed=2)
    forged = rewritten(other, tmp_path / "forged.jsonl", lambda found: found[0].update(seed=1), links=True)
    done = check(kept.with_name("receipt.json"), forged)
    assert done.exit_code == 1
    assert "does not lead to the receipt's head" in done.output
    own = json.loads(kept.with_name("receipt.json").read_text())
    own["head"] = receipts.sum_up(forged).head
    (tmp_path / "own.json").write_text(json.dumps(own))
    done = check(tmp_path / "own.json", forged, "plain", "--samples", "2")
    assert done.exit_code == 1
    assert "made again, it differs in 'data'" in done.output


def test_another_machine_is_named_and_no_fault_where_batches_are_equal(kept: Path, tmp_path: Path) -> None:
    def elsewhere(found: list[dict[str, Any]]) -> None:
        found[0]["environment"]["cpu"]["model"] = "Another CPU"
        found[0]["environment"]["packages"]["numpy"] = "1.0"

    ledger = rewritten(kept, tmp_path / "run.jsonl", elsewhere, links=True)
    done = check(kept.with_name("receipt.json"), ledger, "plain", "--samples", "2")
    assert done.exit_code == 0, done.output
    numpy, cpu = "packages.numpy: 1.0 in the ledger", "cpu.model: Another CPU in the ledger"
    assert -1 < done.output.index(numpy) < done.output.index(cpu), "the most likely cause first"


def test_changed_data_are_named_by_key(kept: Path) -> None:
    done = check(kept.with_name("receipt.json"), kept, "changed_data", "--json", "-")
    assert done.exit_code == 1
    assert "step 2: made again, it differs in 'data'" in done.output
    assert "wrong: and 7 more" in done.output
    assert "data, code behind the same names, or the machine are not what they were" in done.output


def test_a_ledger_that_stopped_says_so(kept: Path, tmp_path: Path) -> None:
    def stop(found: list[dict[str, Any]]) -> None:
        at = batch(found, 1, 2)
        found[at:] = [{"kind": "stopped", "epoch": 1, "step": 2, "why": "No space left on device", "link": ""}]

    ledger = rewritten(kept, tmp_path / "run.jsonl", stop, links=True)
    done = check(kept.with_name("receipt.json"), ledger, "plain", "--samples", "2")
    assert done.exit_code == 1
    assert "could not be written from epoch 1, step 2 on: No space left on device" in done.output
    receipt = receipts.make_receipt(ledger)
    assert receipt["stopped"] == [{"epoch": 1, "step": 2, "why": "No space left on device"}]


# --- what cannot be checked


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        ("another", "another pipeline than the ledger's: data_loader.scale: here 2.0, in the ledger 1.0"),
        ("raises", "the factory raises RuntimeError: no data set here"),
        ("nothing", "the factory must return (loader, transform)"),
        ("lost_data", "cannot be made here: FileNotFoundError: [Errno 2] No such file or directory: 'case_07.b2nd'"),
        ("absent", "there is no 'absent' in tests.support.ledgers.pipelines"),
    ],
)
def test_a_pipeline_that_is_not_the_ledgers_exits_with_2(kept: Path, factory: str, why: str) -> None:
    done = check(kept.with_name("receipt.json"), kept, factory)
    assert done.exit_code == 2, done.output
    assert why in done.output


def test_a_module_that_does_not_import_exits_with_2(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0")
    done = detaug("check", kept.with_name("receipt.json"), f"{tmp_path / 'broken.py'}:make", "--ledger", kept)
    assert done.exit_code == 2
    assert "broken.py, when it is imported, raises ZeroDivisionError: division by zero" in done.output


def test_receipts_of_other_versions_are_refused_with_both_numbers(kept: Path, tmp_path: Path) -> None:
    found = json.loads(kept.with_name("receipt.json").read_text())
    file = tmp_path / "receipt.json"
    for changes, why in (
        ({"num_streams": "many"}, "the header makes no augmenter: num_streams must be"),
        ({"numerics": 1}, f"numerics version: the receipt has 1, this detaug has {NUMERICS}"),
        ({"seed_scheme": 1}, "seed scheme: the receipt has 1, this detaug has 2"),
        ({"format": 2}, "has format 2; this version of detaug reads 1"),
        ({"what": "something else"}, "is no receipt"),
        ({"head": "xyz"}, "batches, head missing or wrong"),
        ({"batches": 0}, "batches, head missing or wrong"),
    ):
        file.write_text(json.dumps({**found, **changes}))
        done = check(file, kept)
        assert (done.exit_code, why in done.output) == (2, True), done.output
    for name, value in (("versions", []), ("cpu", None), ("checkpoints", ["a"])):
        file.write_text(json.dumps({**found, name: value}))
        done = check(file, kept, "plain", "--checkpoint", kept)
        assert (done.exit_code, f"no receipt of this version: {name} missing or wrong" in done.output) == (2, True)
    file.write_bytes(b"\x00" * 100_000)
    assert check(file, kept).exit_code == 2


def test_foreign_and_absent_files_exit_with_2(kept: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign.csv").write_text("a,b\n1,2\n")
    receipt = kept.with_name("receipt.json")
    for ledger in (tmp_path / "foreign.csv", tmp_path / "none.jsonl"):
        for done in (check(receipt, ledger), detaug("receipt", ledger), detaug("diff", ledger, kept)):
            assert done.exit_code == 2, done.output
            assert ledger.name in done.output
    assert check(tmp_path / "none.json", kept).exit_code == 2
    assert detaug("check", receipt, "--ledger", kept).exit_code == 2
    done = detaug("receipt", kept, "-o", tmp_path / "no folder" / "receipt.json")
    assert done.exit_code == 2
    assert "cannot write" in done.output
    assert (tmp_path / "foreign.csv").read_text() == "a,b\n1,2\n"


def test_a_ledger_without_a_batch_has_no_receipt(kept: Path, tmp_path: Path) -> None:
    header = {name: value for name, value in lines(kept)[0].items() if name != "link"}
    (tmp_path / "run.jsonl").write_bytes(encoded(header, FIRST_LINK)[0])
    done = detaug("receipt", tmp_path / "run.jsonl")
    assert done.exit_code == 2
    assert "has no batch" in done.output


def test_what_has_no_stable_bytes_is_not_passed_off_as_checked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    part = run(tmp_path / "part.jsonl", 8, loader=pipelines.Boxed("data"))
    assert caplog.text.count("has no fingerprint of the batch's 'data'") == 1
    done = check(receipt_of(part), part, "boxed")
    assert (done.exit_code, "not compared, without bytes that are the same everywhere: 'data'" in done.output) == (
        0,
        True,
    )
    nothing = run(tmp_path / "nothing.jsonl", 8, loader=pipelines.Boxed("data", "at"))
    done = check(receipt_of(nothing), nothing, "all_boxed")
    assert done.exit_code == 2
    assert "has no bytes that are the same everywhere" in done.output
    for name, told in (("boxed", "as the ledger has it"), ("all_boxed", "nothing of it can be compared")):
        ledger = part if name == "boxed" else nothing
        done = detaug("replay", ledger, f"{pipelines.__name__}:{name}", "--epoch", 1, "--step", 0)
        assert (done.exit_code, told in done.output) == (0, True), done.output
