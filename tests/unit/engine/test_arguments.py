"""The augmenter's arguments: allowed values, arguments without an effect, and the seed's origin."""

from __future__ import annotations

import copy
import inspect
import io
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch

from detaug import Check, DeterministicAugmenter, InThisProcess, LocalProcesses, Skip
from detaug.nnunet.trainers.late_augmenter import LateAugmenter
from detaug.ray import RayExecutor
from tests.support.comparing import fingerprints_of, take
from tests.support.ledgers.runs import Draws
from tests.support.loaders import Noise, RandomLoader

NAMES = (
    "data_loader transform num_processes num_cached seeds pin_memory wait_time seed name "
    "batches_per_epoch num_streams "
    "stateless rank world_size tail on_error version call keep check executor ledger"
)


class Ones:
    """An endless iterator of equal batches."""

    def __iter__(self) -> Ones:
        return self

    def __next__(self) -> dict[str, int]:
        return {"data": 1}


def augmenter(num_processes: int = 0, **options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter(Ones(), None, num_processes, seed=1, **options)


def test_the_arguments_are_these_in_this_order() -> None:
    parameters = inspect.signature(DeterministicAugmenter).parameters
    named = [name for name, value in parameters.items() if value.kind is not value.VAR_KEYWORD]
    assert named == NAMES.split()
    assert parameters["wait_time"].kind.name == "POSITIONAL_OR_KEYWORD"
    assert parameters["seed"].kind.name == "KEYWORD_ONLY"


def test_no_workers_beside_settings_of_workers_are_an_error_that_names_both() -> None:
    with pytest.raises(
        ValueError,
        match=r"num_processes=0 .*stall_timeout=60\.0.* no effect: leave executor out, or pass "
        r"num_",
    ):
        augmenter(0, executor=LocalProcesses(stall_timeout=60.0))
    with pytest.raises(ValueError, match=r"num_processes=0 .* no effect"):
        augmenter(0, executor=LocalProcesses())


def test_workers_beside_this_process_are_an_error_that_names_both() -> None:
    with pytest.raises(
        ValueError,
        match=r"InThisProcess\(\) .* num_processes=4 has no effect: pass num_processes=0, or ",
    ):
        augmenter(4, executor=InThisProcess())


def test_a_cluster_without_actors_is_an_error() -> None:
    with pytest.raises(ValueError, match="num_processes=0 and RayExecutor"):
        augmenter(0, executor=RayExecutor(0))


def test_how_a_difference_is_told_has_no_effect_where_nothing_is_compared() -> None:
    with pytest.raises(ValueError, match="on_mismatch='warn' has no effect with every=0"):
        Check(every=0, on_mismatch="warn")


@pytest.mark.parametrize(
    ("argument", "check"),
    [
        (True, Check()),
        (False, Check(every=0)),
        (0, Check(every=0)),
        (1, Check(every=1)),
        (20, Check(20)),
        (Check(7), Check(7)),
    ],
)
def test_an_integer_is_how_often_and_false_is_never(argument: Any, check: Check) -> None:
    aug = augmenter(check=argument)
    assert aug.check == check
    assert type(aug.check.every) is int


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("executor", "spawn"),
        ("executor", LocalProcesses),
        ("executor", 4),
        ("on_error", "skip"),
        ("on_error", Skip),
        ("on_error", None),
        ("check", None),
        ("check", Check),
        ("check", "warn"),
        ("check", 1.5),
    ],
)
def test_what_is_no_group_is_refused_with_what_is_allowed(option: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{option} must be .*got "):
        augmenter(1, **{option: value})


@pytest.mark.parametrize(
    ("group", "options"),
    [
        (LocalProcesses, {"start_method": "thread"}),
        (LocalProcesses, {"max_restarts": -1}),
        (LocalProcesses, {"stall_timeout": -1}),
        (LocalProcesses, {"stall_timeout": "soon"}),
        (LocalProcesses, {"max_worker_memory": 0}),
        (LocalProcesses, {"max_worker_memory": 1.5}),
        (LocalProcesses, {"max_worker_memory": "1G"}),
        (RayExecutor, {"max_restarts": -1, "num_actors": 1}),
        (Check, {"every": -1}),
        (Check, {"every": 1.5}),
        (Check, {"every": True}),
        (Check, {"ignore": "pid"}),
        (Check, {"ignore": [1]}),
        (Check, {"on_mismatch": "ignore"}),
        (Check, {"guard": 1}),
        (Skip, {"most": -1}),
        (Skip, {"most": 0.5}),
    ],
)
def test_an_argument_of_a_group_that_cannot_be_right_is_refused_by_name(
    group: type, options: dict[str, Any]
) -> None:
    with pytest.raises((TypeError, ValueError), match=next(iter(options))):
        group(**options)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"start_method": "spawn"}, r"executor=LocalProcesses\(start_method='spawn'\)"),
        ({"max_restarts": 3}, r"executor=LocalProcesses\(max_restarts=3\)"),
        ({"stall_timeout": 60}, r"executor=LocalProcesses\(stall_timeout=60\)"),
        ({"max_worker_memory": 2**30}, r"executor=LocalProcesses\(max_worker_memory=1073741824\)"),
        ({"on_mismatch": "warn"}, r"check=Check\(on_mismatch='warn'\)"),
        ({"guard": True}, r"check=Check\(guard=True\)"),
    ],
)
def test_an_argument_of_a_group_given_by_itself_is_refused_with_the_spelling(
    old: dict[str, Any], new: str
) -> None:
    with pytest.raises(TypeError, match=f"write {new}$"):
        augmenter(2, **old)


#: Pairs of options and a regular expression that the message matches.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"seed": -1}, "-1"),
    ({"seed": 1, "seeds": [1, 2]}, "seeds"),
    ({"seeds": [1]}, "seeds"),
    ({"seeds": [1, 2, 3]}, "seeds"),
    ({"seeds": [1, -2]}, "-2"),
    ({"seeds": [1, 2], "num_streams": 3}, "num_streams"),
    ({"num_processes": -1}, "num_processes"),
    ({"num_processes": 1.5}, "num_processes"),
    ({"num_processes": None}, "num_processes"),
    ({"num_cached": -1}, "num_cached"),
    ({"rank": 2, "world_size": 2}, "rank"),
    ({"rank": -1, "world_size": 2}, "rank"),
    ({"world_size": 0}, "world_size"),
    ({"rank": 0.5, "world_size": 2}, "rank"),
    ({"batches_per_epoch": 0}, "batches_per_epoch"),
    ({"batches_per_epoch": 2.5}, "batches_per_epoch"),
    ({"num_streams": 0}, "num_streams"),
    ({"num_streams": 1.0}, "num_streams"),
    ({"name": 3}, "name"),
    ({"version": 3.5}, "version"),
    ({"keep": "cache"}, "keep"),
    ({"transform": 3}, "transform"),
    ({"transform": "noise"}, "transform"),
    ({"transform": [Noise]}, "transform"),
    ({"ledger": 5}, "ledger must be"),
    ({"ledger": ""}, "ledger must be"),
    ({"ledger": b"run.jsonl"}, "ledger must be"),
    ({"ledger": Path("/")}, "is no regular file"),
    ({"ledger": Path("/dev/full")}, "is no regular file"),
    ({"ledger": "/nowhere/run.jsonl"}, "there is no folder '/nowhere'. Make it first"),
    ({"ledger": "/dev/null/run.jsonl"}, "there is no folder '/dev/null'"),
    ({"tail": "repeat"}, "tail must be one of 'drop', 'pad', got 'repeat'"),
]


@pytest.mark.parametrize(("options", "word"), BAD, ids=str)
def test_argument_is_refused_at_once_by_name(options: dict[str, Any], word: str) -> None:
    arguments = {"data_loader": RandomLoader(), "transform": None, "num_processes": 2, **options}
    with pytest.raises((ValueError, TypeError), match=word):
        DeterministicAugmenter(**arguments)


def test_numpy_ints_are_ints() -> None:
    with_numpy_ints = DeterministicAugmenter(
        RandomLoader(),
        Noise(),
        np.int64(0),
        np.int32(2),
        seed=np.int64(3),
        num_streams=np.int8(2),
        batches_per_epoch=np.int16(4),
        rank=np.int64(0),
        world_size=np.uint8(1),
    )
    plain = DeterministicAugmenter(
        RandomLoader(), Noise(), 0, 2, seed=3, num_streams=2, batches_per_epoch=4
    )
    assert fingerprints_of(with_numpy_ints) == fingerprints_of(plain)
    assert len(with_numpy_ints) == 4


def drawing(**options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter(RandomLoader(), Noise(), 0, **options)


def test_seed_given_is_the_seed_and_two_drawn_seeds_differ() -> None:
    assert drawing(seed=17).seed == 17
    assert list(drawing(seed=[1, 2, 3]).seed) == [1, 2, 3]
    assert len({str(drawing().seed) for _ in range(20)}) == 20


def test_seed_that_is_drawn_is_logged_and_readable_and_gives_the_same_batches_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO):
        aug = drawing()
    assert any(str(aug.seed) in record.getMessage() for record in caplog.records)
    assert any(record.name.startswith("detaug") for record in caplog.records)
    assert fingerprints_of(take(drawing(seed=aug.seed), 5)) == fingerprints_of(take(aug, 5))


def save_in_a_torch_checkpoint(augmenter: Any) -> None:
    torch.save({"data": augmenter}, io.BytesIO())


@pytest.mark.parametrize(
    "copy_it",
    [
        copy.copy,
        copy.deepcopy,
        pickle.dumps,
        cloudpickle.dumps,
        save_in_a_torch_checkpoint,
    ],
)
def test_every_copy_is_refused_with_what_to_save(copy_it: Callable[[Any], Any]) -> None:
    with LateAugmenter(Draws(), None, 0, seed=1, batches_per_epoch=4) as augmenter:
        with pytest.raises(
            TypeError, match=r"a LateAugmenter can be neither .* save aug.state_dict\(\)"
        ):
            copy_it(augmenter)
        assert next(augmenter)["at"] == (0, 0), "the refusal changes nothing"
