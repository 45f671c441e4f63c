"""An exception in a loader or transform surfaces at its own place in the order."""

from __future__ import annotations

import traceback
from typing import Any

import pytest

from tests.support.augmenters import Maker
from tests.support.comparing import prints
from tests.support.faults import RaisesAt, ReaderError, UnpicklableError

pytestmark = pytest.mark.timeout(120)

KINDS = {
    "value": ValueError,
    "key": KeyError,
    "reader": ReaderError,
    "unpicklable": UnpicklableError,
    "assertion": AssertionError,
    "memory": MemoryError,
    "file": FileNotFoundError,
}


def everything_shown(error: BaseException) -> str:
    """What a user sees when nobody catches it."""
    return "".join(traceback.format_exception(error))


def run_into_error(augmenter: Any, error: type[BaseException] = ValueError) -> tuple[list[Any], BaseException]:
    batches: list[Any] = []
    try:
        for _ in range(50):
            batches.append(next(augmenter))
    except error as caught:
        return batches, caught
    raise AssertionError(f"no {error.__name__} in {len(batches)} batches")


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize(
    ("kind", "attributes"),
    [
        ("reader", {"file": "case_017.nii.gz", "line": 3}),
        ("file", {"errno": 2, "filename": "case_017.nii.gz"}),
    ],
)
def test_error_keeps_what_it_holds(make: Maker, kind: str, attributes: dict[str, Any], n: int) -> None:
    _, error = run_into_error(make(RaisesAt((1,), kind), None, n, seed=1), Exception)
    holder = error if isinstance(error, KINDS[kind]) and hasattr(error, next(iter(attributes))) else error.__cause__
    assert {name: getattr(holder, name, "missing") for name in attributes} == attributes


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_error_shows_where_it_was_raised_and_how_to_replay_it(make: Maker, kind: str, n: int) -> None:
    _, error = run_into_error(make(RaisesAt((3,), kind), None, n, seed=1), KINDS[kind])
    shown = everything_shown(error)
    assert "read_the_broken_case" in shown, "the function that raised is in the traceback"
    assert "raise error" in shown, "and so is its line"
    assert "epoch 0" in shown.lower()
    assert "step 3" in shown.lower()
    assert "replay(0, 3)" in shown.replace("epoch=", "").replace("step=", "")
    assert {"value": "voxel spacing is zero", "reader": "broken in line 3"}.get(kind, "") in shown
    assert {"key": "case_017", "file": "case_017.nii.gz"}.get(kind, "") in shown


@pytest.mark.parametrize("n", [0, 2])
def test_after_an_error_restart_or_set_epoch_run_into_it_again(make: Maker, n: int) -> None:
    augmenter = make(RaisesAt((2,)), None, n, seed=1, batches_per_epoch=6)
    expected = prints(run_into_error(augmenter)[0])
    augmenter.set_epoch(0)
    assert prints(run_into_error(augmenter)[0]) == expected
    augmenter.restart()
    batches, _ = run_into_error(augmenter)
    assert prints(batches) == expected[len(expected) - len(batches) :]


@pytest.mark.parametrize("kind", ["value", "reader"])
def test_replay_of_the_failing_step_raises_the_error_here(make: Maker, kind: str) -> None:
    augmenter = make(RaisesAt((2,), kind), None, 2, seed=1)
    run_into_error(augmenter, KINDS[kind])
    with pytest.raises(KINDS[kind]) as caught:
        augmenter.replay(0, 2)
    frames = {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert "read_the_broken_case" in frames, "the debugger can walk into the frame that raised"
