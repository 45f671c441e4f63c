"""A user's trainer may draw numbers when it is made, and when it splits its cases."""

from __future__ import annotations

import inspect
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.run.run_training import maybe_load_checkpoint

from tests.peers.nnunet.trainers.in_process import (
    CPU,
    Short,
    ShortDetAug,
    ShortDeterministic,
    new_trainer,
)


class Draws(ShortDeterministic):
    """A trainer that draws settings from the global generators when it is made."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.drawn = (random.random(), *np.random.rand(2).tolist(), torch.rand(()).item())


class DrawsFirst(ShortDetAug):
    """A trainer that also draws before nnU-Net's constructor."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        first = random.random()
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.drawn = (first, random.random())


class Front:
    """A class before the mixin among the bases, which draws."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        super().__init__(plans, configuration, fold, dataset_json, device)  # type: ignore[call-arg]
        self.drawn = (random.random(),)


class InFront(Front, ShortDetAug):
    """A trainer whose first base class draws."""


@pytest.mark.parametrize("trainer", [Draws, DrawsFirst, InFront])
def test_what_a_constructor_draws_follows_from_the_seed(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, trainer: type
) -> None:
    python_before = random.getstate()
    torch_before = torch.get_rng_state()

    def drawn(seed: str) -> tuple[float, ...]:
        monkeypatch.setenv("DETAUG_SEED", seed)
        return new_trainer(nnunet_environment, trainer).drawn

    numbers = drawn("1")
    assert drawn("1") == numbers
    assert drawn("2") != numbers
    assert len(set(numbers)) == len(numbers)
    assert random.getstate() == python_before, "the caller's own random state goes on"
    assert torch.equal(torch.get_rng_state(), torch_before)


def test_a_seed_that_was_drawn_is_the_constructors_too(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DETAUG_SEED")
    trainer = new_trainer(nnunet_environment, Draws)
    monkeypatch.setenv("DETAUG_SEED", str(trainer.run_seed))
    assert new_trainer(nnunet_environment, Draws).drawn == trainer.drawn


def test_a_continued_training_draws_what_it_drew_when_it_began(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETAUG_SEED", "31")
    first = new_trainer(nnunet_environment, Draws)
    first.on_train_start()
    first.save_checkpoint(f"{first.output_folder}/checkpoint_latest.pth")
    monkeypatch.delenv("DETAUG_SEED")
    continued = new_trainer(nnunet_environment, Draws, continued=True)
    maybe_load_checkpoint(continued, True, False)
    assert continued.drawn == first.drawn
    assert continued.run_seed == 31
    new = new_trainer(nnunet_environment, Draws)
    assert new.drawn != first.drawn, "a new training in that folder has a seed of its own"


class Subset(ShortDeterministic):
    """A trainer that draws two of the cases of its fold from the global generators."""

    def do_split(self) -> Any:
        train, val = super().do_split()
        first = random.choice(train)
        others = [name for name in train if name != first]
        return [first, str(np.random.choice(others))], val


def test_a_random_subset_of_cases_is_the_same_at_every_call_and_follows_from_the_seed(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subsets = []
    for seed in range(8):
        monkeypatch.setenv("DETAUG_SEED", str(seed))
        trainer = new_trainer(nnunet_environment, Subset)
        split = trainer.do_split()
        random.random()
        assert trainer.do_split() == split
        assert new_trainer(nnunet_environment, Subset).do_split() == split
        subset, _ = split
        subsets.append(tuple(subset))
    assert len(set(subsets)) > 1

    trainer.on_train_start()
    assert trainer._record().cases["training"] == sorted(subset)
    assert sorted(trainer.dataloader_train.generator.indices) == sorted(subset)


class UnseededSubset(ShortDeterministic):
    """A trainer that splits its cases with a generator that no seed governs."""

    def do_split(self) -> Any:
        train, val = super().do_split()
        return np.random.default_rng().permutation(train)[:2].tolist(), val


class UnseededSetting(ShortDetAug):
    """A trainer that draws a setting from a generator that no seed governs."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.drawn = random.Random().random()


@pytest.mark.parametrize(
    ("trainer", "line", "action"),
    [
        (UnseededSubset, "np.random.default_rng().perm", "the cases are split"),
        (UnseededSetting, "random.Random().random()", "the trainer is made"),
    ],
)
def test_a_generator_that_no_seed_governs_is_told_once_with_its_line(
    nnunet_environment: Path, trainer: type, line: str, action: str
) -> None:
    drawing = new_trainer(nnunet_environment, trainer)
    for _ in range(3):
        drawing.do_split()
    source, first = inspect.getsourcelines(trainer)
    (number,) = [number for number, text in enumerate(source, first) if line in text]
    log = Path(drawing.log_file).read_text()
    warning = (
        f"detaug: WARNING: {__file__}:{number} draws random numbers from the operating system, "
        f"which no seed governs, while {action}"
    )
    assert log.count(warning) == 1


def test_nnunets_own_trainers_draw_nothing_when_they_are_made(nnunet_environment: Path) -> None:
    trainer = new_trainer(nnunet_environment, ShortDetAug)
    trainer.do_split()
    assert "no seed governs" not in Path(trainer.log_file).read_text()
    stock = new_trainer(nnunet_environment, Short)
    assert json.dumps(trainer.do_split()) == json.dumps(stock.do_split())
    assert trainer.my_init_kwargs.keys() == stock.my_init_kwargs.keys()
