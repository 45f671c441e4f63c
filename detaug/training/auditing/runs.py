"""`audit`: is one training step deterministic, and if not, where does it stop being so?"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from detaug.seeding.tree import non_negative_int
from detaug.training.auditing.found_state import FoundState
from detaug.training.auditing.recording import NO_IMPLEMENTATION, SILENT, Key, Recorder, Seen
from detaug.training.auditing.report import ADVICE, AuditReport, Difference, OperationUse
from detaug.training.random_state import isolate_rng
from detaug.training.switches.modes import preserved_switches

Loss = Callable[[Any, Any], torch.Tensor]


def audit(
    model: nn.Module,
    loss: Loss,
    sample_batch: Any,
    device: str | torch.device = "cpu",
    *,
    runs: int = 2,
) -> AuditReport:
    """Run forward and backward several times from one state, and report where two runs first differ.

    Every run starts from the same weights, buffers, Python attributes (a counter, a cached tensor), batch and random state
    (`random`, NumPy, torch, CUDA). Only generators that modules own are not reset between runs, so that unseeded draws are
    found. Arrays and tensors of more than 1 MiB among the attributes are not copied. Afterwards weights, buffers, gradients,
    modes, attributes, devices, random state and switches are as before.

    The step runs with the switches as they are set; where an operation raises because of them, the audit continues with
    ``warn_only``. Compiled models run uncompiled. One more run, with ``warn_only``, asks PyTorch which operations have no
    deterministic implementation on this device; where runs differ, two more measure by how much. A rare difference may need
    more ``runs``. Memory: that of one step, a copy of the weights, and 16 bytes for each value compared.

    Args:
        model: in the mode, training or evaluation, in which it is to be audited.
        loss: called as ``loss(output, target)``; returns a tensor with one element. A module's own modules are reported
            as ``"loss.…"``.
        sample_batch: ``(input, target)``. Both may be nested (deep supervision: a list of targets); NumPy arrays become
            tensors. The model takes an input that is a tuple as several arguments.
        device: where to run, e.g. ``"cuda"``.
        runs: how many runs to compare, at least 2.

    Raises:
        TypeError: the model is no module or a scripted one, the loss is not callable or returns no tensor, or the batch has
            another form.
        ValueError: no parameter requires a gradient, the device is unknown or absent, the loss has several elements
            or does not depend on the parameters, or ``runs`` is less than 2.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {model!r} of type {type(model).__name__}")
    if isinstance(model, torch.jit.ScriptModule):
        raise TypeError("a scripted model cannot be watched: pass the module that it was scripted from")
    if not callable(loss):
        raise TypeError(f"loss must be called as loss(output, target), got {loss!r} of type {type(loss).__name__}")
    model = getattr(model, "_orig_mod", model)  # what torch.compile wraps
    _check_parameters(model)
    place = _checked_device(device)
    if non_negative_int("runs", runs) < 2:
        raise ValueError(f"runs must be at least 2, to have two to compare, got {runs}")
    if not isinstance(sample_batch, (tuple, list)) or len(sample_batch) != 2:
        raise TypeError(f"sample_batch must be (input, target), got {type(sample_batch).__name__}")
    inputs, target = sample_batch
    with ExitStack() as stack:
        stack.enter_context(preserved_switches())
        stack.enter_context(_random_state(place))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        stack.enter_context(_uncompiled([each for each in (model, loss) if isinstance(each, nn.Module)]))
        start = _placed([each for each in (model, loss) if isinstance(each, nn.Module)], place, stack)
        return _report(partial(_run, model, loss, inputs, target, place, start), runs, str(place))


def _placed(roots: list[nn.Module], device: torch.device, stack: ExitStack) -> FoundState:
    """The state to start each run from, on that device; the stack puts back what was found."""
    start = FoundState(roots)
    stack.callback(start.restore)
    if all(tensor.device == device for root in roots for tensor in (*root.parameters(), *root.buffers())):
        return start
    for root in roots:
        root.to(device)
    return FoundState(roots)


def _report(run: Callable[..., Recorder], runs: int, device: str) -> AuditReport:
    try:
        first = run()
    except RuntimeError as error:
        if NO_IMPLEMENTATION not in str(error):
            raise
        torch.use_deterministic_algorithms(True, warn_only=True)
        first = run()
    forward = backward = None
    for number in range(2, runs + 1):
        other = run()
        forward, backward = _first_forward(first, other), _first_backward(first, other)
        if forward or backward:
            runs = number
            break
    asked = first
    if not torch.are_deterministic_algorithms_enabled():
        torch.use_deterministic_algorithms(True, warn_only=True)
        asked = run()
    keys, measured = frozenset(found[0] for found in (forward, backward) if found), {}
    if keys:  # the values themselves, from two more runs
        one, two = run(keys).kept, run(keys).kept
        measured = {key: (one[key], two[key]) for key in keys & one.keys() & two.keys()}
    return AuditReport(
        device=device,
        runs=runs,
        forward_difference=_described(forward, measured) if forward else None,
        backward_difference=_described(backward, measured) if backward else None,
        operations=_uses(asked),
        modules=first.module_calls,
        gradients=len(first.backward),
    )


def _run(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    target: Any,
    device: torch.device,
    start: FoundState,
    keep: frozenset[Key] = frozenset(),
) -> Recorder:
    start.restore_for_a_run()
    torch.clear_autocast_cache()  # an audit within autocast: casts of an earlier run are not this one's
    inputs, target = tree_map(partial(_on_device, device=device), (inputs, target))
    with _random_state(device), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return Recorder(model, loss, keep, caught).step(inputs, target)


def _random_state(device: torch.device) -> AbstractContextManager[None]:
    """CUDA's too, where it runs already or is about to."""
    in_use = device.type != "cpu" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    state: AbstractContextManager[None] = isolate_rng(include_cuda=in_use)
    return state


def _checked_device(device: str | torch.device) -> torch.device:
    """The device as torch names it, with an index where it is CUDA's. Raises as `audit`."""
    if not isinstance(device, (str, torch.device)):
        raise TypeError(f"device must be a string such as 'cpu' or 'cuda:0', or a torch.device, got {device!r}")
    try:
        found = torch.zeros(1, device=device)
        found.item()  # which a meta device has not
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"device {str(device)!r} is unknown or absent; pass 'cpu', 'cuda' or 'mps': {reason}"
        ) from None
    return found.device


def _on_device(value: Any, device: torch.device) -> Any:
    """A copy there, since a step may write into its input; arrays become tensors, other objects stay what they are."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)
    return value


def _check_parameters(model: nn.Module) -> None:
    for name, parameter in model.named_parameters():
        if isinstance(parameter, nn.parameter.UninitializedParameter):
            raise ValueError(f"parameter {name!r} has no shape yet: run the model once, then audit it")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError(
            f"no parameter of {type(model).__name__} requires a gradient, so there is no backward pass to audit: "
            "unfreeze at least one with requires_grad_()"
        )


def _uncompiled(roots: list[nn.Module]) -> Any:
    """Compiled modules run as they are written: hooks inside a compiled graph would not be called."""
    compiled = any(
        getattr(module, "_compiled_call_impl", None) is not None or hasattr(module, "_orig_mod")
        for root in roots
        for module in root.modules()
    )
    set_stance = getattr(torch.compiler, "set_stance", None)
    # only where needed: it imports the compiler
    return set_stance("force_eager") if compiled and set_stance else ExitStack()


def _first_forward(first: Recorder, other: Recorder) -> tuple[Key, Seen, str] | None:
    """The first output, buffer or loss that differs. The note says if what went into the module differed already."""
    given: Seen | None = None
    for i, (one, two) in enumerate(zip_longest(first.forward, other.forward)):
        if one is None or two is None:
            return ("forward", i), one or two, "only one of the two runs came here: another path was taken"
        if one != two:
            note = (
                f"the second run came to {two.what} of {two.owner.module or 'the model'} here: another path was taken"
            )
            return ("forward", i), one, note
        if one.digest == two.digest:
            continue
        if one.given:
            given = given or one
            continue
        if given is None:
            return ("forward", i), one, ""
        where, _, _ = given.owner.module.rpartition(".")
        caller = where or ("the loss" if given.owner.phase == "loss" else "the model")
        note = f"what went into {given.owner.module or 'the model'} differed already ({given.what}): "
        return ("forward", i), one, f"{note}look at the code that calls it, in {caller}"
    return None


def _first_backward(first: Recorder, other: Recorder) -> tuple[Key, Seen, str] | None:
    for key, one in {**first.backward, **other.backward}.items():
        here, there = first.backward.get(key), other.backward.get(key)
        if here is None or there is None or here != there:
            which = "first" if here is None else "second"
            return key, here or one, f"the {which} run did not compute this: its graph is another one"
        if here.digest != there.digest:
            return key, here, ""
    return None


def _described(place: tuple[Key, Seen, str], measured: Mapping[Key, tuple[torch.Tensor, torch.Tensor]]) -> Difference:
    key, seen, note = place
    size = _size(*measured[key]) if key in measured else ""
    return Difference(**asdict(seen.owner), what=seen.what, operation=seen.operation, size=size, note=note)


def _size(one: torch.Tensor, two: torch.Tensor) -> str:
    what = f"{one.dtype} of shape {tuple(one.shape)}"
    try:
        torch.testing.assert_close(one, two, rtol=0, atol=0, equal_nan=True)
    except AssertionError as error:
        said = str(error).partition("\n\n")[2] or str(error)
        return "; ".join([what, *said.splitlines()])
    return (
        f"{what}; two more runs agreed here, but perhaps for the signs of zeros: the difference is rare, or of the first run "
        "only (something set up on first use)"
    )


def _uses(recording: Recorder) -> tuple[OperationUse, ...]:
    choose = "choose another operation, or run with deterministic_mode('warn') and know that it varies"
    uses = []
    for (name, owner), calls in recording.operations.items():
        advice = SILENT.get(name) or next((text for part, text in ADVICE.items() if part in name), choose)
        uses.append(OperationUse(name=name, alerted=name not in SILENT, calls=calls, advice=advice, **asdict(owner)))
    return tuple(uses)
