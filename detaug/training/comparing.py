"""`compare_trainings`: train twice, and once interrupted and resumed, and say where the trainings diverge.

PyTorch's hooks for modules and optimizers watch any loop from outside: a plain one, Lightning's, Ignite's. Of every step, it
compares the model's input, each module's output, the gradients of the optimizer's step, and the weights and the optimizer's
state after it.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from detaug.seeding.tree import SEED_VARIABLE, positive_int
from detaug.training.auditing import digest, first_differing
from detaug.training.random_state import isolate_rng
from detaug.training.switches import preserved_switches, set_variable

#: Of each stage of a training.
_ADVICE = {
    "first weights": "call seed_everything before the model is made",
    "data": "the batches do not depend on the seed (or, resumed, on the checkpoint) alone: look at the loader, its workers and "
    "transforms",
    "forward": "the same input and weights give another output: detaug.training.audit names the module, and random layers "
    "(dropout) need rng_state() in the checkpoint",
    "backward": "the same output gives another gradient: detaug.training.audit names the operations that PyTorch alerts on; the "
    "loss's other arguments (targets, weights) may differ too",
    "optimizer": "the same gradients give other weights: look at the optimizer's state, the schedule, clipping and scaling",
    "resume": "the checkpoint is not complete: look at save and load",
}


class Training(Protocol):
    """What `make_training` returns: a training that has not begun."""

    model: nn.Module

    def train(self, steps: int) -> object:
        """Train until there are this many optimizer steps in all (each optimizer's count), including those before a resume."""

    def save(self, file: Path) -> object:
        """Write a checkpoint."""

    def load(self, file: Path) -> object:
        """Resume from a checkpoint, in a training that has not begun."""


@dataclass(frozen=True)
class Divergence:
    """Where two trainings first differ: the step (-1: before the first), the stage, the module or input, and advice."""

    step: int
    stage: str
    what: str
    advice: tuple[str, ...]

    def __str__(self) -> str:
        when = "before the first step" if self.step < 0 else f"in step {self.step}"
        return "\n    - ".join([f"diverged {when}, {self.stage}: {self.what}", *self.advice])


@dataclass(frozen=True)
class TrainingsReport:
    """What `compare_trainings` found.

    Attributes:
        steps: optimizer steps of each training.
        interrupted_after: those of the third before it was interrupted.
        again, resumed: where the second and the resumed training diverged from the first; None: nowhere.
    """

    steps: int
    interrupted_after: int
    again: Divergence | None
    resumed: Divergence | None

    @property
    def ok(self) -> bool:
        """Whether all three trainings are the same, byte for byte."""
        return self.again is None and self.resumed is None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        trainings = {
            f"trained again, {self.steps} steps": self.again,
            f"interrupted after {self.interrupted_after} steps and resumed": self.resumed,
        }
        told = {
            what: f"different\n  {found}" if found else "the same, byte for byte"
            for what, found in trainings.items()
        }
        return "\n".join(f"{what}: {result}" for what, result in told.items())


def compare_trainings(
    make_training: Callable[[], Training], *, steps: int = 6, interrupt_after: int | None = None
) -> TrainingsReport:
    """Train `steps` steps twice, and once interrupted and resumed from a checkpoint, and compare every step.

        class Training:
            def __init__(self):
                seed_everything(1234, deterministic=True)
                self.model, self.optimizer, self.data = ...
            def train(self, steps): ...
            def save(self, file): ...
            def load(self, file): ...

        report = compare_trainings(Training)
        assert report, report

    Before each training, and before `load`, the global generators (Python's, NumPy's, torch's) are seeded at random, as in a
    new process, so that a missing seed and an incomplete checkpoint show. Afterwards they, the switches and ``DETAUG_SEED``
    are as before. All trainings run in this process, on the devices that they choose: other devices may give other results.
    Where a part is compiled, the whole model's input, output, gradients and weights are compared.

    Args:
        make_training: returns a `Training` that has not begun; called four times.
        steps: optimizer steps of each training.
        interrupt_after: after how many of them; by default half.

    Raises:
        ValueError: `steps` is less than 2, `interrupt_after` not within 1 ... steps - 1, or `train` made another number of
            steps.
    """
    number = positive_int("steps", steps)
    half = positive_int(
        "interrupt_after", number // 2 or 1 if interrupt_after is None else interrupt_after
    )
    if half >= number:
        raise ValueError(
            f"interrupt_after must be within 1 ... steps - 1, {number - 1}, got {half}"
        )
    before = os.environ.get(SEED_VARIABLE)
    with isolate_rng(), preserved_switches(), ExitStack() as stack:
        file = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="detaug-trainings-")),
            "checkpoint",
        )
        stack.callback(set_variable, SEED_VARIABLE, before)

        def run(done: int, steps: int, *, save: bool = False) -> list[Event]:
            set_variable(SEED_VARIABLE, before)
            _randomize_random_state()
            training, events = make_training(), list[Event]()
            if done:
                _randomize_random_state()
                training.load(file)
            with _watched(training.model, events, done):
                training.train(steps)
            made = 1 + max(
                (event.step for event in events if event.stage == "optimizer"), default=done - 1
            )
            if made != steps:
                raise ValueError(
                    f"train({steps}) made optimizer steps up to number {made}: it must make {steps} in all, "
                    "those of all optimizers counted"
                )
            if save:
                training.save(file)
            return events

        first, again = run(0, number), run(0, number)
        run(0, half, save=True)
        resumed = run(half, number)
    reached = next(
        each.digest for each in reversed(first) if (each.step, each.what) == (half - 1, "weights")
    )
    rest = [
        Event(half - 1, "resume", "weights", reached),
        *(event for event in first if event.step >= half),
    ]
    return TrainingsReport(
        number, half, _divergence(first, again), _divergence(rest, resumed, resumed=True)
    )


class Event(NamedTuple):
    """What happened in a training: the step, and what it led to."""

    step: Any  # an optimizer step's number; in nnU-Net's trainings the place in words
    stage: str
    what: str
    digest: str


@contextmanager
def _watched(model: nn.Module, events: list[Event], done: int) -> Iterator[None]:
    """Appends what happens in training to `events`; the weights first (a loop may load its checkpoint late)."""
    step, names = done, _names_of_watched(model)

    def begin(*_: Any) -> None:
        if not events:
            events.append(
                Event(done - 1, "resume" if done else "first weights", "weights", _weights(model))
            )

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        if model.training and not names[module]:
            begin()
            events.append(Event(step, "data", "what goes into the model", digest((args, kwargs))))

    def after(module: nn.Module, _: Any, output: Any) -> None:
        if model.training:
            what = f"output of {names[module] or 'the model'} ({type(module).__name__})"
            events.append(Event(step, "forward", what, digest(output)))

    def after_step(optimizer: Any, *_: Any) -> None:
        nonlocal step
        # Not before the step: Lightning computes them within it, in a closure.
        # Of this optimizer only: another's may still have those of its step before, which a resumed training has not.
        own = {each for group in optimizer.param_groups for each in group["params"]}
        for name, parameter in model.named_parameters():
            if parameter in own and parameter.grad is not None:
                events.append(
                    Event(step, "backward", f"gradient of {name}", digest(parameter.grad))
                )
        events.append(Event(step, "optimizer", "weights", _weights(model)))
        events.append(
            Event(step, "optimizer", "the optimizer's state", digest(optimizer.state_dict()))
        )
        step += 1

    with ExitStack() as hooks:
        handles = [
            register_optimizer_step_pre_hook(begin),
            register_optimizer_step_post_hook(after_step),
        ]
        for module in names:
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
            handles.append(module.register_forward_hook(after))
        for handle in handles:
            hooks.callback(handle.remove)
        yield


def _names_of_watched(model: nn.Module) -> dict[nn.Module, str]:
    """All modules; where one is compiled, of which a hook would become part, the model alone, if it is not compiled itself."""
    names = {module: name for name, module in model.named_modules()}
    if any(
        "_orig_mod" in module._modules or module._compiled_call_impl is not None for module in names
    ):
        return {model: ""} if model._compiled_call_impl is None else {}
    return names


def _divergence(
    one: list[Event], other: list[Event], *, resumed: bool = False
) -> Divergence | None:
    found = first_differing(one, other)
    if found is None:
        return None
    step, stage, what, _ = found
    stages = [stage, "resume"] if resumed and stage != "resume" else [stage]
    advice = tuple(each for stage in stages for each in _ADVICE[stage].split("; "))
    return Divergence(-1 if stage == "resume" else step, stage, what, advice)


def _weights(model: nn.Module) -> str:
    return digest(dict(model.state_dict()))


def _randomize_random_state() -> None:
    random.seed()
    np.random.seed()
    torch.seed()
