"""The augmenter's arguments in groups: what is allowed, and what can have no effect beside the others."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from detaug import Check, DeterministicAugmenter, InThisProcess, LocalProcesses, Skip
from detaug.ray import RayExecutor

NAMES = (
    "data_loader transform num_processes num_cached seeds pin_memory wait_time seed name batches_per_epoch num_streams "
    "stateless rank world_size tail on_error version call keep check executor ledger"
)


class Ones:
    def __iter__(self) -> Ones:
        return self

    def __next__(self) -> dict[str, int]:
        return {"data": 1}


def augmenter(num_processes: int = 0, **options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter(Ones(), None, num_processes, seed=1, **options)


def test_the_arguments_are_these_in_this_order() -> None:
    parameters = inspect.signature(DeterministicAugmenter).parameters
    assert [name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD] == NAMES.split()
    assert [parameters[name].kind.name for name in ("wait_time", "seed")] == ["POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"]


def test_no_workers_beside_settings_of_workers_are_an_error_that_names_both() -> None:
    with pytest.raises(
        ValueError, match=r"num_processes=0 .*stall_timeout=60\.0.* no effect: leave executor out, or pass num_"
    ):
        augmenter(0, executor=LocalProcesses(stall_timeout=60.0))
    with pytest.raises(ValueError, match=r"num_processes=0 .* no effect"):
        augmenter(0, executor=LocalProcesses())


def test_workers_beside_this_process_are_an_error_that_names_both() -> None:
    with pytest.raises(
        ValueError, match=r"InThisProcess\(\) .* num_processes=4 has no effect: pass num_processes=0, or "
    ):
        augmenter(4, executor=InThisProcess())


def test_a_cluster_without_actors_is_an_error() -> None:
    with pytest.raises(ValueError, match="num_processes=0 and RayExecutor"):
        augmenter(0, executor=RayExecutor(0))


def test_how_a_difference_is_told_has_no_effect_where_nothing_is_compared() -> None:
    with pytest.raises(ValueError, match="on_mismatch='warn' has no effect with every=0"):
        Check(every=0, on_mismatch="warn")


@pytest.mark.parametrize(
    ("given", "check"),
    [
        (True, Check()),
        (False, Check(every=0)),
        (0, Check(every=0)),
        (1, Check(every=1)),
        (20, Check(20)),
        (Check(7), Check(7)),
    ],
)
def test_an_integer_is_how_often_and_false_is_never(given: Any, check: Check) -> None:
    made = augmenter(check=given)
    assert made.check == check
    assert type(made.check.every) is int


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
def test_an_argument_of_a_group_that_cannot_be_right_is_refused_by_name(group: type, options: dict[str, Any]) -> None:
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
def test_an_argument_of_a_group_given_by_itself_is_refused_with_the_spelling(old: dict[str, Any], new: str) -> None:
    with pytest.raises(TypeError, match=f"write {new}$"):
        augmenter(2, **old)
