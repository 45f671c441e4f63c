"""The gates of a pipeline: with what probability its transforms act, how many samples show them all, and a pipeline in which one
of them is open.

A gate is an attribute between 0 and 1 that is called a probability (`apply_probability`, `p_rotation`, `p`), of any object in
the pipeline. What code decides by itself (``if rng.random() < 0.05``) is no gate that can be found, only met.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NAME = re.compile(r"(^|_)(p|prob|probability)(_|$)")
#: So likely is a branch to be taken at least once.
CONFIDENCE = 0.99
#: Branches that no gate declares are expected to be as rare as this, and declared ones are met down to `_LEAST`; rarer ones
#: are only forced open.
_UNDECLARED, _LEAST = 0.05, 0.02
#: A gate that is expected to be open less often than this is forced open once.
RARELY = 10


@dataclass(frozen=True)
class Gate:
    """A probability in a pipeline.

    Attributes:
        name: for the reader.
        probability: of the gate being open in a sample, with those on the way to it.
        path: attributes, and places in lists, from the pipeline to the object that has it.
        attribute: its name there.
    """

    name: str
    probability: float
    path: tuple[tuple[str, int | None], ...]
    attribute: str


def gates_of(pipeline: Any) -> list[Gate]:
    """All gates that are neither always open nor always shut, in the pipeline's order."""
    return list(_walk(pipeline, 1.0, (), set()))


def _walk(part: Any, reached: float, path: tuple[tuple[str, int | None], ...], seen: set[int]) -> Iterator[Gate]:
    if id(part) in seen:
        return
    seen.add(id(part))
    children = list(_children(part))
    inner = reached / len(children) if _is_choice(part) and children else reached
    for name, value in _attributes(part).items():
        if _NAME.search(name) and isinstance(value, float) and 0 < value < 1:
            wrapper = name == "apply_probability" and len(children) == 1
            whose = type(children[0][1]).__name__ if wrapper else f"{type(part).__name__}.{name}"
            yield Gate(whose, reached * value, path, name)
            if children:
                inner *= value
    for step, child in children:
        yield from _walk(child, inner, (*path, step), seen)


def _attributes(part: Any) -> dict[str, Any]:
    return dict(getattr(part, "__dict__", {}))


def _children(part: Any) -> Iterator[tuple[tuple[str, int | None], Any]]:
    for name, value in _attributes(part).items():
        if isinstance(value, (list, tuple)):
            yield from (((name, i), each) for i, each in enumerate(value) if _is_transform(each))
        elif _is_transform(value):
            yield (name, None), value


def _is_transform(value: Any) -> bool:
    return (
        callable(value) and not isinstance(value, type) and bool(getattr(value, "__dict__", None)) and not _code(value)
    )


def _code(value: Any) -> bool:
    return hasattr(value, "__code__") or hasattr(value, "__self__")


def _is_choice(part: Any) -> bool:
    return type(part).__name__.startswith("OneOf")


def forced_open(pipeline: Any, gate: Gate) -> Any:
    """A copy of the pipeline in which this gate, and those on the way to it, are open."""
    made = part = copy.deepcopy(pipeline)
    for name, place in gate.path:
        child = getattr(part, name)
        if place is not None:
            child = child[place]
            if _is_choice(part):
                setattr(part, name, [child])
        for each, value in _attributes(part).items():
            if _NAME.search(each) and isinstance(value, float) and 0 < value < 1:
                setattr(part, each, 1.0)
        part = child
    setattr(part, gate.attribute, 1.0)
    return made


def iterations_for(gates: list[Gate], batch_size: int, epochs: int) -> int:
    """How many batches an epoch must have for all branches of the pipeline to be taken, with `CONFIDENCE`."""
    rarest = min((gate.probability for gate in gates), default=1.0)
    probability = min(max(rarest, _LEAST), _UNDECLARED)
    return math.ceil(samples_for(probability) / (batch_size * epochs))


def samples_for(probability: float) -> int:
    """How many samples show a branch of this probability at least once, with `CONFIDENCE`."""
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - probability))


def seen_in(samples: int) -> float:
    """The probability of the rarest branch that so many samples show at least once, with `CONFIDENCE`."""
    return 1 - float((1 - CONFIDENCE) ** (1 / samples))


def rare_ones(gates: list[Gate], samples: int) -> list[Gate]:
    """Those that so many samples are expected to show less than `RARELY` times."""
    return [gate for gate in gates if gate.probability * samples < RARELY]
