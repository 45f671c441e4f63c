"""However a worker ends, its batch is made again; one that ends every worker is an error that says
all; who leaks retires.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from detaug import LocalProcesses
from detaug.errors import BatchError, WorkerDied
from detaug.system.limits import private_memory
from tests.processes.engine.misbehaving import REPORTS, CancelledError, CountsAndLeaks, Ends, Sleepy
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import RandomLoader
from tests.support.witness import WITNESS, assert_made_by_workers

pytestmark = pytest.mark.timeout(90)


@pytest.mark.parametrize("how", REPORTS)
def test_batch_of_a_worker_that_ended_is_made_again_with_the_same_bytes(
    make: Maker, mark: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    expected = fingerprints_of(take(make(RandomLoader(), None, 0, seed=3), 8))
    flag = tmp_path / "ended"
    batches = take(make(Ends(how, flag=str(flag)), None, 2, seed=3), 8)
    assert flag.exists(), "the worker did not end"
    assert_made_by_workers("fork", batches)
    assert fingerprints_of(batches) == expected
    assert "memory having peaked at" in caplog.text
    assert "epoch 0, step 3" in caplog.text
    assert REPORTS[how] in caplog.text


@pytest.mark.parametrize("how", REPORTS)
def test_batch_that_ends_every_worker_is_an_error_with_batch_signal_and_peak_memory(
    make: Maker, how: str
) -> None:
    augmenter = make(Ends(how), None, 2, seed=3, executor=LocalProcesses(max_restarts=2))
    take(augmenter, 3)
    with pytest.raises(WorkerDied, match=r"epoch 0, step 3 .*ended 2 workers") as caught:
        next(augmenter)
    assert REPORTS[how] in str(caught.value)
    assert "memory had peaked at" in str(caught.value)
    assert ("out-of-memory killer" in str(caught.value)) == (REPORTS[how] == "SIGKILL")
    assert ("this ends the process; python -X faulthandler" in str(caught.value)) == (
        REPORTS[how] == "SIGSEGV"
    )
    assert (caught.value.epoch, caught.value.step) == (0, 3)


def test_batch_that_hangs_in_every_worker_is_an_error_that_says_so(make: Maker) -> None:
    executor = LocalProcesses(max_restarts=1, stall_timeout=0.5)
    augmenter = make(RandomLoader(), Sleepy(3), 1, seed=3, executor=executor)
    take(augmenter, 3)
    with pytest.raises(WorkerDied, match=r"no progress for 0\.5 s") as caught:
        next(augmenter)
    assert "out-of-memory" not in str(caught.value)


def test_exception_that_is_no_exception_arrives_as_an_error(
    make: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    augmenter = make(Ends("cancelled", step=2), None, 2, seed=3)
    take(augmenter, 2)
    with pytest.raises(BatchError, match="the reader was cancelled") as caught:
        next(augmenter)
    assert isinstance(caught.value.__cause__, CancelledError)
    assert "_cancel" in caught.value.worker_traceback
    assert "another worker is rebuilding the batch" not in caplog.text


MIB = 2**20


@pytest.mark.parametrize(
    ("method", "number"), [("fork", 8), pytest.param("spawn", 20, marks=pytest.mark.slow)]
)
def test_leaking_workers_are_replaced_and_bytes_stay(
    make: Maker, mark: str, caplog: pytest.LogCaptureFixture, method: str, number: int
) -> None:
    caplog.set_level(logging.INFO)
    options = {"seed": 5, "num_streams": 3, "stateless": False}
    expected = take(make(CountsAndLeaks(leak=0), None, 0, **options), number)
    limit = 900 * MIB
    if method == "fork":
        limit = private_memory() + 200 * MIB
    executor = LocalProcesses(start_method=method, max_worker_memory=limit)
    batches = take(make(CountsAndLeaks(), None, 1, executor=executor, **options), number)
    assert_made_by_workers(method, batches)
    assert fingerprints_of(batches) == fingerprints_of(expected)
    assert [batch["count"] for batch in batches] == [step // 3 + 1 for step in range(number)]
    assert len({batch[WITNESS]["pid"] for batch in batches}) >= 2, "a batch keeps 40 MB"
    assert "max_worker_memory is" in caplog.text
    assert "ended with" not in caplog.text, "to retire is not to die"
