"""`LateAugmenter`: batches for nnU-Net's trainers; the loader may change until the first batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.errors import BatchError, WorkerDied
from detaug.nnunet.compatibility import AUGMENTERS, CASE_VARIABLES, MAKES_LOADERS


@dataclass
class AugmenterRequest:
    """An augmenter as nnU-Net asks for it.

    Drawing from it gives nothing, so that no batch is discarded.
    """

    data_loader: Any
    transform: Any = None
    num_processes: int = 0
    num_cached: int = 2
    seeds: Any = None
    pin_memory: bool = False
    wait_time: float = 0.02

    @property
    def generator(self) -> Any:
        """The loader, by the name that batchgenerators' augmenters have for it."""
        return self.data_loader

    def __next__(self) -> None:
        return None


@contextmanager
def requests_instead_of_augmenters(trainer: type) -> Iterator[None]:
    """Have a trainer's `get_dataloaders` make `AugmenterRequest` objects, inside the block.

    The method names its augmenter classes by the globals of its module, draws a batch from each
    augmenter and discards it. Trainers override it. So the trainer's own method, and those of its
    bases, run with these globals replaced: all arguments are nnU-Net's own.
    """
    originals = []
    for base in trainer.__mro__:
        method = vars(base).get(MAKES_LOADERS)
        # Under a decorator are the globals of the function that it wraps.
        namespace = getattr(getattr(method, "__wrapped__", method), "__globals__", {})
        for name in AUGMENTERS:
            if name in namespace:
                originals.append((namespace, name, namespace[name]))
    # All are found before the first is replaced: two bases may be of one module.
    for namespace, name, _ in originals:
        namespace[name] = AugmenterRequest
    try:
        yield
    finally:
        for namespace, name, augmenter in originals:
            namespace[name] = augmenter


class LateAugmenter(DeterministicAugmenter):
    """An augmenter of a loader that may be changed, and replaced, until the first batch is made.

    Args:
        replaced: what makes the batches in place of the loader, given the loader; itself where it
            stays. It is asked once, when the first batch is: until then attributes of the loader
            (`generator`) may be set.
        facts: further entries of the ledger's header.
    """

    def __init__(
        self,
        data_loader: Any,
        *arguments: Any,
        replaced: Callable[[Any], Any] | None = None,
        facts: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(data_loader, *arguments, **options)
        self._ledger_facts = facts or {}
        self._replaced = replaced

    def settle(self) -> None:
        """Decide what makes the batches, if that is not decided yet, and take the pipeline."""
        # First: once the pipeline is taken, `generator` cannot be set any more.
        if self._replaced is not None:
            self.generator = self._replaced(self.generator)
            self._replaced = None
        super().settle()

    def __next__(self) -> Any:
        """Return the batch that is due.

        Raises:
            RuntimeError: the epoch has no more. nnU-Net's trainers take as many as they say when
                their loaders are made.
        """
        try:
            return super().__next__()
        except BatchError as error:
            self._name_case(error)
            raise
        except StopIteration:
            raise RuntimeError(
                f"the trainer takes more than {len(self)} {self.name} batches in an epoch, the"
                " number that it had set: before get_dataloaders, set num_iterations_per_epoch and"
                " num_val_iterations_per_epoch to the numbers of batches that it takes"
            ) from None

    def _name_case(self, error: BatchError) -> None:
        """Add to an error's message which case was being read, which nnU-Net's loader does not.

        The batch is made again in this process, where the loader's variables can be seen.
        """
        # What has killed a worker might kill this process, too.
        if isinstance(error, (WorkerDied, MemoryError)):
            return
        try:
            super().replay(error.epoch, error.step)
        except Exception as again:
            case = self._case_in(getattr(again, "original", None) or again)
            # detaug's own loader names the case in its errors.
            if case is not None and case not in str(error):
                error.args = (f"{error}\na sample of case {case} was being made",)

    def _case_in(self, error: BaseException) -> str | None:
        """Return the case that was being read when an error was raised in this process."""
        names = set(map(str, getattr(self.generator, "indices", ())))
        case = None
        # The innermost frame that names a case counts: that one was being read.
        for frame, _ in walk_tb(error.__traceback__):
            value = frame.f_locals.get(CASE_VARIABLES.get(frame.f_code.co_name, ""))
            if isinstance(value, str) and value in names:
                case = str(value)
        return case
