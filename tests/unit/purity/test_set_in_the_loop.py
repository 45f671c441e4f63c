"""A training loop sets an attribute of its data set, transform or sampler: batches keep the old.

Batches are made from copies, so the change has no effect; it is told. What the program fills by
using the same objects itself is not.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, WeightedRandomSampler

from detaug import DataLoader, DeterministicAugmenter

LENGTH = 12


class Scale:
    """A transform whose strength a program may set."""

    def __init__(self) -> None:
        self.strength = 1.0
        self.calls = 0

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        return x * self.strength


class Stages(Dataset[Any]):
    """A data set with a curriculum, and with what it keeps while it is used."""

    def __init__(self) -> None:
        self.stage = 0
        self.epoch = 0
        self.options = {"p": 0.5}
        self.cases = list(range(LENGTH))
        self.transform = Scale()
        self.weights = np.ones(4)
        self.cache: dict[int, Any] = {}
        self.atlas: Any = None
        self.recent: list[int] = []
        self.counts = {"samples": 0}
        self.buffer = np.zeros(3)
        self.best_score = 0.0

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Any:
        if self.atlas is None:
            self.atlas = np.ones(3)
        cache = self.cache
        cache[index] = index
        self.recent.append(index)
        self.counts["samples"] += 1
        self.buffer[:] = self.cases[index]
        shift = self.stage * self.options["p"] * self.weights.max()
        return self.transform(self.buffer + shift)

    def set_stage(self, stage: int) -> None:
        self.stage = stage

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Program:
    """A training program, and what its loop does between epochs."""

    def __init__(self) -> None:
        self.data = Stages()
        self.sampler = WeightedRandomSampler([1.0] * LENGTH, LENGTH)

    def set_an_attribute(self) -> None:
        self.data.stage += 1

    def call_a_method(self) -> None:
        self.data.set_stage(self.data.stage + 1)

    def set_an_item(self) -> None:
        self.data.options["p"] /= 2

    def add_a_case(self) -> None:
        self.data.cases.append(7)

    def write_to_an_array(self) -> None:
        self.data.weights[2] += 1

    def note_a_score(self) -> None:
        self.data.best_score += 0.5

    def set_the_transforms(self) -> None:
        self.data.transform.strength *= 2

    def set_the_samplers_weights(self) -> None:
        self.sampler.weights = torch.rand(LENGTH)

    def write_to_the_samplers_weights(self) -> None:
        self.sampler.weights[3] += 1

    def use_the_data_itself(self) -> None:
        for index in range(5):
            self.data[index]

    def tell_the_epoch(self) -> None:
        self.data.set_epoch(self.data.epoch + 1)

    def warnings(self, act: Callable[[], None], caplog: pytest.LogCaptureFixture) -> list[str]:
        """Return the warnings of two epochs, with something done between them."""
        loader = DataLoader(self.data, batch_size=4, sampler=self.sampler, num_workers=0, seed=1)
        for _ in range(2):
            for _batch in loader:
                pass
            act()
        return caplog.messages


TOLD = {
    Program.set_an_attribute: "data_loader.stage was 0",
    Program.call_a_method: "data_loader.stage was 0",
    Program.set_an_item: "data_loader.options['p'] was 0.5",
    Program.add_a_case: "data_loader.cases.len() was 12",
    Program.write_to_an_array: "data_loader.weights was ndarray (4,)",
    Program.set_the_transforms: "data_loader.transform.strength was 1.0",
    Program.set_the_samplers_weights: "sampler.weights was Tensor (12,)",
    Program.write_to_the_samplers_weights: "sampler.weights was Tensor (12,)",
}


@pytest.mark.parametrize("act", TOLD)
def test_what_the_loop_sets_is_told_once(
    act: Callable[[Program], None], caplog: pytest.LogCaptureFixture
) -> None:
    program = Program()
    [message] = program.warnings(lambda: act(program), caplog)
    assert message.startswith(TOLD[act])
    assert "when the first batch was made" in message


def scaled(settings: Any, x: Any) -> Any:
    return x * settings.strength


class Holds:
    def __init__(self, settings: Any) -> None:
        self.settings = settings

    def __call__(self, x: Any) -> Any:
        return scaled(self.settings, x)


def in_a_closure(settings: Any) -> Callable[[Any], Any]:
    return lambda x: x * settings.strength


@pytest.mark.parametrize(
    ("make", "path"),
    [
        (in_a_closure, "data_loader.transform.<settings>"),
        (lambda settings: partial(scaled, settings), "data_loader.transform.args[0]"),
        (Holds, "data_loader.transform.settings"),
    ],
)
def test_a_namespace_is_told_wherever_it_is_kept(
    make: Callable[[Any], Any], path: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = types.SimpleNamespace(strength=1.0)
    program = Program()
    program.data.transform = make(settings)

    def set_the_strength() -> None:
        settings.strength += 1

    [message] = program.warnings(set_the_strength, caplog)
    assert message.startswith(f"{path}.strength was 1.0 when the first batch was made")


@pytest.mark.parametrize(
    "act", [Program.use_the_data_itself, Program.tell_the_epoch, Program.note_a_score]
)
def test_what_changes_no_batch_is_not_told(
    act: Callable[[Program], None], caplog: pytest.LogCaptureFixture
) -> None:
    program = Program()
    assert program.warnings(lambda: act(program), caplog) == []


def test_what_is_set_before_the_first_batch_or_a_restart_counts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    data = Stages()
    augmenter = DeterministicAugmenter.from_dataset(data, 4, num_processes=0, seed=1)
    data.stage = 4
    with augmenter:
        first = next(augmenter)
        augmenter._finish()
        data.stage = 6
        augmenter.restart()
        again = next(augmenter)
        for _batch in augmenter:
            pass
        next(augmenter)
    assert caplog.messages == []
    assert np.array_equal(np.asarray(again), np.asarray(first) + 1.0)
