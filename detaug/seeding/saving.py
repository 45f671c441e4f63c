"""The state of a random number generator of any kind, taken and put back: the one place that does both."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

logger = logging.getLogger("detaug")


def state_of(generator: Any) -> Any:
    """As the generator itself gives it; None for objects of other kinds. `put_back` takes it.

    A RandomState's is a pair: inside a block, `numpy.random.set_bit_generator` may give the global one another bit
    generator.
    """
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator._bit_generator, generator.get_state(legacy=False)
    if isinstance(generator, np.random.BitGenerator):
        return generator.state
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    has_state = isinstance(generator, random.Random) and not isinstance(generator, random.SystemRandom)
    return generator.getstate() if has_state else None


def put_back(generator: Any, state: Any) -> None:
    """Set what `state_of` gave, or the same with other numbers."""
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, np.random.RandomState):
        bits, state = state
        if generator._bit_generator is not bits:
            np.random.set_bit_generator(bits)  # type: ignore[attr-defined]
        generator.set_state(state)
    elif isinstance(generator, np.random.BitGenerator):
        generator.state = state
    elif isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif state is not None:
        generator.setstate(state)


def global_generators() -> list[Any]:
    """Python's, NumPy's and torch's for the CPU."""
    return [random._inst, np.random.mtrand._rand, torch.default_generator]


def device_generators(kind: str) -> list[torch.Generator]:
    """Those of the "cuda", "xpu" or "mps" devices that this process can ask: none in a forked child, where CUDA cannot be
    used again."""
    if kind == "mps":
        return [torch.mps._get_default_mps_generator()] if torch.backends.mps.is_available() else []
    module: Any = getattr(torch, kind, None)
    if module is None or not module.is_available() or module._is_in_bad_fork():
        return []
    module.init()
    return list(module.default_generators[: module.device_count()])


@contextmanager
def preserved(generators: Iterable[Any]) -> Iterator[None]:
    """Whatever happens inside, these generators are afterwards as they were."""
    states = [(generator, state_of(generator)) for generator in generators]
    try:
        yield
    except BaseException:
        try:
            _restore(states)
        except Exception:  # the exception from inside is what the user must see
            logger.exception("the random state could not be put back")
        raise
    _restore(states)


def _restore(states: list[tuple[Any, Any]]) -> None:
    for generator, state in states:
        put_back(generator, state)
