"""Every kind of fault is planted, and verify names its line."""

from __future__ import annotations

from functools import partial

import pytest

from detaug.verification import Result, verify
from detaug.watching.interception import Site
from tests.processes.verify import pipelines

EVERY_FAULT = (
    *pipelines.CHANCE,
    *pipelines.CLOCK,
    *pipelines.CARRIED,
    *pipelines.KEPT_BY_FUNCTIONS,
    *pipelines.FOLDERS,
    *pipelines.HASH,
    *pipelines.OTHERS,
)
INTERPRETERS = (*pipelines.HASH, "ProcessNumberUnseen")


def verified(*names: str, hash_seeds: tuple[int, ...] = (), batches: int = 3) -> Result:
    factory = partial(pipelines.faulty, *names)
    return verify(factory, batches=batches, processes=[2], start_methods=["fork"], hash_seeds=hash_seeds)


def lines(*names: str) -> set[Site]:
    return {Site(pipelines.__file__, pipelines.line_of(name)) for name in names}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY_FAULT if name not in pipelines.BEGUN_ANEW])
def test_the_one_fault_of_a_pipeline_is_the_one_that_is_named(name: str) -> None:
    result = verified(name, hash_seeds=(1, 2) if name in INTERPRETERS else ())
    assert not result.ok
    assert [cause.site for cause in result.causes] == list(lines(name))
    assert result.cause is not None
    assert name in str(result.cause.difference) or name == "FaultyLoader"


@pytest.mark.slow
@pytest.mark.parametrize("name", pipelines.BEGUN_ANEW)
def test_what_every_batch_begins_without_is_named_as_repaired(name: str) -> None:
    result = verified(name)
    assert result.ok
    assert [cause.site for cause in result.causes] == list(lines(name))
    assert all(cause.repaired for cause in result.causes)


def test_every_line_that_draws_chance_from_the_system_is_named_however_it_was_imported() -> None:
    result = verified(*pipelines.CHANCE)
    assert not result.ok
    assert {cause.site for cause in result.causes} == lines(*pipelines.CHANCE)
    for cause in result.causes:
        assert "random numbers from the operating system" in cause.what


@pytest.mark.slow
def test_every_line_that_takes_a_seed_from_the_clock_or_the_process_or_chooses_by_timing_is_named() -> None:
    result = verified(*pipelines.CLOCK, "PidAsSeed")
    assert not result.ok
    assert {cause.site for cause in result.causes} == lines(*pipelines.CLOCK, "PidAsSeed")


def test_every_line_that_changes_what_is_carried_or_kept_by_a_function_is_named_with_the_variable() -> None:
    result = verified(*pipelines.CARRIED, *pipelines.KEPT_BY_FUNCTIONS)
    assert not result.ok
    assert {cause.site for cause in result.causes} == lines(*pipelines.CARRIED, *pipelines.KEPT_BY_FUNCTIONS)
    text = str(result).replace("\n", "")
    for name in (
        "LargeState.buffer",
        "CachesTheFirst.reference",
        "pipelines._COUNT",
        "CountsInItsClass.count",
        "_mean_of_all.values",
        "_counted.calls",
        "counting.calls",
        "_length_with_one_more.items",
        "its cache",
        "called_once.results",
        "_Statistics.means",
    ):
        assert name in text


def test_generator_that_is_made_without_a_seed_is_named_though_detaug_seeds_it() -> None:
    result = verified("UnseededInItsConstructor")
    assert result.ok
    made = pipelines.line_of("UnseededInItsConstructor")
    (cause,) = [cause for cause in result.causes if cause.site == Site(pipelines.__file__, made)]
    assert cause.repaired
    assert "random numbers from the operating system" in cause.what


@pytest.mark.slow
def test_every_line_that_takes_a_folder_in_the_order_it_comes_is_named() -> None:
    result = verified(*pipelines.FOLDERS)
    assert not result.ok
    assert {cause.site for cause in result.causes} == lines(*pipelines.FOLDERS)


@pytest.mark.slow
def test_line_at_which_threads_race_is_named() -> None:
    result = verified("FirstThread")
    assert not result.ok
    assert [cause.site for cause in result.causes] == list(lines("FirstThread"))
    assert "which thread is first" in result.causes[0].what


def test_draw_before_the_first_batch_is_named() -> None:
    result = verified("DrawsInItsConstructor")
    assert not result.ok
    assert [cause.site for cause in result.causes] == list(lines("DrawsInItsConstructor"))
    assert "self.offset" in result.causes[0].what


@pytest.mark.slow
def test_hash_order_is_told_by_other_interpreters() -> None:
    result = verified("HashOrder", hash_seeds=(1, 2), batches=1)
    assert not result.ok
    assert [cause.site for cause in result.causes] == list(lines("HashOrder"))
    assert "PYTHONHASHSEED" in result.causes[0].what


@pytest.mark.slow
def test_dependence_on_the_process_is_not_taken_for_one_on_hash_order() -> None:
    result = verified("ProcessNumberUnseen", hash_seeds=(1, 2), batches=1)
    assert [cause.site for cause in result.causes] == list(lines("ProcessNumberUnseen"))
    assert "depends on the process that makes the batch" in result.causes[0].what


def test_fault_of_the_loader_is_told_from_one_of_the_transform() -> None:
    result = verified("FaultyLoader")
    assert [cause.site for cause in result.causes] == list(lines("FaultyLoader"))
    assert str(result.causes[0].difference).startswith("the loader: ['data'] differs in 128 of 128 elements, by")
