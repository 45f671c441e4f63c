"""What holds for all tests."""

from __future__ import annotations

import os

import pytest

#: Started first where tests run side by side, so that nobody waits for one of them at the end.
_LONGEST = (
    "tests/nnunet/trainers/test_command_line.py",
    "tests/transforms/test_same_bytes.py",
    "tests/nnunet/",
    "tests/acceptance/test_training_toolkit.py",
    "tests/examples/",
    "tests/acceptance/",
    "tests/verify/",
)


def pytest_configure(config: pytest.Config) -> None:
    """With `-n 2 --dist loadfile` files are handed out in the order below, not by their number of tests."""
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, where tests run side by side."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return

    def place(item: pytest.Item) -> int:
        name = item.nodeid
        return next((place for place, start in enumerate(_LONGEST) if name.startswith(start)), len(_LONGEST))

    items.sort(key=place)
