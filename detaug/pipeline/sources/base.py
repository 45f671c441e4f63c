"""The interface between the engine and the sources of raw batches."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from torch.utils.data._utils import worker as torch_worker

from detaug.pipeline.sources.argument_hints import loses_its_place
from detaug.seeding.current import Current

#: How many logical workers an endless loader has that declares none: nnU-Net's own number of
#: augmentation workers, which also spreads evenly over 1, 2, 3, 4, 6 and 12 processes.
DEFAULT_NUM_STREAMS = 12


class Source(ABC):
    """A source of raw batches. It is copied, never shared, between streams and processes.

    Epoch e of a stream-bound source follows from these attributes, never from the loader's code:

    - a loader with ``set_epoch``, and batchgenerators' finite `DataLoader`: a pristine copy that
      gets e (but see `is_undecided`);
    - a loader that is known to end (`pass_per_epoch`): its e-th pass;
    - any other with `batches_per_epoch`: it continues where the epoch before ended, and the end of
      a pass ends the epoch;
    - any other without: a pristine copy where it is known to be endless or a callable makes it
      (`restarts`), else its e-th pass.

    Attributes:
        stateless: any batch can be made by any copy at any time; nothing that matters is carried
            between batches.
        pass_per_epoch: the loader declares that it ends; epoch e is its e-th pass.
        restarts: without `batches_per_epoch`, every epoch starts from a pristine copy.
        endless: the loader declares that it has no end.
        may_end: it declares that it has no end, and its code raises StopIteration.
        is_undecided: only a first batch shows what its epochs are (`learn_from`).
        streams_share_data: its streams split one order among them, so that its own generators must
            be in the same state in all streams; they may be seeded once per copy, never per batch.
        batches_per_epoch: an epoch's batches over all ranks, if the user set a number.
        default_num_streams: logical workers, if the user names no number; the loader declares
            those with ``number_of_threads_in_multithreaded``.
        num_steps: batches per epoch over all ranks, if that is known beforehand.
        length_hint: the batches of an epoch according to the loader's own ``__len__``, if one
            stream gives all. It does not end an epoch: it is for ranks, which need a number, and
            for ``len()``.
        restarts_every_epoch: every epoch starts from a pristine copy.
        keeps_states: the loader has a state dict that says where it stands, and can load it.
        holds_transforms: the loader's attributes that are transforms, which start every batch as
            the user passed them.
        class_name: the loader's, for messages.
        loader: the user's object.
        inspected_loader: the loader that is described; None in another process if it was made for
            that alone.
    """

    pass_per_epoch: bool = False
    restarts: bool = False
    endless: bool = False
    is_undecided: bool = False
    may_end: bool = False
    batches_per_epoch: int | None = None
    num_steps: int | None = None
    length_hint: int | None = None
    holds_transforms: tuple[str, ...] = ()

    def __init__(self, loader: Any, stateless: bool = False) -> None:
        self.loader = loader
        self.inspected_loader = loader
        self.stateless = stateless
        self.class_name = type(loader).__name__
        declared = getattr(loader, "number_of_threads_in_multithreaded", None)
        self.streams_share_data = declared is not None
        self.default_num_streams = max(1, int(declared or 1))
        self.restarts_every_epoch = hasattr(loader, "set_epoch")
        self.keeps_states = (
            not stateless
            and callable(getattr(loader, "state_dict", None))
            and callable(getattr(loader, "load_state_dict", None))
            and not loses_its_place(loader)
        )

    def in_this_process(self) -> Source:
        """Return the source whose loader makes batches in this process."""
        return self

    @property
    def continues_epochs(self) -> bool:
        """True if a copy continues from epoch to epoch; otherwise each needs a pristine copy."""
        if self.stateless or self.restarts_every_epoch:
            return False
        return self.batches_per_epoch is not None or not self.restarts

    def turns_per_epoch(self, stream: int, num_streams: int) -> int | None:
        """Return the number of turns in a stream's epoch; None if the epoch ends with a pass."""
        if not self.continues_epochs or self.pass_per_epoch or self.batches_per_epoch is None:
            return None
        # Rounded up: streams take steps in turn, so the first ones may have one turn more.
        return max(0, -(-(self.batches_per_epoch - stream) // num_streams))

    @property
    def total_batches(self) -> int | None:
        """An epoch's batches over all ranks, if the user or the loader says how many."""
        if self.num_steps is None:
            return _smallest(self.batches_per_epoch, self.length_hint)
        return _smallest(self.batches_per_epoch, self.num_steps)

    @property
    def known_steps(self) -> int | None:
        """An epoch's steps over all ranks, if they are known."""
        # If copies continue from epoch to epoch, the steps after an epoch's last are the next
        # one's.
        is_numbered = self.stateless or self.turns_per_epoch(0, 1) is not None
        if not is_numbered:
            return self.num_steps
        return _smallest(self.batches_per_epoch, self.num_steps)

    def begin(
        self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence
    ) -> None:
        """Prepare a pristine copy for the batches of a stream, from an epoch on; called once.

        Args:
            stream: the stream.
            num_streams: the number of streams.
            epoch: the first epoch.
            epoch_child: the seed of what is drawn once for that epoch.
        """
        # For batchgenerators it is the number of processes; here streams take their part.
        if self.streams_share_data:
            self.loader.number_of_threads_in_multithreaded = num_streams
        call_if_present(self.loader, "set_thread_id", stream)
        if hasattr(self.loader, "was_initialized"):
            # As batchgenerators' augmenters do before they start.
            self.loader.was_initialized = False

    def learn_from(self, other: Source) -> None:
        """Take over what another copy of this source has shown with its first batch."""

    def next_pass(self) -> None:
        """Prepare the copy for its next pass, after one has ended."""

    def declared(self) -> list[str]:
        """Return the lines that a state dict is compared by, in addition to the loader."""
        return []

    def declared_parts(self) -> dict[str, Any]:
        """Return the further objects of the user's that a state dict is compared by, by name."""
        return {}

    def originals(self) -> dict[str, Any]:
        """Return these objects as the program has them now, by name."""
        return self.declared_parts()

    def prepare(self, batch: Current) -> None:
        """Draw what is drawn once per epoch; called before a stateless source's batch is seeded."""

    @abstractmethod
    def make(self, batch: Current) -> Any:
        """Return the next batch of a stream-bound source; exactly `batch` of a stateless one.

        Raises:
            StopIteration: the stream has ended.
        """


def _smallest(*limits: int | None) -> int | None:
    """Return the smallest of the limits that are set, or None."""
    return min((limit for limit in limits if limit is not None), default=None)


def is_batchgenerators(loader: Any, class_name: str) -> bool:
    """Return whether a loader is an instance of that class of batchgenerators'.

    batchgenerators is not imported for it: unless somebody else has, no such object exists.
    """
    module = sys.modules.get("batchgenerators.dataloading.data_loader")
    kind = getattr(module, class_name, None)
    return kind is not None and isinstance(loader, kind)


def call_if_present(target: Any, method: str, value: int) -> None:
    """Call ``target.method(value)`` if there is such a method."""
    function = getattr(target, method, None)
    if callable(function):
        function(value)


def refuse_stateless(loader: Any, stateless: bool | None) -> None:
    """Raise an error if a loader that holds its position is declared stateless.

    Raises:
        ValueError: `stateless` is true.
    """
    if stateless:
        raise ValueError(
            f"{loader!r} holds its position in the data: it cannot be declared stateless=True"
        )


@contextmanager
def worker_info(number: int, total: int, seed: int, dataset: Any) -> Iterator[None]:
    """Run code as in worker `number` of `total` of a torch DataLoader, which sets this variable."""
    # It may be set: the program may run in a DataLoader's worker.
    before = torch_worker._worker_info
    torch_worker._worker_info = torch_worker.WorkerInfo(
        id=number, num_workers=total, seed=seed, dataset=dataset
    )
    try:
        yield
    finally:
        torch_worker._worker_info = before
