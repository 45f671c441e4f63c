"""`compare_trainings`: a reproducible training passes; of another it says where it diverges."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from detaug import DeterministicAugmenter
from detaug.training import compare_trainings, rng_state, seed_everything, set_rng_state


class PlainLoop:
    """A whole training; `without` leaves ingredients out."""

    def __init__(self, without: str = "") -> None:
        self.without = without
        if without != "seed":
            seed_everything(11, workers=False, verbose=False)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.5), nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.inputs = torch.arange(36.0).view(12, 3) / 36
        self.order = DeterministicAugmenter.from_dataset(
            range(12), 1, num_processes=0, seed=3, check=False
        )
        self.done = 0

    def train(self, steps: int) -> None:
        while self.done < steps:
            for index in self.order:
                self.step(
                    self.inputs[index]
                    + (random.SystemRandom().random() if self.without == "data" else 0)
                )
                self.done += 1
                if self.done == steps:
                    return

    def step(self, x: torch.Tensor) -> None:
        self.loss(x)
        self.optimizer.step()

    def loss(self, x: torch.Tensor) -> float:
        self.optimizer.zero_grad()
        target = random.SystemRandom().random() if self.without == "target" else 1.0
        value: torch.Tensor = (self.model(x) - target).square().sum()
        value.backward()
        return value.item()

    def save(self, file: Path) -> None:
        state: dict[str, Any] = {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order.state_dict(),
            "rng": rng_state(),
            "done": self.done,
        }
        torch.save(state, file)

    def load(self, file: Path) -> None:
        state = torch.load(file, weights_only=True)
        self.done = state["done"]
        if self.without != "model":
            self.model.load_state_dict(state["model"])
        if self.without != "optimizer":
            self.optimizer.load_state_dict(state["optimizer"])
        if self.without != "order":
            self.order.load_state_dict(state["order"])
        if self.without != "rng":
            set_rng_state(state["rng"])


def test_a_reproducible_training_passes_and_leaves_no_trace() -> None:
    before = random.getstate(), torch.get_rng_state()
    report = compare_trainings(PlainLoop, steps=6)
    assert report, str(report)
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert str(report) == (
        "trained again, 6 steps: the same, byte for byte\ninterrupted after 3 steps and resumed: the same, byte for byte"
    )


class Threaded(PlainLoop):
    def __init__(self) -> None:
        super().__init__()
        seed_everything(11, deterministic=True, threads=1, verbose=False)


def test_switches_threads_and_the_seed_variable_are_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DETAUG_SEED", "5")
    torch.set_num_threads(2)
    before = torch.backends.cudnn.deterministic, torch.are_deterministic_algorithms_enabled()
    assert compare_trainings(Threaded, steps=2)
    assert (
        torch.backends.cudnn.deterministic,
        torch.are_deterministic_algorithms_enabled(),
    ) == before
    assert (torch.get_num_threads(), os.environ["DETAUG_SEED"]) == (2, "5")


@pytest.mark.parametrize(
    ("without", "step", "stage", "what"),
    [
        ("seed", -1, "first weights", "weights"),
        ("data", 0, "data", "what goes into the model"),
        ("target", 0, "backward", "gradient of 0.weight"),
    ],
)
def test_where_a_second_training_diverges_is_said(
    without: str, step: int, stage: str, what: str
) -> None:
    diverged = compare_trainings(lambda: PlainLoop(without), steps=4).again
    assert diverged is not None
    assert (diverged.step, diverged.stage, diverged.what) == (step, stage, what)


@pytest.mark.parametrize(
    ("without", "step", "stage"),
    [
        ("model", -1, "resume"),
        ("optimizer", 2, "optimizer"),
        ("order", 2, "data"),
        ("rng", 2, "forward"),
    ],
)
def test_what_a_checkpoint_lacks_is_told_by_where_the_resumed_training_diverges(
    without: str, step: int, stage: str
) -> None:
    report = compare_trainings(lambda: PlainLoop(without), steps=8, interrupt_after=2)
    assert report.again is None
    assert report.resumed is not None
    assert (report.resumed.stage, report.resumed.step >= step) == (stage, True)
    assert not report
    assert f"{stage}:" in str(report)
    assert "look at save and load" in str(report)


def test_wrong_arguments_and_trainings_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"interrupt_after must be within 1 \.\.\. steps - 1, 3, got 4"
    ):
        compare_trainings(PlainLoop, steps=4, interrupt_after=4)

    class Endless(PlainLoop):
        def train(self, steps: int) -> None:
            super().train(steps + 1)

    with pytest.raises(ValueError, match=r"train\(4\) made optimizer steps up to number 5"):
        compare_trainings(Endless, steps=4)


class WithAClosure(PlainLoop):
    def __init__(self, without: str = "") -> None:
        super().__init__(without)
        self.optimizer = torch.optim.LBFGS(self.model.parameters(), max_iter=3)  # type: ignore[assignment]

    def step(self, x: torch.Tensor) -> None:
        self.optimizer.step(lambda: self.loss(x))


class CompiledInside(PlainLoop):
    def __init__(self, without: str = "") -> None:
        super().__init__(without)
        self.model[2].compile(backend="eager")


@pytest.mark.parametrize("loop", [WithAClosure, CompiledInside])
def test_loops_of_other_kinds_are_watched(loop: type[PlainLoop]) -> None:
    report = compare_trainings(loop, steps=4)
    assert report, str(report)
    again = compare_trainings(lambda: loop("data"), steps=2).again
    assert again is not None
    assert (again.step, again.stage) == (0, "data")


def test_each_of_two_optimizers_counts() -> None:
    class Adversary(PlainLoop):
        def __init__(self) -> None:
            super().__init__()
            self.critic = nn.Linear(1, 1)
            self.other = torch.optim.SGD(self.critic.parameters(), lr=0.1)

        def step(self, x: torch.Tensor) -> None:
            self.other.zero_grad()
            self.critic(self.model(x).detach()).sum().backward()
            self.other.step()
            super().step(x)
            self.done += 1

        def save(self, file: Path) -> None:
            super().save(file)
            torch.save((self.critic.state_dict(), self.other.state_dict()), f"{file}-critic")

        def load(self, file: Path) -> None:
            super().load(file)
            for each, state in zip(
                (self.critic, self.other), torch.load(f"{file}-critic"), strict=True
            ):
                each.load_state_dict(state)

    report = compare_trainings(Adversary, steps=8)
    assert report, str(report)


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_training_that_fails_leaves_no_hooks_and_the_random_state_as_it_was(
    error: type[BaseException],
) -> None:
    from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks

    models = []

    class Failing(PlainLoop):
        def __init__(self) -> None:
            super().__init__()
            models.append(self.model)

        def step(self, x: torch.Tensor) -> None:
            super().step(x)
            raise error("disk full")

    before = (
        torch.get_rng_state(),
        len(_global_optimizer_post_hooks),
        len(_global_optimizer_pre_hooks),
    )
    with pytest.raises(error, match="disk full"):
        compare_trainings(Failing, steps=2)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (len(_global_optimizer_post_hooks), len(_global_optimizer_pre_hooks)) == before[1:]
    assert not any(each._forward_hooks or each._forward_pre_hooks for each in models[0].modules())
