"""detaug's log records of a test."""

from __future__ import annotations

import logging

import pytest


def records_of(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the records of detaug's loggers, without those of other libraries."""
    return [record for record in caplog.records if record.name.split(".")[0] == "detaug"]


def levels_of(caplog: pytest.LogCaptureFixture) -> list[int]:
    """Return the levels of detaug's records, in order."""
    return [record.levelno for record in records_of(caplog)]
