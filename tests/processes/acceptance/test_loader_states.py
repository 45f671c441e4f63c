"""A loader with `state_dict` and `load_state_dict` of its own is resumed through them, with the
bytes of stepping forward.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from detaug import DeterministicAugmenter, LocalProcesses
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take, through_json
from tests.support.processes import wait_until
from tests.support.stateful_loaders import (
    Chain,
    EpochChain,
    Noise,
    OwnGenerator,
    Refusing,
    StatefulDataLoader,
    SteppedChain,
    Tuples,
    calls,
)

BATCHES = 9
Loader = Callable[[Path], Any]


LOADERS: dict[str, tuple[Loader, dict[str, Any]]] = {
    "endless": (Chain, {"batches_per_epoch": BATCHES}),
    "one long epoch": (Chain, {}),
    "finite": (partial(Chain, length=5), {}),
    "finite, and cut": (partial(Chain, length=5), {"batches_per_epoch": 4}),
    "is told epochs": (partial(EpochChain, length=5), {}),
    "is told epochs, endless": (EpochChain, {"batches_per_epoch": BATCHES}),
    "owns a generator": (OwnGenerator, {"batches_per_epoch": BATCHES}),
    "torchdata": (StatefulDataLoader, {}),
}


@pytest.fixture
def diary(tmp_path: Path) -> Path:
    return tmp_path / "diary"


def batches_over_epochs(augmenter: DeterministicAugmenter, n: int) -> list[Any]:
    batches: list[Any] = []
    while len(batches) < n:
        batches += take(augmenter, n - len(batches))
    return batches


@pytest.mark.parametrize("streams", [1, 3])
@pytest.mark.parametrize("name", LOADERS)
def test_run_goes_on_at_any_step_with_the_same_bytes_and_without_stepping(
    make: Maker, diary: Path, name: str, streams: int
) -> None:
    loader, options = LOADERS[name]
    options = {**options, "seed": 3, "num_streams": streams, "check": False}
    whole = make(loader(diary), Noise(), 0, **options)
    states, batches = [], []
    for _ in range(24):
        states.append(through_json(whole.state_dict()))
        batches += batches_over_epochs(whole, 1)
    expected = fingerprints_of(batches)
    # Three streams have a worker each; that of a single one is killed below.
    resumes = [(1, 0), (5, 0), (BATCHES, 0), (14, 0), (17, 3 if streams == 3 else 0)]
    for k, n in resumes:
        resumed = make(loader(diary), Noise(), n, **options)
        resumed.load_state_dict(states[k])
        assert resumed.state_dict() == states[k], f"after {k} batches"
        diary.unlink()
        assert fingerprints_of(batches_over_epochs(resumed, 6)) == expected[k : k + 6], (
            f"after {k} batches, {n} processes"
        )
        make.close()
        # the batches, what is prefetched, and at most each stream's end of an epoch
        assert len(calls(diary)) <= 6 + (n + 2 if n else 0) + 3 * streams, (
            f"after {k} batches, {n} processes"
        )


def test_state_belongs_to_what_was_delivered_and_not_to_what_is_prefetched(
    make: Maker, diary: Path
) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 1}
    ahead = make(Chain(diary), None, 1, 6, **options)
    take(ahead, 3)
    wait_until(lambda: len(calls(diary)) >= 9, "batches are prefetched")
    alone = make(Chain(diary), None, 0, **options)
    take(alone, 3)
    assert ahead.state_dict() == alone.state_dict()
    assert json.loads(ahead.state_dict()["loader_states"])["0"]["turn"] == 3


@pytest.mark.parametrize("n", [0, 1])
def test_batch_that_is_put_back_takes_its_state_with_it(make: Maker, diary: Path, n: int) -> None:
    augmenter = make(Chain(diary), None, n, seed=3)
    batches = take(augmenter, 4)
    state = augmenter.state_dict()
    augmenter._engine.wait()
    augmenter._engine.put_back()  # as Ctrl-C does
    assert augmenter.state_dict() == state
    batches += take(augmenter, 1)
    resumed = make(Chain(diary), None, 0, seed=3)
    resumed.load_state_dict(state)
    assert fingerprints_of(take(resumed, 1)) == fingerprints_of(batches[-1:])


def test_states_go_with_the_state_dict_as_one_string_and_may_be_absent(
    make: Maker, diary: Path
) -> None:
    augmenter = make(Chain(diary), None, 0, seed=3, num_streams=2)
    assert "loader_states" not in augmenter.state_dict()
    expected = fingerprints_of(take(augmenter, 5))
    state = augmenter.state_dict()
    assert all(type(value) in (int, str) for value in state.values())
    rest = fingerprints_of(take(augmenter, 2))
    del state["loader_states"]  # as older versions saved it
    older = make(Chain(diary), None, 0, seed=3, num_streams=2)
    older.load_state_dict(state)
    assert fingerprints_of(take(older, 2)) == rest
    stepped = make(SteppedChain(diary), None, 0, seed=3, num_streams=2)
    assert fingerprints_of(take(stepped, 5)) == expected
    assert "loader_states" not in stepped.state_dict()


@pytest.mark.parametrize("n", [0, 3])
def test_replay_before_and_behind_the_loaded_place(make: Maker, diary: Path, n: int) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 2, "check": False}
    first = make(Chain(diary), Noise(), 0, **options)
    expected = fingerprints_of(take(first, 30))
    state = first.state_dict()
    expected += fingerprints_of(take(first, 6))
    resumed = make(Chain(diary), Noise(), n, **options)
    resumed.load_state_dict(state)
    diary.unlink()
    assert fingerprints_of([resumed.replay(0, 33)]) == expected[33:34]
    assert len(calls(diary)) == 2
    assert fingerprints_of([resumed.replay(0, 7)]) == expected[7:8]
    assert fingerprints_of(take(resumed, 6)) == expected[30:]
    assert fingerprints_of([resumed.replay(0, 29)]) == expected[29:30]


@pytest.mark.parametrize("n", [0, 2])
def test_states_are_loaded_into_a_running_augmenter_backwards_and_forwards(
    make: Maker, diary: Path, n: int
) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 3, "batches_per_epoch": BATCHES}
    augmenter = make(Chain(diary), Noise(), n, **options)
    states, batches = [], []
    for _ in range(30):
        states.append(augmenter.state_dict())
        batches += batches_over_epochs(augmenter, 1)
    expected = fingerprints_of(batches)
    for k in (4, 20, 11, 0, 23):
        augmenter.load_state_dict(states[k])
        assert fingerprints_of(batches_over_epochs(augmenter, 7)) == expected[k : k + 7]
    augmenter.set_epoch(1)
    assert fingerprints_of(take(augmenter, 4)) == expected[BATCHES : BATCHES + 4]


def test_worker_killed_after_a_resume_is_rebuilt_from_the_loaded_state(
    make: Maker, diary: Path
) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 2, "check": False}
    first = make(Chain(diary), Noise(), 0, **options)
    take(first, 60)
    state = first.state_dict()
    expected = fingerprints_of(take(first, 30))
    resumed = make(Chain(diary), Noise(), 2, **options)
    resumed.load_state_dict(state)
    got = take(resumed, 10)
    killed = got[-1]["witness"]["pid"]
    diary.unlink()
    os.kill(killed, signal.SIGKILL)
    got += take(resumed, 20)
    assert fingerprints_of(got) == expected
    # no more than what it had made since the load, and what was made anew
    assert len(calls(diary)) <= 5 + 20 + 8 + 4


def test_worker_killed_in_a_run_is_rebuilt_from_its_last_states(make: Maker, diary: Path) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 1}
    expected = fingerprints_of(take(make(Chain(diary), Noise(), 0, **options), 130))
    augmenter = make(Chain(diary), Noise(), 1, 2, check=False, **options)
    got = take(augmenter, 100)
    first = got[-1]["witness"]["pid"]
    os.kill(first, signal.SIGKILL)
    got += take(augmenter, 30)
    assert fingerprints_of(got) == expected
    second = got[-1]["witness"]["pid"]
    assert second != first
    assert calls(diary).count(second) <= 30 + 8


@pytest.mark.parametrize("n", [0, 2])
def test_state_that_is_not_plain_is_said_once_and_stepped_forward(
    make: Maker, diary: Path, caplog: pytest.LogCaptureFixture, n: int
) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 2}
    with caplog.at_level(logging.INFO, logger="detaug"):
        first = make(Tuples(diary), Noise(), n, **options)
        take(first, 7)
        state = first.state_dict()
        rest = fingerprints_of(take(first, 4))
        make.close()
    assert "loader_states" not in state
    (record,) = (record for record in caplog.records if "stepped forward" in record.message)
    assert record.levelno == logging.INFO
    assert "come back unchanged from JSON" in record.message
    second = make(Tuples(diary), Noise(), n, **options)
    second.load_state_dict(state)
    assert fingerprints_of(take(second, 4)) == rest


@pytest.mark.parametrize(("n", "check_every"), [(0, 1), (1, 0)])
def test_loader_that_refuses_its_state_is_stepped_forward(
    make: Maker, diary: Path, caplog: pytest.LogCaptureFixture, n: int, check_every: int
) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 2}
    first = make(Refusing(diary), Noise(), 0, check=False, **options)
    take(first, 7)
    state = first.state_dict()
    rest = fingerprints_of(take(first, 12))
    second = make(Refusing(diary), Noise(), n, check=check_every, **options)
    second.load_state_dict(state)
    with caplog.at_level(logging.WARNING, logger="detaug"):
        assert fingerprints_of(take(second, 12)) == rest
        make.close()
    assert "no way back; its streams are stepped forward instead" in caplog.text
    assert second.stats()["mismatches"] == 0


@pytest.mark.parametrize("n", [0, 1])
def test_a_run_that_resumed_far_from_the_start_is_checked_from_there(
    make: Maker, diary: Path, n: int
) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 1}
    first = make(Chain(diary), None, 0, check=False, **options)
    next(first)
    state = first.state_dict()
    states = json.loads(state["loader_states"])
    states["0"]["turn"] = states["0"]["state"]["count"] = 100_000_000
    far = {"step": 100_000_000, "taken": 100_000_000, "loader_states": json.dumps(states)}
    resumed = make(Chain(diary), None, n, **options)
    resumed.load_state_dict({**state, **far})
    assert take(resumed, 8)[-1]["count"] == 100_000_008
    wait_until(lambda: resumed.stats()["checked"] > 0, "a batch was checked")
    assert resumed.stats()["mismatches"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        "[]",
        '{"7": {"epoch": 0, "turn": 1, "in_mid_pass": false, "state": {}}}',
        '{"0": {"epoch": true, "turn": 1, "in_mid_pass": false, "state": {}}}',
        '{"0": {"turn": 1, "state": {}}}',
    ],
)
def test_states_that_are_none_are_refused(make: Maker, diary: Path, text: str) -> None:
    augmenter = make(Chain(diary), None, 0, seed=3, num_streams=2)
    with pytest.raises(ValueError, match="loader_states"):
        augmenter.load_state_dict({**augmenter.state_dict(), "loader_states": text})


def test_states_travel_to_new_interpreters(make: Maker, diary: Path) -> None:
    options: dict[str, Any] = {"seed": 3, "num_streams": 2}
    first = make(OwnGenerator(diary), Noise(), 0, **options)
    take(first, 20)
    state = first.state_dict()
    expected = fingerprints_of(take(first, 4))
    resumed = make(OwnGenerator(diary), Noise(), 1, executor=LocalProcesses("spawn"), **options)
    resumed.load_state_dict(state)
    assert fingerprints_of(take(resumed, 4)) == expected
