"""What copies of the transforms cost, told to the user where it matters, with what to do about it."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch

from detaug.purity.pristine import Pristine, TransformCopy, Transforms
from detaug.purity.references import parts_of, walk
from detaug.purity.template import Template

#: The share of a batch's time, and the seconds a batch, that copying may take without a warning.
_SHARE, _SECONDS = 0.01, 0.001
#: After so many batches it is judged; the first ones of a process open files and compile.
_FIRST, _LAST = 3, 20
#: What a transform loads on first use, and so for every batch, is named from this many bytes on.
_LOADED_BYTES = 2**20
_MOST_VALUES = 10_000


class CopyCost:
    """Watches one process's first batches, and calls `log` with what is to be said."""

    def __init__(self, pristine: Pristine, transforms: Transforms, log: Callable[[str], None]) -> None:
        self._pristine = pristine
        self._transforms = transforms
        self._log = log
        self._seconds: list[tuple[float, float]] = []

    def add(self, copying: float, making: float, used: TransformCopy) -> None:
        """A batch's seconds, and the copy that it was made with."""
        if self._transforms.pure or len(self._seconds) == _LAST:
            return
        self._seconds.append((copying, making))
        if len(self._seconds) == _LAST:
            self._tell_cost()
            self._tell_loaded(used)

    def _tell_cost(self) -> None:
        # Medians: on a busy machine a process waits for its turn, for longer than any copy takes.
        each, making = map(median, zip(*self._seconds[_FIRST:], strict=True))
        share = each / max(each + making, 1e-9)
        if share > _SHARE and each > _SECONDS:
            what = ", ".join(f"{path} ({size / 1024:.0f} kB)" for path, size in _largest(self._pristine.transforms))
            self._log(
                f"the transforms are copied for every batch, which takes {1000 * each:.1f} ms, {100 * share:.1f} % of a batch; "
                f"largest: {what}. What never changes, or is a cache that may stay, can be named in keep=('attribute',)"
            )

    def _tell_loaded(self, used: TransformCopy) -> None:
        before = _large_in(self._pristine.transforms)
        for path, size in _large_in(used.value).items():
            name = path.rpartition(".")[2].partition("[")[0]
            if path not in before and name not in self._pristine.keep:
                self._log(
                    f"the transforms load {path} ({size / 2**20:.0f} MB) when they are first used, and so for every batch, which "
                    f"starts from a copy of them as you passed them. Load it before, or pass keep=({name!r},) if it may stay"
                )
                return


def _largest(transforms: dict[str, Any]) -> list[tuple[str, int]]:
    """The largest attributes (of the members of a composition), by the size of their copies."""
    parts = list(transforms.items())
    for _ in range(2):
        parts = [(path + label, inner) for path, part in parts for label, inner in parts_of(part)] or parts
    return sorted(((path, _size(part)) for path, part in parts), key=lambda each: -each[1])[:3]


def _size(value: Any) -> int:
    try:
        return Template(value).nbytes
    except Exception:
        return 0


def _large_in(transforms: dict[str, Any]) -> dict[str, int]:
    """Large arrays and tensors, by path."""
    met = walk(transforms.items(), _MOST_VALUES)
    arrays = {path: value for path, value in met if isinstance(value, (np.ndarray, torch.Tensor))}
    sizes = {path: value.itemsize * math.prod(value.shape) for path, value in arrays.items()}
    return {path: size for path, size in sizes.items() if size >= _LOADED_BYTES}
