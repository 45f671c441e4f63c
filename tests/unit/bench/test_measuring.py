"""The harness of `detaug bench` and of the benchmarks."""

from __future__ import annotations

from functools import partial
from itertools import count

from benchmarks.calls import Stopwatch, alternate
from detaug.tools.bench.timing import Meter, Ratio, consume, interleaved


def spend(cpu_seconds: float) -> None:
    """Keep this process busy."""
    stopwatch = Stopwatch()
    while stopwatch.cpu < cpu_seconds:
        with stopwatch:
            sum(range(1000))


def test_rounds_start_from_another_name_each_time_and_go_both_ways() -> None:
    order: list[str] = []

    def measure(name: str) -> str:
        order.append(name)
        return name.upper()

    results = interleaved("abc", 4, measure)
    assert "".join(order) == "abc" + "cba" + "bca" + "acb"
    assert results == {"a": ["A"] * 4, "b": ["B"] * 4, "c": ["C"] * 4}


def test_every_draw_goes_to_all_systems_by_turns() -> None:
    order: list[tuple[str, int]] = []

    def note(name: str, draw: int, _: Stopwatch) -> None:
        order.append((name, draw))

    alternate({"a": partial(note, "a"), "b": partial(note, "b")}, [5, 6])
    assert order == [("a", 5), ("b", 5), ("b", 6), ("a", 6)]


def test_only_what_the_stopwatch_runs_for_is_timed() -> None:
    def work(_draw: int, stopwatch: Stopwatch) -> None:
        spend(0.05)
        with stopwatch:
            spend(0.02)
        with stopwatch:
            spend(0.02)

    (seconds,) = alternate({"one": work}, [0])["one"]
    assert 0.04 <= seconds.cpu < 0.09
    assert seconds.wall >= 0.04


def test_a_loops_own_work_is_no_waiting() -> None:
    batches: list[int] = []

    def step(batch: int) -> None:
        batches.append(batch)
        spend(0.01)

    timed = consume(count(), step, warm_up=3, least=5)
    assert batches == list(range(8))
    assert timed.batches == 5
    assert timed.wall >= 0.05
    assert timed.waited < 0.01
    assert timed.cpu >= 0.04


def test_waiting_for_a_batch_is_waiting() -> None:
    def batches():
        while True:
            spend(0.01)
            yield None

    timed = consume(batches(), least=3)
    assert timed.waited >= 0.03
    assert timed.seconds_per_batch == timed.wall / 3


def test_a_programs_own_time_is_not_spent_elsewhere() -> None:
    meter = Meter()
    spend(0.3)
    assert meter.read().cpu >= 0.28


def test_a_ratio_is_the_median_of_quotients_within_rounds() -> None:
    assert Ratio.of([8.0, 6.0, 9.0], [2.0, 3.0, 1.0]) == Ratio(4.0, 2.0, 9.0)
