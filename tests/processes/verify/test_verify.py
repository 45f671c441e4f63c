"""What `detaug.verify` says of sound pipelines, and of what is no pipeline."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import pytest

from detaug.verification import Result, verify
from tests.processes.verify import pipelines

QUICK: dict[str, Any] = {"batches": 4, "processes": [2], "start_methods": ["fork"]}


@cache
def result_of(name: str) -> Result:
    return verify(getattr(pipelines, name), **QUICK)


# A loader that keeps its place without states is in `test_handed_in`.
@pytest.mark.parametrize("name", ["sound", "with_states", "finite_with_ramp", "iterable"])
def test_sound_pipeline_is_equal_in_every_row(name: str) -> None:
    assert_equal_in_every_row(result_of(name))


def assert_equal_in_every_row(result: Result) -> None:
    assert result.ok, str(result)
    assert {row.verdict for row in result.rows} == {"equal"}
    assert result.causes == ()
    assert all(row.batches > 0 for row in result.rows)


def test_a_loaders_own_state_is_compared_with_stepping_it_forward() -> None:
    verdicts = {row.what: row.verdict for row in result_of("with_states").rows}
    assert verdicts["resumed at random steps, its loader stepped forward"] == "equal"
    assert not any("stepped forward" in row.what for row in result_of("finite_with_ramp").rows)
    result = result_of("with_incomplete_states")
    differing = [row.what for row in result.rows if row.verdict != "equal"]
    assert differing == ["resumed at random steps"]
    assert "load_state_dict() leaves something out" in str(result.cause)


def test_state_that_is_put_back_after_every_batch_is_noted() -> None:
    result = result_of("finite_with_ramp")
    (note,) = result.notes
    assert note.startswith("Ramp.step was 0 when the batch began and 1 when it ended; every batch")
    assert f"note: {note[:40]}" in str(result)
    assert result_of("sound").notes == ()


def test_that_no_row_has_two_workers_is_noted() -> None:
    result = verify(pipelines.sound, **{**QUICK, "processes": [1]})
    assert_equal_in_every_row(result)
    (note,) = result.notes
    assert note.startswith("no row had two workers at once")
    assert "--processes 1,2" in note


def test_variables_that_another_program_does_not_find_are_noted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pipelines.Offset, "value", 3)
    result = verify(pipelines.with_offset, **QUICK)
    (note,) = [note for note in result.notes if "Offset" in note]
    name = "tests.processes.verify.pipelines.Offset.value"
    assert note.startswith(f"{name} is 3 in this program and 0 in a fresh interpreter: spawned")
    assert result.ok


def test_variables_that_change_from_call_to_call_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipelines.Offset, "value", 0)
    notes = verify(pipelines.with_growing_offset, **QUICK).notes
    assert any("pipelines.Offset.value was 1 at first and is " in note for note in notes), notes


def test_what_a_constructor_draws_is_noted_with_both_values() -> None:
    result = verify(pipelines.drawn_in_a_constructor, **QUICK)
    noted = {note.partition(" is ")[0]: note for note in result.notes}
    assert set(noted) == {"transform.w", "transform.angle", "transform.bias", "data_loader.order"}
    for note in noted.values():
        assert " in one program and " in note
        assert "Pass it as an argument, or seed what the constructor draws" in note


def test_what_a_constructor_draws_is_noted_where_no_compared_batch_depends_on_it() -> None:
    result = verify(pipelines.drawn_and_rarely_used, **QUICK)
    assert_equal_in_every_row(result)
    (note,) = result.notes
    assert note.startswith("transform.rare is ")


def test_drawn_attributes_of_what_no_other_interpreter_can_make_are_noted() -> None:
    lock = threading.Lock()

    def factory() -> Any:
        assert not lock.locked()
        return pipelines.drawn_and_rarely_used()

    result = verify(factory, **QUICK)
    assert any(row.verdict == "not run" for row in result.rows)
    assert any(note.startswith("transform.rare is ") for note in result.notes), result.notes


@pytest.mark.slow
def test_pipeline_that_can_only_be_forked_is_equal_there_and_not_run_elsewhere() -> None:
    result = verify(pipelines.only_forked, **{**QUICK, "start_methods": ["fork", "spawn"]})
    verdicts = {row.what: row.verdict for row in result.rows}
    assert verdicts.pop("2 processes, spawn") == "not run"
    assert set(verdicts.values()) == {"equal"}
    assert result.ok
    assert any("cannot be pickled" in row.detail for row in result.rows)
    assert "equal in all rows but 1" in str(result)


def test_harmless_habits_are_equal_and_not_noted_and_the_callers_modules_are_left_as_they_were() -> (
    None
):
    time_before, names_before = time.time, dict(vars(pipelines))
    result = verify(pipelines.harmless, **QUICK)
    assert_equal_in_every_row(result)
    assert result.notes == ()
    assert time.time is time_before
    assert {name: id(value) for name, value in vars(pipelines).items()} == {
        name: id(value) for name, value in names_before.items()
    }


@pytest.mark.parametrize(
    "option", [{"batches": 0}, {"processes": [-1]}, {"start_methods": ["thread"]}]
)
def test_arguments_that_cannot_be_right_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        verify(pipelines.sound, **{**QUICK, **option})
