"""What a pipeline's code meets while a trial runs, and that it is gone afterwards."""

from __future__ import annotations

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


def asked() -> tuple[object, ...]:
    """What this module gets when it asks for randomness, time and process, by every kind of name."""
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
        asked()
    first_clock = next(iter(sites["clock"]))
    only_that = answers(Conditions("clock", 1, first_clock))
    still = answers(Conditions())
    changed = [number for number in range(len(still)) if still[number] != only_that[number]]
    assert changed == [9]


@contextmanager
def under(conditions: Conditions) -> Iterator[dict[str, dict[Site, str]]]:
    surroundings = ControlledEnvironment(conditions)
    with surroundings.around():
        yield surroundings.sites


def answers(conditions: Conditions) -> tuple[object, ...]:
    with under(conditions):
        return asked()


def read_the_clock() -> None:
    for _ in range(5):
        time.time()


def test_another_threads_clock_is_its_own() -> None:
    with under(Conditions()):
        before = time.time()
        thread = threading.Thread(target=read_the_clock)
        thread.start()
        join(thread, "the thread has read the clock")
        assert time.time() - before == pytest.approx(1e-3, rel=1e-3)


def test_equal_conditions_give_equal_answers_and_each_factor_changes_its_own_alone() -> None:
    still = answers(Conditions())
    assert answers(Conditions()) == still
    for factor, places in (
        ("randomness", range(9)),
        ("clock", range(9, 12)),
        ("process", range(12, 13)),
        ("global_state", range(13, 15)),
    ):
        changed = answers(Conditions(factor, 1))
        differing = {
            place
            for place, (here, there) in enumerate(zip(still, changed, strict=True))
            if here != there
        }
        assert differing == set(places), factor


def test_everything_is_put_back_also_after_an_exception() -> None:
    before = os.urandom, urandom, time.time, perf_counter, os.listdir, random.Random.seed
    with pytest.raises(ValueError, match="in the middle"), under(Conditions("clock", 1)):
        raise ValueError("in the middle")
    after = os.urandom, urandom, time.time, perf_counter, os.listdir, random.Random.seed
    assert after == before


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
