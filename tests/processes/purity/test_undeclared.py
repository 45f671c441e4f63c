"""A variable that the program changes is told wherever batches are made with it, or without.

Which values are compared: tests/unit/purity/test_values_that_differ.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import torch

from detaug import DataLoader, DeterministicAugmenter
from tests.processes.purity import undeclared_pipelines as pipelines
from tests.processes.purity.ways import listening
from tests.support.augmenters import workers

NAME = "tests.processes.purity.undeclared_pipelines.STRENGTH"


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What is said; the variable is as it was afterwards."""
    monkeypatch.setattr(pipelines, "STRENGTH", 1)
    with listening() as texts:
        yield texts


def augmenter(num_processes: int = 2, method: str = "fork", **options: Any) -> Any:
    return DeterministicAugmenter.from_dataset(
        pipelines.Numbers(),
        2,
        transform=pipelines.scale,
        num_processes=num_processes,
        seed=3,
        executor=workers(num_processes, method),
        check=False,
        **options,
    )


def assert_change_is_told(heard: list[str]) -> None:
    (text,) = heard
    assert text.startswith(f"{NAME} was 1 when the workers started and is 3 now. Workers keep 1")
    assert "set_epoch(epoch)" in text


@pytest.mark.parametrize("num_processes", [0, 2])
def test_a_change_is_told_at_the_next_epoch_and_once(num_processes: int, heard: list[str]) -> None:
    with augmenter(num_processes) as batches:
        for epoch in range(3):
            list(batches)
            assert len(heard) == min(epoch, 1)
            pipelines.STRENGTH = 3
    assert_change_is_told(heard)


def test_a_change_is_told_in_an_epoch_that_never_ends(heard: list[str]) -> None:
    with augmenter(0) as batches:
        next(batches)
        pipelines.STRENGTH = 3
        next(batches)
    assert_change_is_told(heard)


def test_a_change_is_told_at_a_replay(heard: list[str]) -> None:
    with augmenter() as batches:
        next(batches)
        pipelines.STRENGTH = 3
        batches.replay(0, 0)
    assert_change_is_told(heard)


def test_a_change_is_told_at_a_restart_and_is_the_start_from_then_on(heard: list[str]) -> None:
    with augmenter() as batches:
        next(batches)
        pipelines.STRENGTH = 3
        batches.restart()
        assert_change_is_told(heard)
        assert f"{NAME} = 3" in batches.state_dict()["values"].split("\n")


def test_a_value_at_the_start_is_told_by_the_program_that_loads_another(heard: list[str]) -> None:
    with augmenter() as batches:
        next(batches)
        state = batches.state_dict()
    pipelines.STRENGTH = 3
    with augmenter() as batches:
        batches.load_state_dict(state)
        assert heard == []  # what is set before the first batch counts
        next(batches)
    (text,) = heard
    assert f"{NAME}: here 3, in the state 1" in text


def test_a_default_dtype_that_the_resumed_program_lacks_is_told(heard: list[str]) -> None:
    with augmenter(0) as batches:
        next(batches)
        state = batches.state_dict()
    torch.set_default_dtype(torch.float64)
    try:
        with augmenter(0) as batches:
            batches.load_state_dict(state)
            next(batches)
    finally:
        torch.set_default_dtype(torch.float32)
    (text,) = heard
    assert "torch's default dtype: here torch.float64, in the state torch.float32" in text


def test_a_state_without_these_values_loads_without_a_word(heard: list[str]) -> None:
    with augmenter(0) as batches:
        next(batches)
        state = batches.state_dict()
    del state["values"]
    pipelines.STRENGTH = 3
    with augmenter(0) as batches:
        batches.load_state_dict(state)
        next(batches)
    assert heard == []


def test_what_a_state_says_reaches_no_terminal_as_it_is(heard: list[str]) -> None:
    with augmenter(0) as batches:
        state = {**batches.state_dict(), "values": f"{NAME} = \x1b[32mequal"}
        batches.load_state_dict(state)
        next(batches)
    (text,) = heard
    assert "\x1b" not in text


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_a_fresh_interpreter_that_has_another_value_says_so(method: str, heard: list[str]) -> None:
    pipelines.STRENGTH = 3
    with augmenter(1, method) as batches:
        assert next(batches)["x"].max() < 12
    (text,) = heard
    assert text.startswith(f"{NAME} is 3 in the program and 1 in a fresh interpreter")


def test_a_torch_loader_tells_of_a_change(heard: list[str]) -> None:
    loader = DataLoader(pipelines.Numbers(), 2, seed=3, num_workers=1, collate_fn=first_scaled)
    with closing(loader):
        list(loader)
        pipelines.STRENGTH = 3
        list(loader)
    assert_change_is_told(heard)


def first_scaled(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return pipelines.scale(**samples[0])
