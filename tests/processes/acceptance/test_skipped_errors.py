"""`Skip` leaves failing steps out: the same ones every run, each logged."""

from __future__ import annotations

import json
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from detaug import Skip, current
from detaug.errors import BatchError
from tests.support.augmenters import Maker, cases_with_workers
from tests.support.comparing import fingerprints_of, take
from tests.support.faults import RaisesAt, TransformRaisesAt
from tests.support.loaders import IndexLoader, RandomLoader

BAD = (0, 3, 4, 9)
OPTIONS: dict[str, Any] = {"seed": 1, "batches_per_epoch": 12, "on_error": Skip()}


def steps(batches: list[Any]) -> list[int]:
    return [batch["where"][1] for batch in batches]


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("stateless", [True, False])
def test_failing_steps_are_left_out_and_the_others_are_unchanged(
    make: Maker, n: int, stateless: bool
) -> None:
    good = fingerprints_of(make(RandomLoader(), None, 0, seed=1, batches_per_epoch=12))
    for _ in range(2):
        batches = list(make(RaisesAt(BAD), None, n, stateless=stateless, **OPTIONS))
        assert steps(batches) == [1, 2, 5, 6, 7, 8, 10, 11]
        assert fingerprints_of(batches) == [p for step, p in enumerate(good) if step not in BAD]


class BadItems(IndexLoader):
    """Finite; some of its items cannot be read."""

    def generate_train_batch(self) -> list[int]:
        indices = super().generate_train_batch()
        if {3, 11, 19} & set(indices):
            raise ValueError("voxel spacing is zero")
        return indices


class BadPass:
    """A new generator for each pass, and a generator that raised has ended."""

    def __iter__(self) -> Iterator[int]:
        for item in range(9):
            if item == 6:
                raise ValueError("voxel spacing is zero")
            yield item


FINITE: dict[str, tuple[Callable[[], Any], list[Any]]] = {
    "one stream": (
        partial(BadItems, 20, 1, shuffle=False),
        [[i] for i in range(20) if i not in (3, 11, 19)],
    ),
    "three streams": (
        partial(BadItems, 20, 1, 3, shuffle=False),
        [[i] for i in range(20) if i not in (3, 11, 19)],
    ),
    "pairs": (
        partial(BadItems, 20, 2, 2, shuffle=False),
        [[i, i + 1] for i in range(0, 20, 2) if i not in (2, 10, 18)],
    ),
    "dead after it": (BadPass, [0, 1, 2, 3, 4, 5]),
}


@pytest.mark.parametrize(
    ("what", "n"), cases_with_workers(FINITE, 2, {"three streams", "dead after it"})
)
def test_failing_item_of_a_finite_loader_takes_no_other_with_it(
    make: Maker, what: str, n: int
) -> None:
    make_loader, expected = FINITE[what]
    augmenter = make(make_loader(), None, n, seed=1, on_error=Skip())
    assert [list(augmenter) for _ in range(3)] == [expected] * 3


@pytest.mark.parametrize("n", [0, 2])
def test_each_skipped_step_is_logged_with_its_error(
    make: Maker, n: int, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        list(make(RandomLoader(), TransformRaisesAt(BAD), n, **OPTIONS))
    said = [r.getMessage() + (r.exc_text or "") for r in caplog.records]
    for step in BAD:
        assert (
            sum(
                f"epoch 0, step {step} " in text and "voxel spacing is zero" in text
                for text in said
            )
            == 1
        )


@pytest.mark.parametrize("n", [0, 2])
def test_epoch_in_which_every_step_fails_is_empty_and_ends(make: Maker, n: int) -> None:
    augmenter = make(RaisesAt(tuple(range(12)), epochs=(0,)), None, n, **OPTIONS)
    assert list(augmenter) == []
    assert len(list(augmenter)) == 12


ALWAYS = tuple(range(10_000))


def outcomes(augmenter: Any, number: int = 40) -> list[Any]:
    """Steps that came, and the step at which each error came."""
    found: list[Any] = []
    for _ in range(number):
        try:
            found.append(next(augmenter)["where"][1])
        except BatchError as error:
            found.append(("raised", error.epoch, error.step))
        except StopIteration:
            found.append("end")
    return found


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("stateless", [True, False])
def test_pipeline_that_always_fails_raises_after_max_skips_in_a_row(
    make: Maker, n: int, stateless: bool
) -> None:
    options: dict[str, Any] = {"seed": 1, "stateless": stateless}
    augmenter = make(RaisesAt(ALWAYS), None, n, on_error=Skip(7), **options)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=r"voxel spacing is zero\nThis .* leaves out at most 7 in a row"
        ) as caught:
            next(augmenter)
        assert caught.value.step == 7


def test_default_ends_a_pipeline_that_always_fails(
    make: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    augmenter = make(RaisesAt(ALWAYS), None, 0, seed=1, on_error=Skip())
    with pytest.raises(ValueError, match=r"at most 100 in a row") as caught:
        next(augmenter)
    assert caught.value.step == 100
    said = [
        record.getMessage() for record in caplog.records if "voxel spacing" in record.getMessage()
    ]
    assert sum("Traceback" in text for text in said) == 1, "in full once"
    assert len(said) == 100
    assert "(100 times so far)" in said[-1]


@pytest.mark.parametrize("n", [0, 2])
def test_skips_are_counted_in_a_row_and_across_epochs(make: Maker, n: int) -> None:
    # 12 steps an epoch: three of epoch 0's end and two of each later epoch's beginning fail
    options = {**OPTIONS, "on_error": Skip(4)}
    bad = make(RaisesAt((0, 1, 9, 10, 11), epochs=(0, 1)), None, n, **options)
    expected = [*range(2, 9), "end", ("raised", 1, 1), ("raised", 1, 1)]
    assert outcomes(bad, len(expected)) == expected
    good = make(
        RaisesAt((0, 1, 9, 10, 11), epochs=(0, 1)), None, n, **{**options, "on_error": Skip(5)}
    )
    assert outcomes(good, 16) == [*range(2, 9), "end", *range(2, 9), "end"]


@pytest.mark.parametrize("n", [0, 2])
def test_a_resumed_run_raises_at_the_same_batch(make: Maker, n: int) -> None:
    def new() -> Any:
        return make(
            RaisesAt((0, 1, 9, 10, 11), epochs=(0, 1)), None, n, **{**OPTIONS, "on_error": Skip(4)}
        )

    expected = outcomes(new(), 10)
    for taken in range(9) if n == 0 else (7, 8):
        first = new()
        begun = outcomes(first, taken)
        second = new()
        second.load_state_dict(json.loads(json.dumps(first.state_dict())))
        assert begun + outcomes(second, 10 - taken) == expected
        make.close()


def test_ranks_count_their_own(make: Maker) -> None:
    # of two ranks, rank 1 has the failing steps
    options = {**OPTIONS, "on_error": Skip(2), "world_size": 2}
    assert outcomes(make(RaisesAt((1, 3, 5)), None, 0, rank=0, **options), 7) == [
        0,
        2,
        4,
        6,
        8,
        10,
        "end",
    ]
    assert outcomes(make(RaisesAt((1, 3, 5)), None, 0, rank=1, **options), 1) == [("raised", 0, 5)]


class Cancelled(BaseException):
    """Not an Exception, as asyncio's and trio's ways to cancel."""


class RaisesInAnyWay(RandomLoader):
    """Raises at some steps; endless, and declared to keep state or not."""

    def __init__(self, errors: dict[int, BaseException]) -> None:
        super().__init__()
        self.errors = errors

    def generate_train_batch(self) -> dict[str, Any]:
        error = self.errors.get(current().step)
        if error is not None:
            raise error
        return super().generate_train_batch()


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("stateless", [True, False])
def test_what_is_no_exception_is_left_out_with_workers_and_without(
    make: Maker, n: int, stateless: bool
) -> None:
    loader = RaisesInAnyWay({2: Cancelled("stop"), 5: ValueError("no"), 6: Cancelled("stop")})
    augmenter = make(loader, None, n, stateless=stateless, num_streams=2, **OPTIONS)
    assert steps(list(augmenter)) == [0, 1, 3, 4, 7, 8, 9, 10, 11]


@pytest.mark.parametrize("n", [0, 2])
def test_what_raises_as_ctrl_c_does_is_never_left_out(make: Maker, n: int) -> None:
    loader = RaisesInAnyWay({2: KeyboardInterrupt("stop"), 4: ValueError("no")})
    augmenter = make(loader, None, n, **OPTIONS)
    assert steps(take(augmenter, 2)) == [0, 1]
    for _ in range(2):
        with pytest.raises((KeyboardInterrupt, BatchError), match="stop"):
            next(augmenter)
    assert augmenter.step == 2


class TooLate(Exception):
    """The program's time is up."""


class Interrupted(RandomLoader):
    """Is interrupted by the program once, in the middle of a batch."""

    def __init__(self, flag: Path, wraps: bool, number: int) -> None:
        super().__init__()
        self.flag = flag
        self.wraps = wraps
        self.number = number

    def generate_train_batch(self) -> dict[str, Any]:
        if current().step == 3 and not self.flag.exists():
            self.flag.touch()
            try:
                if self.number != signal.SIGALRM:
                    os.kill(os.getpid(), self.number)
                time.sleep(10)
            except Exception as error:
                if self.wraps:
                    raise ValueError("the case cannot be read") from error
                raise
        return super().generate_train_batch()


@pytest.fixture
def handled() -> Iterator[None]:
    """Have the program's handler, which raises, for two signals; and no timer."""

    def stop(*_: Any) -> None:
        raise TooLate

    timer = signal.setitimer(signal.ITIMER_REAL, 0)
    before = {number: signal.signal(number, stop) for number in (signal.SIGALRM, signal.SIGUSR2)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.setitimer(signal.ITIMER_REAL, *timer)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("wraps", [False, True])
@pytest.mark.parametrize("number", [signal.SIGALRM, signal.SIGUSR2])
@pytest.mark.parametrize("stateless", [True, False])
def test_what_a_handler_of_the_program_raises_is_no_error_of_the_batch(
    make: Maker, tmp_path: Path, stateless: bool, number: int, wraps: bool
) -> None:
    flag = tmp_path / "flag"
    loader = Interrupted(flag, wraps, number)
    augmenter = make(loader, None, 0, stateless=stateless, num_streams=2, **OPTIONS)
    assert steps(take(augmenter, 3)) == [0, 1, 2]
    while not flag.exists():  # else the time was over before the batch was begun
        if number == signal.SIGALRM:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises((TooLate, ValueError)) as caught:
            next(augmenter)
        assert not isinstance(caught.value, BatchError)
    expected = make(RandomLoader(), None, 0, seed=1, batches_per_epoch=12, num_streams=2)
    assert fingerprints_of(augmenter) == fingerprints_of(expected)[3:]


class LimitsItself(RandomLoader):
    """Limits its time by whatever handler the program has."""

    def generate_train_batch(self) -> dict[str, Any]:
        signal.setitimer(signal.ITIMER_REAL, 0.03 if current().step == 1 else 60)
        try:
            if current().step == 1:
                time.sleep(10)
            return super().generate_train_batch()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("programs_limit", [0, 3600])
@pytest.mark.parametrize("n", [0, 1])
def test_a_timer_of_the_loaders_own_is_one_whoever_has_the_handler(
    make: Maker, n: int, programs_limit: int
) -> None:
    augmenter = make(LimitsItself(), None, n, **OPTIONS)
    signal.setitimer(signal.ITIMER_REAL, programs_limit)
    assert steps(take(augmenter, 3)) == [0, 2, 3]


class LimitsItsTime(RandomLoader):
    """Has a time limit of its own for each batch, which one of them exceeds."""

    def generate_train_batch(self) -> dict[str, Any]:
        def too_slow(*_: Any) -> None:
            raise TimeoutError("this case takes too long")

        before = signal.signal(signal.SIGALRM, too_slow)
        try:
            if current().step == 1:
                os.kill(os.getpid(), signal.SIGALRM)
                time.sleep(10)
            return super().generate_train_batch()
        finally:
            signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("n", [0, 1])
def test_a_time_limit_of_the_loaders_own_is_an_error_of_the_batch(make: Maker, n: int) -> None:
    assert steps(take(make(LimitsItsTime(), None, n, **OPTIONS), 3)) == [0, 2, 3]
