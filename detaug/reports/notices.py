"""What detaug logs and warns of while a command runs: kept for its report, so that it does not tear up a progress bar."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class _Collector(logging.Handler):
    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        if record.getMessage() not in self._into:
            self._into.append(record.getMessage())


@contextmanager
def collected_notices() -> Iterator[list[str]]:
    """Inside, log records of detaug from WARNING on go into the list, each text once; its warnings follow at the end. Other
    libraries' warnings are not shown."""
    notices: list[str] = []
    logger = logging.getLogger("detaug")
    collector, propagate = _Collector(notices), logger.propagate
    logger.addHandler(collector)
    logger.propagate = False
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", module=r"detaug\.")
            yield notices
        notices.extend(text for text in (str(each.message) for each in caught) if text not in notices)
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagate
