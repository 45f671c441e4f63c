"""Batches that are left out (``on_error=Skip()``): how they are logged, and what is raised when there are too many."""

from __future__ import annotations

import logging
from collections import Counter

from detaug.engine.order.outcomes import Skipped
from detaug.errors import BatchError

logger = logging.getLogger("detaug")

#: How often an error that was told in full is mentioned for each batch that it hits; then at every doubling.
_MENTIONED = 10


def left_out(error: BatchError, max_skips: int | None) -> Skipped:
    """The outcome of a batch that failed. The error is prepared for being raised as the one that is too many."""
    text = str(error)
    first_line, rest = text.partition("\n")[::2]
    too_many = (
        f"This is one batch too many that failed: Skip(most={max_skips}) leaves out at most {max_skips} in a row."
    )
    error.args = (f"{first_line}\n{too_many}\n{rest}",)
    return Skipped(error, text, f"epoch {error.epoch}, step {error.step}")


class SkipLog:
    """Logs batches that were left out, in their order: each error (class and message) in full once, and then counted."""

    def __init__(self) -> None:
        self._times: Counter[str] = Counter()

    def say(self, skipped: Skipped) -> None:
        """Tell of one."""
        summary = skipped.text.partition("\n")[0]
        self._times[summary] += 1
        times = self._times[summary]
        if times == 1:
            logger.warning("skipped: %s", skipped.text)
        elif times <= _MENTIONED or times & (times - 1) == 0:
            rest = ", from here on told at every doubling" if times == _MENTIONED else ""
            logger.warning("skipped: %s as well, for %s (%d times by now%s)", skipped.batch, summary, times, rest)
