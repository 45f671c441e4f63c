"""A ledger in this process: what its lines are, and how it goes on after any jump, crash and
failure to write.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from detaug import Check, Skip, fingerprint
from detaug.engine.wait_stats import RunStats
from detaug.ledger.comparing import compare
from detaug.ledger.header import portable
from detaug.ledger.lines import NotALedger, batch_fingerprints
from detaug.ledger.reading import LedgerSummary, read_header, records
from detaug.ledger.writing import LedgerWriter
from detaug.versions import NUMERICS, source_digest
from tests.support.ledgers.runs import Draws, augmenter, digest, kinds, lines, run, steps, take
from tests.support.logs import records_of
from tests.support.waiting import run_in_threads


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.jsonl"


# --- what it holds


def test_a_header_then_a_line_for_every_batch_and_every_epoch(path: Path) -> None:
    with augmenter(path, name="train", version="v2") as made:
        taken = take(made, 5)
        declared = portable(made._declared)
    header, *rest = lines(path)
    assert (header["seed"], header["name"], header["num_streams"], header["version"]) == (
        1,
        "train",
        made.num_streams,
        "v2",
    )
    assert (header["seed_scheme"], header["numerics"], header["declared"]) == (
        2,
        NUMERICS,
        declared,
    )
    assert header["environment"]["packages"]["numpy"] == np.__version__
    assert header["environment"]["detaug"]["source"] == source_digest()
    assert [line["kind"] for line in rest] == ["batch"] * 4 + ["epoch", "batch"]
    for line, batch in zip([rest[0], rest[5]], [taken[0], taken[4]], strict=True):
        assert (line["name"], line["epoch"], line["step"]) == ("train", *batch["at"])
        assert line["keys"] == {key: fingerprint(value) for key, value in batch.items()}
        assert line["whole"] == fingerprint(line["keys"])
        assert (line["worker"], line["restarts"]) == (os.getpid(), 0)
        assert 0 < line["computed"] <= line["waited"]


def test_the_digest_is_sha256_over_the_run_and_its_batches_as_documented(path: Path) -> None:
    header, *rest = lines(run(path, 8))
    names = ("seed", "name", "seed_scheme", "numerics", "pipeline", "num_streams")
    hashed = sha256(
        json.dumps([header[name] for name in names], separators=(",", ":")).encode() + b"\n"
    )
    for line in rest:
        if line["kind"] == "batch":
            what = [line["epoch"], None, line["step"], line["whole"], line["keys"]]
            hashed.update(json.dumps(what, sort_keys=True, separators=(",", ":")).encode() + b"\n")
            assert "digest" not in line
        else:
            assert (line["batches"], line["digest"]) == (4, hashed.hexdigest())
    assert LedgerSummary(path).running_digest.digest == hashed.hexdigest()


@pytest.mark.parametrize(
    "batch",
    [
        {"data": np.arange(3), "more": [torch.zeros(2), None]},
        [np.arange(3), torch.ones(1)],
        (1, "two"),
        np.arange(4),
        5,
        {},
        {1: 2},
        {str(number): number for number in range(65)},
    ],
)
def test_every_kind_of_batch_has_a_fingerprint(batch: Any) -> None:
    whole, keys = batch_fingerprints(batch)
    parts = batch.values() if isinstance(batch, dict) else batch
    if keys:
        assert list(keys.values()) == [fingerprint(part) for part in parts]
    else:
        assert whole == fingerprint(batch)
    changed = copy.deepcopy(batch)
    assert batch_fingerprints(changed) == (whole, keys)
    assert batch_fingerprints([batch])[0] != whole
    assert batch_fingerprints([threading.Thread, batch], ("0",))[1] == {"1": fingerprint(batch)}


def test_what_has_no_fingerprint_stops_the_ledger_until_it_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Odd(Draws):
        def generate_train_batch(self) -> dict[str, Any]:
            odd: Any = None
            for _ in range(50):
                odd = SimpleNamespace(inner=odd)
            return {**super().generate_train_batch(), "odd": odd}

    run(tmp_path / "stopped.jsonl", 2, loader=Odd())
    assert kinds(tmp_path / "stopped.jsonl") == ["header"]
    assert "stopped at epoch 0, step 0: there is no fingerprint of 'odd'" in caplog.text
    assert "Leave it out by check=Check(ignore=('odd',))" in caplog.text
    run(tmp_path / "run.jsonl", 2, loader=Odd(), check=Check(every=0, ignore=("odd",)))
    header, line, _ = lines(tmp_path / "run.jsonl")
    assert header["left_out"] == ["odd"]
    assert (line["keys"].keys(), line["whole"]) == ({"data", "at"}, fingerprint(line["keys"]))


def test_skipped_batches_and_streams_that_end_early_leave_gaps(tmp_path: Path) -> None:
    run(
        tmp_path / "run.jsonl", 4, loader=Draws(fails_at=(1,)), on_error=Skip(), batches_per_epoch=5
    )
    assert steps(tmp_path / "run.jsonl") == [(0, 0), (0, 2), (0, 3), (0, 4)]
    with augmenter(
        tmp_path / "streams.jsonl",
        loader=lambda: iter(range(3)),
        num_streams=2,
        batches_per_epoch=None,
    ) as made:
        assert list(made) == [0, 0, 1, 1, 2, 2]
    assert kinds(tmp_path / "streams.jsonl") == ["header", *["batch"] * 6, "epoch"]


def test_every_rank_has_a_file_of_its_own_and_padded_places_say_so(tmp_path: Path) -> None:
    for rank in range(3):
        run(tmp_path / "run.jsonl", 3, rank=rank, world_size=3, batches_per_epoch=7, tail="pad")
    names = [f"run.rank{rank}of3.jsonl" for rank in range(3)]
    assert sorted(each.name for each in tmp_path.iterdir()) == names
    assert steps(tmp_path / names[0]) == [(0, 0), (0, 3), (0, 6)]
    assert steps(tmp_path / names[2]) == [(0, 2), (0, 5), (0, 1)]
    assert [line.get("place") for line in lines(tmp_path / names[2])[1:]] == [None, None, 8, None]
    assert "epoch" in kinds(tmp_path / names[2])


# --- jumps


def test_after_a_jump_back_the_ledger_is_that_of_a_run_that_never_jumped(path: Path) -> None:
    whole = digest(run(path.with_name("whole.jsonl")))
    with augmenter(path) as made:
        take(made, 6)
        made.set_epoch(1)
        take(made, 1)
        assert steps(path) == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
        state = made.state_dict()
        take(made, 5)
        made.load_state_dict(state)
        take(made, 7)
    assert steps(path) == [(epoch, step) for epoch in range(3) for step in range(4)]
    assert digest(path) == whole


def test_looking_for_an_epochs_end_writes_nothing(tmp_path: Path) -> None:
    """`iter` takes a batch and puts it back where a loader does not say how many it gives."""
    with augmenter(
        tmp_path / "run.jsonl", loader=[0, 1, 2], num_streams=1, batches_per_epoch=None
    ) as made:
        assert [next(made) for _ in range(3)] == [0, 1, 2]
        assert list(made) == [0, 1, 2]
        assert next(iter(made)) == 0
        assert next(iter(made)) == 1
    assert steps(tmp_path / "run.jsonl") == [
        (0, 0),
        (0, 1),
        (0, 2),
        (1, 0),
        (1, 1),
        (1, 2),
        (2, 0),
        (2, 1),
    ]


@pytest.mark.parametrize(("owner", "method"), [(LedgerWriter, "delivered"), (RunStats, "on_batch")])
@pytest.mark.parametrize("num_taken", [1, 3, 5])
def test_a_batch_whose_delivery_is_interrupted_has_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, owner: type, method: str, num_taken: int
) -> None:
    """Ctrl-C comes when the line is written, and before the loop has its batch."""
    original = getattr(owner, method)

    def interrupted(self: Any, *arguments: Any) -> None:
        original(self, *arguments)
        raise KeyboardInterrupt

    with augmenter(path) as made:
        take(made, num_taken)
        monkeypatch.setattr(owner, method, interrupted)
        with pytest.raises(KeyboardInterrupt):
            next(made)
        monkeypatch.undo()
        assert len(steps(path)) == num_taken + 1
        take(made, 2)
    whole = run(path.with_name("whole.jsonl"), num_taken + 2)
    assert steps(path) == steps(whole)
    assert compare(path, whole).first is None


def test_lines_of_several_threads_come_in_their_batches_order(tmp_path: Path) -> None:
    with augmenter(tmp_path / "run.jsonl", batches_per_epoch=120) as made:
        run_in_threads([partial(take, made, 30)] * 4, "a thread has its batches")
    assert steps(tmp_path / "run.jsonl") == [(0, step) for step in range(120)]


# --- earlier files


@pytest.mark.parametrize("until", [0, 1, 3, 4, 5, 9])
def test_a_resumed_run_goes_on_without_a_gap_or_a_double(path: Path, until: int) -> None:
    with augmenter(path) as made:
        take(made, until)
        state = json.loads(json.dumps(made.state_dict()))
    with augmenter(path) as made:
        made.load_state_dict(state)
        take(made, 12 - until)
    assert steps(path) == [(epoch, step) for epoch in range(3) for step in range(4)]
    assert digest(path) == digest(run(path.with_name("whole.jsonl")))


def test_a_ledger_goes_on_after_another_number_of_ranks(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    two, three = ({"rank": 0, "world_size": ranks, "batches_per_epoch": 10} for ranks in (2, 3))
    with augmenter(path, **two) as made:
        take(made, 1)
        state = made.state_dict()
    for place, number in ((three, 1), (two, 2), (two, 2)):
        with augmenter(path, **place) as made:
            made.load_state_dict(state)
            take(made, number)
            state = made.state_dict()
    assert steps(path.with_name("run.rank0of2.jsonl")) == [(0, 0), (0, 5), (0, 7), (1, 0), (1, 2)]
    assert not records_of(caplog), caplog.text


def test_another_runs_ledger_is_put_aside(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for seed in (1, 2, 3):
        run(path, 1, seed=seed)
    seeds = {each.name: lines(each)[0]["seed"] for each in path.parent.iterdir()}
    name, ending = path.name.split(".", 1)
    assert seeds == {path.name: 3, f"{name}.1.{ending}": 1, f"{name}.2.{ending}": 2}
    assert (
        f"was the ledger of another run (other seed), and is {path.with_name(f'{name}.1.{ending}')}"
        in caplog.text
    )


def test_a_changed_pipelines_lines_go_to_another_file(path: Path) -> None:
    with augmenter(path) as made:
        take(made, 2)
        made._finish()
        made.transform = dict
        take(made, 1)
    before = path.with_name("run.1.jsonl")
    assert lines(before)[0]["pipeline"] != lines(path)[0]["pipeline"]
    assert steps(before) == [(0, 0), (0, 1)]
    assert steps(path) == [(0, 2)]


@pytest.mark.parametrize(
    "content",
    [b"\x93NUMPY\x01\x00v\x00\n123", b'{"kind":"header"}\n', b'{"without": "a line feed"}'],
)
def test_a_file_that_is_something_else_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "case.npy").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"case\.npy' is there already, and is left as it is: .* is no ledger"
    ):
        augmenter(tmp_path / "case.npy")
    assert (tmp_path / "case.npy").read_bytes() == content


def test_a_file_cut_off_anywhere_is_read_to_its_last_whole_line_and_continued(
    tmp_path: Path,
) -> None:
    whole = run(tmp_path / "whole.jsonl", 8).read_bytes()
    header = whole.index(b"\n") + 1
    want = digest(tmp_path / "whole.jsonl")
    cuts = {
        *range(header, len(whole), max(1, len(whole) // 9)),
        len(whole) - 1,
        len(whole) - 300,
        header + 5,
    }
    for cut in sorted(cuts):
        path = tmp_path / "cut.jsonl"
        path.write_bytes(whole[:cut])
        run(path, 8)
        assert digest(path) == want
        assert steps(path) == [(epoch, step) for epoch in range(2) for step in range(4)]


# --- what cannot be written


@contextmanager
def no_more_than(size: int) -> Iterator[None]:
    """Files cannot grow beyond that many bytes, as on a disk that is full then."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_where_the_disk_is_full_the_run_goes_on_and_one_warning_says_since_when(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = run(path.with_name("whole.jsonl"), 12)
    size = sum(len(line) for line in whole.read_bytes().splitlines(keepends=True)[:7]) + 40
    with augmenter(path) as made, no_more_than(size):
        state = None
        for _ in range(12):
            batch = take(made, 1)
            state = state or made.state_dict()
        assert [each["at"] for each in batch] == [(2, 3)]
    warnings = [
        record.getMessage() for record in caplog.records if "stopped" in record.getMessage()
    ]
    assert len(warnings) == 1
    assert "stopped at epoch" in warnings[0]
    assert "File too large" in warnings[0]
    assert path.stat().st_size <= size
    last = lines(path)[-1]
    assert (last["kind"], last["epoch"], last["step"]) == ("batch", 1, 0)
    assert "epoch 1, step 1" in warnings[0]
    run(path, 12)  # there is room again
    assert digest(path) == digest(whole)


def test_a_path_that_cannot_be_written_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "folder").mkdir()
    with augmenter(tmp_path / "folder" / "run.jsonl") as made:
        (tmp_path / "folder").rmdir()
        assert len(take(made, 6)) == 6
    (warning,) = (
        record.getMessage() for record in caplog.records if "stopped" in record.getMessage()
    )
    assert (
        "stopped at epoch 0, step 0: No such file or directory. The run goes on without it"
        in warning
    )


def test_two_augmenters_do_not_write_to_one_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        augmenter(tmp_path / "run.jsonl", name="train") as train,
        augmenter(tmp_path / "run.jsonl", name="val") as val,
    ):
        take(train, 1)
        take(val, 2)
        take(train, 1)
    assert "another augmenter is writing to it; give each its own file" in caplog.text
    assert [line["name"] for line in lines(tmp_path / "run.jsonl")] == ["train"] * 3


def test_a_file_that_another_run_puts_aside_before_it_is_locked_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = run(tmp_path / "run.jsonl", 1)
    flock = fcntl.flock

    def put_aside_and_lock(file: Any, how: int) -> None:
        monkeypatch.undo()
        path.rename(tmp_path / "aside.jsonl")
        other = path.open("ab")
        flock(other, fcntl.LOCK_EX)
        others.append(other)
        flock(file, how)

    others: list[Any] = []
    before = path.read_bytes()
    monkeypatch.setattr(fcntl, "flock", put_aside_and_lock)
    run(path, 1)
    assert "another augmenter is writing to it" in caplog.text
    assert (tmp_path / "aside.jsonl").read_bytes() == before
    assert path.read_bytes() == b""
    others[0].close()


# --- reading


def test_damaged_lines_are_named(tmp_path: Path) -> None:
    path = run(tmp_path / "run.jsonl")
    text = path.read_bytes().splitlines(keepends=True)
    for line, why in (
        (b"not JSON\n", "not JSON"),
        (b"[1]\n", "no line of a ledger"),
        (b'{"kind":"batch"}\n', "which epoch"),
    ):
        path.write_bytes(b"".join([*text[:3], line, *text[4:]]))
        with pytest.raises(NotALedger, match=f"line 4 of .* is damaged: .*{why}"):
            list(records(path))


def test_foreign_files_are_refused_with_their_name(tmp_path: Path) -> None:
    header = lines(run(tmp_path / "run.jsonl", 1))[0]
    for content, why in (
        (b"", "it has no whole line"),
        (
            json.dumps({**header, "format": 2}).encode() + b"\n",
            "has format 2; this version of detaug reads format 3",
        ),
        (
            json.dumps({"kind": "header", "what": "detaug ledger", "format": 3}).encode() + b"\n",
            "missing or wrong in its header",
        ),
        (json.dumps({**header, "declared": 5}).encode() + b"\n", "declared missing or wrong"),
    ):
        (tmp_path / "other").write_bytes(content)
        with pytest.raises(NotALedger, match=why):
            read_header(tmp_path / "other")
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        read_header(tmp_path / "none")
