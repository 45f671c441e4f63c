"""Pipelines that depend on the hash seed are told of, and no others."""

from __future__ import annotations

import logging
import time

import psutil
import pytest

from detaug import Check, DeterministicAugmenter, ReproducibilityError
from detaug.engine.recheck import policy as checks
from detaug.system.interpreters import known_hash_seed
from tests.processes.engine.test_surroundings import run_python
from tests.processes.purity import hash_order_pipelines as pipelines
from tests.support.augmenters import workers
from tests.support.logs import levels_of, records_of

pytestmark = pytest.mark.skipif(
    known_hash_seed() is not None, reason="PYTHONHASHSEED fixes this program's hashes"
)


@pytest.fixture(autouse=True)
def every_run_is_a_long_one(
    nothing_comes_of_how_long_it_takes: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "LONG_RUN", 0.0)


def batches_until_known(transform, num_processes, method="fork", **options):
    """Take batches until it is known whether they depend on the hash seed."""
    with DeterministicAugmenter.from_dataset(
        pipelines.Numbers(),
        2,
        transform=transform,
        num_processes=num_processes,
        seed=1,
        executor=workers(num_processes, method),
        **options,
    ) as augmenter:
        while not augmenter._recheck_policy.knows_hash_order:
            next(augmenter)
            # The interpreter starts for seconds; batches made meanwhile are checked, too.
            time.sleep(0.1)
        for _ in range(10):
            next(augmenter)
        return augmenter.stats()


@pytest.mark.parametrize(
    ("transform", "key", "num_processes", "method"),
    [
        (pipelines.takes_a_sets_order, "names", 2, "fork"),
        pytest.param(pipelines.seeds_from_a_text, "x", 0, "fork", marks=pytest.mark.slow),
        pytest.param(pipelines.takes_a_sets_order, "names", 2, "spawn", marks=pytest.mark.slow),
        pytest.param(pipelines.seeds_from_a_text, "x", 2, "forkserver", marks=pytest.mark.slow),
    ],
)
def test_what_depends_on_the_hash_seed_is_told(transform, key, num_processes, method):
    with pytest.raises(ReproducibilityError, match="PYTHONHASHSEED") as told:
        batches_until_known(transform, num_processes, method, check=Check(on_mismatch="raise"))
    # One of the first batches: that which is first known to be equal otherwise.
    assert (told.value.epoch, told.value.keys) == (0, (key,))
    assert told.value.step < 10


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [0, 2])
def test_sorted_sets_are_no_fault(num_processes, caplog):
    with caplog.at_level(logging.WARNING, "detaug"):
        stats = batches_until_known(pipelines.sorts, num_processes)
    assert stats["mismatches"] == 0
    assert not records_of(caplog)


@pytest.mark.slow
@pytest.mark.parametrize("num_processes", [0, 2])
def test_a_variable_that_a_fresh_interpreter_lacks_is_no_mismatch_and_is_named(
    num_processes, monkeypatch, caplog
):
    """Forks have what the program has set in a module; a resumed program may not."""
    monkeypatch.setattr(pipelines, "SCALE", 3.0)
    with caplog.at_level(logging.WARNING, "detaug"):
        stats = batches_until_known(pipelines.scales, num_processes)
    assert stats["mismatches"] == 0
    (record,) = records_of(caplog)
    assert f"{pipelines.__name__}.SCALE is 3.0 in the program and 1.0 in a" in record.getMessage()


def test_a_pipeline_that_cannot_be_sent_to_an_interpreter_goes_on(caplog):
    with caplog.at_level(logging.INFO, "detaug"):
        stats = batches_until_known(pipelines.HoldsALock(), 0, keep=("lock",))
    assert stats["mismatches"] == 0
    assert "not checked whether batches depend on the order of sets" in caplog.text
    assert set(levels_of(caplog)) == {logging.INFO}


def test_an_interpreter_that_is_not_done_ends_with_the_augmenter():
    before = set(psutil.Process().children())
    augmenter = DeterministicAugmenter.from_dataset(
        pipelines.Numbers(), 2, transform=pipelines.sorts, num_processes=0, seed=1
    )
    while not (begun := set(psutil.Process().children()) - before):
        next(augmenter)
    augmenter.close()
    assert not any(
        process.is_running() for process in begun
    )  # a zombie runs, so they were reaped as well


def test_a_program_with_a_fixed_hash_seed_starts_no_interpreter():
    code = """if True:
        from detaug import DeterministicAugmenter
        from tests.processes.purity import hash_order_pipelines as pipelines
        with DeterministicAugmenter.from_dataset(
            pipelines.Numbers(), 2, transform=pipelines.takes_a_sets_order, num_processes=0, seed=1
        ) as augmenter:
            for _ in range(4):
                next(augmenter)
            print(augmenter._recheck_policy.knows_hash_order, augmenter._recheck_policy.informative > 0)
        """
    assert run_python(code, PYTHONHASHSEED="77").split() == ["True", "True"]
