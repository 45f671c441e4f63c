"""What verify says of pipelines that keep something from batch to batch: what is right stays equal, what is not differs."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from detaug import DeterministicAugmenter
from detaug.verification import Result, verify
from tests.processes.verify import impure

QUICK: dict[str, Any] = {"batches": 5, "processes": [2], "start_methods": ["fork"], "hash_seeds": ()}


def verified(factory: Any, **options: Any) -> Result:
    return verify(factory, **{**QUICK, **options})


def verdicts(result: Result) -> dict[str, str]:
    return {row.what: row.verdict for row in result.rows}


def test_data_set_with_a_correct_cache_is_equal_in_every_row() -> None:
    result = verified(impure.OneShard)
    assert set(verdicts(result).values()) == {"equal"}, str(result)
    assert result.causes == ()


def test_state_of_transforms_is_repaired_by_copies() -> None:
    result = verified(partial(impure.transformed, *impure.MADE_PURE))
    assert set(verdicts(result).values()) == {"equal"}, str(result)


def test_loader_that_shuffles_its_list_is_different_where_it_is_declared_stateless() -> None:
    declared = verified(partial(shuffling, 1_001))
    assert not declared.ok
    assert verdicts(declared)["each batch alone in a fresh process, in epochs 0 and 2"] == "different"
    assert declared.cause is not None
    assert str(declared.cause.difference).startswith("the loader: ")


def shuffling(items: int) -> Any:
    return DeterministicAugmenter(impure.ShufflesItsList(items), None, 0, stateless=True)


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (impure.RaisesWhereTheClockIsWrong, {"another clock"}),
        (impure.RaisesInAnotherProcess, {"another process number"}),
    ],
)
def test_what_raises_only_in_other_circumstances_could_not_be_measured_and_is_no_difference(
    kind: type, rows: set[str]
) -> None:
    result = verified(partial(impure.transformed, kind))
    failed = {row.what: row.detail for row in result.rows if row.verdict == "failed"}
    assert set(failed) >= rows, str(result)
    assert all("the pipeline raises ValueError: it is" in detail for detail in failed.values())
    assert "different" not in verdicts(result).values()
    assert (result.ok, result.status) == (False, 2)
