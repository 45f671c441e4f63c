"""What the engine asks of a source of raw batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from detaug.context import Current

#: How many logical workers an endless loader has that declares none: nnU-Net's own number of augmentation workers,
#: which also spreads evenly over 1, 2, 3, 4, 6 and 12 processes.
DEFAULT_NUM_STREAMS = 12


class Source(ABC):
    """Where raw batches come from. A source is copied (never shared) between streams and processes.

    Attributes:
        stateless: any batch can be made by any copy at any time; nothing that matters is carried between batches.
        pass_per_epoch: a stream-bound source whose e-th epoch is its e-th pass. Otherwise each epoch starts from a
            pristine copy.
        default_num_streams: logical workers, where the user names no number.
        num_steps: batches per epoch over all ranks where that is known beforehand.
        length_hint: what the loader's own ``__len__`` says; shown by ``len()``, never relied on.
        endless: no end was found in it; its own generators may be reseeded for every batch.
        loader: the user's object.
    """

    stateless: bool = False
    pass_per_epoch: bool = False
    default_num_streams: int = 1
    num_steps: int | None = None
    length_hint: int | None = None
    endless: bool = False
    loader: Any = None

    def begin(self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence) -> None:
        """Called once on a pristine copy: it is to make the batches of this stream, beginning in this epoch."""

    def next_pass(self) -> None:
        """Called when a pass has ended and the same copy goes on with the next one."""

    @abstractmethod
    def make(self, batch: Current) -> Any:
        """The next batch of a stream-bound source; exactly `batch` of a stateless one.

        Raises:
            StopIteration: the stream has ended.
        """


def tell(target: Any, method: str, value: int) -> bool:
    """Call ``target.method(value)`` if there is such a method; whether there was."""
    function = getattr(target, method, None)
    if not callable(function):
        return False
    function(value)
    return True


def spread_over_streams(loader: Any, num_streams: int) -> None:
    """Tell a loader that shares its data out over several copies how many copies there are.

    batchgenerators' loaders skip ``number_of_threads_in_multithreaded - 1`` batches each turn.
    """
    if getattr(loader, "number_of_threads_in_multithreaded", None) is not None:
        loader.number_of_threads_in_multithreaded = num_streams
