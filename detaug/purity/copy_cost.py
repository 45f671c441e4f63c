"""What copies of the transforms cost, told to the user where it matters, with what to do about it."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from itertools import islice
from statistics import median
from typing import Any

import numpy as np
import torch

from detaug.purity.owned import OwnedCopy
from detaug.purity.pristine import Pristine
from detaug.purity.references import walk

#: The share of a batch's time, and the seconds a batch, that copying may take without a warning.
_SHARE, _SECONDS = 0.01, 0.001
#: After so many batches it is judged; the first ones of a process open files and compile.
_FIRST, _LAST = 3, 20
#: What a transform loads on first use, and so for every batch, is named from this many bytes on.
_LOADED_BYTES = 2**20
_MOST_VALUES = 10_000


class CopyCost:
    """Watches one process's first batches, where transforms are copied for each, and calls `log` with what is to be said."""

    def __init__(self, pristine: Pristine, log: Callable[[str], None]) -> None:
        self._pristine = pristine
        self._log = log
        self._seconds: list[tuple[float, float]] = []

    def add(self, copying: float, making: float, used: OwnedCopy) -> None:
        """A batch's seconds, and the copy that it was made with."""
        if len(self._seconds) == _LAST:
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
            largest = islice(_sizes_in(self._pristine.transforms).items(), 3)
            what = ", ".join(f"{path} ({size / 1024:.0f} kB)" for path, size in largest)
            self._log(
                f"the transforms are copied for every batch, which takes {1000 * each:.1f} ms, {100 * share:.1f} % of a batch; "
                f"largest: {what}. What never changes, or is a cache that may stay, can be named in keep=('attribute',)"
            )

    def _tell_loaded(self, used: OwnedCopy) -> None:
        before = _sizes_in(self._pristine.transforms, _LOADED_BYTES)
        for path, size in _sizes_in(used.value, _LOADED_BYTES).items():
            name = path.rpartition(".")[2].partition("[")[0]
            if path not in before and name not in self._pristine.keep:
                self._log(
                    f"the transforms load {path} ({size / 2**20:.0f} MB) when they are first used, and so for every batch, which "
                    f"starts from a copy of them as you passed them. Load it before, or pass keep=({name!r},) if it may stay"
                )
                return


def _sizes_in(transforms: dict[str, Any], least: int = 0) -> dict[str, int]:
    """Bytes of the arrays, tensors and containers in them, by path, the largest first."""
    sizes = {path: _size_of(value) for path, value in walk(transforms.items(), _MOST_VALUES)}
    return {
        path: sizes[path]
        for path in sorted(sizes, key=sizes.__getitem__, reverse=True)
        if sizes[path] >= least
    }


def _size_of(value: Any) -> int:
    """Of a container without its items: a long one is large by itself. A class of the user's is not asked, for it may raise."""
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.itemsize * math.prod(value.shape)
    return sys.getsizeof(value) if type(value).__module__ == "builtins" else 0
