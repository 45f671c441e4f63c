"""Numbers that a trainer of one's own draws when it is made, and when it splits its cases."""

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
    """Draws settings from the global generators when it is made."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.drawn = (random.random(), *np.random.rand(2).tolist(), torch.rand(()).item())


class DrawsFirst(ShortDetAug):
    """The same before nnU-Net's constructor, and in a class of its own in front."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        before = random.random()
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.drawn = (before, random.random())


class Front:
    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        super().__init__(plans, configuration, fold, dataset_json, device)  # type: ignore[call-arg]
        self.drawn = (random.random(),)


class InFront(Front, ShortDetAug):
    pass


@pytest.mark.parametrize("trainer", [Draws, DrawsFirst, InFront])
def test_what_a_constructor_draws_follows_from_the_seed(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, trainer: type
) -> None:
    before = random.getstate(), torch.get_rng_state()
    drawn = []
    for seed in ("1", "1", "2"):
        monkeypatch.setenv("DETAUG_SEED", seed)
        drawn.append(new_trainer(nnunet_environment, trainer).drawn)
    assert drawn[0] == drawn[1]
    assert drawn[0] != drawn[2]
    assert len(set(drawn[0])) == len(drawn[0])
    assert random.getstate() == before[0], "the caller's own random state goes on"
    assert torch.equal(torch.get_rng_state(), before[1])


def test_a_seed_that_was_drawn_is_the_constructors_too(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DETAUG_SEED")
    made = new_trainer(nnunet_environment, Draws)
    monkeypatch.setenv("DETAUG_SEED", str(made.run_seed))
    assert new_trainer(nnunet_environment, Draws).drawn == made.drawn


def test_a_continued_training_draws_what_it_drew_when_it_began(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETAUG_SEED", "31")
    made = new_trainer(nnunet_environment, Draws)
    made.on_train_start()
    made.save_checkpoint(f"{made.output_folder}/checkpoint_latest.pth")
    monkeypatch.delenv("DETAUG_SEED")
    again = new_trainer(nnunet_environment, Draws, continued=True)
    maybe_load_checkpoint(again, True, False)
    assert again.drawn == made.drawn
    assert again.run_seed == 31
    beside = new_trainer(nnunet_environment, Draws)
    assert beside.drawn != made.drawn, "a new training in that folder has a seed of its own"


class Subset(ShortDeterministic):
    """Trains on two of the cases of its fold, drawn from the global generators."""

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
        made = new_trainer(nnunet_environment, Subset)
        split = made.do_split()
        random.random()
        assert made.do_split() == split
        assert new_trainer(nnunet_environment, Subset).do_split() == split
        subsets.append(tuple(split[0]))
    assert len(set(subsets)) > 1

    made.on_train_start()
    assert made._record().cases["training"] == sorted(subsets[-1])
    assert sorted(made.dataloader_train.generator.indices) == sorted(subsets[-1])


class UnseededSubset(ShortDeterministic):
    def do_split(self) -> Any:
        train, val = super().do_split()
        return np.random.default_rng().permutation(train)[:2].tolist(), val


class UnseededSetting(ShortDetAug):
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
    made = new_trainer(nnunet_environment, trainer)
    for _ in range(3):
        made.do_split()
    source, first = inspect.getsourcelines(trainer)
    number = next(first + offset for offset, text in enumerate(source) if line in text)
    log = Path(made.log_file).read_text()
    told = (
        f"detaug: WARNING: {__file__}:{number} draws random numbers from the operating system, "
        f"which no seed governs, while {action}"
    )
    assert log.count(told) == 1


def test_nnunets_own_trainers_draw_nothing_when_they_are_made(nnunet_environment: Path) -> None:
    made = new_trainer(nnunet_environment, ShortDetAug)
    made.do_split()
    assert "no seed governs" not in Path(made.log_file).read_text()
    stock = new_trainer(nnunet_environment, Short)
    assert json.dumps(made.do_split()) == json.dumps(stock.do_split())
    assert made.my_init_kwargs.keys() == stock.my_init_kwargs.keys()
