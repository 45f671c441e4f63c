"""Running a pipeline under given conditions."""

from __future__ import annotations

import gc
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np

from detaug.seeding.global_generators import reseed_global_rngs
from detaug.verification.trials.conditions import Calls, Conditions
from detaug.verification.trials.substitutes import Substitutes
from detaug.watching.interception import Substitution


@contextmanager
def under(conditions: Conditions) -> Iterator[Calls]:
    """Applies these conditions to the pipeline's code inside the block, but not to the standard library and detaug."""
    calls = Calls()
    stage = Substitutes(conditions, calls)
    with ExitStack() as stack:
        stack.enter_context(_garbage_callbacks_off())
        stack.enter_context(_substituted(stage.replacements()))
        stack.enter_context(stage.unseeded_python_generators())
        stack.enter_context(stage.thread_starts())
        if conditions.threads:
            stack.enter_context(_threads_held_up(conditions.threads))
        # Last: what is above may draw.
        reseed_global_rngs(np.random.SeedSequence([0x7E57, conditions.global_state]))
        yield calls


_known: dict[tuple[int, ...], Substitution] = {}


def _substituted(replacements: dict[Any, Any]) -> AbstractContextManager[None]:
    originals = list(replacements)
    substitution = _known.setdefault(tuple(map(id, originals)), Substitution(originals, exact=True))
    return substitution.by(list(replacements.values()))


@contextmanager
def _garbage_callbacks_off() -> Iterator[None]:
    """Libraries that time the garbage collector (hypothesis, dask) would read the clock at unpredictable moments."""
    before = list(gc.callbacks)
    gc.callbacks.clear()
    try:
        yield
    finally:
        gc.callbacks[:0] = before


@contextmanager
def _threads_held_up(number: int) -> Iterator[None]:
    """Delays threads that start inside the block, when they start and at random later."""
    delays = random.Random(number)
    interval = sys.getswitchinterval()
    begun = threading.local()

    def hold_up(_frame: Any, event: str, _argument: Any) -> None:
        if event != "call":
            return
        if not getattr(begun, "yes", False):
            begun.yes = True
            time.sleep(delays.uniform(0.0, 0.02))
        elif delays.random() < 0.05:
            time.sleep(delays.uniform(0.0, 0.005))

    before = threading.getprofile() if hasattr(threading, "getprofile") else None
    threading.setprofile(hold_up)
    # Switches between threads come by time, not by counts: a short interval brings many of them into a short batch.
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        threading.setprofile(before)
        sys.setswitchinterval(interval)
