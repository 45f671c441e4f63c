"""During a trial a pipeline's code gets controlled randomness, time and pid, and only then."""

from __future__ import annotations

import gc
import importlib
import os
import queue
import random
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from os import urandom
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from detaug.system.interception import Site
from detaug.verification.conditions import Conditions, ControlledEnvironment
from tests.support.waiting import join


def values_of_all_calls() -> tuple[object, ...]:
    """Return randomness, time, pid and global draws, got through every kind of imported name.

    Items 0 to 8 are random, 9 to 11 times, 12 the pid, and 13 and 14 global draws.
    """
    return (
        os.urandom(4),
        urandom(4),
        os.getrandom(4),
        uuid.uuid4(),
        uuid.uuid1(),
        np.random.default_rng().random(),
        np.random.RandomState().rand(),
        random.Random().random(),
        random.SystemRandom().random(),
        time.time(),
        time.monotonic_ns(),
        perf_counter(),
        os.getpid(),
        np.random.rand(),
        random.random(),
    )


HERE = Site("pipeline.py", 3)
ELSEWHERE = Site("pipeline.py", 4)


@pytest.mark.parametrize(
    ("conditions", "states"),
    [
        (Conditions(), [0, 0, 0]),
        (Conditions("clock", 5), [5, 5, 5]),
        (Conditions("clock", 5, HERE), [5, 0, 0]),
        (Conditions("process", 5), [0, 0, 0]),
        (Conditions("process", 5, HERE), [0, 0, 0]),
    ],
)
def test_a_factor_changes_for_the_lines_in_question(
    conditions: Conditions, states: list[int]
) -> None:
    sites = (HERE, ELSEWHERE, None)
    assert [conditions.state_of("clock", site) for site in sites] == states


def test_the_calls_of_one_line_alone_are_changed() -> None:
    with under(Conditions()) as sites:
        values_of_all_calls()
    first_clock = next(iter(sites["clock"]))
    values = values_under(Conditions("clock", 1, first_clock))
    unchanged_values = values_under(Conditions())
    assert indices_that_differ(values, unchanged_values) == [9]


@contextmanager
def under(conditions: Conditions) -> Iterator[dict[str, dict[Site, str]]]:
    """Run a block under conditions; yield the lines that ask, by factor."""
    environment = ControlledEnvironment(conditions)
    with environment.around():
        yield environment.sites


def values_under(conditions: Conditions) -> tuple[object, ...]:
    with under(conditions):
        return values_of_all_calls()


def indices_that_differ(a: tuple[object, ...], b: tuple[object, ...]) -> list[int]:
    assert len(a) == len(b)
    return [index for index in range(len(a)) if a[index] != b[index]]


def read_the_clock() -> None:
    for _ in range(5):
        time.time()


def test_another_threads_clock_is_its_own() -> None:
    with under(Conditions()):
        start = time.time()
        thread = threading.Thread(target=read_the_clock)
        thread.start()
        join(thread, "the thread has read the clock")
        assert time.time() - start == pytest.approx(1e-3, rel=1e-3)


def test_equal_conditions_give_equal_answers_and_each_factor_changes_its_own_alone() -> None:
    # What an earlier test has left may read a clock when it is collected.
    gc.collect()
    unchanged_values = values_under(Conditions())
    assert values_under(Conditions()) == unchanged_values
    for factor, indices in (
        ("randomness", range(9)),
        ("clock", range(9, 12)),
        ("process", range(12, 13)),
        ("global_state", range(13, 15)),
    ):
        values = values_under(Conditions(factor, 1))
        assert indices_that_differ(values, unchanged_values) == list(indices), factor


def replaced_functions() -> tuple[object, ...]:
    return os.urandom, urandom, time.time, perf_counter, os.listdir, random.Random.seed


def test_everything_is_put_back_also_after_an_exception() -> None:
    functions_before = replaced_functions()
    with pytest.raises(ValueError, match="in the middle"), under(Conditions("clock", 1)):
        raise ValueError("in the middle")
    assert replaced_functions() == functions_before


def test_module_that_is_imported_meanwhile_keeps_the_real_function(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "imported_meanwhile.py").write_text("from os import urandom\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with under(Conditions()):
        module = importlib.import_module("imported_meanwhile")
        assert module.urandom is os.urandom
    assert module.urandom is urandom
    del sys.modules["imported_meanwhile"]


def test_standard_librarys_own_clock_goes_on() -> None:
    with under(Conditions("clock", 1)), pytest.raises(queue.Empty):
        queue.Queue[int]().get(timeout=0.02)
