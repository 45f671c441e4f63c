"""Keeping what one batch did to a pipeline's objects from reaching the next batch.

Transforms of others carry things from call to call: batchgeneratorsv2's cascade transforms shuffle their own
``channel_idx`` in place, counters count, objects own a Generator. In one process that is a detail; over several it
makes a batch depend on which batches the same process made before. `History` remembers the small mutable state of a
pipeline and puts it back before every batch, and reseeds Generators that the pipeline's objects own.

What is taken for a cache is left alone: an attribute that went from None (or missing) to something, and new keys of a
dictionary.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch

_MAX_OBJECTS = 5_000
_MAX_ITEMS = 1_000
_MAX_ARRAY_BYTES = 4_096
_LEAVES = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    np.generic,
    torch.dtype,
    torch.device,
    torch.Tensor,
    torch.nn.Module,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    range,
    slice,
)
_RNG_KINDS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)


class History:
    """The state that a pipeline's objects had when they were handed in.

    Args:
        roots: the objects to start from; everything small that is reachable from them is remembered.
        reseed: whether Generators found on the way are reseeded for every batch (else they are left alone).
        restore: whether what has changed is put back (else it is left alone).
    """

    def __init__(self, roots: Iterable[Any], reseed: bool = True, restore: bool = True) -> None:
        self._restorers: list[Callable[[], None]] = []
        self._generators: list[Any] = []
        self._seen: set[int] = set()
        self._kept: list[Any] = []  # ids stay unique only while the objects live
        for root in roots:
            self._walk(root)
        if not reseed:
            self._generators.clear()
        if not restore:
            self._restorers.clear()
        self._seen.clear()

    def restore(self) -> None:
        """Put back what has changed since this object was made."""
        for restorer in self._restorers:
            restorer()

    def reseed(self, sequence: np.random.SeedSequence) -> None:
        """Seed every Generator that the pipeline's objects own from a child of the batch's SeedSequence."""
        if self._generators:
            # A key of its own, so that it meets neither the batch's own draws nor those of its samples.
            words = np.random.SeedSequence(sequence.generate_state(4, np.uint32), spawn_key=(0x0BEC,))
            for generator, child in zip(self._generators, words.spawn(len(self._generators)), strict=True):
                _reseed(generator, child)

    def _walk(self, value: Any) -> None:
        if isinstance(value, _LEAVES) or id(value) in self._seen or len(self._seen) > _MAX_OBJECTS:
            return
        self._seen.add(id(value))
        self._kept.append(value)
        if isinstance(value, _RNG_KINDS):
            self._generators.append(value)
        elif isinstance(value, np.ndarray):
            self._remember_array(value)
        elif isinstance(value, dict):
            if len(value) <= _MAX_ITEMS:
                self._restorers.append(_mapping_restorer(value))
                for item in list(value.values()):
                    self._walk(item)
        elif isinstance(value, (list, tuple, set)):
            if len(value) <= _MAX_ITEMS:
                self._remember_collection(value)
                for item in list(value):
                    self._walk(item)
        else:
            attributes = getattr(value, "__dict__", None)
            if isinstance(attributes, dict):
                self._restorers.append(_mapping_restorer(attributes))
                for item in list(attributes.values()):
                    self._walk(item)

    def _remember_array(self, array: np.ndarray[Any, Any]) -> None:
        if array.nbytes <= _MAX_ARRAY_BYTES and array.flags.writeable and not array.dtype.hasobject:
            saved = array.copy()
            original = saved.tobytes()

            def restore() -> None:
                if array.tobytes() != original:
                    array[...] = saved

            self._restorers.append(restore)

    def _remember_collection(self, value: list[Any] | tuple[Any, ...] | set[Any]) -> None:
        if isinstance(value, list):
            self._restorers.append(_list_restorer(value))
        elif isinstance(value, set):
            self._restorers.append(_set_restorer(value))


def _list_restorer(value: list[Any]) -> Callable[[], None]:
    saved = list(value)

    def restore() -> None:
        if len(value) != len(saved) or any(now is not then for now, then in zip(value, saved, strict=True)):
            value[:] = saved

    return restore


def _set_restorer(value: set[Any]) -> Callable[[], None]:
    saved = set(value)

    def restore() -> None:
        if value != saved:
            value.clear()
            value.update(saved)

    return restore


def _mapping_restorer(mapping: dict[Any, Any]) -> Callable[[], None]:
    # None is not saved: None → something is how objects fill a cache.
    saved = {key: item for key, item in mapping.items() if item is not None}

    def restore() -> None:
        for key, then in saved.items():
            if mapping.get(key, mapping) is not then:
                mapping[key] = then

    return restore


def _reseed(generator: Any, sequence: np.random.SeedSequence) -> None:
    words = sequence.generate_state(4, np.uint32)
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = type(generator.bit_generator)(sequence).state
    elif isinstance(generator, np.random.RandomState):
        generator.seed(words)
    elif isinstance(generator, random.Random):
        if not isinstance(generator, random.SystemRandom):
            generator.seed(int.from_bytes(words.astype("<u4").tobytes(), "little"))
    elif generator.device.type == "cpu":
        generator.manual_seed(int(words[0]) | (int(words[1]) & 0x7FFFFFFF) << 32)


def settle_known_quirks(root: Any, log: Callable[[str], None]) -> None:
    """Switch off what known transforms decide by the clock.

    batchgeneratorsv2's ``GaussianBlurTransform(benchmark=True)`` (nnU-Net's default) picks convolution or FFT by timing
    them, which gives other bytes from run to run; with ``benchmark=False`` it always convolves.
    """
    switched = 0
    seen: set[int] = set()
    pending = [root]
    while pending and len(seen) < _MAX_OBJECTS:
        value = pending.pop()
        if isinstance(value, (*_LEAVES, np.ndarray)) or id(value) in seen:
            continue
        seen.add(id(value))
        kind = type(value)
        is_blur = kind.__name__ == "GaussianBlurTransform" and kind.__module__.startswith("batchgeneratorsv2")
        if is_blur and getattr(value, "benchmark", False):
            value.benchmark = False
            switched += 1
        if isinstance(value, dict):
            pending.extend(value.values() if len(value) <= _MAX_ITEMS else ())
        elif isinstance(value, (list, tuple)):
            pending.extend(value if len(value) <= _MAX_ITEMS else ())
        elif isinstance(getattr(value, "__dict__", None), dict):
            pending.extend(vars(value).values())
    if switched:
        log(f"switched benchmark=True off in {switched} GaussianBlurTransform: it chooses an algorithm by the clock")
