"""`verify`: train twice, and once interrupted and resumed, and say where the trainings part.

A training is watched from outside, through hooks that PyTorch offers for every module and optimizer, so that any loop can
be looked at: a plain one, Lightning's, Ignite's. Of every step there are, in this order, what goes into the model, each
module's output, the gradients with which the optimizer made its step, and the weights and the optimizer's state after it.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from detaug.fingerprints import fingerprint
from detaug.seeding.tree import SEED_VARIABLE, positive_int
from detaug.training.audit_recording import leaves
from detaug.training.random_state import isolate_rng
from detaug.training.switches import preserved_switches

Stage = Literal["first weights", "data", "forward", "backward", "optimizer", "resume"]

_ADVICE: dict[Stage, str] = {
    "first weights": "call seed_everything before the model is made",
    "data": "the batches are not a function of the seed (or, resumed, of the checkpoint): look at the loader, its workers and "
    "transforms",
    "forward": "the same input and weights give another output: detaug.training.audit names the module, and random layers "
    "(dropout) need the random state: rng_state() in the checkpoint",
    "backward": "the same output gives another gradient: detaug.training.audit names the operation; what the loss is given "
    "besides the model's output (targets, weights) may differ too",
    "optimizer": "the same gradients give other weights: look at the optimizer's state, the schedule, clipping and scaling",
    "resume": "the checkpoint does not bring back what the training had: look at save and load",
}


class Training(Protocol):
    """What `make_training` returns: a training that has not begun.

    Attributes:
        model: the module that is trained.
    """

    model: nn.Module

    def train(self, steps: int) -> object:
        """Train until this many optimizer steps have been made since the beginning, also counting those before a resume."""

    def save(self, file: Path) -> object:
        """Write a checkpoint."""

    def load(self, file: Path) -> object:
        """Go on from a checkpoint, in a training that has not begun."""


@dataclass(frozen=True)
class Parted:
    """Where two trainings were first different.

    Attributes:
        step: counted from 0; -1 before the first.
        stage: of the step.
        what: the module, parameter or input.
        advice: what to look at.
    """

    step: int
    stage: Stage
    what: str
    advice: str

    def __str__(self) -> str:
        when = "before the first step" if self.step < 0 else f"in step {self.step}"
        return f"parted {when}, {self.stage}: {self.what}\n" + "\n".join(
            f"    - {each}" for each in self.advice.split("; ")
        )


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found.

    Attributes:
        steps: of each training.
        interrupted_after: steps, of the resumed one.
        again: where the second training parted from the first; None: nowhere.
        resumed: where the interrupted and resumed one parted from the first; None: nowhere.
    """

    steps: int
    interrupted_after: int
    again: Parted | None
    resumed: Parted | None

    @property
    def ok(self) -> bool:
        """Whether all three trainings are the same, byte for byte."""
        return self.again is None and self.resumed is None

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        lines: list[str] = []
        for what, parted in (
            (f"trained again, {self.steps} steps", self.again),
            (f"interrupted after {self.interrupted_after} steps and resumed", self.resumed),
        ):
            lines.append(f"{what}: {'the same, byte for byte' if parted is None else 'different'}")
            lines += [] if parted is None else [f"  {parted}"]
        return "\n".join(lines)


def verify(
    make_training: Callable[[], Training], *, steps: int = 6, interrupt_after: int | None = None
) -> VerifyReport:
    """Train `steps` steps twice, and once interrupted and resumed from a checkpoint, and compare every step.

        class Training:
            def __init__(self):
                seed_everything(1234, deterministic=True)
                self.model, self.optimizer, self.data = ...
            def train(self, steps): ...
            def save(self, file): ...
            def load(self, file): ...

        report = verify(Training)
        assert report, report

    Before each training, and before the resumed one goes on, the global generators (Python's, NumPy's, torch's) are set
    somewhere else, as in a new process: what is not seeded or not in the checkpoint is seen. Afterwards they, the switches and
    ``DETAUG_SEED`` are as before. All trainings run in this process, on whatever device they choose; that a GPU of another
    kind, or the CPU, gives the same is not looked at, and not to be expected.

    Args:
        make_training: returns a `Training` that has not begun; called four times.
        steps: of the optimizer.
        interrupt_after: after how many of them; by default half.

    Raises:
        ValueError: `steps` is less than 2, `interrupt_after` not within 1 ... steps - 1, or a training made another number of
            steps than it was asked for.
    """
    number = positive_int("steps", steps)
    half = positive_int("interrupt_after", number // 2 or 1 if interrupt_after is None else interrupt_after)
    if half >= number:
        raise ValueError(f"interrupt_after must be within 1 ... steps - 1, {number - 1}, got {half}")
    variable = os.environ.get(SEED_VARIABLE)
    with isolate_rng(), preserved_switches(), tempfile.TemporaryDirectory(prefix="detaug-verify-") as folder:
        try:
            file = Path(folder, "checkpoint")
            first = _run(make_training, 0, number, variable)
            again = _run(make_training, 0, number, variable)
            _run(make_training, 0, half, variable, save=file)
            resumed = _run(make_training, half, number, variable, load=file)
        finally:
            _set_variable(variable)
    kept = [event for event in first if event.step >= half]
    at_resume = next(event for event in reversed(first) if event.step == half - 1 and event.what == "weights")
    return VerifyReport(
        number, half, _first_difference(first, again), _first_difference([at_resume.as_first(), *kept], resumed, True)
    )


@dataclass(frozen=True)
class _Event:
    step: int
    stage: Stage
    what: str
    digest: str

    def as_first(self) -> _Event:
        return _Event(-1, "first weights", "weights", self.digest)


def _run(
    make_training: Callable[[], Training],
    done: int,
    steps: int,
    variable: str | None,
    *,
    save: Path | None = None,
    load: Path | None = None,
) -> list[_Event]:
    _set_variable(variable)
    _scatter_random_state()
    training = make_training()
    if load is not None:
        _scatter_random_state()
        training.load(load)
    events: list[_Event] = []
    if load is None:
        events.append(_Event(-1, "first weights", "weights", _weights(training.model)))
    with _watched(training.model, events, done, first=load is not None):
        training.train(steps)
    made = 1 + max((event.step for event in events if event.stage == "optimizer"), default=done - 1)
    if made != steps:
        raise ValueError(f"train({steps}) made optimizer steps up to number {made}: it must make {steps} in all")
    if save is not None:
        training.save(save)
    return events


@contextmanager
def _watched(model: nn.Module, events: list[_Event], done: int, *, first: bool) -> Iterator[None]:
    """Adds what happens to `events`; `first`: also the weights with which the first step begins (a loop may load its
    checkpoint as late as that)."""
    step, names = done, {module: name for name, module in model.named_modules()}
    begun = not first

    def before(module: nn.Module, args: Any, kwargs: Any) -> None:
        nonlocal begun
        if not model.training or names[module]:
            return
        if not begun:
            events.append(_Event(-1, "first weights", "weights", _weights(model)))
            begun = True
        events.append(_Event(step, "data", "what goes into the model", _digest((args, kwargs))))

    def after(module: nn.Module, _: Any, output: Any) -> None:
        if model.training:
            what = f"output of {names[module] or 'the model'} ({type(module).__name__})"
            events.append(_Event(step, "forward", what, _digest(output)))

    def after_step(optimizer: Any, *_: Any) -> None:
        nonlocal step
        # Not before the step: Lightning computes them within it, in a closure.
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                events.append(_Event(step, "backward", f"gradient of {name}", _digest(parameter.grad)))
        events.append(_Event(step, "optimizer", "weights", _weights(model)))
        events.append(_Event(step, "optimizer", "the optimizer's state", _digest(optimizer.state_dict())))
        step += 1

    handles = [register_optimizer_step_post_hook(after_step)]
    for module in names:
        handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        handles.append(module.register_forward_hook(after))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _first_difference(one: list[_Event], other: list[_Event], resumed: bool = False) -> Parted | None:
    for mine, theirs in zip(one, other, strict=False):
        if mine == theirs:
            continue
        stage: Stage = "resume" if resumed and mine.stage == "first weights" else mine.stage
        what = (
            mine.what if (mine.step, mine.what) == (theirs.step, theirs.what) else f"{mine.what}; there, {theirs.what}"
        )
        return Parted(mine.step if stage != "resume" else -1, stage, what, _advice(stage, resumed))
    if len(one) == len(other):
        return None
    longer = max(one, other, key=len)[min(len(one), len(other))]
    return Parted(longer.step, longer.stage, f"only one came to {longer.what}", _advice(longer.stage, resumed))


def _advice(stage: Stage, resumed: bool) -> str:
    advice = _ADVICE[stage]
    return f"{advice}; {_ADVICE['resume']}" if resumed and stage != "resume" else advice


def _weights(model: nn.Module) -> str:
    return _digest(dict(model.state_dict()))


def _digest(value: Any) -> str:
    with torch.no_grad():
        found = [
            (where, leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf) for where, leaf in leaves(value)
        ]
        return fingerprint(found)


def _scatter_random_state() -> None:
    """Somewhere that nobody knows, as in a new process."""
    random.seed()
    np.random.seed()
    torch.seed()


def _set_variable(value: str | None) -> None:
    if value is None:
        os.environ.pop(SEED_VARIABLE, None)
    else:
        os.environ[SEED_VARIABLE] = value
