"""Every kind of fault is planted, and verify names the line that drew, or the first transform that
differs.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from detaug.system.interception import Site
from detaug.verification import Result, verify
from tests.processes.verify import pipelines
from tests.support.preloaded import run_code

REPOSITORY = Path(__file__).parents[3]


def verified(*names: str, batches: int = 3) -> Result:
    factory = partial(pipelines.faulty, *names)
    return verify(factory, batches=batches, processes=[2], start_methods=["fork"])


def lines(*names: str) -> set[Site]:
    return {Site(pipelines.__file__, pipelines.line_of(name)) for name in names}


def test_every_line_that_draws_chance_from_the_system_is_named_however_it_was_imported() -> None:
    result = verified(*pipelines.CHANCE)
    assert not result.ok
    assert {cause.site for cause in result.causes} == lines(*pipelines.CHANCE)
    for cause in result.causes:
        assert "random numbers from the operating system" in cause.what


def test_every_line_that_takes_the_clock_the_process_or_a_folders_order_is_named() -> None:
    names = (
        "TimeAsSeed",
        "ChoosesByTiming",
        "PidAsSeed",
        "ParentAsSeed",
        "GroupAsSeed",
        "DirectoryOrder",
        "ListedWithOs",
    )
    result = verified(*names)
    assert not result.ok
    assert {cause.site for cause in result.causes} >= lines(*names)
    others = {cause.site for cause in result.causes} - lines(*names)
    assert all(site is not None and site.file == pipelines.__file__ for site in others), (
        "a measurement has two readings"
    )


def test_state_that_no_copy_puts_back_differs_after_other_batches_and_in_a_fresh_process() -> None:
    result = verified("CountsInItsClass")  # where no copy of the pipeline reaches
    differ = {row.what for row in result.rows if row.verdict == "different"}
    assert {
        "made twice, after other batches",
        "each batch alone in a fresh process, in epochs 0 and 2",
    } <= differ
    (cause,) = result.causes
    assert cause.what == "the pipeline depends on which batches were made before"
    assert "CountsInItsClass" in str(cause.difference)


def test_loader_that_shuffles_its_list_is_different_where_it_is_declared_stateless() -> None:
    declared = verify(
        pipelines.shuffling_but_declared_stateless, batches=5, processes=[2], start_methods=["fork"]
    )
    assert "each batch alone in a fresh process, in epochs 0 and 2" in {
        row.what for row in declared.rows if not row.ok
    }
    assert declared.cause is not None
    assert str(declared.cause.difference).startswith("ShufflesItsList: ")


def test_what_raises_only_in_other_circumstances_could_not_be_measured_and_is_no_difference() -> (
    None
):
    result = verified("RaisesWhereTheClockIsWrong")
    failed = {each.what: each.detail for each in result.rows if each.verdict == "failed"}
    assert "another clock" in failed, str(result)
    assert all("the pipeline raises ValueError: it is" in detail for detail in failed.values())
    assert "different" not in {each.verdict for each in result.rows}
    assert (result.ok, result.status) == (False, 2)


def test_draw_before_the_first_batch_is_told_with_its_transform() -> None:
    result = verified("DrawsInItsConstructor")
    (cause,) = result.causes
    assert "draws from a global random generator where detaug has not seeded it" in cause.what
    assert "DrawsInItsConstructor" in str(cause.difference)


def test_hash_order_is_told_by_other_interpreters_with_its_transform() -> None:
    # in a process of its own: what other tests have registered in this one may not travel to other
    # interpreters
    code = (
        "from tests.processes.verify.test_causes import verified; result = verified('HashOrder', "
        "batches=2); "
        "print([row.what for row in result.rows if not row.ok]); print(result.cause.what); "
        "print(result.cause.difference)"
    )
    done = run_code(code, folder=REPOSITORY, environment=os.environ)
    assert done.returncode == 0, done.stderr
    rows, what, *difference = done.stdout.splitlines()
    assert rows == str(["other interpreters, with another PYTHONHASHSEED"])
    assert "PYTHONHASHSEED" in what
    assert "HashOrder" in " ".join(difference)


def test_fault_of_the_loader_is_told_from_one_of_the_transform() -> None:
    result = verified("FaultyLoader")
    assert [cause.site for cause in result.causes] == list(lines("FaultyLoader"))
    assert str(result.causes[0].difference).startswith(
        "FaultyLoader: ['data'] differs in 128 of 128 elements, by"
    )
