"""Groups of the augmenter's arguments: `Check` and `Skip`. Executors have their own (`LocalProcesses`, `RayExecutor`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from detaug.engine import arguments


@dataclass(frozen=True)
class Check:
    """The run-time check: batches are made a second time, and what draws from the operating system is reported.

    ``check=20`` is ``check=Check(every=20)``, ``check=False`` is ``check=Check(every=0)``.

    Args:
        every: the second, fourth, eighth ... batch of each worker, and then one in so many, is made a second time, from a
            pristine copy in another process, and compared, for at most about 1 % of the workers' time or 0.4 s
            (docs/purity.md); 1: every batch is, whatever it costs; 0: none.
        ignore: keys of a batch that may differ from one making to the next, such as a process number. A ledger,
            `detaug verify` and `detaug check` leave them out as well.
        on_mismatch: how a batch that differs is reported: "raise" (ReproducibilityError), "warn", or None: an error
            among a worker's first batches, a warning later, when a training is under way.
        guard: report generators that are created without a seed while batches are made, with the line that does it.

    Raises:
        TypeError, ValueError: an argument cannot be right, or `on_mismatch` is given although no batch is compared.
    """

    every: int = 100
    ignore: Sequence[str] = ()
    on_mismatch: str | None = None
    guard: bool = False

    def __post_init__(self) -> None:
        arguments.count("Check's every", self.every)
        object.__setattr__(self, "ignore", arguments.keys("Check's ignore", self.ignore))
        if self.on_mismatch is not None:
            arguments.one_of("Check's on_mismatch", self.on_mismatch, ("raise", "warn"))
            if not self.every:
                raise ValueError(
                    f"on_mismatch={self.on_mismatch!r} has no effect with every=0, which compares no batch: leave it out, or "
                    "pass another every="
                )
        if not isinstance(self.guard, bool):
            raise TypeError(f"Check's guard must be True or False, got {self.guard!r}")

    @classmethod
    def of(cls, value: Any) -> Check:
        """What the augmenter's argument ``check`` means: itself, its `every`, True (as by default) or False (none).

        Raises:
            TypeError, ValueError: it means nothing.
        """
        if isinstance(value, Check):
            return value
        if isinstance(value, bool):
            return cls() if value else cls(every=0)
        try:
            return cls(every=arguments.count("check", value))
        except TypeError:
            raise TypeError(
                f"check must be Check(every=..., ignore=..., on_mismatch=..., guard=...), an integer (its every), True or "
                f"False, got {value!r}"
            ) from None


@dataclass(frozen=True)
class Skip:
    """``on_error=Skip()``: batches whose loader or transform raises are left out, the same ones in every run, and logged.

    Args:
        most: how many batches of this rank in a row may be left out, also across epochs. The next one that fails
            raises; it is the same one with any number of processes and after a resume. None: any number.

    Raises:
        TypeError, ValueError: `most` is no such number.
    """

    #: A batch in a hundred that cannot be made is a bad case; a hundred in a row are a broken pipeline.
    most: int | None = 100

    def __post_init__(self) -> None:
        if self.most is not None:
            arguments.count("Skip's most", self.most)
